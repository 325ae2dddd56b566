"""Sets of real numbers, so that an inequality, an interval and a union of intervals can be one."""

from __future__ import annotations

import re
from typing import Any

from hdl_jax.domains import math_tree, math_value
from hdl_jax.domains.math_form import (
    EMPTY,
    INFINITY,
    REALS,
    Equation,
    Form,
    Inequality,
    Ordered,
    Region,
    Scalar,
    Several,
    is_name,
    read,
)


def to_set(form: Form) -> Any:
    """The set of real numbers that a form describes, as sympy has it; None where it describes none, or not plainly.

    End points are exact, or rounded to 80 digits, so that sympy can order them.

    Raises:
        Unreadable: an end point is no expression.
    """
    import sympy

    match form:
        case Scalar(text=text) if text == EMPTY:
            return sympy.S.EmptySet
        case Scalar(text=text) if text == REALS:
            return sympy.S.Reals
        case Ordered(left=left, right=right, items=(low, high)):
            start, end = _end(low), _end(high)
            return (
                None if None in (start, end) or start > end else sympy.Interval(start, end, left == "(", right == ")")
            )
        case Several(items=items) if all(isinstance(item, Inequality) for item in items):
            parts = [to_set(item) for item in items]
            if any(part is None for part in parts) or len({names(item) for item in items}) > 1:
                return None
            both = sympy.Intersection(*parts)
            # A comma stands for "and" where something fulfils both, as in x > 1, x < 2; else for "or".
            return both if form.joined == "and" or (form.joined == "," and both) else sympy.Union(*parts)
        case Several(items=items):
            ends = [_end(item) for item in items]
            return None if None in ends else sympy.FiniteSet(*ends)
        case Equation(terms=(name, value)) if is_name(name):
            return to_set(read(value))
        case Inequality(terms=(left, right), operators=(operator,)) if inside := _ABSOLUTE.fullmatch(left):
            return _distances(inside[1], operator, right)
        case Inequality():
            return _solutions(form)
        case Region(parts=parts, operators=operators):
            return _joined([to_set(part) for part in parts], operators)
    return None


def _joined(sets: list[Any], operators: tuple[str, ...]) -> Any:
    import sympy

    if any(found is None for found in sets):
        return None
    total = sets[0]
    for operator, other in zip(operators, sets[1:], strict=True):
        join = {r"\cup": sympy.Union, r"\cap": sympy.Intersection, r"\setminus": sympy.Complement}[operator]
        total = join(total, other)
    return total


def _end(form: Form) -> Any:
    import sympy

    if not isinstance(form, Scalar) or form.percent or form.scale != 1:
        return None
    if form.text.lstrip("+-").strip() == INFINITY:
        return -sympy.oo if form.text.startswith("-") else sympy.oo
    value = math_value.number(math_tree.parse(form.text))
    return None if value is None else sympy.Rational(value.numerator, value.denominator)


def names(form: Form) -> frozenset[str]:
    """The names in an inequality; none for another form."""
    found: set[str] = set()
    for term in form.terms if isinstance(form, Inequality) else ():
        value = math_tree.parse(term)
        found |= value.names if isinstance(value, math_tree.Expression) else set()
    return frozenset(found)


_ABSOLUTE = re.compile(r"\|([^|]+)\|")


def _distances(inside: str, operator: str, radius: str) -> Any:
    """Of |x| < r and the like."""
    import sympy

    if operator in ("<", r"\le"):
        return _solutions(Inequality((f"-({radius})", inside, radius), (operator, operator)))
    if operator in (">", r"\ge"):
        flipped = {">": "<", r"\ge": r"\le"}[operator]
        ends = (
            _solutions(Inequality((inside, f"-({radius})"), (flipped,))),
            _solutions(Inequality((inside, radius), (operator,))),
        )
        return None if None in ends else sympy.Union(*ends)
    return None


def _solutions(form: Inequality) -> Any:
    """Of a chain of inequalities that are linear in one and the same name."""
    import sympy

    if len(names(form)) != 1:
        return None
    found = sympy.S.Reals
    for left, operator, right in zip(form.terms, form.operators, form.terms[1:], strict=False):
        if INFINITY in left + right:
            continue  # -\infty < x says nothing
        line = math_value.line(math_tree.parse(f"({left})-({right})"))
        if line is None:
            return None
        root = sympy.Rational(line[0].numerator, line[0].denominator)
        if operator == r"\ne":
            found = sympy.Complement(found, sympy.FiniteSet(root))
            continue
        closed = operator in (r"\le", r"\ge")
        below = (operator in ("<", r"\le")) == (line[1] > 0)
        part = (
            sympy.Interval(-sympy.oo, root, True, not closed)
            if below
            else sympy.Interval(root, sympy.oo, not closed, True)
        )
        found = sympy.Intersection(found, part)
    return found
