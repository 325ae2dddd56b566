"""Counts XLA compilations, so that a recompilation in the loop is a number in metrics.jsonl and not a mystery."""

from __future__ import annotations

from collections.abc import Callable

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


def count_compilations() -> Callable[[], int]:
    """Starts counting; the returned function tells how many programs this process has compiled since."""
    compiled = 0

    def on_event(event: str, duration_secs: float, **_: str | int) -> None:
        nonlocal compiled
        compiled += event == _EVENT

    jax.monitoring.register_event_duration_secs_listener(on_event)
    return lambda: compiled
