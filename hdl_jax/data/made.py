"""Files of problems that are made here: what the commands share that write them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_files(folder: Path, files: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[Path, int]:
    """Writes rows as JSON lines, file by file. Returns how many problems each has."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, rows in files.items():
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / name).write_text("".join(lines), encoding="utf-8")
        written[folder / name] = len(lines)
    return written


def command(argv: Sequence[str], prog: str, description: str, write: Callable[[Path], Mapping[Path, int]]) -> int:
    """The command line of a module that writes into --out."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    args = parser.parse_args(argv)
    try:
        written = write(args.out)
    except (OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    for path, problems in written.items():
        print(f"{path}: {problems} problems")
    return 0
