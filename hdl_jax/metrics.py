"""A run's numbers: metrics.jsonl, one JSON object a line and a line a step, mirrored to TensorBoard events.

Keys are flat, such as `reward/mean`, `rollout/generated_tokens/reflection`, `timing_s/update`; "step" is always there.
JSON has no NaN or infinity: such a value is written as null, with a warning that names it, and read back as NaN.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging
from tensorboardX import SummaryWriter

Row = dict[str, float]

# What the final table sums up, label -> metric; a part is indented under its whole.
TOKENS = {"generated": "rollout/generated_tokens"} | {
    f"  {part}": f"rollout/generated_tokens/{part}" for part in ("root", "reflection", "continuation", "discarded")
}
SECONDS = (
    {"all steps": "timing_s/step", "  rollout": "timing_s/rollout"}
    | {f"    {phase}": f"timing_s/{phase}" for phase in ("root", "reflect", "score", "continue", "verify", "schedule")}
    | {f"  {phase}": f"timing_s/{phase}" for phase in ("update", "eval", "oracle")}
)


class MetricsWriter:
    """Appends to a run's metrics.

    Opened for a run that goes on from a checkpoint, it first drops the lines after the checkpoint's step, so that the
    file is the one a run that never stopped would have written. Write a step's line before saving its checkpoint.

    Args:
        workdir: the run's directory, created where missing.
        resumed_step: the last step whose line stays; -1, the default, starts an empty file.
    """

    def __init__(self, workdir: str | os.PathLike[str], resumed_step: int = -1) -> None:
        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        self._path = workdir / "metrics.jsonl"
        kept = [row for row in _raw_rows(self._path) if row["step"] <= resumed_step] if self._path.exists() else []
        self._last_step = kept[-1]["step"] if kept else -1
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        partial.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")
        # TensorBoard hides the events of purged steps.
        self._events = SummaryWriter(str(workdir / "tensorboard"), purge_step=self._last_step + 1)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._events.close()

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one line.

        Args:
            step: larger than that of every line before.
            metrics: flat names to numbers (Python, numpy or jax scalars).

        Raises:
            ValueError: the step is already written, or a name is `step`.
            TypeError: a value is not a number.
        """
        if step <= self._last_step:
            raise ValueError(f"step {step} is already in {self._path}, which ends at step {self._last_step}")
        if "step" in metrics:
            raise ValueError("a metric cannot be named 'step'")
        values = {name: _number(name, value) for name, value in metrics.items()}
        odd = {name: value for name, value in values.items() if not math.isfinite(value)}
        if odd:
            logging.warning("step %d: not finite: %s", step, ", ".join(f"{n} = {v}" for n, v in odd.items()))
        row = {"step": step} | {name: None if name in odd else value for name, value in values.items()}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        self._last_step = step
        for name, value in values.items():
            if name not in odd:
                self._events.add_scalar(name, value, step)
        self._events.flush()


def read_metrics(workdir: str | os.PathLike[str]) -> list[Row]:
    """All lines of a run in order of steps, null as NaN. A last line that a kill cut short is left out.

    Raises:
        FileNotFoundError: there is no metrics.jsonl.
        ValueError: a line is not a JSON object with a step; the message names file and line.
    """
    path = Path(workdir) / "metrics.jsonl"
    if not path.is_file():
        raise FileNotFoundError(f"no metrics at {path}")
    return [{n: math.nan if v is None else v for n, v in row.items()} for row in _raw_rows(path)]


def series(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """The steps at which a metric was written and its finite values there."""
    points = [(int(row["step"]), row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]
    return [step for step, _ in points], [value for _, value in points]


def score_names(rows: Sequence[Row]) -> list[str]:
    """The scores that were measured: `eval/SET/score` of each set; where there are several, first their mean."""
    names = sorted({n for row in rows for n in row if n.startswith("eval/") and n.endswith("/score")})
    sets = [name for name in names if name != "eval/score"]
    return ["eval/score", *sets] if len(sets) > 1 and "eval/score" in names else sets


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text in aligned columns, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join([cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])

    return "\n".join(text.rstrip() for text in [line(header), "  ".join("-" * w for w in widths), *map(line, rows)])


def final_table(rows: Sequence[Row]) -> str:
    """What a run did, as text: evaluation before and after, tokens by kind, time by phase.

    Args:
        rows: the run's metrics, as `read_metrics` gives them.
    """
    names = {name for row in rows for name in row}
    blocks = []
    evaluation = []
    for score in score_names(rows):
        for name in (score, score.replace("/score", "/success")):
            steps, values = series(rows, name)
            # Where rewards are 0 and 1, a success is a score.
            if not values or (name != score and values == series(rows, score)[1]):
                continue
            errors = dict(zip(*series(rows, f"{name}_se"), strict=True))
            cells = [f"{v:.3f} +- {errors.get(s, math.nan):.3f}" for s, v in zip(steps, values, strict=True)]
            evaluation.append([name, cells[0], cells[-1], f"{values[-1] - values[0]:+.3f}"])
    if evaluation:
        blocks.append(table(["evaluation", "before", "after", "change"], evaluation))
    for title, parts in (("tokens", TOKENS), ("time", SECONDS)):
        sums = {label: sum(series(rows, name)[1]) for label, name in parts.items() if name in names}
        whole = max(sums.values(), default=0.0)
        unit = " s" if title == "time" else ""
        lines = [[k, f"{v:,.0f}{unit}", f"{v / whole:.0%}" if whole else ""] for k, v in sums.items()]
        if lines:
            blocks.append(table([title, "total", "share"], lines))
    return "\n\n".join(blocks)


def _number(name: str, value: Any) -> int | float:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float):
        raise TypeError(f"metric {name} is {value!r}, not a number")
    return value


def _raw_rows(path: Path) -> list[dict[str, Any]]:
    *lines, tail = path.read_text(encoding="utf-8").split("\n")
    if tail:
        logging.warning("%s:%d was cut short and is left out", path, len(lines) + 1)
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ValueError("no integer 'step'")
            bad = [
                n for n, v in row.items() if v is not None and (isinstance(v, bool) or not isinstance(v, int | float))
            ]
            if bad:
                raise ValueError(f"{', '.join(bad)}: not a number")
        except ValueError as error:
            raise ValueError(f"{path}:{number} is not a line of metrics: {error}") from error
        rows.append(row)
    return rows
