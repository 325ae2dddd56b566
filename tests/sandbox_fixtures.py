"""Sandboxes of exactly one level, for the tests of several files, which take turns."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest

from hdl_jax.domains.sandbox import Limits, Program, SandboxFailure
from hdl_jax.domains.sandbox_levels import Unavailable, interpreters
from hdl_jax.domains.sandbox_local import LocalSandbox

_TURN = Path(tempfile.gettempdir()) / "hdl_jax-tests-of-sandboxes.lock"


@pytest.fixture(autouse=True)
def in_turn():
    """Holds off tests in other processes that have sandboxes, where it is imported.

    Outside bubblewrap the kernel counts the processes of a user: a bomb in one sandbox keeps a program in another from
    forking. And some tests look for what is left on the machine.
    """
    with _TURN.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
