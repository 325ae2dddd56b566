"""Writes small arithmetic problems as GSM8K's files have theirs: python -m hdl_jax.data.arithmetic --out=DIR.

DIR/train.jsonl and DIR/test.jsonl, for the sets `arithmetic_train` and `arithmetic`: the questions of the reasoning
domain, which a model of 135M parameters can answer, so that the whole maths pipeline can be run on a CPU. Needs the
reasoning-gym package. The same files every time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hdl_jax.data.made import command, write_files
from hdl_jax.domains.reasoning import tasks

# A file's name -> the splits of the reasoning domain that it takes in.
FILES = {"train.jsonl": ("train",), "test.jsonl": ("validation", "test")}


def write(folder: Path) -> dict[Path, int]:
    """Writes both files. Returns how many problems each has. Raises ImportError: reasoning-gym is not installed."""
    splits = tasks()

    def rows(sources: Sequence[str]) -> Iterator[dict[str, str]]:
        for item in (item for split in sources for item in splits[split]):
            yield {"question": item.task, "answer": f"#### {item.reference}", "type": item.family}

    return write_files(folder, {name: rows(sources) for name, sources in FILES.items()})


def main(argv: Sequence[str]) -> int:
    return command(argv, "hdl_jax.data.arithmetic", "Writes arithmetic problems.", write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
