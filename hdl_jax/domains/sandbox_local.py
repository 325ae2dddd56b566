"""A sandbox on this machine: an isolated interpreter a program, which forks a test (sandbox_main.py)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from hdl_jax.domains.sandbox_levels import ENVIRONMENT, NOBODY, Start, start, version
from hdl_jax.domains.sandbox_types import Limits, Program, Run, SandboxFailure

START_S = 60.0  # for an interpreter to start, on a machine that is busy
GRACE_S = 10.0  # beyond a test's limit, for its processes to be ended and its files to be removed
_HEAD = 8
_LARGEST = 1 << 28  # of an answer: what a program can write is limited far below


class LocalSandbox:
    """Programs run under one level of isolation of this machine.

    Args:
        level: one of `sandbox_levels.LEVELS`. python: path of the interpreter that runs them.
        workers: programs that run at the same time; others wait.

    Raises:
        Unavailable: the machine does not offer the level.
    """

    def __init__(self, level: str, python: str, limits: Limits, workers: int):
        self.isolation = level
        self._limits = limits
        self._start = start(level, python, limits)
        self._workers = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._running: set[_Interpreter] = set()
        self._closed = False
        self.description = f"{version(level)}, {python}"

    def run(self, program: Program, inputs: Sequence[str]) -> list[Run]:
        """See `Sandbox.run`."""
        with self._workers:
            end = time.monotonic() + self._limits.budget_s
            runs: list[Run] = []
            while len(runs) < len(inputs) and time.monotonic() < end:
                with self._interpreter() as interpreter:
                    try:
                        interpreter.open(program)
                    except SandboxFailure:
                        if not runs:  # a program that has run may be why it cannot run again
                            raise
                        runs.append(Run("error", "", "its sandbox could not be started again"))
                        continue
                    for text in inputs[len(runs) :]:
                        wall_s = min(self._limits.wall_s, end - time.monotonic())
                        if wall_s <= 0:
                            break
                        run, again = interpreter.test(text, wall_s)
                        runs.append(run)
                        if not again:
                            break
            budget = Run("timeout", "", "not run: the time for all tests was used up")
            return runs + [budget] * (len(inputs) - len(runs))

    @contextlib.contextmanager
    def _interpreter(self) -> Iterator[_Interpreter]:
        with self._lock:
            if self._closed:
                raise SandboxFailure("the sandbox is closed")
            interpreter = _Interpreter(self._start, self._limits)
            self._running.add(interpreter)
        try:
            yield interpreter
        finally:
            interpreter.close()
            with self._lock:
                self._running.discard(interpreter)

    def close(self) -> None:
        """See `Sandbox.close`."""
        with self._lock:
            self._closed = True
            for interpreter in self._running:
                interpreter.kill()

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Interpreter:
    """One isolated interpreter, for the tests of one program."""

    def __init__(self, how: Start, limits: Limits):
        self._limits = limits
        self._scratch = tempfile.mkdtemp(prefix="hdl_jax-sandbox-") if how.scratch else None
        environment = dict(ENVIRONMENT)
        if self._scratch:
            environment.update(SANDBOX_SCRATCH=self._scratch, HOME=self._scratch)
            if os.geteuid() == 0:
                os.chown(self._scratch, NOBODY, NOBODY)
        try:
            self._process = subprocess.Popen(
                how.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                bufsize=0,
            )
        except OSError as error:
            self._remove()
            raise SandboxFailure(f"the sandbox did not start: {error}") from error
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def open(self, program: Program) -> None:
        """Gives it the program. Raises SandboxFailure: it did not start."""
        request = {
            "source": program.source,
            "entry": program.entry,
            "prelude": program.prelude,
            "limits": vars(self._limits),
        }
        try:
            self._ask(request, START_S)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.kill()
            said = self._said()
            raise SandboxFailure(f"the sandbox did not start: {said or error!r}") from error

    def test(self, text: str, wall_s: float) -> tuple[Run, bool]:
        """What one test gave, and whether the interpreter can take another."""
        try:
            answer = self._ask({"input": text, "wall_s": wall_s}, wall_s + GRACE_S)
            return Run(answer["outcome"], answer["output"], answer["detail"]), answer["clean"]
        except TimeoutError:
            return Run("timeout", "", "its sandbox had to be ended from outside"), False
        except (OSError, EOFError, ValueError) as error:
            return Run("error", "", f"its sandbox ended: {error!r}"), False

    def _ask(self, request: dict[str, Any], limit_s: float) -> Any:
        """Raises TimeoutError; EOFError or OSError: it has ended; ValueError: that is no answer."""
        end = time.monotonic() + limit_s
        body = json.dumps(request).encode()
        self._write(struct.pack(">Q", len(body)) + body, end)
        (size,) = struct.unpack(">Q", self._read(_HEAD, end))
        if size > _LARGEST:
            raise ValueError(f"an answer of {size} bytes")
        return json.loads(self._read(size, end))

    def _write(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None
        left, fd = memoryview(data), self._process.stdin.fileno()
        while left:
            _wait(fd, select.POLLOUT, end)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(fd, left) :]

    def _read(self, size: int, end: float) -> bytes:
        assert self._process.stdout is not None
        data, fd = bytearray(), self._process.stdout.fileno()
        while len(data) < size:
            _wait(fd, select.POLLIN, end)
            with contextlib.suppress(BlockingIOError):
                part = os.read(fd, size - len(data))
                if not part:
                    raise EOFError("it ended")
                data += part
        return bytes(data)

    def _said(self) -> str:
        """What it wrote to stderr before any program ran."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            return os.read(self._process.stderr.fileno(), 4096).decode(errors="replace").strip()
        return ""

    def kill(self) -> None:
        """Ends it, whatever it does: at SIGTERM bubblewrap takes its processes with it, and so does sandbox_guard."""
        self._process.terminate()

    def close(self) -> None:
        """Ends it and leaves nothing behind."""
        self.kill()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._remove()

    def _remove(self) -> None:
        if self._scratch:
            # Folders may be deeper than Python's own removal goes, and closed to their owner.
            subprocess.run(["chmod", "-R", "u+rwX", self._scratch], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["rm", "-rf", "--one-file-system", self._scratch], stderr=subprocess.DEVNULL, check=False)


def _wait(fd: int, event: int, end: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
        raise TimeoutError("it did not answer")
