"""Groups of runs, and what their metrics say: means over seeds, ratios, and the checkpoints one would pick."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdl_jax.metrics import Row, read_metrics, series
from hdl_jax.report import config_field, flat_config
from hdl_jax.statistics import top_three

BASELINE = "grpo"
TOKENS, ROLLOUT = "rollout/generated_tokens", "timing_s/rollout"


@dataclasses.dataclass(frozen=True)
class Run:
    """One workdir: its path, the group it belongs to (`hdl hindsight`, `grpo`), seed, flat config and metrics."""

    workdir: Path
    label: str
    seed: Any
    config: dict[str, Any]
    rows: list[Row]

    @property
    def name(self) -> str:
        return self.workdir.name


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


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error (sample standard deviation over the root of the count)."""
    if not values:
        return Estimate(math.nan, None, 0)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), error, len(values))


def read_run(workdir: str | Path) -> Run:
    """Reads a workdir. Raises FileNotFoundError where config.json or metrics.jsonl is missing."""
    workdir = Path(workdir).resolve()
    path = workdir / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config at {path}")
    config = flat_config(json.loads(path.read_text(encoding="utf-8")))
    method = str(config_field(config, "method") or "?")
    signal = config_field(config, "signal")
    # A signal says where a method branches; the methods that sample whole trajectories have none in use.
    label = method if method in ("grpo", "dapo") or not signal else f"{method} {signal}"
    return Run(workdir, label, config_field(config, "seed"), config, read_metrics(workdir))


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by label, the baseline first and seeds in order. Raises ValueError where a group has a seed twice."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.label != BASELINE, run.label, str(run.seed))):
        groups.setdefault(run.label, []).append(run)
    for label, members in groups.items():
        if len({str(run.seed) for run in members}) < len(members):
            names = ", ".join(f"{run.name} (seed {run.seed})" for run in members)
            raise ValueError(f"runs of {label} repeat a seed, which would make the error too small: {names}")
    return groups


def compared_score(runs: Sequence[Run]) -> str:
    """The metric that runs are compared by: `eval/score`, where all are ranked by it and it is the mean of the same
    sets; otherwise the score of a set that all have, `validation` if they do. Raises ValueError without any."""
    scores = [{n for row in run.rows for n in row if n.startswith("eval/") and n.endswith("/score")} for run in runs]
    common = set.intersection(*scores)
    if "eval/score" in common and all(names == common for names in scores):
        return "eval/score"
    sets = sorted(common - {"eval/score"})
    if not sets:
        raise ValueError("the runs share no eval/SET/score metric")
    return "eval/validation/score" if "eval/validation/score" in sets else sets[0]


def mixed_fields(runs: Sequence[Run]) -> list[str]:
    """Config fields in which runs that should be repetitions differ, other than seed and workdir."""
    names = sorted({name for run in runs for name in run.config})
    differ = [n for n in names if len({json.dumps(run.config.get(n)) for run in runs}) > 1]
    return [name for name in differ if name.split(".")[-1] not in ("seed", "workdir")]


def shared_curves(runs: Sequence[Run], name: str) -> list[dict[int, float]]:
    """Per run, a metric by step, in order, at the steps that every run has."""
    tables = [dict(zip(*series(run.rows, name), strict=True)) for run in runs]
    shared = sorted(set.intersection(*map(set, tables)))
    return [{step: table[step] for step in shared} for table in tables]


def ratio(runs: Sequence[Run], base: Sequence[Run], name: str) -> float | None:
    """A metric's mean per step in `runs` over that in `base`, on the steps all of them have; None without any."""
    curves = shared_curves([*runs, *base], name)
    if not curves[0]:
        return None
    sides = curves[: len(runs)], curves[len(runs) :]
    top, bottom = (statistics.fmean(value for curve in side for value in curve.values()) for side in sides)
    return top / bottom if bottom else None


def summarise(groups: dict[str, list[Run]], score: str) -> list[dict[str, Any]]:
    """One record a group: the columns of compare.csv, of which the tables show some.

    Args:
        groups: runs by label.
        score: the metric compared, e.g. `eval/score`.
    """
    base = groups.get(BASELINE)
    records = []
    for label, runs in groups.items():
        curves = shared_curves(runs, score)
        steps = list(curves[0])
        ends = [(curve[steps[0]], curve[steps[-1]]) for curve in curves] if steps else []
        tokens = [sum(series(run.rows, TOKENS)[1]) for run in runs]
        records.append(
            {
                "runs": label,
                "seeds": len(runs),
                "steps": f"{steps[0]} to {steps[-1]}" if steps else "-",
                "before": estimate([first for first, _ in ends]),
                "after": estimate([last for _, last in ends]),
                "gain": estimate([last - first for first, last in ends]),
                "tokens": statistics.fmean(tokens),
                "token ratio": ratio(runs, base, TOKENS) if base else None,
                "rollout time ratio": ratio(runs, base, ROLLOUT) if base else None,
                **(_picked(curves, score) if steps else dict.fromkeys(PICKED)),
            }
        )
    return records


PICKED = ("selected by", "best", "top 3", "top 3 std", "top 3 at", "last", "curve")


def _picked(curves: Sequence[dict[int, float]], score: str) -> dict[str, Any]:
    """The best checkpoint of each run, its best three, its last, and all: means over seeds.

    `top 3 std` is the standard deviation over a run's three checkpoints, mean over seeds; `top 3 at` has their steps,
    the best first, seed after seed.
    """
    tops = [top_three(curve) for curve in curves]
    last = list(curves[0])[-1]
    values = (
        score,
        estimate([curve[top.steps[0]] for curve, top in zip(curves, tops, strict=True)]),
        estimate([top.mean for top in tops]),
        statistics.fmean(top.std for top in tops) if len(curves[0]) > 1 else None,
        "; ".join(" ".join(map(str, top.steps)) for top in tops),
        estimate([curve[last] for curve in curves]),
        {step: statistics.fmean(curve[step] for curve in curves) for step in curves[0]},
    )
    return dict(zip(PICKED, values, strict=True))
