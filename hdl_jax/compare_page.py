"""What compare shows: the cells of its tables, and compare.html."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from hdl_jax.compare_runs import BASELINE, TOKENS, Run, estimate, shared_curves
from hdl_jax.metrics import series
from hdl_jax.report_anatomy import visible
from hdl_jax.report_figures import COLOURS, Line, line_chart, number
from hdl_jax.report_page import page

Table = tuple[list[str], list[list[str]]]

_RESULTS = (
    "runs", "seeds", "steps", "before", "after", "gain", "tokens", "token ratio", "rollout time ratio",
)  # fmt: skip
_PICKED = ("runs", "best", "top 3", "top 3 std", "top 3 at", "last", "curve")
PICKED_NOTE = (
    "Best, and mean and standard deviation of the best three checkpoints, are chosen by {score} and are that same "
    "score: the maximum of a noisy curve is biased upwards, the more so the more checkpoints it has. Last was not "
    "chosen."
)
PAIRED_NOTE = (
    "Difference of the mean rewards, 95 % interval and two-sided p from 10,000 resamples of the problems. They speak "
    "of other problems, not of other seeds."
)


def results_table(records: Sequence[dict[str, Any]]) -> Table:
    """Before, after, gain, tokens and ratios of every group."""
    return list(_RESULTS), [[_cell(record[name]) for name in _RESULTS] for record in records]


def picked_table(records: Sequence[dict[str, Any]]) -> Table:
    """The checkpoints one would pick in every group, and the whole curve they come from."""
    return list(_PICKED), [[_cell(record[name]) for name in _PICKED] for record in records]


def paired_table(records: Sequence[dict[str, Any]]) -> Table:
    """Differences over problems. Those left out are a column only where there are some."""
    heads = [name for name in ("runs", "against", "set", "step", "seeds", "problems") if name in records[0]]
    left_out = ["left out"] if any(record["left_out"] for record in records) else []
    rows = []
    for record in records:
        row = [_cell(record[name]) for name in heads] + [_cell(record["left_out"])] * len(left_out)
        unsure = math.isnan(record["p"])
        row.append("-" if math.isnan(record["difference"]) else f"{record['difference']:+.3f}")
        row.append("-" if unsure else f"{record['low']:+.3f} to {record['high']:+.3f}")
        row.append("-" if unsure else f"{record['p']:.4f}")
        rows.append(row)
    return [*heads, *left_out, "difference", "95 % interval", "p"], rows


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return " ".join(f"{point:.3f}" for point in value.values())
    if isinstance(value, float):
        return number(value) if abs(value) >= 100 else f"{value:.3f}"
    return str(value)


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
        shared = shared_curves(runs, score)
        estimates = [estimate([curve[step] for curve in shared]) for step in shared[0]]
        x = [statistics.fmean(x_of(run, step) for run in runs) for step in shared[0]]
        errors = [e.error or 0.0 for e in estimates] if len(runs) > 1 else []
        colour = COLOURS[i % len(COLOURS)]
        means.append(Line(label, x, [e.mean for e in estimates], errors, colour))
        if len(runs) > 1:
            for run in runs:
                steps, values = series(run.rows, score)
                x = [x_of(run, step) for step in steps]
                singles.append(Line(f"{label}, seed {run.seed}", x, values, (), colour, dashed=True))
    return means, singles


def tokens_until(run: Run, step: int) -> float:
    """Tokens a run generated up to and including a step."""
    return sum(value for s, value in zip(*series(run.rows, TOKENS), strict=True) if s <= step)


def comparison_page(
    groups: dict[str, list[Run]],
    records: Sequence[dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    score: str,
    notes: Sequence[str],
) -> str:
    """compare.html."""
    figures = []
    for title, x_label, x_of in (
        ("against steps", "training step", lambda run, step: float(step)),
        ("against generated tokens", "tokens generated", tokens_until),
    ):
        means, singles = curves(groups, score, x_of)
        figures.append(line_chart(f"{score} {title}, mean over seeds", means, x_label))
        figures.append(line_chart(f"{score} {title}, every seed", singles, x_label))
    names = [run.name for runs in groups.values() for run in runs]
    body = (
        f'<h1>Comparison of {len(names)} runs</h1><p class="sub">{visible(", ".join(names))}</p>'
        f"<h2>Results</h2>{_html(results_table(records))}"
        f'<p class="soft">Before, after and gain: {visible(score)}, mean and standard error over seeds. Tokens: those '
        f"of the whole run, reflections included, mean over seeds. Ratios are against {BASELINE.upper()}, on the steps "
        "both sides have; rollout time includes verification, reflection and scoring.</p>"
        f"{''.join(f'<p>{visible(note)}</p>' for note in notes)}"
        f"<h2>Checkpoints by {visible(score)}</h2>{_html(picked_table(records))}"
        f'<p class="soft">{visible(PICKED_NOTE.format(score=score))}</p>'
    )
    if paired:
        body += f'<h2>Paired over problems</h2>{_html(paired_table(paired))}<p class="soft">{visible(PAIRED_NOTE)}</p>'
    body += f'<h2>Learning curves</h2><div class="figures">{"".join(figures)}</div>'
    return page("hdl_jax: comparison", body)


def _html(table: Table) -> str:
    head, rows = table
    # A curve is long and may wrap; every other cell is one piece.
    styles = [
        ' style="min-width:22em;text-align:left"' if name == "curve" else ' style="white-space:nowrap"' for name in head
    ]
    lines = ["".join(f"<th{style}>{html.escape(name)}</th>" for style, name in zip(styles, head, strict=True))]
    for row in rows:
        cells = zip(styles, (visible(cell.replace("+-", "±")) for cell in row), strict=True)
        lines.append("".join(f"<td{style}>{cell}</td>" for style, cell in cells))
    return f'<div class="wide"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'
