"""The report of one run, a page complete in itself: `python -m hdl_jax.report WORKDIR` writes WORKDIR/report.html.

It reads config.json, policy.json, metrics.jsonl and rollouts/, whatever of them is there, and needs no policy and no
network.
"""

from __future__ import annotations

import html
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hdl_jax.metrics import Row, read_metrics, score_names, series
from hdl_jax.report_anatomy import group_html, visible
from hdl_jax.report_evaluation import evaluation_html, score_label
from hdl_jax.report_figures import Line, line_chart, number, stacked_chart
from hdl_jax.report_page import page
from hdl_jax.report_policy import policy_html
from hdl_jax.rollout.store import StoredTrajectory, read_groups, stored_steps

# A page of a long run stays a few megabytes: this many steps, evenly spread, and groups of each.
STEPS_SHOWN, GROUPS_SHOWN = 4, 6
SIGNALS = {
    "hindsight": "divergence |log p(token | hindsight) − log p(token)|",
    "entropy": "entropy of the next token",
    "uniform": "uniform random score",
}
_SCRIPT = """
const choice = document.getElementById('group');
if (choice) {
  const show = () => document.querySelectorAll('.group').forEach(g => { g.hidden = g.id !== choice.value; });
  choice.addEventListener('change', show);
  show();
}
"""


def write_report(workdir: str | os.PathLike[str]) -> Path:
    """Writes WORKDIR/report.html and returns its path.

    Raises FileNotFoundError without metrics.jsonl, and ValueError naming file and line where one of the run's files
    is corrupt.
    """
    workdir = Path(workdir)
    rows = read_metrics(workdir)
    config_path = workdir / "config.json"
    config = flat_config(json.loads(config_path.read_text(encoding="utf-8"))) if config_path.is_file() else {}
    name = workdir.resolve().name
    heading = _heading(name, config, rows) + policy_html(workdir)
    body = "".join([heading, evaluation_html(rows), _curves(rows), _localization(rows), _anatomy(workdir, config)])
    path = workdir / "report.html"
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page(f"hdl_jax: {name}", body, _SCRIPT), encoding="utf-8")
    partial.replace(path)
    return path


def flat_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'branch': {'roots': 2}} -> {'branch.roots': 2}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= flat_config(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def config_field(config: Mapping[str, Any], name: str) -> Any:
    """The field of a flat config whose dotted name ends in `name`, the shortest such; None where there is none."""
    names = [key for key in config if key == name or key.endswith(f".{name}")]
    return config[min(names, key=len)] if names else None


def _heading(name: str, config: Mapping[str, Any], rows: Sequence[Row]) -> str:
    named = [("method", "method"), ("signal", "signal"), ("seed", "seed"), ("domain", "domain.name")]
    described = [
        f"{label} {config_field(config, field)}" for label, field in named if config_field(config, field) is not None
    ]
    tiles = []
    for score in score_names(rows)[:1]:
        steps, values = series(rows, score)
        errors = dict(zip(*series(rows, f"{score}_se"), strict=True))
        if not values:
            continue
        for label, step, value in (("before", steps[0], values[0]), ("now", steps[-1], values[-1])):
            error = f" ± {errors[step]:.3f}" if step in errors else ""
            tiles.append((f"{value:.3f}{error}", f"{score_label(score)} {label}, step {step}"))
    tokens = series(rows, "rollout/generated_tokens")[1]
    seconds = series(rows, "timing_s/step")[1]
    agreement = series(rows, "reflection/outcome_agreement")[1]
    steps = [int(row["step"]) for row in rows]
    tiles.append((str(steps[-1] if steps else 0), "training steps"))
    if tokens:
        tiles.append((number(sum(tokens)), "generated tokens"))
    if seconds:
        tiles.append((_duration(sum(seconds)), "time in steps"))
    if agreement:
        tiles.append((f"{agreement[-1]:.0%}", "outcome agreement, last"))
    cells = "".join(f'<div class="tile"><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>' for v, k in tiles)
    fields = "".join(
        f"<tr><td>{visible(key)}</td><td>{visible(json.dumps(value, ensure_ascii=False))}</td></tr>"
        for key, value in config.items()
    )
    details = f"<details><summary>configuration</summary><table>{fields}</table></details>" if fields else ""
    subtitle = visible(" · ".join(described).strip())
    return f'<h1>{visible(name)}</h1><p class="sub">{subtitle}</p><div class="tiles">{cells}</div>{details}'


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _line(rows: Sequence[Row], name: str, label: str, dashed: bool = False) -> Line:
    steps, values = series(rows, name)
    errors = dict(zip(*series(rows, f"{name}_se"), strict=True))
    bars = [errors.get(step, 0.0) for step in steps] if errors else []
    return Line(label, steps, values, bars, dashed=dashed)


def _parts(rows: Sequence[Row], names: Mapping[str, str]) -> tuple[list[int], list[tuple[str, list[float]]]]:
    """Several metrics over the steps that have any of them, missing values as 0."""
    used = [row for row in rows if any(math.isfinite(row.get(name, math.nan)) for name in names)]
    parts = [(label, [max(_finite(row, name), 0.0) for row in used]) for name, label in names.items()]
    return [int(row["step"]) for row in used], parts


def _finite(row: Row, name: str) -> float:
    value = row.get(name, 0.0)
    return value if math.isfinite(value) else 0.0


def _curves(rows: Sequence[Row]) -> str:
    scores = score_names(rows)
    evaluation = [_line(rows, name, score_label(name)) for name in scores]
    if len(scores) == 1:
        success = scores[0].replace("/score", "/success")
        evaluation.append(_line(rows, success, score_label(success), dashed=True))
    kinds = ("root", "reflection", "continuation", "discarded")
    steps, tokens = _parts(rows, {f"rollout/generated_tokens/{kind}": kind for kind in kinds})
    if not any(any(values) for _, values in tokens):
        steps, tokens = _parts(rows, {"rollout/generated_tokens": "all"})
    parts = ("root", "reflect", "score", "continue", "verify", "schedule", "update", "eval")
    timed, phases = _parts(rows, {f"timing_s/{phase}": phase for phase in parts})
    figures = [
        line_chart("Held-out evaluation (± one standard error)", evaluation),
        line_chart(
            "Reward in training",
            [
                _line(rows, "reward/mean", "group mean"),
                _line(rows, "reward/root_mean", "roots", dashed=True),
                _line(rows, "reward/continuation_mean", "continuations", dashed=True),
            ],
        ),
        stacked_chart("Generated tokens per step", steps, tokens),
        stacked_chart("Time per step by phase, in seconds", timed, phases, unit=" s"),
        line_chart("Policy entropy at the trained tokens, in nats", [_line(rows, "update/entropy", "entropy")]),
        line_chart("Gradient norm before clipping", [_line(rows, "update/grad_norm", "gradient norm")]),
        line_chart(
            "Sampler against trainer: log-prob gap",
            [_line(rows, "update/sampler_logprob_gap", "mean absolute difference")],
        ),
        line_chart(
            "Groups and truncation",
            [
                _line(rows, "group/zero_variance_fraction", "groups without reward variance"),
                _line(rows, "rollout/truncated_fraction", "truncated trajectories"),
            ],
            y_range=(0, 1),
        ),
    ]
    return _section("Learning curves", figures)


def _localization(rows: Sequence[Row]) -> str:
    classes = ("filler", "verb", "argument", "end")
    steps, shares = _parts(rows, {f"branch/share_{name}": name for name in classes})
    figures = [
        line_chart(
            "Outcome agreement: the reflection's verdict against the verifier's",
            [_line(rows, "reflection/outcome_agreement", "agreement")],
            y_range=(0, 1),
        ),
        line_chart(
            "Where branches start, as a fraction of the root",
            [
                _line(rows, "branch/position_fraction", "mean over points"),
                _line(rows, "branch/fork_fraction", "mean over continuations", dashed=True),
            ],
            y_range=(0, 1),
        ),
        stacked_chart("Branch points by kind of token", steps, shares, top=1.0),
        line_chart(
            "Signal at the branch points",
            [_line(rows, "branch/score_at_points", "mean score")],
        ),
        line_chart(
            "Tokens generated, relative to whole trajectories",
            [
                _line(rows, "cost/token_ratio", "measured"),
                _line(rows, "cost/predicted_token_ratio", "by the method's arithmetic", dashed=True),
            ],
            y_range=(0, 1),
        ),
        line_chart(
            "Valid points per group",
            [_line(rows, "branch/valid_points_per_group", "points")],
            y_range=(0, 1),
        ),
    ]
    return _section("Where it branches", figures, _oracle(rows))


def _oracle(rows: Sequence[Row]) -> str:
    """A table of what the Monte-Carlo judge found: a line for every signal and step it was asked at."""
    prefix = "localize/oracle_auc/"
    kinds = ("filler", "verb", "argument", "end")
    lines = []
    for row in rows:
        for name in sorted(n for n in row if n.startswith(prefix) and not n.endswith("_se")):
            signal, error = name.removeprefix(prefix), row.get(f"{name}_se")
            shares = "".join(f"<td>{row.get(f'localize/share_{kind}/{signal}', math.nan):.0%}</td>" for kind in kinds)
            lines.append(
                f"<tr><td>{row['step']:.0f}</td><td>{visible(signal)}</td><td>{row[name]:.3f}"
                f"{'' if error is None else f' ± {error:.3f}'}</td>{shares}</tr>"
            )
    if not lines:
        return ""
    return (
        "<p>Does a signal know what mattered? Continuations are played from before and from after tokens of held-out "
        "roots; a token whose two sides differ in reward by more than two standard errors is consequential. AUC is "
        "the chance that the signal scores such a token above another one of its root (0.5: it knows nothing). Beside "
        "it, the kinds of tokens the signal would branch at on the same roots.</p>"
        "<table><tr><th>step</th><th>signal</th><th>AUC</th>"
        f"{''.join(f'<th>{kind}</th>' for kind in kinds)}</tr>{''.join(lines)}</table>"
    )


def _section(title: str, figures: Sequence[str], after: str = "") -> str:
    drawn = "".join(figures)
    if not drawn and not after:
        return ""
    return f'<h2>{html.escape(title)}</h2><div class="figures">{drawn}</div>{after}'


def _anatomy(workdir: Path, config: Mapping[str, Any]) -> str:
    steps = stored_steps(workdir)
    if not steps:
        return ""
    chosen = sorted({steps[round(i * (len(steps) - 1) / (STEPS_SHOWN - 1))] for i in range(STEPS_SHOWN)}, reverse=True)
    signal = SIGNALS.get(str(config_field(config, "signal")), "score")
    options: list[str] = []
    bodies: list[str] = []
    for step in chosen:
        for group in sorted(read_groups(workdir, step), key=_spread, reverse=True)[:GROUPS_SHOWN]:
            key = f"s{step}g{group[0].record['group']}"
            rewards = [m.record["reward"] for m in group if m.record["reward"] is not None]
            span = f"rewards {min(rewards):.2f} to {max(rewards):.2f}" if rewards else "not verified"
            label = f"step {step}, group {group[0].record['group']}: {group[0].record['problem']}, {span}"
            options.append(f'<option value="{key}">{visible(label)}</option>')
            hidden = " hidden" if bodies else ""
            bodies.append(f'<div class="group" id="{key}"{hidden}>{group_html(group, signal)}</div>')
    return (
        '<h2>Anatomy of one group</h2><p class="soft">Each step\'s groups are listed with the widest spread of rewards '
        f'first.</p><p><select id="group" aria-label="group">{"".join(options)}</select></p>{"".join(bodies)}'
    )


def _spread(group: Sequence[StoredTrajectory]) -> float:
    rewards = [m.record["reward"] for m in group if m.record["reward"] is not None]
    return max(rewards) - min(rewards) if rewards else -1.0


def main(argv: Sequence[str]) -> int:
    """Command line: writes the report of each directory named."""
    if not argv or any(arg.startswith("-") for arg in argv):
        print("usage: python -m hdl_jax.report WORKDIR [WORKDIR ...]", file=sys.stderr)
        return 2
    for workdir in argv:
        try:
            print(write_report(workdir))
        except (FileNotFoundError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
