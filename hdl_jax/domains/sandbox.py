"""Untrusted programs, run where they can do no harm: the strongest isolation that the machine offers.

docs/sandbox.md has the levels, what each keeps a program from, and the protocol of a remote sandbox.
"""

from __future__ import annotations

import sys

from hdl_jax.domains.sandbox_levels import LEVELS, Unavailable, interpreters
from hdl_jax.domains.sandbox_local import LocalSandbox
from hdl_jax.domains.sandbox_remote import RemoteSandbox
from hdl_jax.domains.sandbox_types import Limits, Program, Run, Sandbox, SandboxFailure

__all__ = ["LEVELS", "Limits", "Program", "Run", "Sandbox", "SandboxFailure", "open_sandbox"]


def open_sandbox(isolation: str, limits: Limits, workers: int, python: str = "") -> Sandbox:
    """A sandbox that has run a program already, so that it is known to work.

    Args:
        isolation: the least that will do: `bubblewrap`, `sandlock` or `rlimits`; or `http://HOST:PORT` of a remote one.
        workers: programs that run at the same time; others wait.
        python: path of the interpreter of programs; empty: the first of `sandbox_levels.interpreters` that the sandbox
            can run.

    Raises:
        ValueError: the machine offers less, or nothing answers at the address; says what to do.
    """
    if workers < 1:
        raise ValueError(f"domain.workers={workers}: must be at least 1")
    if isolation.startswith(("http://", "https://")):
        if python:
            raise ValueError("domain.python is for sandboxes of this machine: a remote one has its own interpreter")
        return RemoteSandbox(isolation, limits, workers)
    if isolation not in LEVELS:
        raise ValueError(f"domain.isolation={isolation!r}: must be one of {', '.join(LEVELS)}, or http://HOST:PORT")
    if not sys.platform.startswith("linux"):
        raise ValueError("programs can be run on Linux only; domain.isolation=http://HOST:PORT uses another machine")
    problems = []
    for level in LEVELS[: LEVELS.index(isolation) + 1]:
        for path in [python] if python else interpreters():
            try:
                return _tried(level, path, limits, workers)
            except (Unavailable, SandboxFailure) as error:
                problems.append(f"  {level}, {path}: {error}")
    raise ValueError(
        f"domain.isolation={isolation!r}: this machine offers no such sandbox:\n" + "\n".join(problems) + "\n"
        f"Install what is missing, or allow less: domain.isolation={' or '.join(LEVELS[LEVELS.index(isolation) + 1 :])}"
    )


def _tried(level: str, python: str, limits: Limits, workers: int) -> Sandbox:
    sandbox = LocalSandbox(level, python, limits, workers)
    (run,) = sandbox.run(Program("print(input()[::-1])"), ["ready"])
    if run.outcome != "ran" or run.output != "ydaer\n":
        raise SandboxFailure(f"a program that should print `ydaer` gave {run}")
    return sandbox
