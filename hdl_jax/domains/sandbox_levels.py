"""The levels of isolation: what each needs of the machine, and the command that starts an interpreter in it.

Strongest first: `bubblewrap` (namespaces: the program sees its own processes, network, users and files only),
`sandlock` (Landlock and seccomp: it sees the machine's processes, and may not touch them), `rlimits` (limits only: for
programs that are trusted not to be hostile). docs/sandbox.md has what each keeps a program from.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from hdl_jax.domains.sandbox_types import Limits

LEVELS = ("bubblewrap", "sandlock", "rlimits")
NOBODY = 65534  # whom programs run as where this process is root, whom no limit on processes holds
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_SOURCE = Path(__file__).with_name("sandbox_main.py")
_GUARD = Path(__file__).with_name("sandbox_guard.py")


class Unavailable(Exception):
    """The machine does not offer a level; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class Start:
    """How to start an interpreter at a level.

    Attributes:
        arguments: the command line, to be run with ENVIRONMENT and nothing else.
        scratch: whether it wants a folder of the machine to write in, whose path SANDBOX_SCRATCH has.
    """

    arguments: tuple[str, ...]
    scratch: bool


def start(level: str, python: str, limits: Limits) -> Start:
    """The command for an interpreter, by its path. Raises Unavailable."""
    run = (python, "-s", "-B", "-c", _SOURCE.read_text(encoding="utf-8"))
    if level == "bubblewrap":
        return Start((*_as_nobody(), *_bubblewrap(python, limits), *run), scratch=False)
    if level == "sandlock" and importlib.util.find_spec("sandlock") is None:
        raise Unavailable("the sandlock package is not installed: pip install 'hdl_jax[code]'")
    rules = {
        "sandlock": level == "sandlock",
        "readable": _readable(python),
        "processes": limits.processes,
        "memory_mb": limits.memory_mb,
    }
    # -P: the modules beside it are not the standard library's, whatever their names
    guard = (sys.executable, "-s", "-P", str(_GUARD), json.dumps(rules))
    return Start((*guard, *_as_nobody(), *run), scratch=True)


def version(level: str) -> str:
    """Of the tool behind a level that is available."""
    if level == "bubblewrap":
        return subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"sandlock {importlib.metadata.version('sandlock')}" if level == "sandlock" else "rlimits only"


def interpreters() -> list[str]:
    """Those that may run programs, by their paths: this one without its packages, then the system's."""
    here = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    found = [here, *(path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path))]
    return list(dict.fromkeys(found))


def _as_nobody() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        raise Unavailable("programs must not run as root, and setpriv (of util-linux) is not installed")
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    return ("setpriv", *ids, "--")


@functools.cache
def _bubblewrap_options() -> str:
    if shutil.which("bwrap") is None:
        raise Unavailable("bubblewrap is not installed: apt-get install bubblewrap, or its like")
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False).stdout


def _bubblewrap(python: str, limits: Limits) -> tuple[str, ...]:
    options = _bubblewrap_options()
    if "--size" not in options:
        raise Unavailable("bubblewrap is older than 0.7, and cannot limit the files of a program: install a newer one")
    command = ["bwrap", "--unshare-all", "--unshare-user", "--as-pid-1", "--die-with-parent", "--new-session"]
    if "--disable-userns" in options:  # since 0.8
        command.append("--disable-userns")
    command += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL"]
    for path in _readable(python):
        command += ["--ro-bind", path, path]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            command += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            command += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", path, path]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/dev/shm"):
        command += ["--perms", "0700", "--size", str(limits.memory_mb << 20), "--tmpfs", folder]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    return tuple(command)


def _readable(python: str) -> list[str]:
    """What an interpreter reads: the system's programs and libraries, and its own where that is elsewhere."""
    prefix = str(Path(os.path.realpath(python)).parent.parent)
    return ["/usr"] if prefix == "/usr" or prefix.startswith("/usr/") else ["/usr", prefix]
