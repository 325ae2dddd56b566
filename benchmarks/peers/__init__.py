"""The programs ours is measured against, each in a virtual environment of its own that is made when first needed.

Requirements are pinned in NAME.txt beside this file; environments and weights lie in benchmarks/.peers. Nothing here
imports the peers, or jax: this module and `protocol` run in every environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HOME = HERE.parent / ".peers"

# Threads of a process that has just stopped computing look for more work before they fall asleep.
SETTLE_S = 0.3


class PeerMissing(RuntimeError):
    """A peer could not be installed or did not run; the message says why."""


def environment(name: str) -> Path:
    """The Python of the environment that peers/NAME.txt describes; made if it is not there or was made from another.

    Raises PeerMissing with the installer's last words.
    """
    requirements = HERE / f"{name}.txt"
    venv = HOME / name
    python, made_from = venv / "bin" / "python", venv / "made_from.txt"
    if made_from.is_file() and made_from.read_text() == requirements.read_text():
        return python
    print(f"installing {name} into {venv} (minutes, once)", file=sys.stderr, flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PeerMissing(f"{name} could not be installed: {_last_words(done.stderr or done.stdout)}")
    made_from.write_text(requirements.read_text())
    return python


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-400:] or "it said nothing"


class Process:
    """One side of a measurement, running `python -m benchmarks.peers.MODULE` and waiting to be asked.

    Args:
        python: the interpreter. module: the program's name here. spec: what it is told, as JSON.

    Attributes:
        hello: what it said once it was ready: versions and settings.

    Raises PeerMissing where it does not start or ends before it has answered.
    """

    def __init__(self, python: Path, module: str, spec: dict[str, Any]):
        self.module = module
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{module}", json.dumps(spec)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.hello = self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            raise PeerMissing(f"{self.module} ended with {self._process.returncode}: {_last_words(self._log.read())}")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Has it do something and returns its answer. Nothing else of ours computes meanwhile."""
        assert self._process.stdin is not None
        time.sleep(SETTLE_S)
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what it answers, or rather does not, says why
        return self._hear()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
