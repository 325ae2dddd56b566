"""Compares runs: `python -m hdl_jax.compare DIR DIR [...] [--out=DIR]`.

Runs are grouped by method and signal; seeds are the repetitions of a group. It prints a table and writes compare.html
(both learning curves: against steps, and against generated tokens) and compare.csv into --out, by default the folder
that holds the first DIR.

A ratio of two groups uses the steps that both of them have, the first and last evaluation the steps that all runs of
the group have. `+-` is the standard error over seeds; a group of one seed has none, and says so.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hdl_jax.metrics import Row, read_metrics, series, table
from hdl_jax.report import config_field, flat_config
from hdl_jax.report_anatomy import visible
from hdl_jax.report_figures import COLOURS, Line, line_chart, number
from hdl_jax.report_page import page

BASELINE = "grpo"
TOKENS, ROLLOUT = "rollout/generated_tokens", "timing_s/rollout"


@dataclasses.dataclass(frozen=True)
class Run:
    """One workdir: its name, the group it belongs to (`hdl hindsight`, `grpo`), seed, flat config and metrics."""

    name: str
    label: str
    seed: Any
    config: dict[str, Any]
    rows: list[Row]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds, its standard error (None with one seed), and how many seeds."""

    mean: float
    error: float | None
    count: int

    def __str__(self) -> str:
        if not self.count:
            return "-"
        return f"{self.mean:.3f}" + (f" +- {self.error:.3f}" if self.error is not None else " (1 seed)")


def read_run(workdir: str | Path) -> Run:
    """Reads a workdir. Raises FileNotFoundError where config.json or metrics.jsonl is missing."""
    workdir = Path(workdir)
    path = workdir / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config at {path}")
    config = flat_config(json.loads(path.read_text(encoding="utf-8")))
    method = str(config_field(config, "method") or "?")
    signal = config_field(config, "signal")
    # A signal says where a method branches; the methods that sample whole trajectories have none in use.
    label = method if method in ("grpo", "dapo") or not signal else f"{method} {signal}"
    return Run(workdir.resolve().name, label, config_field(config, "seed"), config, read_metrics(workdir))


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error (sample standard deviation over the root of the count)."""
    if not values:
        return Estimate(math.nan, None, 0)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), error, len(values))


def ratio(runs: Sequence[Run], base: Sequence[Run], name: str) -> float | None:
    """A metric's mean per step in `runs` over that in `base`, on the steps all of them have; None without any."""
    tables = [[dict(zip(*series(run.rows, name), strict=True)) for run in side] for side in (runs, base)]
    if not all(tables):
        return None
    shared = set.intersection(*(set(values) for side in tables for values in side))
    top, bottom = (statistics.fmean(v[s] for v in side for s in shared) if shared else 0.0 for side in tables)
    return top / bottom if bottom else None


def before_and_after(runs: Sequence[Run], name: str) -> tuple[list[float], list[float], list[int]]:
    """Per run, a metric at the first and at the last step that every run has; and those two steps."""
    tables = [dict(zip(*series(run.rows, name), strict=True)) for run in runs]
    shared = sorted(set.intersection(*map(set, tables))) if tables else []
    if not shared:
        return [], [], []
    first, last = shared[0], shared[-1]
    return [t[first] for t in tables], [t[last] for t in tables], [first, last]


def summarise(groups: dict[str, list[Run]], score: str) -> list[dict[str, Any]]:
    """One record a group: the columns of the table and of compare.csv.

    Args:
        groups: runs by label.
        score: the metric compared, e.g. `eval/validation/score`.
    """
    base = groups.get(BASELINE)
    records = []
    for label, runs in groups.items():
        before, after, steps = before_and_after(runs, score)
        gains = [b - a for a, b in zip(before, after, strict=True)]
        tokens = [sum(series(run.rows, TOKENS)[1]) for run in runs]
        records.append(
            {
                "runs": label,
                "seeds": len(runs),
                "steps": f"{steps[0]} to {steps[1]}" if steps else "-",
                "before": estimate(before),
                "after": estimate(after),
                "gain": estimate(gains),
                "tokens": statistics.fmean(tokens),
                "token ratio": ratio(runs, base, TOKENS) if base else None,
                "rollout time ratio": ratio(runs, base, ROLLOUT) if base else None,
            }
        )
    return records


def _cells(record: dict[str, Any]) -> list[str]:
    def cell(value: Any) -> str:
        if value is None:
            return "-"
        return number(value) if isinstance(value, float) and abs(value) >= 100 else _short(value)

    return [cell(value) for value in record.values()]


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def curves(
    groups: dict[str, list[Run]], score: str, x_of: Callable[[Run, int], float]
) -> tuple[list[Line], list[Line]]:
    """The learning curves: one line a group, mean over seeds with its standard error; and one thin line a run.

    Args:
        groups: runs by label.
        score: the metric drawn.
        x_of: the horizontal place of a run's step; averaged over a group's runs.
    """
    means, singles = [], []
    for i, (label, runs) in enumerate(groups.items()):
        tables = [dict(zip(*series(run.rows, score), strict=True)) for run in runs]
        shared = sorted(set.intersection(*map(set, tables)))
        estimates = [estimate([t[step] for t in tables]) for step in shared]
        x = [statistics.fmean(x_of(run, step) for run in runs) for step in shared]
        errors = [e.error or 0.0 for e in estimates] if len(runs) > 1 else []
        colour = COLOURS[i % len(COLOURS)]
        means.append(Line(label, x, [e.mean for e in estimates], errors, colour))
        if len(runs) > 1:
            for run, values in zip(runs, tables, strict=True):
                steps = sorted(values)
                x = [x_of(run, step) for step in steps]
                singles.append(
                    Line(f"{label}, seed {run.seed}", x, [values[s] for s in steps], (), colour, dashed=True)
                )
    return means, singles


def tokens_until(run: Run, step: int) -> float:
    """Tokens a run generated up to and including a step."""
    return sum(value for s, value in zip(*series(run.rows, TOKENS), strict=True) if s <= step)


def mixed_fields(runs: Sequence[Run]) -> list[str]:
    """Config fields in which runs that should be repetitions differ, other than seed and workdir."""
    names = sorted({name for run in runs for name in run.config})
    differ = [n for n in names if len({json.dumps(run.config.get(n)) for run in runs}) > 1]
    return [name for name in differ if name.split(".")[-1] not in ("seed", "workdir")]


def compare(workdirs: Sequence[str | Path], out: str | Path | None = None) -> str:
    """Writes compare.html and compare.csv, and returns the table as text.

    Args:
        workdirs: the runs.
        out: where the files go; None is the folder that holds the first run.

    Raises:
        FileNotFoundError: a workdir lacks its config or metrics.
        ValueError: the same directory twice, two runs of one group with the same seed, or no common evaluation.
    """
    runs = [read_run(workdir) for workdir in workdirs]
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.label != BASELINE, run.label, str(run.seed))):
        groups.setdefault(run.label, []).append(run)
    for label, members in groups.items():
        seeds = [run.seed for run in members]
        if len(set(map(str, seeds))) < len(seeds):
            names = ", ".join(f"{run.name} (seed {run.seed})" for run in members)
            raise ValueError(f"runs of {label} repeat a seed, which would make the error too small: {names}")
    scored = [{n for row in run.rows for n in row if n.startswith("eval/") and n.endswith("/score")} for run in runs]
    common = sorted(set.intersection(*scored))
    if not common:
        raise ValueError("the runs share no eval/SPLIT/score metric")
    score = "eval/validation/score" if "eval/validation/score" in common else common[0]

    folder = Path(out) if out is not None else Path(workdirs[0]).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    records = summarise(groups, score)
    _write_csv(folder / "compare.csv", records)
    notes = [
        f"The runs of {label} differ in more than their seed: {', '.join(fields)}."
        for label, members in groups.items()
        if (fields := mixed_fields(members))
    ]
    text = "\n".join([table(list(records[0]), [_cells(record) for record in records]), *notes])
    (folder / "compare.html").write_text(_page(groups, records, score, notes), encoding="utf-8")
    return text


def _page(groups: dict[str, list[Run]], records: Sequence[dict[str, Any]], score: str, notes: Sequence[str]) -> str:
    figures = []
    for title, x_label, x_of in (
        ("against steps", "training step", lambda run, step: float(step)),
        ("against generated tokens", "tokens generated", tokens_until),
    ):
        means, singles = curves(groups, score, x_of)
        figures.append(line_chart(f"{score} {title}, mean over seeds", means, x_label))
        figures.append(line_chart(f"{score} {title}, every seed", singles, x_label))
    names = [run.name for runs in groups.values() for run in runs]
    head = "".join(f"<th>{html.escape(column)}</th>" for column in records[0])
    rows = ""
    for record in records:
        cells = "".join(f"<td>{visible(cell.replace('+-', '±'))}</td>" for cell in _cells(record))
        rows += f"<tr>{cells}</tr>"
    body = (
        f'<h1>Comparison of {len(names)} runs</h1><p class="sub">{visible(", ".join(names))}</p>'
        f'<h2>Results</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div><p class="soft">Before, after '
        f"and gain: {visible(score)}, mean and standard error over seeds. Tokens: generated in the whole run, "
        f"reflections included, mean over seeds. Ratios are against {BASELINE.upper()}, on the steps both sides have; "
        f"rollout time includes verification, reflection and scoring. {visible(' '.join(notes))}</p>"
        f'<h2>Learning curves</h2><div class="figures">{"".join(figures)}</div>'
    )
    return page("hdl_jax: comparison", body)


def _write_csv(path: Path, records: Sequence[dict[str, Any]]) -> None:
    flat = []
    for record in records:
        cells: dict[str, Any] = {}
        for name, value in record.items():
            if isinstance(value, Estimate):
                cells |= {name: value.mean, f"{name} se": value.error}
            else:
                cells[name] = value
        flat.append(cells)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(flat[0]))
        writer.writeheader()
        writer.writerows(flat)


def main(argv: Sequence[str]) -> int:
    """Command line."""
    outs = [arg.removeprefix("--out=") for arg in argv if arg.startswith("--out=")]
    workdirs = [arg for arg in argv if not arg.startswith("-")]
    if not workdirs or len(outs) > 1 or len(workdirs) + len(outs) < len(argv):
        print("usage: python -m hdl_jax.compare WORKDIR [WORKDIR ...] [--out=DIR]", file=sys.stderr)
        return 2
    out = Path(outs[0]) if outs else None
    try:
        print(compare(workdirs, out))
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\nlearning curves: {(out or Path(workdirs[0]).resolve().parent) / 'compare.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
