"""Stands between this machine and a program where no namespace of processes does: ends all of it, whatever it started.

    python sandbox_guard.py RULES COMMAND ...

RULES is a JSON object: `sandlock`: whether the command is confined; then `readable`: folders that it may read,
`processes` that it may have, and `memory_mb` that they may hold together: those that the command started are killed
beyond it. It may write in SANDBOX_SCRATCH. The command has this process's stdin, stdout and stderr; when it ends, or
this process is told to, nothing that came of it is left.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # of this package, which may be installed nowhere
from hdl_jax.domains.sandbox_main import (  # noqa: E402
    PARENT_DEATH,
    SUBREAPER,
    children,
    descendants,
    end_all,
    kill,
    prctl,
    proc,
)


def watch_memory(limit: int) -> None:
    """Kills all but the command itself when they hold more bytes than the limit."""
    below = [pid for child in children(os.getpid()) for pid in descendants(child)]
    fields = [proc(pid, "statm").split() for pid in below]
    pages = sum(max(0, int(field[1]) - int(field[2])) for field in fields if field)
    if pages * os.sysconf("SC_PAGE_SIZE") > limit:
        for pid in below:
            kill(pid)


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
    prctl(PARENT_DEATH, signal.SIGTERM)
    prctl(SUBREAPER, 1)

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
