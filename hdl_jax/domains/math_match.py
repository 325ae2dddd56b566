r"""Whether the form of an answer is that of the reference: values one by one, lists in any order, tuples in theirs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction

from hdl_jax.domains import math_sets, math_tree, math_value
from hdl_jax.domains.math_evaluate import Value
from hdl_jax.domains.math_form import (
    INFINITY,
    Equation,
    Form,
    Grid,
    Inequality,
    Ordered,
    Ratio,
    Region,
    Scalar,
    Several,
    Words,
    head_and_argument,
    is_asked_for,
    is_name,
    read,
    rename,
)
from hdl_jax.domains.math_latex import Unreadable
from hdl_jax.domains.math_text import key
from hdl_jax.domains.math_units import Unit

_MOST_ITEMS = 64


@dataclasses.dataclass(frozen=True)
class Rules:
    """How forms are compared.

    Attributes:
        tolerance, relative: absolute and relative error allowed of a number; None: none.
        kind: `interval` or `tuple`, what a pair in brackets is; empty: not known.
        unit, percent: of the reference, where the data set gives them apart from it.
    """

    tolerance: float | None = None
    relative: float | None = None
    kind: str = ""
    unit: Unit = ()
    percent: bool = False


def matches(reference: Form, answer: Form, rules: Rules) -> bool:
    """Whether an answer is the reference. One with a part that cannot be read is not; see math_value.equal for time."""
    try:
        return _same(reference, answer, rules)
    except (Unreadable, RecursionError):
        return False


def _same(reference: Form, answer: Form, rules: Rules) -> bool:
    match reference, answer:
        case Equation(), Equation():
            return _equations(reference, answer, rules)
        case _, Equation():
            return all(_same(reference, read(term), rules) for term in _values(answer))
        case Equation(), _:
            named = is_name(reference.terms[0])
            return named and _same(read(reference.terms[-1]), answer, rules)
        case Words(), Words():
            return reference.text == answer.text
        case (Words(), Scalar()) | (Scalar(), Words()):
            return _spelled(reference) == _spelled(answer)
        case Inequality(), Inequality():
            if _inequalities(reference, answer):
                return True
            return math_sets.names(reference) == math_sets.names(answer) and _regions(reference, answer)
        case Scalar(), Scalar():
            return _scalars(reference, answer, rules)
        case Ratio(), Ratio():
            return _ratios(reference, answer)
        case (Ratio(parts=parts), Scalar()) if len(parts) == 2:
            return _same(Scalar(rf"\frac{{{parts[0]}}}{{{parts[1]}}}"), answer, rules)
        case (Scalar(), Ratio(parts=parts)) if len(parts) == 2:
            return _same(reference, Scalar(rf"\frac{{{parts[0]}}}{{{parts[1]}}}"), rules)
        case Grid(), Grid():
            return len(reference.rows) == len(answer.rows) and all(
                _in_order(row, other, rules) for row, other in zip(reference.rows, answer.rows, strict=True)
            )
        case Grid(), Ordered():
            return _vector(reference) is not None and _in_order(_vector(reference) or (), answer.items, rules)
        case Ordered(), Grid():
            return _vector(answer) is not None and _in_order(reference.items, _vector(answer) or (), rules)
        case Ordered(), Ordered():
            return _ordered(reference, answer, rules)
        case Several(), Several():
            if _any_order(reference.items, answer.items, rules):
                return True
            return any(isinstance(item, Inequality) for item in reference.items) and _regions(reference, answer)
        case Ordered(), Several():
            loose = not answer.braces and rules.kind != "interval" and not _is_interval(reference, rules)
            return (loose and _in_order(reference.items, answer.items, rules)) or _regions(reference, answer)
        case Several(), Ordered():
            if reference.braces or _is_interval(answer, rules):
                return _regions(reference, answer)
            return _any_order(reference.items, answer.items, rules)
        case Several(), Scalar():
            return len(reference.items) == 1 and _same(reference.items[0], answer, rules)
        case Scalar(), Several():
            return len(answer.items) == 1 and _same(reference, answer.items[0], rules)
    return rules.kind != "tuple" and _regions(reference, answer)


# ---- arrangements ---------------------------------------------------------------------------------------------------


def _in_order(reference: Sequence[Form], answer: Sequence[Form], rules: Rules) -> bool:
    inside = dataclasses.replace(rules, kind="")
    return len(reference) == len(answer) and all(
        matches(form, other, inside) for form, other in zip(reference, answer, strict=True)
    )


def _any_order(reference: Sequence[Form], answer: Sequence[Form], rules: Rules) -> bool:
    """Whether every value of one can be paired with a different one of the other."""
    if len(reference) != len(answer) or len(reference) > _MOST_ITEMS:
        return False
    partner: dict[int, int] = {}  # of each value of the answer
    verdicts: dict[tuple[int, int], bool] = {}

    def fits(i: int, j: int) -> bool:
        if (i, j) not in verdicts:
            verdicts[i, j] = matches(reference[i], answer[j], rules)
        return verdicts[i, j]

    def place(i: int, tried: set[int]) -> bool:
        for j in range(len(answer)):
            if j not in tried and fits(i, j):
                tried.add(j)
                if j not in partner or place(partner[j], tried):
                    partner[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(reference)))


def _is_interval(form: Ordered, rules: Rules) -> bool:
    """Whether brackets can only be an interval's, or the data set says so."""
    if len(form.items) != 2 or rules.kind == "tuple":
        return False
    return rules.kind == "interval" or (form.left, form.right) != ("(", ")")


def _ordered(reference: Ordered, answer: Ordered, rules: Rules) -> bool:
    brackets = (reference.left, reference.right) == (answer.left, answer.right)
    if len(reference.items) == 2 and rules.kind != "tuple" and not brackets:
        return False
    return _in_order(reference.items, answer.items, rules)


def _vector(grid: Grid) -> tuple[Form, ...] | None:
    if len(grid.rows) == 1:
        return grid.rows[0]
    return tuple(row[0] for row in grid.rows) if all(len(row) == 1 for row in grid.rows) else None


def _regions(reference: Form, answer: Form) -> bool:
    if isinstance(reference, Region) and isinstance(answer, Region) and set(reference.operators) == {r"\cup"}:
        if reference.operators == answer.operators and _any_order(
            reference.parts, answer.parts, Rules(kind="interval")
        ):
            return True
    first = math_sets.to_set(reference)
    second = None if first is None else math_sets.to_set(answer)
    return second is not None and bool(first == second)


# ---- relations ------------------------------------------------------------------------------------------------------


def _values(equation: Equation) -> list[str]:
    """What an equation says the answer is: all its terms but what it is the value of, at its front."""
    terms = list(equation.terms)
    if len(terms) == 2 and is_name(terms[1]) and not is_asked_for(terms[0]):
        terms.reverse()  # 3 = x
    while len(terms) > 1 and is_asked_for(terms[0]):
        del terms[0]
    return terms


def _equations(reference: Equation, answer: Equation, rules: Rules) -> bool:
    if is_name(reference.terms[0]) and is_name(answer.terms[0]):
        (head, argument), (other, letter) = head_and_argument(reference.terms[0]), head_and_argument(answer.terms[0])
        value = answer.terms[-1]
        if argument and letter and argument != letter and argument not in value:
            value = rename(value, letter, argument)
        if head == other and bool(argument) == bool(letter) and matches(read(reference.terms[-1]), read(value), rules):
            return True
    if len(reference.terms) != 2 or len(answer.terms) != 2:
        return len(reference.terms) == len(answer.terms) and all(
            key(term) == key(other) for term, other in zip(reference.terms, answer.terms, strict=True)
        )
    first, second = (math_tree.parse(f"({a})-({b})") for a, b in (reference.terms, answer.terms))
    if math_value.proportion(first, second) is not None:
        return True
    return math_value.same_roots(first, second)


def _inequalities(reference: Inequality, answer: Inequality) -> bool:
    """Whether each inequality of one is a positive multiple of a different one of the other."""
    left = list(_greater(reference))
    if len(left) != len(answer.operators):
        return False
    for operator, difference in _greater(answer):
        for at, (other, expression) in enumerate(left):
            sign = math_value.proportion(expression, difference) if operator == other else None
            if sign == 1 or (sign is not None and operator == r"\ne"):
                del left[at]
                break
        else:
            return False
    return True


def _greater(form: Inequality) -> list[tuple[str, Value]]:
    r"""Each inequality as `(operator, expression)` with `>`, `\ge` or `\ne`, and zero on its right."""
    found = []
    for a, operator, b in zip(form.terms, form.operators, form.terms[1:], strict=False):
        if operator in ("<", r"\le"):
            a, b, operator = b, a, {"<": ">", r"\le": r"\ge"}[operator]
        found.append((operator, math_tree.parse(f"({a})-({b})")))
    return found


# ---- values ---------------------------------------------------------------------------------------------------------

_BASE = re.compile(r"([0-9][0-9A-Fa-f]*|[A-F][0-9A-F]+) ?_ ?\{? ?([0-9]+) ?\}?")
_BARE_LOG = re.compile(r"(?<![a-zA-Z])log(?![a-zA-Z])(?!\s*_)")


def _scalars(reference: Scalar, answer: Scalar, rules: Rules) -> bool:
    expected = reference.unit or rules.unit
    if expected and answer.unit and expected != answer.unit:
        return False
    if _spelled(reference) == _spelled(answer) and (reference.scale, reference.percent) == (
        answer.scale,
        answer.percent,
    ):
        return True
    if INFINITY in (reference.text.lstrip("+-").strip(), answer.text.lstrip("+-").strip()):
        return key(reference.text.lstrip("+")) == key(answer.text.lstrip("+"))
    if (base := _BASE.fullmatch(reference.text)) or _BASE.fullmatch(answer.text):
        return (
            _based(reference.text) == _based(answer.text) if base else _based(answer.text) == (key(reference.text), 10)
        )
    percent = reference.percent or rules.percent
    factors = [Fraction(1)]
    if percent and not answer.percent:
        factors.append(Fraction(100))
    elif answer.percent and not percent:
        factors = [Fraction(1, 100)]
    return any(_equal(reference, answer, factor * Fraction(answer.scale, reference.scale), rules) for factor in factors)


def _equal(reference: Scalar, answer: Scalar, factor: Fraction, rules: Rules) -> bool:
    text = answer.text
    if factor != 1:
        text = rf"({text})\cdot \frac{{{factor.numerator}}}{{{factor.denominator}}}"
    # A logarithm without a base is one to base 10 or a natural one, whichever makes the answer right.
    bases = ("10", "e") if _BARE_LOG.search(reference.text + " " + text) else ("10",)
    for base in bases:
        first, second = math_tree.parse(reference.text, base), math_tree.parse(text, base)
        if math_value.equal(first, second):
            return True
        if rules.tolerance is not None or rules.relative is not None:
            if math_value.within(first, second, rules.tolerance, rules.relative):
                return True
    return False


def _spelled(form: Form) -> str:
    """Words and letters as they are compared as text; a value's own spelling otherwise."""
    if not isinstance(form, Scalar | Words):
        return ""
    text = key(form.text)
    if isinstance(form, Words) or re.fullmatch(r"[A-Z]?[a-z]{2}|[A-H]", text):
        return text.casefold()
    return text


def _based(text: str) -> tuple[str, int]:
    found = _BASE.fullmatch(text)
    return (found[1].lstrip("0").casefold(), int(found[2])) if found else (key(text), 10)


def _ratios(reference: Ratio, answer: Ratio) -> bool:
    if reference.time and answer.time:
        halves = {reference.half, answer.half} - {""}
        return len(halves) < 2 and [*map(int, reference.parts)] == [*map(int, answer.parts)]
    if len(reference.parts) != len(answer.parts):
        return False
    first, second = reference.parts[0], answer.parts[0]
    for a, b in zip(reference.parts[1:], answer.parts[1:], strict=True):
        if not math_value.equal(math_tree.parse(f"({a})({second})"), math_tree.parse(f"({b})({first})")):
            return False
    return True
