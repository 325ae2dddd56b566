"""The report's anatomy of one group: each root's tokens coloured by the signal, its points, and what grew from them.

Everything a policy or environment wrote is data: it goes through `visible`, which leaves no markup, no control or
direction-changing character and no half of a character standing.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any

from hdl_jax.report_figures import number
from hdl_jax.rollout.store import StoredTrajectory

SHADES = 12
_MAX_TEXT = 20_000
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    """Escapes text for HTML, in content or a quoted attribute; control characters become visible signs."""

    def sign(match: re.Match[str]) -> str:
        code = ord(match[0])
        if code < 32:
            return chr(0x2400 + code)
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"‹U+{code:04X}›"

    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]} … {len(text) - _MAX_TEXT:,} more characters"
    return html.escape(_ODD.sub(sign, text), quote=True)


def group_html(group: Sequence[StoredTrajectory], signal: str) -> str:
    """One group as HTML.

    Args:
        group: its members, roots first.
        signal: what the scores are, for the legend.
    """
    rewards = [m.record["reward"] for m in group if m.record["reward"] is not None]
    mean = statistics.fmean(rewards) if rewards else 0.0
    roots = [m for m in group if m.record["origin"] is None]
    if all(m.scores is None for m in roots):
        rows = "".join(_member(m, mean, f"trajectory {m.record['member'] + 1}", 0) for m in group)
        return f'{_prompt(group[0])}{_rewards(group, mean)}<div class="branch">{rows}</div>'
    top = max((float(m.scores.max()) for m in roots if m.scores is not None and m.scores.size), default=0.0)
    parts = [_prompt(roots[0]), _rewards(group, mean), _legend(signal, top)]
    for index, root in enumerate(roots):
        continuations = [m for m in group if m.record["origin"] == index]
        parts.append(_root(root, index, continuations, mean, top))
    return "".join(parts)


def _prompt(member: StoredTrajectory) -> str:
    return f'<div class="prompt"><span class="tag">prompt</span><pre>{visible(member.record["prompt"])}</pre></div>'


def _legend(signal: str, top: float) -> str:
    cells = "".join(f'<i class="c{shade}"></i>' for shade in range(SHADES))
    return (
        f'<div class="legend"><span>{html.escape(signal)}:</span><span>0</span><span class="scale">{cells}</span>'
        f"<span>{number(top)}</span><span>square-root scale</span>"
        '<span><i class="swatch grey"></i>prompt and observations</span><span><b class="flag">1</b> branch point'
        "</span></div>"
    )


def _rewards(group: Sequence[StoredTrajectory], mean: float) -> str:
    """A strip from reward 0 to 1 with a dot a member: roots filled, continuations hollow, the group mean a line."""
    width, height, pad = 540, 40, 16

    def x(reward: float) -> float:
        return pad + min(max(reward, 0.0), 1.0) * (width - 2 * pad)

    stacked: dict[float, int] = {}
    dots = []
    for member in group:
        reward = member.record["reward"]
        if reward is None:
            continue
        place = round(x(reward) / 6) * 6
        level = stacked[place] = stacked.get(place, -1) + 1
        root = member.record["origin"] is None
        kind = "root" if root else "continuation"
        dots.append(
            f'<circle cx="{x(reward):.1f}" cy="{height - 17 - 6.5 * min(level, 3):.1f}" r="3.2" class="{kind}">'
            f"<title>{kind}, reward {reward:.3g}</title></circle>"
        )
    failed = sum(m.record["reward"] is None for m in group)
    note = f", {failed} not verified" if failed else ""
    ticks = "".join(f'<text x="{x(v)}" y="{height - 1}" text-anchor="middle">{v:g}</text>' for v in (0, 0.5, 1))
    axis = f'<path d="M{x(0)} {height - 12}H{x(1)}" class="axis"/>'
    line = f'<path d="M{x(mean):.1f} 4V{height - 12}" class="mean"><title>group mean {mean:.3f}</title></path>'
    return (
        f'<div class="strip"><span>rewards of the {len(group)} members{note}; filled: roots, line: group mean '
        f'{mean:.3f}</span><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"{axis}{ticks}{line}{''.join(dots)}</svg></div>"
    )


def _root(
    root: StoredTrajectory, index: int, continuations: Sequence[StoredTrajectory], mean: float, top: float
) -> str:
    record = root.record
    points = sorted(record.get("points", []), key=lambda p: p["position"])
    flags = {p["position"]: i + 1 for i, p in enumerate(points)}
    failed = '<span class="badge bad">failure</span>' if record["success"] is False else ""
    parts = [
        f'<section class="root"><h4>Root {index + 1}{_badges(record, mean)}{failed}</h4>',
        _skyline(root, flags, top),
        f'<div class="tokens">{_tokens(root, flags, top)}</div>',
        _record(record),
    ]
    for point in points:
        members = [m for m in continuations if m.record["fork"] == point["position"]]
        score = "no valid point: restarted here" if point["score"] is None else f"score {number(point['score'])}"
        piece = visible(repr(_piece(root, point["position"]))[1:-1])
        parts.append(
            f'<div class="branch"><h5><b class="flag">{flags[point["position"]]}</b> token {point["position"]} '
            f"<code>{piece}</code>, {score}: drawn again {point['continuations']} times</h5>"
        )
        parts += [_member(m, mean, "", m.record["fork"]) for m in members]
        parts.append("</div>")
    return "".join(parts) + "</section>"


def _badges(record: dict[str, Any], mean: float) -> str:
    badges = [_reward(record, mean)]
    if record["success"]:
        badges.append('<span class="badge good">success</span>')
    if record["truncated"]:
        badges.append('<span class="badge">truncated</span>')
    return "".join(badges)


def _reward(record: dict[str, Any], mean: float) -> str:
    if record["reward"] is None:
        return '<span class="badge">not verified</span>'
    advantage = record["advantage"]
    side = "above" if record["reward"] > mean + 1e-9 else "below" if record["reward"] < mean - 1e-9 else "level"
    shown = "" if advantage is None else f'<span class="advantage {side}">{advantage:+.3f}</span>'
    share = min(max(record["reward"], 0.0), 1.0)
    return (
        f'<span class="reward"><span class="bar"><i class="{side}" style="width:{share:.0%}"></i></span>'
        f"{record['reward']:.2f}</span>{shown}"
    )


def _record(record: dict[str, Any]) -> str:
    parts = []
    if record["feedback"]:
        parts.append(f'<dt>feedback</dt><dd class="text">{visible(record["feedback"])}</dd>')
    if record["subgoals"]:
        goals = "".join(
            f'<span class="goal {"good" if reached else "bad"}">{"✓" if reached else "✗"} {visible(name)}</span>'
            for name, reached in record["subgoals"]
        )
        parts.append(f"<dt>sub-goals</dt><dd>{goals}</dd>")
    reflection = record.get("reflection")
    if reflection:
        verdict = {True: "SUCCESS", False: "FAILURE", None: None}[record["success"]]
        outcome = reflection["outcome"]
        agrees = outcome is not None and outcome.upper() == verdict
        label = (
            "no outcome parsed" if outcome is None else f"says {outcome.upper()}, {'agrees' if agrees else 'disagrees'}"
        )
        cut = '<span class="badge">truncated</span>' if reflection["truncated"] else ""
        parts.append(
            f'<dt>reflection</dt><dd><span class="badge {"good" if agrees else "bad"}">{visible(label)}</span>{cut}'
            f'<div class="text">{visible(reflection["text"])}</div></dd>'
        )
    return f"<dl>{''.join(parts)}</dl>" if parts else ""


def _piece(member: StoredTrajectory, position: int) -> str:
    pieces = member.record["pieces"]
    return pieces[position] or "■" if position < len(pieces) else ""


def _shade(score: float, top: float) -> int:
    return min(int(math.sqrt(max(score, 0.0) / top) * SHADES), SHADES - 1) if top > 0 else 0


def _skyline(root: StoredTrajectory, flags: dict[int, int], top: float) -> str:
    """The root's scores as thin bars over token position, observations left blank, points flagged."""
    if root.scores is None or top <= 0:
        return ""
    start = root.record["prompt_length"]
    count = max(len(root.tokens) - start, 1)
    width, height = 1000, 58
    bar = width / count
    marks = [
        f'<rect x="{(i - start) * bar:.1f}" y="{height - h:.1f}" width="{max(bar - 0.6, 0.5):.1f}" height="{h:.1f}" '
        f'class="c{_shade(float(root.scores[i]), top)}"/>'
        for i in range(start, len(root.tokens))
        if root.generated[i]
        for h in [max(1.0, float(root.scores[i]) / top * (height - 16))]
    ]
    flagged = [
        f'<path d="M{(p - start + 0.5) * bar:.1f} {height}V14" class="mark"/>'
        f'<text x="{(p - start + 0.5) * bar:.1f}" y="11" text-anchor="middle">{n}</text>'
        for p, n in flags.items()
    ]
    return (
        f'<svg class="skyline" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="score by position">{"".join(marks)}<path d="M0 {height - 0.5}H{width}" class="axis"/>'
        f"{''.join(flagged)}</svg>"
    )


def _tokens(root: StoredTrajectory, flags: dict[int, int], top: float) -> str:
    """The root's tokens after the prompt, a line a turn; consecutive grey tokens are one span."""
    starts = {turn["start"]: n for n, turn in enumerate(root.record["turns"], 1)}
    several = len(starts) > 1
    parts: list[str] = []
    grey: list[str] = []

    def flush() -> None:
        if grey:
            parts.append(f'<span class="grey">{visible("".join(grey))}</span>')
            grey.clear()

    for i in range(root.record["prompt_length"], len(root.tokens)):
        piece = root.record["pieces"][i]
        if not root.generated[i]:
            grey.append(piece)
            continue
        flush()
        if several and i in starts:
            parts.append(f'<br><span class="turn">{starts[i]}</span>')
        if i in flags:
            parts.append(f'<b class="flag">{flags[i]}</b>')
        score = float(root.scores[i]) if root.scores is not None else 0.0
        hover = visible(f"{piece!r}  score {score:.4g}  log-prob {float(root.log_probs[i]):.4g}  token {i}")
        # A token without text is a control symbol, such as the one that ends a turn.
        shown = visible(piece) if piece else '<span class="control">■</span>'
        parts.append(f'<span class="c{_shade(score, top)}" title="{hover}">{shown}</span>')
    flush()
    return "".join(parts).removeprefix("<br>")


def _member(member: StoredTrajectory, mean: float, name: str, fork: int) -> str:
    """One row: reward, advantage, and the text from `fork` on, observations grey."""
    record = member.record
    first = max(fork, record["prompt_length"])
    spans = []
    for generated, run in itertools.groupby(range(first, len(member.tokens)), lambda i: bool(member.generated[i])):
        text = "".join(record["pieces"][i] for i in run)
        spans.append(f'<span class="{"new" if generated else "grey"}">{visible(text)}</span>')
    label = f'<span class="name">{html.escape(name)}</span>' if name else ""
    return (
        f'<div class="member"><div class="score">{label}{_badges(record, mean)}</div>'
        f'<div class="text">{" ".join(spans) or "<i>nothing new</i>"}</div></div>'
    )
