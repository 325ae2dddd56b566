"""The processes behind a `WorkerPool`: a template that has imported the function, and the workers it forks.

The template does nothing but answer the pool, one request at a time, over the socket whose number is its argument. It
has a single thread, so forking it is safe and takes milliseconds whatever the function's module costs to import. It is
the parent of the workers: only it kills and reaps them, so a process id never stands for another process.

It ends all workers and itself when the pool's end of its socket is closed, which the kernel does however the pool's
process ends. Run by path and built on the standard library alone, it imports the function's module and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

SIZE = struct.Struct("!Q")  # before a call's arguments, and before what the template is told at its start
ANSWER = struct.Struct("!?Q")  # before a call's answer: whether it is a result, and its size
REQUEST = struct.Struct("!q")  # to the template: 0 and a socket for a new worker, or the process id of one to end
STATUS = struct.Struct("!q")  # from it: the new worker's process id, or how the ended one ended

LARGEST = 1 << 26  # bytes of a result
LONGEST = 20_000  # characters of a traceback
OUT_OF_MEMORY = 86  # a worker's exit status
NAME = "hdl_jax_worker_function"  # of a module that comes from a file
_PR_SET_PDEATHSIG = 1  # [prctl(2)]


def read(connection: socket.socket, size: int, deadline: float | None = None) -> bytearray:
    """The next `size` bytes of a connection.

    Args:
        deadline: on `time.monotonic`'s clock; what has arrived by then is read even when it has passed.

    Raises:
        EOFError: the other end was closed. TimeoutError: the deadline has passed. OSError: the connection broke.
    """
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        n = connection.recv_into(rest)
        if n == 0:
            raise EOFError("the connection was closed")
        rest = rest[n:]
    return content


def load(function: str) -> Callable[..., Any]:
    """Imports `package.module:name` or `path/to/file.py:name`. Raises whatever the module does; AttributeError."""
    module_name, _, name = function.rpartition(":")
    if module_name.endswith(".py"):
        sys.path.insert(0, str(Path(module_name).parent))  # its neighbours can be imported, as from a script
        spec = importlib.util.spec_from_file_location(NAME, module_name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module  # dataclasses and pickle look it up
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        what = "no" if found is None else "not a function but a value"
        raise AttributeError(f"{module_name} has {what} {name!r}")
    return found


# ---- a worker -------------------------------------------------------------------------------------------------------


def _work(connection: socket.socket, function: Callable[..., Any], memory: int, template: int) -> NoReturn:
    """Answers calls until the pool closes the connection, and exits."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # it is killed with what it started
        _die_with(template)
        _limit(memory)
        while True:
            (size,) = SIZE.unpack(read(connection, SIZE.size))
            connection.sendall(_answer(function, read(connection, size)))
    except EOFError:
        code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    finally:
        os._exit(code)


def _answer(function: Callable[..., Any], arguments: bytearray) -> bytes:
    """Calls the function and packs its result, or the traceback. Raises MemoryError; nothing else, whatever it does."""
    try:
        content = pickle.dumps(function(*pickle.loads(arguments)), pickle.HIGHEST_PROTOCOL)
        if len(content) > LARGEST:
            raise ValueError(f"the result takes {len(content)} bytes, more than {LARGEST}")
        return ANSWER.pack(True, len(content)) + content
    except MemoryError:
        raise
    except BaseException as error:  # SystemExit and KeyboardInterrupt included: the worker lives on
        text = _text(error).encode(errors="backslashreplace")
        return ANSWER.pack(False, len(text)) + text


def _text(error: BaseException) -> str:
    """The traceback, without this file's frames and the import system's; the end of a long one, which says most."""
    told = traceback.TracebackException.from_exception(error)
    own = (__file__, importlib.__file__)
    theirs = [f for f in told.stack if f.filename not in own and not f.filename.startswith("<frozen importlib")]
    told.stack = traceback.StackSummary.from_list(theirs)
    return "".join(told.format())[-LONGEST:].rstrip()


def _limit(memory: int) -> None:
    """Bounds what the process may allocate. Its mapped files, libraries for instance, are not counted."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = memory if most == resource.RLIM_INFINITY else min(memory, most)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses limits below what is mapped already
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    with contextlib.suppress(OSError):  # where all memory is used up, Linux kills a worker rather than the run
        Path("/proc/self/oom_score_adj").write_text("500")


def _die_with(parent: int) -> None:
    """Has Linux kill this process when the thread that started it ends; a second line behind closed sockets."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


# ---- the template ---------------------------------------------------------------------------------------------------


def _fork(connection: int, function: Callable[..., Any], memory: int, control: socket.socket) -> int:
    """A new worker's process id; where the system has no room for one, the error's number, negative."""
    template = os.getpid()
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError as error:
        return -(error.errno or 1)
    if pid == 0:
        control.close()
        _work(socket.socket(fileno=connection), function, memory, template)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # here too: it may be ended before it comes to do so itself
    return pid


def _end(pid: int) -> int:
    """Kills a worker and what it started, and reaps it. Returns its exit status; a signal's is negative."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)  # should it have left its group
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _serve(control: socket.socket, function: Callable[..., Any], memory: int) -> None:
    """Does what the pool asks for until its end is closed, then ends all workers."""
    workers: set[int] = set()
    try:
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, REQUEST.size, 1)
            if not request:
                return
            (pid,) = REQUEST.unpack(request + read(control, REQUEST.size - len(request)))
            if pid:
                workers.remove(pid)
                status = _end(pid)
            else:
                status = _fork(descriptors[0], function, memory, control)
                os.close(descriptors[0])
                if status > 0:
                    workers.add(status)
            control.sendall(STATUS.pack(status))
    except (OSError, EOFError):
        return
    finally:
        for pid in workers:
            _end(pid)


def main() -> None:
    """Imports the function that the pool names, tells it how that went (nothing, or a traceback), and serves it."""
    control = socket.socket(fileno=int(sys.argv[1]))
    function = sys.argv[2]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a process that ignores it passes that on, and none could be reaped
    # What the function prints belongs to no output of the pool's process, but may say why it fails.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    (size,) = SIZE.unpack(read(control, SIZE.size))
    path, memory, parent = pickle.loads(read(control, size))
    # A module may hang when it is imported, where a closed socket goes unnoticed. The thread that started this process
    # waits for the import, so that it is only afterwards that it may end before its process does.
    _die_with(parent)
    sys.path[:] = path
    try:
        loaded, failure = load(function), b""
    except BaseException as error:
        failure = _text(error).encode(errors="backslashreplace") or b"unknown error"
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    control.sendall(SIZE.pack(len(failure)) + failure)
    if not failure:
        gc.collect()
        gc.freeze()  # what is shared with the workers stays shared
        _serve(control, loaded, memory)


if __name__ == "__main__":
    main()
