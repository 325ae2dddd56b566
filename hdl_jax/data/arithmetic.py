"""Writes small arithmetic problems as GSM8K's files have theirs: python -m hdl_jax.data.arithmetic --out=DIR.

DIR/train.jsonl and DIR/test.jsonl, for the sets `arithmetic_train` and `arithmetic`: the questions of the reasoning
domain, which a model of 135M parameters can answer, so that the whole maths pipeline can be run on a CPU. Needs the
reasoning-gym package. The same files every time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hdl_jax.domains.reasoning import tasks

# A file's name -> the splits of the reasoning domain that it takes in.
FILES = {"train.jsonl": ("train",), "test.jsonl": ("validation", "test")}


def write(folder: Path) -> dict[Path, int]:
    """Writes both files. Returns how many problems each has. Raises ImportError: reasoning-gym is not installed."""
    splits = tasks()
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, sources in FILES.items():
        items = [item for split in sources for item in splits[split]]
        rows = [{"question": item.task, "answer": f"#### {item.reference}", "type": item.family} for item in items]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        written[folder / name] = len(rows)
    return written


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hdl_jax.data.arithmetic", description="Writes arithmetic problems."
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    args = parser.parse_args(argv)
    try:
        written = write(args.out)
    except (OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    for path, problems in written.items():
        print(f"{path}: {problems} problems")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
