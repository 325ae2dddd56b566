"""What goes into a sandbox and what comes out, at every level of isolation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, Protocol

Outcome = Literal["ran", "error", "timeout", "memory", "output"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a program may use. A test that wants more is ended, and its outcome says which limit it was.

    Attributes:
        wall_s: seconds of one test; of processor time, one more.
        budget_s: seconds of all tests of a program together; those that are left have the outcome `timeout`.
        memory_mb: 2^20 bytes of all processes of a test together, the files they write included.
        output_bytes: of a test's stdout, and of its stderr.
        processes: and threads, at the same time. files: open at the same time, in a process. file_mb: 2^20 bytes of one
            file.

    Raises:
        ValueError: one of them is not positive and finite.
    """

    wall_s: float
    budget_s: float
    memory_mb: int
    output_bytes: int = 4 << 20
    processes: int = 32
    files: int = 64
    file_mb: int = 64

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name}={value}: must be positive and finite")


@dataclasses.dataclass(frozen=True)
class Program:
    """A Python program.

    Attributes:
        source: its text.
        entry: empty where it reads stdin and writes stdout; else the function that is called, or the method of its
            class `Solution`.
        prelude: trusted text that runs in its namespace before it, and does not count in its line numbers.
    """

    source: str
    entry: str = ""
    prelude: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """What one test gave. All of its text may be the program's, which may be hostile.

    Attributes:
        outcome: `ran`: it ended with exit status 0, and a call returned what JSON can say. `error`: an exception,
            another exit status, a signal. `timeout`, `memory`, `output`: it was ended at that limit.
        output: stdout, or the JSON text of what a call returned; empty where the call returned nothing.
        detail: for a reader: the last line of a traceback, the exit status, the signal, or the limit.
    """

    outcome: Outcome
    output: str
    detail: str


class SandboxFailure(RuntimeError):
    """The sandbox could not be started or reached, which says nothing about the program."""


class Sandbox(Protocol):
    """Runs untrusted programs.

    Attributes:
        isolation: the level in use, or the address of a remote sandbox.
        description: a line for the log: what isolates the programs, and which interpreter runs them.
    """

    isolation: str
    description: str

    def run(self, program: Program, inputs: Sequence[str]) -> list[Run]:
        """Runs a program once an input, each time in a fresh process that finds nothing of the others.

        Any thread may call it; it blocks, also while all workers are busy, which does not count against any limit.

        Args:
            inputs: what each test reads from stdin, or the JSON text of the list of a call's arguments.

        Returns:
            one Run an input, in their order.

        Raises:
            SandboxFailure: the program was not run. What goes wrong once it runs is its own `error`, so that
                no program gains by breaking its sandbox.
        """
        ...

    def close(self) -> None:
        """Ends all programs; no run is possible any more. Closing again does nothing."""
        ...
