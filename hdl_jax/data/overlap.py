"""Which training problems are also in a benchmark: python -m hdl_jax.data.overlap TRAIN EVAL [EVAL ...].

All are prepared sets. A training question is reported where it is the same as a benchmark's, by words, numbers and
signs of operation, or has RUN words and numbers in a row of it; whether the second is a leak or a turn of phrase is for
a reader to say. Case, space and other signs do not count. Prepare the training set again with the --drop that is
printed to be rid of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from hdl_jax.data.prepared import read_rows
from hdl_jax.data.row import MathRow
from hdl_jax.data.sets import SETS
from hdl_jax.metrics import table

RUN = 20  # words; 13 in a row occur by chance in how problems begin ("let a, b and c be positive real numbers ...")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[-+*/=<>^\u2212\u00d7\u00f7\u00b7\u2264\u2265]")


@dataclasses.dataclass(frozen=True)
class Overlap:
    """A training problem that shares text with a problem of a benchmark.

    Attributes:
        train: its id. benchmark, problem: the other's set and id.
        shared: the words they share first; empty where all of them are the same.
    """

    train: str
    benchmark: str
    problem: str
    shared: str = ""


def words(question: str) -> tuple[str, ...]:
    """The words and numbers of a question, of which RUN in a row are looked for."""
    return tuple(_WORD.findall(question.casefold()))


def tokens(question: str) -> tuple[str, ...]:
    """Its words, numbers and signs of operation, which are compared as a whole."""
    return tuple(_TOKEN.findall(question.casefold()))


def _runs(text: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(text) - RUN + 1):
        yield tuple(text[start : start + RUN])


def overlaps(train: Sequence[MathRow], benchmarks: Mapping[str, Sequence[MathRow]]) -> list[Overlap]:
    """One for each training problem and benchmark problem, in the order of the training set."""
    whole: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    parts: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, rows in benchmarks.items():
        for row in rows:
            if text := tokens(row.question):
                whole.setdefault(text, []).append((name, row.id))
            for run in dict.fromkeys(_runs(words(row.question))):
                parts.setdefault(run, []).append((name, row.id))
    found = []
    for row in tqdm(train, desc="comparing", unit="problem"):
        same = whole.get(tokens(row.question), [])
        found += [Overlap(row.id, *where) for where in same]
        shared: dict[tuple[str, str], str] = {}
        for run in _runs(words(row.question)):
            for where in parts.get(run, ()):
                if where not in same:
                    shared.setdefault(where, " ".join(run))
        found += [Overlap(row.id, *where, shared=run) for where, run in shared.items()]
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.data.overlap", description="Looks for leaked problems.")
    parser.add_argument("train", choices=SETS, metavar="TRAIN", help="the prepared set to train on")
    parser.add_argument("benchmarks", nargs="+", choices=SETS, metavar="EVAL", help="prepared sets to evaluate on")
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="the folder of prepared sets (data)")
    args = parser.parse_args(argv)
    try:
        train = read_rows(args.train, args.data_dir)
        benchmarks = {name: read_rows(name, args.data_dir) for name in args.benchmarks}
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    found = overlaps(train, benchmarks)
    for overlap in found:
        shared = f"share: {overlap.shared} ..." if overlap.shared else "are the same question"
        print(f"{args.train}/{overlap.train} and {overlap.benchmark}/{overlap.problem} {shared}")
    counts = []
    for name, rows in benchmarks.items():
        same = {o.problem for o in found if o.benchmark == name and not o.shared}
        partly = {o.problem for o in found if o.benchmark == name and o.shared} - same
        counts.append([name, str(len(rows)), str(len(same)), str(len(partly))])
    print(table(["benchmark", "problems", "in the training set", f"{RUN} words of them"], counts))
    if found:
        print(f"--drop={','.join(dict.fromkeys(o.train for o in found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
