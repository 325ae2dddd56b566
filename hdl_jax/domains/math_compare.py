r"""Whether an answer is the reference answer. docs/math_answers.md has the rules.

Equal spellings decide first; then values, exactly or to many digits; then what they are arranged in. Nothing is ever
rounded, and no text is ever evaluated as code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from hdl_jax.domains import math_tree, math_units
from hdl_jax.domains.math_form import (
    Equation,
    Form,
    Grid,
    Inequality,
    Ordered,
    Ratio,
    Region,
    Scalar,
    Several,
    bare,
    is_name,
    read,
    readings,
)
from hdl_jax.domains.math_latex import Foreign, Unreadable
from hdl_jax.domains.math_match import Rules, matches
from hdl_jax.domains.math_text import balanced, clean, key

LONGEST = 2000  # characters of an answer; a longer one is wrong unless it is the reference itself
_MOST_ITEMS = 64


@dataclasses.dataclass(frozen=True)
class Reference:
    """What an answer is compared with.

    Attributes:
        answers: as the data set has them, with `$` or without; several: a question with several answers, in any order.
        unit: the data set's; an answer may give it or leave it out.
        tolerance: the absolute error allowed of a number. relative: the relative error allowed.
        kind: `interval` or `tuple`, where the data set says what a pair in brackets is.
    """

    answers: tuple[str, ...]
    unit: str = ""
    tolerance: float | None = None
    relative: float | None = None
    kind: str = ""


def same(reference: Reference, answer: str) -> bool:
    """Whether an answer, as it was written, is right. May take any time on hostile input: call it in a worker.

    The verdict depends on nothing but the arguments.

    Raises:
        ImportError: math-verify is not installed, and the comparison needs it.
    """
    if len(reference.answers) == 1 and answer.strip() and answer.strip() == reference.answers[0].strip():
        return True
    if len(answer) > LONGEST or not answer.strip():
        return False
    gold = [clean(text) for text in reference.answers]
    given = clean(answer)
    if len(gold) == 1 and key(gold[0]) == key(given) != "":
        return True
    rules = _rules(reference)
    try:
        references, answers = _references(gold, rules.kind), readings(given)
    except Unreadable:
        return False
    # A letter after a number may be a unit where the other side has one, and is a variable elsewhere.
    if rules.unit or any(_has_unit(form) for form in references):
        answers.append(_quantity(given))
    pairs = [(form, other) for form in references for other in answers]
    if len(gold) == 1 and (quantity := _quantity(gold[0])).unit:
        pairs += [(quantity, other) for other in answers if _has_unit(other)]
    return any(matches(form, other, rules) for form, other in pairs)


def unreadable(reference: Reference) -> str:
    """Why a reference answer cannot be compared with any but its own spelling; empty if it can be."""
    if not reference.answers:
        return "there is no answer"
    if reference.unit and not math_units.read(clean(reference.unit)) and "%" not in reference.unit:
        return f"the unit {reference.unit!r} is none"
    for text in reference.answers:
        cleaned = clean(text) if len(text) <= LONGEST else ""
        if not key(cleaned):
            return f"the answer is longer than {LONGEST} characters" if len(text) > LONGEST else "the answer is empty"
        if not balanced(cleaned):
            return f"{text!r}: its brackets do not match"
        try:
            for form in readings(cleaned):
                _check(form)
        except Foreign:
            continue  # compared as text
        except Unreadable as problem:
            return f"{text!r}: {problem}"
    return ""


def _check(form: Form) -> None:
    """Raises Unreadable for a part that is no expression."""
    match form:
        case Scalar(text=text):
            math_tree.parse(text)
        case Several(items=items) | Ordered(items=items) | Region(parts=items):
            for item in items:
                _check(item)
        case Grid(rows=rows):
            for row in rows:
                for cell in row:
                    _check(cell)
        case Ratio(parts=terms) | Inequality(terms=terms):
            for term in terms:
                math_tree.parse(term)
        case Equation(terms=terms):
            for term in terms:
                if not is_name(term):
                    _check(read(term))


def _rules(reference: Reference) -> Rules:
    unit = clean(reference.unit)
    percent = bool(re.fullmatch(r"\\?%|percent", unit))
    return Rules(
        reference.tolerance, reference.relative, reference.kind, () if percent else math_units.read(unit) or (), percent
    )


def _references(gold: Sequence[str], kind: str) -> list[Form]:
    if len(gold) == 1:
        found = readings(gold[0])
        if kind == "tuple":  # written without brackets
            found = [
                Ordered("(", ")", form.items)
                if isinstance(form, Several) and all(isinstance(item, Scalar) for item in form.items)
                else form
                for form in found
            ]
        return found
    items: list[Form] = []
    for text in gold:
        form = _references([text], kind)[0]
        items += form.items if isinstance(form, Several) else [form]
    return [Several(tuple(items))]


def _has_unit(form: Form) -> bool:
    return isinstance(form, Scalar) and bool(form.unit)


def _quantity(text: str) -> Scalar:
    found = math_units.cut(bare(text), letters=True)
    return Scalar(found.value, found.unit, found.scale, found.percent)
