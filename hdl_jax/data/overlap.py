"""Which training problems are also in a benchmark: python -m hdl_jax.data.overlap TRAIN EVAL [EVAL ...].

All are prepared sets. A training question is reported where it is the same as a benchmark's, by words, numbers and
signs of operation, or has many words and numbers in a row of it (20 in maths, 50 in code, where all contests word their
input alike); whether the second is a leak or a turn of phrase is for
a reader to say. Case, space and other signs do not count. Prepare the training set again with the --drop that is
printed to be rid of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from hdl_jax.data.prepared import heads
from hdl_jax.data.row import Row
from hdl_jax.data.sets import ALL_SETS, MathSet
from hdl_jax.data.statement import tokens, words
from hdl_jax.metrics import table

RUN = MathSet.RUN


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


def _runs(text: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    for start in range(len(text) - length + 1):
        yield tuple(text[start : start + length])


def overlaps(train: Sequence[Row], benchmarks: Mapping[str, Sequence[Row]], run_words: int = RUN) -> list[Overlap]:
    """One for each training problem and benchmark problem, in the order of the training set.

    Args:
        run_words: how many words in a row are told, where the whole question is another.
    """
    whole: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    parts: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, rows in benchmarks.items():
        for row in rows:
            if text := tokens(row.question):
                whole.setdefault(text, []).append((name, row.id))
            for run in dict.fromkeys(_runs(words(row.question), run_words)):
                parts.setdefault(run, []).append((name, row.id))
    found = []
    for row in tqdm(train, desc="comparing", unit="problem"):
        same = whole.get(tokens(row.question), [])
        found += [Overlap(row.id, *where) for where in same]
        shared: dict[tuple[str, str], str] = {}
        for run in _runs(words(row.question), run_words):
            for where in parts.get(run, ()):
                if where not in same:
                    shared.setdefault(where, " ".join(run))
        found += [Overlap(row.id, *where, shared=run) for where, run in shared.items()]
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.data.overlap", description="Looks for leaked problems.")
    parser.add_argument("train", choices=ALL_SETS, metavar="TRAIN", help="the prepared set to train on")
    parser.add_argument("benchmarks", nargs="+", choices=ALL_SETS, metavar="EVAL", help="prepared sets to evaluate on")
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="the folder of prepared sets (data)")
    args = parser.parse_args(argv)
    try:
        train = heads(args.train, args.data_dir)
        benchmarks = {name: heads(name, args.data_dir) for name in args.benchmarks}
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    run_words = ALL_SETS[args.train].RUN
    found = overlaps(train, benchmarks, run_words)
    for overlap in found:
        shared = f"share: {overlap.shared} ..." if overlap.shared else "are the same question"
        print(f"{args.train}/{overlap.train} and {overlap.benchmark}/{overlap.problem} {shared}")
    counts = []
    for name, rows in benchmarks.items():
        same = {o.problem for o in found if o.benchmark == name and not o.shared}
        partly = {o.problem for o in found if o.benchmark == name and o.shared} - same
        counts.append([name, str(len(rows)), str(len(same)), str(len(partly))])
    print(table(["benchmark", "problems", "in the training set", f"{run_words} words of them"], counts))
    if found:
        print(f"--drop={','.join(dict.fromkeys(o.train for o in found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
