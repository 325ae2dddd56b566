"""A pool of worker processes for a function that may hang, crash or eat memory on hostile input.

Every call has a limit on its own time, counted from when a worker starts on it. Whatever a call does to its worker, the
worker is killed and replaced and only that call fails. The processes are described in worker_main.py: no process is
forked from this one, whose threads (JAX has many) would make that unsafe, and `__main__` is never imported again.

A worker bounds time and memory. It is no sandbox: code that runs in it has the rights of whoever started it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from hdl_jax import worker_main
from hdl_jax.worker_main import ANSWER, LARGEST, OUT_OF_MEMORY, REQUEST, SIZE, STATUS, read

_PATIENCE = 60.0  # seconds for the template to fork, or to kill and reap
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class WorkerFailure(RuntimeError):
    """The call has no result, which says nothing about its input."""


class WorkerTimeout(WorkerFailure):
    """The call took longer than the pool's limit; its worker was killed."""


class WorkerDied(WorkerFailure):
    """The worker ended, was killed, or ran out of memory during the call."""


class WorkerError(WorkerFailure):
    """The function raised, or its result cannot be sent; the message ends with the traceback."""


class _TemplateDied(WorkerDied):
    """The worker went with the process it was forked from, which is no doing of the call's."""


class WorkerPool:
    """Calls one function in worker processes, from any number of threads.

    The function's module is imported once, and should start no threads and leave JAX alone: workers are forks of the
    process that imported it. What it prints goes to this process's stderr; its stdin is empty. Unless the environment
    says otherwise PYTHONHASHSEED is 0, so that no result depends on the run, and numeric libraries have one thread.

    No process outlives `close`, the pool or this process, whichever way that ends.

    Args:
        function: `package.module:name`, found as this process finds it, or `path/to/file.py:name`. It takes and returns
            plain data (what pickle takes, of classes that both sides can import) and should be pure: a worker does many
            calls.
        workers: calls that run at the same time; others wait.
        limit_s: seconds of work a call may take. memory_gb: 10^9 bytes a worker may allocate; kept to on Linux.

    Raises:
        ImportError: the function cannot be imported; the message ends with the traceback.
        FileNotFoundError: there is no such file.
        ValueError: an argument makes no sense.
    """

    def __init__(self, function: str, *, workers: int, limit_s: float, memory_gb: float = 2.0):
        if workers < 1:
            raise ValueError(f"workers={workers}: must be at least 1")
        for name, value in (("limit_s", limit_s), ("memory_gb", memory_gb)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}={value}: must be positive and finite")
        self._function, self._limit_s, self._memory_gb = function, limit_s, memory_gb
        self._template = _Template(_absolute(function), round(memory_gb * 1e9))
        # One item for each call that may run: a worker, or None where one is still to be forked.
        self._slots: _Slots = queue.SimpleQueue()
        self._end = weakref.finalize(self, _close, self._template, self._slots)
        try:
            for _ in range(workers):
                self._slots.put(self._template.fork())
        except BaseException:
            self._end()
            raise

    def __call__(self, *args: Any) -> Any:
        """The function's result. Blocks while all workers are busy, which does not count against the limit.

        Raises:
            WorkerTimeout, WorkerDied, WorkerError: there is no result; see there.
            RuntimeError: the pool is closed.
            whatever pickle raises for arguments that it does not take.
        """
        arguments = pickle.dumps(args, pickle.HIGHEST_PROTOCOL)
        worker = self._slots.get()
        free = None
        try:
            if worker is not None and not worker.is_ready():
                self._template.end(worker)
                worker = None
            try:
                worker = worker or self._template.fork()
                succeeded, answer = self._ask(worker, arguments)
            except _TemplateDied:
                worker = self._template.fork()
                succeeded, answer = self._ask(worker, arguments)
            free = worker
        finally:
            self._slots.put(free)
        if not succeeded:
            raise WorkerError(f"{self._function} failed:\n{answer.decode(errors='replace')}")
        try:
            return pickle.loads(answer)
        except Exception as error:
            raise WorkerError(f"the result of {self._function} cannot be read here: {error!r}") from error

    def _ask(self, worker: _Worker, arguments: bytes) -> tuple[bool, bytearray]:
        """Whether the call succeeded, and its pickled result or traceback. A worker that gave neither is ended."""
        try:
            return worker.ask(arguments, time.monotonic() + self._limit_s)
        except BaseException as error:  # KeyboardInterrupt, too: its answer must not become that of another call
            status = self._template.end(worker)
            if isinstance(error, TimeoutError):
                message = f"{self._function} was stopped at its limit of {self._limit_s:g} s"
                raise WorkerTimeout(message) from None
            if not isinstance(error, OSError | EOFError):
                raise
            if status is None:
                raise _TemplateDied(f"the process that {self._function} runs in was ended from outside") from None
            raise WorkerDied(f"a worker of {self._function} {_how_ended(status, self._memory_gb)}") from None

    def close(self) -> None:
        """Ends all processes; calls in progress fail, later ones raise RuntimeError. Closing again does nothing."""
        self._end()
        self._slots.put(None)  # a call that waits for a worker finds the pool closed, and wakes the next

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class _Worker:
    """A worker as the pool sees it: its process id, this process's end of its connection, and who forked it."""

    pid: int
    connection: socket.socket
    template: subprocess.Popen[bytes]

    def is_ready(self) -> bool:
        """Whether it waits for a call: it has not died meanwhile, nor written what nobody asked for."""
        self.connection.setblocking(False)
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def ask(self, arguments: bytes, deadline: float) -> tuple[bool, bytearray]:
        """Whether the call succeeded, and its pickled result or traceback.

        Raises:
            TimeoutError: not by the deadline. OSError, EOFError: the worker ended, or wrote something else.
        """
        self.connection.settimeout(deadline - time.monotonic())
        self.connection.sendall(SIZE.pack(len(arguments)) + arguments)
        succeeded, size = ANSWER.unpack(read(self.connection, ANSWER.size, deadline))
        if size > LARGEST:
            raise EOFError("this is no answer")
        return succeeded, read(self.connection, size, deadline)


class _Template:
    """The template process, from which workers are forked; started again when it was killed.

    Args:
        function: as a pool takes it, its file absolute. memory: bytes a worker may allocate.

    Raises:
        ImportError: the function cannot be imported.
    """

    def __init__(self, function: str, memory: int):
        self._function, self._memory = function, memory
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def fork(self) -> _Worker:
        """A new worker.

        Raises:
            WorkerDied: the system has no room for one, or the template keeps being killed.
            RuntimeError: the pool is closed. ImportError: the function could be imported before, and cannot any more.
        """
        with self._lock:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    try:
                        pid = self._request(0, theirs)
                    except (OSError, EOFError):
                        if self._closed:
                            raise RuntimeError(f"the pool of {self._function} is closed") from None
                        self._start()
                        pid = self._request(0, theirs)
                    if pid < 0:
                        raise WorkerDied(f"the system refuses to start a worker: {os.strerror(-pid)}")
                except BaseException as error:
                    ours.close()
                    if isinstance(error, OSError | EOFError):
                        raise WorkerDied(f"the process that forks workers was ended twice: {error}") from error
                    raise
            return _Worker(pid, ours, self._process)

    def end(self, worker: _Worker) -> int | None:
        """Kills a worker, with whatever it started, and reaps it.

        Returns:
            its exit status, a signal's negative; None where the template is gone, and its workers therefore too.
        """
        with self._lock:
            worker.connection.close()
            if worker.template is not self._process:
                return None
            try:
                return self._request(worker.pid)
            except (OSError, EOFError):
                return None

    def close(self) -> None:
        """Ends the template and all its workers."""
        with self._lock:
            self._closed = True
            self._stop()

    def _request(self, pid: int, *connections: socket.socket) -> int:
        """What the template answers. One that does not is stopped, lest it answers the next request with it."""
        try:
            socket.send_fds(self._control, [REQUEST.pack(pid)], [c.fileno() for c in connections])
            return STATUS.unpack(read(self._control, STATUS.size))[0]
        except BaseException:
            self._stop()
            raise

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            # By path: hdl_jax may be importable here for reasons that a new interpreter does not know of.
            command = [sys.executable, "-P", worker_main.__file__, str(theirs.fileno()), self._function]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_ENVIRONMENT | os.environ,
                start_new_session=True,  # Ctrl-C is for this process to handle
            )
        told = pickle.dumps((sys.path, self._memory, os.getpid()))
        try:
            self._control.sendall(SIZE.pack(len(told)) + told)
            (size,) = SIZE.unpack(read(self._control, SIZE.size))
            failure = read(self._control, size).decode()
        except (OSError, EOFError):
            self._process.kill()
            failure = f"the process that imports it {_how_ended(self._process.wait())}"
        except BaseException:
            self._process.kill()  # it is busy importing, and would not notice that nobody waits for it
            self._stop()
            raise
        if failure:
            self._stop()
            raise ImportError(f"{self._function} cannot be imported:\n{failure}")
        self._control.settimeout(_PATIENCE)

    def _stop(self) -> None:
        self._control.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_Slots = queue.SimpleQueue[_Worker | None]


def _close(template: _Template, slots: _Slots) -> None:
    template.close()
    with contextlib.suppress(queue.Empty):
        while True:
            worker = slots.get_nowait()
            if worker is not None:
                worker.connection.close()


def _absolute(function: str) -> str:
    """The function's name with its file's whole path. Raises FileNotFoundError; ValueError for another form."""
    place, _, name = function.rpartition(":")
    if not (place and name.isidentifier()):
        raise ValueError(f"{function!r}: expected package.module:function or path/to/file.py:function")
    if not place.endswith(".py"):
        return function
    path = Path(place).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{function}: there is no file {path}")
    return f"{path}:{name}"


def _how_ended(status: int, memory_gb: float = 0) -> str:
    if status == OUT_OF_MEMORY:
        return f"ran out of memory (memory_gb={memory_gb:g})"
    if status < 0:
        return f"was ended by signal {-status} ({signal.strsignal(-status)})"
    return f"ended by itself with status {status}"
