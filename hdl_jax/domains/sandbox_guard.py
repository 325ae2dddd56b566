"""Stands between this machine and a program where no namespace of processes does: ends all of it, whatever it started.

    python sandbox_guard.py RULES COMMAND ...

RULES is a JSON object: `sandlock`: whether the command is confined; then `readable`: folders that it may read,
`processes` that it may have, and `memory_mb` that they may hold together: those that the command started are killed
beyond it. It may write in SANDBOX_SCRATCH. The command has this process's stdin, stdout and stderr; when it ends, or
this process is told to, nothing that came of it is left.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

PARENT_DEATH, SUBREAPER = 1, 36  # prctl's


def children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []
    return [int(child) for task in tasks for child in read(f"/proc/{pid}/task/{task}/children").split()]


def descendants(pid: int) -> list[int]:
    """All processes that one is an ancestor of. Orphans come to this one: it is a subreaper."""
    found, left = [], [pid]
    while left:
        below = children(left.pop())
        found += below
        left += below
    return found


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # the process has ended
        return b""


def watch_memory(limit: int) -> None:
    """Kills all but the command itself when they hold more bytes than the limit."""
    below = [pid for child in children(os.getpid()) for pid in descendants(child)]
    fields = [read(f"/proc/{pid}/statm").split() for pid in below]
    pages = sum(max(0, int(field[1]) - int(field[2])) for field in fields if field)
    if pages * os.sysconf("SC_PAGE_SIZE") > limit:
        for pid in below:
            kill(pid)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def end_all() -> None:
    """Kills until nothing is left: what forks meanwhile is found the next time."""
    while below := descendants(os.getpid()):
        for pid in below:
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def confined(rules: dict, command: list[str]) -> int:
    """Runs a command under sandlock; its exit status."""
    import sandlock

    scratch = os.environ["SANDBOX_SCRATCH"]
    system = [path for path in ("/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/proc") if os.path.exists(path)]
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    sandbox = sandlock.Sandbox(
        fs_readable=[*rules["readable"], *system, *devices],
        fs_writable=[scratch, "/dev/null"],
        max_processes=rules["processes"] + 2,
        cwd=scratch,
        env=dict(os.environ),
        clean_env=True,
    )
    status: list[int] = []
    # In a thread of its own: the library does not come back to Python, which handles signals in the main thread.
    thread = threading.Thread(target=lambda: status.append(sandbox.run_interactive(command)))
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        watch_memory(rules["memory_mb"] << 20)
    return status[0] if status else 1


def main(rules: dict, command: list[str]) -> int:
    libc = ctypes.CDLL(None)
    libc.prctl(PARENT_DEATH, signal.SIGTERM, 0, 0, 0)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)

    def stop(*_: object) -> None:
        end_all()
        os._exit(143)

    signal.signal(signal.SIGTERM, stop)
    try:
        return confined(rules, command) if rules["sandlock"] else subprocess.run(command, check=False).returncode
    finally:
        end_all()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
