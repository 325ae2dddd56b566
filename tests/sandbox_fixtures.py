"""Sandboxes of exactly one level, for the tests of several files."""

from __future__ import annotations

from hdl_jax.domains.sandbox import Limits, Program, SandboxFailure
from hdl_jax.domains.sandbox_levels import Unavailable, interpreters
from hdl_jax.domains.sandbox_local import LocalSandbox


def open_level(level: str, limits: Limits, workers: int = 2) -> LocalSandbox:
    """A sandbox that has run a program. Raises Unavailable: the machine has none of that level; says why."""
    reasons = []
    for python in interpreters():
        try:
            sandbox = LocalSandbox(level, python, limits, workers)
            sandbox.run(Program(""), [""])
            return sandbox
        except (SandboxFailure, Unavailable) as error:
            reasons.append(str(error))
    raise Unavailable("; ".join(reasons))
