"""Figures of the reports, as SVG text: lines with error bars, and stacked bars. No dependency, no external load."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence

COLOURS = ("#2b5c8a", "#c4622d", "#4b8560", "#8a5a9e", "#b08a2e", "#5f7d8c", "#a8485a", "#777777")
WIDTH, HEIGHT = 540, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 34
_NOTHING = 1e-300  # A range below this is none: a part of it may be 0 in floating point.


@dataclasses.dataclass(frozen=True)
class Line:
    """One curve: x and y of the same length, ascending in x; `error` is one standard error, drawn both ways."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()
    colour: str = ""
    dashed: bool = False


def number(value: float) -> str:
    """A number for people: 1234567 -> 1.23M, 0.12345 -> 0.123."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if suffix == "k" else size)
            return f"{scaled:.3g}{suffix}" if abs(scaled) < 1000 else f"{scaled:.0f}{suffix}"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def line_chart(
    title: str, lines: Sequence[Line], x_label: str = "training step", y_range: tuple[float, float] | None = None
) -> str:
    """A figure with one curve per line; '' where no line has a point.

    Args:
        title: the heading above the figure.
        lines: the curves; those without points are left out.
        x_label: under the axis.
        y_range: the least the vertical axis covers; None starts from the data.
    """
    lines = [line for line in lines if len(line.x)]
    if not lines:
        return ""
    lows, highs = [], []
    for line in lines:
        errors = line.error or [0.0] * len(line.y)
        lows += [y - e for y, e in zip(line.y, errors, strict=True)]
        highs += [y + e for y, e in zip(line.y, errors, strict=True)]
    low, high = min(lows), max(highs)
    if y_range is not None:
        low, high = min(low, y_range[0]), max(high, y_range[1])
    axes = _Axes(min(line.x[0] for line in lines), max(line.x[-1] for line in lines), low, high)
    marks = []
    for line, colour in zip(lines, _colours(lines), strict=True):
        points = [(axes.x(x), axes.y(y)) for x, y in zip(line.x, line.y, strict=True)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        for (px, _), y, e in zip(points, line.y, line.error or [], strict=False):
            up, down = axes.y(y + e), axes.y(y - e)
            marks.append(
                f'<path d="M{px:.1f} {up:.1f}V{down:.1f}M{px - 3:.1f} {up:.1f}h6M{px - 3:.1f} {down:.1f}h6" '
                f'stroke="{colour}" opacity=".55" fill="none"/>'
            )
        marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        shown = 1 if len(points) <= 30 else 0
        for i, (px, py) in enumerate(points):
            spread = f" ± {line.error[i]:.3g}" if line.error else ""
            hover = html.escape(f"{line.label}: {number(line.y[i])}{spread} at {x_label} {number(line.x[i])}")
            # The unseen wide ring makes a small point easy to hover over.
            marks.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.6" fill="{colour}" fill-opacity="{shown}" stroke="#fff" '
                f'stroke-opacity="0" stroke-width="8"><title>{hover}</title></circle>'
            )
    return _figure(title, axes, marks, [line.label for line in lines], _colours(lines), x_label)


def stacked_chart(
    title: str,
    x: Sequence[float],
    parts: Sequence[tuple[str, Sequence[float]]],
    x_label: str = "training step",
    unit: str = "",
    top: float | None = None,
) -> str:
    """A bar a step, stacked from `parts` (label, one value a step, none negative); '' where all are 0 or missing.

    Args:
        title: the heading above the figure.
        x: the steps, ascending.
        parts: from the bottom up.
        x_label: under the axis.
        unit: after the values shown on hovering.
        top: the least height of the vertical axis; None ends at the tallest bar.
    """
    parts = [(label, values) for label, values in parts if any(values)]
    if not parts:
        return ""
    totals = [sum(values[i] for _, values in parts) for i in range(len(x))]
    gap = min((b - a for a, b in zip(x, x[1:], strict=False)), default=1)
    axes = _Axes(x[0] - gap / 2, x[-1] + gap / 2, 0.0, max(max(totals), top or 0.0))
    width = max(axes.x(x[0] + gap) - axes.x(x[0]) - 1, 0.8)
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(parts))]
    marks = []
    for i, step in enumerate(x):
        base = 0.0
        for (label, values), colour in zip(parts, colours, strict=True):
            bottom, ceiling = axes.y(base), axes.y(base + values[i])
            hover = html.escape(f"{label}: {number(values[i])}{unit} of {number(totals[i])}{unit}, {x_label} {step:g}")
            marks.append(
                f'<rect x="{axes.x(step) - width / 2:.1f}" y="{ceiling:.1f}" width="{width:.1f}" '
                f'height="{bottom - ceiling:.1f}" fill="{colour}" fill-opacity=".82"><title>{hover}</title></rect>'
            )
            base += values[i]
    return _figure(title, axes, marks, [label for label, _ in parts], colours, x_label)


class _Axes:
    """Maps data to pixels; the ranges are widened to end at ticks vertically and never empty."""

    def __init__(self, x_low: float, x_high: float, y_low: float, y_high: float) -> None:
        if x_high - x_low < _NOTHING:
            x_low, x_high = x_low - 0.5, x_high + 0.5
        if y_high - y_low < _NOTHING:
            y_low, y_high = y_low - (abs(y_low) * 0.1 or 0.5), y_high + (abs(y_high) * 0.1 or 0.5)
        self.x_ticks = [t for t in _ticks(x_low, x_high, 7) if x_low <= t <= x_high]
        self.y_ticks = _ticks(y_low, y_high, 5)
        self._x = (x_low, x_high)
        self._y = (min(y_low, self.y_ticks[0]), max(y_high, self.y_ticks[-1]))

    def x(self, value: float) -> float:
        low, high = self._x
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def _colours(lines: Sequence[Line]) -> list[str]:
    return [line.colour or COLOURS[i % len(COLOURS)] for i, line in enumerate(lines)]


def _figure(
    title: str, axes: _Axes, marks: Sequence[str], labels: Sequence[str], colours: Sequence[str], x_label: str
) -> str:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    grid = []
    for tick in axes.y_ticks:
        y = axes.y(tick)
        grid.append(f'<path d="M{_LEFT} {y:.1f}H{right}" class="grid"/>')
        grid.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    for tick in axes.x_ticks:
        grid.append(f'<text x="{axes.x(tick):.1f}" y="{bottom + 15}" text-anchor="middle">{number(tick)}</text>')
    middle = (_LEFT + right) / 2
    grid.append(f'<text x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{html.escape(x_label)}</text>')
    keys = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{html.escape(label)}</span>'
        for label, colour in zip(labels, colours, strict=True)
    )
    return (
        f'<figure><figcaption><b>{html.escape(title)}</b><span class="keys">{keys}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(grid)}<g>{''.join(marks)}</g></svg></figure>"
    )
