"""Compares runs, or two evaluations.

    python -m hdl_jax.compare RUN [RUN ...] [--out=DIR]
    python -m hdl_jax.compare EVALUATION EVALUATION [--out=DIR]

Runs are grouped by method and signal; seeds are the repetitions of a group. It prints tables and writes compare.html
(with learning curves: against steps, and against generated tokens), compare.csv and compare_paired.csv into --out, by
default the folder that holds the first run.

A ratio of two groups uses the steps that both of them have; first and last evaluation, and the best three, are of the
steps that all runs of the group have. `+-` is the standard error over seeds; a group of one seed has none, and says so.
Runs of the same seed are also paired problem by problem, by the samples that their evaluations stored, against GRPO or,
without it, the first group.

An evaluation is a folder of samples: RUN/eval/step_000010, or what `hdl_jax.evaluate --out` wrote. Of two, the first is
paired with the second; --out then keeps compare_paired.csv.
"""

from __future__ import annotations

import csv
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdl_jax.compare_page import PAIRED_NOTE, PICKED_NOTE, comparison_page, paired_table, picked_table, results_table
from hdl_jax.compare_paired import is_evaluation, pair_evaluations, pair_groups
from hdl_jax.compare_runs import Estimate, compared_score, grouped, mixed_fields, read_run, summarise
from hdl_jax.metrics import table


def compare(workdirs: Sequence[str | Path], out: str | Path | None = None) -> str:
    """Writes compare.html, compare.csv and, where runs could be paired, compare_paired.csv; returns the tables as text.

    Args:
        workdirs: the runs.
        out: where the files go; None is the folder that holds the first run.

    Raises:
        FileNotFoundError: a workdir lacks its config or metrics.
        ValueError: two runs of one group with the same seed (such as the same directory twice), no common evaluation,
            or a file that is not one of metrics or samples.
    """
    runs = [read_run(workdir) for workdir in workdirs]
    groups = grouped(runs)
    score = compared_score(runs)
    records = summarise(groups, score)
    paired, missing = pair_groups(groups)
    notes = [
        f"The runs of {label} differ in more than their seed: {', '.join(fields)}."
        for label, members in groups.items()
        if (fields := mixed_fields(members))
    ] + missing
    folder = Path(out) if out is not None else runs[0].workdir.parent
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "compare.csv", records)
    (folder / "compare_paired.csv").unlink(missing_ok=True)  # of runs compared before
    if paired:
        _write_csv(folder / "compare_paired.csv", paired)
    (folder / "compare.html").write_text(comparison_page(groups, records, paired, score, notes), encoding="utf-8")
    head, rows = picked_table(records)
    # A curve is too long for a column of a terminal.
    lines = [textwrap.fill(f"{row[0]}, {head[-1]}: {row[-1]}", 120, subsequent_indent="    ") for row in rows]
    picked = [table(head[:-1], [row[:-1] for row in rows]), *lines, PICKED_NOTE.format(score=score)]
    blocks = [table(*results_table(records)), "\n".join([f"checkpoints by {score}", *picked])]
    if paired:
        blocks.append(f"paired over problems\n{table(*paired_table(paired))}\n{PAIRED_NOTE}")
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def compare_evaluations(first: str | Path, second: str | Path, out: str | Path | None = None) -> str:
    """The table of the first evaluation paired with the second; also as DIR/compare_paired.csv where `out` is given.

    Raises:
        ValueError: see `pair_evaluations`.
    """
    records, notes = pair_evaluations(Path(first), Path(second))
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        _write_csv(Path(out) / "compare_paired.csv", records)
    return "\n".join(["paired over problems", table(*paired_table(records)), PAIRED_NOTE, *notes])


def _write_csv(path: Path, records: Sequence[dict[str, Any]]) -> None:
    flat = []
    for record in records:
        cells: dict[str, Any] = {}
        for name, value in record.items():
            if isinstance(value, Estimate):
                cells |= {name: value.mean, f"{name} se": value.error}
            elif isinstance(value, dict):
                cells[name] = " ".join(f"{step}:{point}" for step, point in value.items())
            else:
                cells[name] = None if isinstance(value, float) and math.isnan(value) else value
        flat.append(cells)
    # A group without an evaluation lacks the columns of its estimates.
    columns = list(dict.fromkeys(name for cells in flat for name in cells))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(flat)


def main(argv: Sequence[str]) -> int:
    """Command line."""
    outs = [arg.removeprefix("--out=") for arg in argv if arg.startswith("--out=")]
    folders = [arg for arg in argv if not arg.startswith("-")]
    if not folders or len(outs) > 1 or len(folders) + len(outs) < len(argv):
        print("usage: python -m hdl_jax.compare DIR [DIR ...] [--out=DIR]", file=sys.stderr)
        return 2
    out = Path(outs[0]) if outs else None
    evaluations = [folder for folder in folders if is_evaluation(Path(folder))]
    try:
        if evaluations:
            if len(evaluations) < len(folders) or len(folders) != 2:
                raise ValueError(
                    f"{evaluations[0]} is an evaluation: give it one other evaluation, such as RUN/eval/step_000010"
                )
            print(compare_evaluations(folders[0], folders[1], out))
            return 0
        print(compare(folders, out))
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\nlearning curves: {(out or Path(folders[0]).resolve().parent) / 'compare.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
