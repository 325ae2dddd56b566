r"""Whether expressions have one value: exactly if they are rational, else to 80 digits, at points if they have names.

Expressions with names are the same if they agree at fixed pseudo-random points: real ones of both signs, or whole and
positive ones where floors, factorials, sums or (-1)^n are in them. Points at which anything in either is not a real
number are left out, so that variables are taken to be where the expressions make sense.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hdl_jax.domains.math_evaluate import TooLarge, Undefined, Unknown, Value, approximately, arithmetic, exactly
from hdl_jax.domains.math_tree import Expression, library_same

_DIGITS, _POINT_DIGITS = 120, 50  # two thirds of them must agree
_POINTS, _WHOLE_POINTS, _ENOUGH = 10, 24, 3
_LARGEST_POWER = 10_000  # of ten, in a number that is rounded to a fraction

Point = Mapping[str, Fraction]


def equal(reference: Value, answer: Value) -> bool:
    """Whether two values are the same. May take any time where both have infinite sums, which math-verify compares."""
    try:
        a, b = exactly(reference), exactly(answer)
        if a is not None and b is not None:
            return a == b
        if _names(reference) | _names(answer):
            return _agree(reference, answer)
        return _close(reference, answer, {}, _DIGITS, real=False)
    except (TooLarge, Undefined):
        return False
    except Unknown:
        # Beside a reference without one, an infinite sum is an answer that has not been worked out.
        trees = [value.tree for value in (reference, answer) if isinstance(value, Expression) and value.endless]
        return len(trees) == 2 and library_same(*trees)


def within(reference: Value, answer: Value, absolute: float | None, relative: float | None) -> bool:
    """Whether a real constant is as near to the reference as one of these errors, as they are written, allows."""
    a, b = number(reference), number(answer)
    if a is None or b is None:
        return False
    allowed = [Fraction(repr(absolute))] if absolute is not None else []
    allowed += [Fraction(repr(relative)) * abs(a)] if relative is not None else []
    return any(abs(a - b) <= error for error in allowed)


def number(value: Value) -> Fraction | None:
    """A real constant, exactly or to 80 digits; None for anything else."""
    if _names(value):
        return None
    try:
        found = exactly(value)
        return _fraction(approximately(value, {}, _DIGITS, real=True)) if found is None else found
    except (TooLarge, Undefined, Unknown):
        return None


def proportion(reference: Value, answer: Value) -> int | None:
    """The sign of the constant that one expression is times the other, None where it is no such multiple.

    Of a - b and c - d it says whether a = b and c = d are the same equation.
    """
    ratios = []
    for point in _points(_names(reference) | _names(answer), _whole(reference) or _whole(answer)):
        try:
            values = [approximately(value, point, _POINT_DIGITS, real=True) for value in (reference, answer)]
            ratios.append(values[0] / values[1])
        except (Undefined, ZeroDivisionError):
            continue
        except (TooLarge, Unknown):
            return None
    if len(ratios) < _ENOUGH or not ratios[0]:
        return None
    error = abs(ratios[0]) * arithmetic(_POINT_DIGITS).mpf(10) ** (-_POINT_DIGITS // 2)
    if any(abs(ratio - ratios[0]) > error for ratio in ratios):
        return None
    return 1 if ratios[0] > 0 else -1


def same_roots(reference: Value, answer: Value) -> bool:
    """Whether a = 0 and b = 0 are the same equation: each holds at the roots of the other, of which a few are found."""
    names = sorted(_names(reference))
    if not names or _names(answer) != frozenset(names):
        return False
    try:
        return all(_holds(a, b, names) for a, b in ((reference, answer), (answer, reference)))
    except (TooLarge, Unknown):
        return False


def line(value: Value) -> tuple[Fraction, int] | None:
    """Where an expression that is linear in its one name is zero, and the sign of its slope; None for any other."""
    if len(_names(value)) != 1:
        return None
    (name,) = _names(value)
    try:
        at = [approximately(value, {name: Fraction(x)}, _DIGITS, real=True) for x in (0, 1, 3)]
        slope = at[1] - at[0]
        if not slope or abs(at[0] + 3 * slope - at[2]) > abs(slope) * arithmetic(_DIGITS).mpf(10) ** (-_DIGITS // 2):
            return None
        return _fraction(-at[0] / slope), 1 if slope > 0 else -1
    except (TooLarge, Unknown, Undefined):
        return None


def _names(value: Value) -> frozenset[str]:
    return value.names if isinstance(value, Expression) else frozenset()


def _whole(value: Value) -> bool:
    return isinstance(value, Expression) and value.whole


def _fraction(value: Any) -> Fraction:
    """A real number to 80 digits, so that two that differ in their last ones only give the same."""
    mp = arithmetic(_DIGITS)
    if not value:
        return Fraction(0)
    power = 2 * _DIGITS // 3 - int(mp.floor(mp.log10(abs(value))))
    if abs(power) > _LARGEST_POWER:
        raise TooLarge
    return Fraction(int(mp.nint(value * mp.mpf(10) ** power))) / Fraction(10) ** power


def _agree(a: Value, b: Value) -> bool:
    points = _points(_names(a) | _names(b), _whole(a) or _whole(b))
    imaginary = any(isinstance(value, Expression) and value.imaginary for value in (a, b))
    for real in (False,) if imaginary else (True, False):
        compared = 0
        for point in points:
            try:
                if not _close(a, b, point, _POINT_DIGITS, real):
                    return False
                compared += 1
            except Undefined:
                continue
        if compared >= _ENOUGH:
            return True
    raise Unknown


def _points(names: frozenset[str], whole: bool) -> list[Point]:
    """Where to look. The value of a name depends on nothing but its letters and the number of the point."""
    found: list[Point] = []
    for number in range(_WHOLE_POINTS if whole else _POINTS):
        point = {}
        for name in names:
            draw = random.Random(f"{name} {number}")
            if whole:
                point[name] = Fraction(draw.randint(1, 6 if number % 2 else 30))
                continue
            size = Fraction(draw.randint(101, 899), 997) + (draw.randint(1, 3) if number % 2 else 0)
            point[name] = size * draw.choice((1, -1)) if number >= _POINTS // 2 else size
        found.append(point)
    return found


def _close(a: Value, b: Value, point: Point, digits: int, real: bool) -> bool:
    """Whether two values agree to two thirds of the digits, or their difference goes away with more of them."""
    x, y = (approximately(value, point, digits, real) for value in (a, b))
    difference, ten = abs(x - y), arithmetic(digits).mpf(10)
    if difference <= max(abs(x), abs(y)) * ten ** (-2 * digits // 3):
        return True
    if difference > ten ** (-digits // 3):
        return False
    x, y = (approximately(value, point, 2 * digits, real) for value in (a, b))
    return bool(abs(x - y) <= difference * ten ** (-digits // 2))


def _holds(a: Value, b: Value, names: list[str]) -> bool:
    mp, found = arithmetic(_POINT_DIGITS), 0
    for number, point in enumerate(_points(frozenset(names), whole=False)):
        name = names[number % len(names)]

        def at(value: Value, x: Any, point: Point = point, name: str = name) -> Any:
            return approximately(value, {**point, name: x}, _POINT_DIGITS, real=True)

        start = mp.mpf(point[name].numerator) / point[name].denominator
        try:
            root = mp.findroot(lambda x: at(b, x), start, maxsteps=40)  # noqa: B023 - called before the next turn
            if abs(at(a, root)) > mp.mpf(10) ** (-_POINT_DIGITS // 4):
                return False
            found += 1
        except (ValueError, ZeroDivisionError, Undefined):  # there is no root near
            continue
    return found >= _ENOUGH
