"""The evaluation table of a run's report: a row a set, first and last score, and what its last evaluation was like."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from hdl_jax.metrics import Row, score_names, series
from hdl_jax.report_anatomy import visible

_NOTE = (
    "Scores are means over problems, ± one standard error over problems, and leave out samples without a verdict "
    "(failed). Before and now are the first and the last evaluation; what is right of them is of the last."
)


def score_label(name: str) -> str:
    """`eval/aime24/score` -> aime24 score; the mean of several sets has no set's name."""
    return "mean of the sets" if name == "eval/score" else name.removeprefix("eval/").replace("/", " ")


def evaluation_html(rows: Sequence[Row]) -> str:
    """The section; '' for a run without a score."""
    columns = ("set", "problems × k", "before", "best", "now", "pass@k", "truncated", "unparsed", "failed", "tokens")
    lines = ["".join(f"<th>{column}</th>" for column in columns)]
    for score in score_names(rows):
        steps, values = series(rows, score)
        if values:
            errors = dict(zip(*series(rows, f"{score}_se"), strict=True))
            best = max(range(len(values)), key=lambda i: (values[i], i))  # as checkpoints are ranked
            cells = [
                f"{value:.3f}" + (f" ± {errors[step]:.3f}" if step in errors else "")
                for step, value in zip(steps, values, strict=True)
            ]
            last = next(row for row in rows if row["step"] == steps[-1])
            size, *rest = _of_last(last, score.removesuffix("score"))
            scores = cells[0], f"{cells[best]} at {steps[best]}", cells[-1]
            texts = [score_label(score).removesuffix(" score"), size, *scores, *rest]
            lines.append("".join(f'<td style="white-space:nowrap">{visible(text)}</td>' for text in texts))
    if len(lines) == 1:
        return ""
    drawn = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<h2>Evaluation</h2><div class="wide"><table>{drawn}</table></div><p class="soft">{html.escape(_NOTE)}</p>'


def _of_last(row: Row, prefix: str) -> list[str]:
    """Problems x k, pass@k of the largest k, truncated, unparsed, failed, tokens; '' for what is not there."""

    def shown(measure: str, form: str) -> str:
        value = row.get(prefix + measure, math.nan)
        return f"{value:{form}}" if math.isfinite(value) else ""

    problems = row.get(f"{prefix}problems")
    size = f"{problems:,.0f} × {row[f'{prefix}samples'] / problems:.0f}" if problems else ""
    ks = [name.rpartition("@")[2] for name in row if name.startswith(f"{prefix}pass@")]
    most = max((int(k) for k in ks if k.isdecimal()), default=0)
    passed = f"{shown(f'pass@{most}', '.3f')} at k={most}" if most else ""
    shares = [shown(measure, ".1%") for measure in ("truncated", "unparsed")]
    return [size, passed, *shares, shown("failed", ",.0f"), shown("tokens", ",.0f")]
