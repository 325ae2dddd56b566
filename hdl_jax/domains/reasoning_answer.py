r"""Which number an answer to an arithmetic task gives, and its value. Text is only read: nothing is ever evaluated.

The rule, in this order, on what follows the last `</think>` (an answer whose `<think>` is still open gives none):

1. A box, `\boxed{...}` or `\fbox{...}`: the last one, which must hold a single number, bare or after one `=`
   (`x = 7`, `3 + 4 = 7`). A box that is never closed gives none.
2. Else a line `Answer: ...`: the last one. What its clauses (cut at commas, semicolons, full stops, `or`, `and`) give,
   each after its last `=` if it has one, must be one and the same number: `Answer: 7 or 8` gives none.
3. Else the number that the text ends with, as the prompts ask: no word may follow it. Two different numbers joined by
   `or`, `and`, a comma or nothing at all are a hedge, and operands and arguments (`3 + 4`, `\sqrt{9}`, `\boxed 7`) are
   no results: they give none.

A number is an integer or a decimal with a sign (`negative` before it is one), thousands separators (`10,000`,
`10{,}000`, `10\,000`, thin spaces), an exponent (`6e3`), or a fraction (`3/4`, `\frac{3}{4}`), compared exactly: 0.333
is not 1/3. Percentages, mixed numbers, digits inside a word (`12b`, `3x`, `1.2.3`), powers, roots and number words are
not numbers. A full stop, `$`, `\(`, bold, and outside a box words before a number, do no harm. Every pass is linear in
the length of the text; a number of more than 64 characters, or whose exponent has more than three digits, is a wrong
answer rather than a computation.
"""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

_LONGEST, _EXPONENT_DIGITS, _SHOWN = 64, 3, 32

NUMBER = r"""(?:
    (?<![\w.^\\])[-+]?                                   # not inside a word, a longer number, a power or a command
    (?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+
    (?:[ ]?/[ ]?[0-9]++(?!\.[0-9]))?+
    (?!\w|\.[0-9]|\s*\\?%)
)"""
_NUMBER = re.compile(NUMBER, re.X)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_LABEL = re.compile(r"\banswer\s*:\s*([^\n]*)", re.I)
_BOXED_NUMBER = re.compile(rf"(?:(?:(?!\b(?:or|and)\b)[^=,;])*+=)?\s*({NUMBER})[\s.]*", re.X)
_CLAUSE_END = re.compile(r"[,;]|\.(?=\s|$)|\b(?:or|and)\b", re.I)

# What makes a number part of an unfinished expression: `3 + 4`, `5 times 6`, `2^3`, `4 * x`.
_OPERATOR_BEFORE = re.compile(
    r"(?:(?:[0-9)}]|\b[a-z])[ \t]*[-+*/×÷^·]+|\b(?:plus|minus|times|over|by)\b|\\[a-z]+)[\s({]*$", re.I
)
_OPERATOR_AFTER = re.compile(r"[ \t)}]*(?:[-+*/×÷·]\s*(?:[a-z]\b|\()|\^)", re.I)
_HEDGE = re.compile(r"[\s,;&]*(?:and[\s,]*)?|[^\n]*\bor\b[^\n]*", re.I)
_NEAR = 40  # characters looked at before a number for an operator, and the longest hedge between two numbers

_THOUSANDS = re.compile(r"(?<![\w.,])[0-9]{1,3}(?:(?:,|\{,\}|\\,|[\u2009\u202f])[0-9]{3})++(?!\w|,[0-9])")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_LATEX_FRACTION = re.compile(
    r"(?<![0-9])\\[dt]?frac\s*(?:\{\s*([-+]?[0-9]++)\s*\}|([0-9]))\s*(?:\{\s*([0-9]++)\s*\}|([0-9]))"
)
_NEGATIVE = re.compile(r"(?<![0-9])(\s|^)(?:minus|negative)\s+(?=[0-9.])", re.I)
_DECORATION = re.compile(r"(?<!\w)(?:\*\*|__)|(?:\*\*|__)(?!\w)|[`$]|\\[()\[\]$!]")  # but not `2**3`


@dataclasses.dataclass(frozen=True)
class Found:
    """What an answer gives.

    Attributes:
        text: the number as it was written, or what stands in its place, shortened; empty if there is no answer at all.
        value: its exact value; None if there is no answer, or none that is a single readable number.
    """

    text: str
    value: Fraction | None


def find(answer: str) -> Found:
    """Reads the number that an answer gives, by the rule in the module's docstring. Never raises."""
    answer = answer.rpartition("</think>")[2]
    if "<think>" in answer:
        return Found("", None)
    boxes = list(_BOX.finditer(answer))
    if boxes:
        inside = _inside(answer, boxes[-1].end())
        return Found("", None) if inside is None else _boxed(_plain(inside))
    text = _plain(answer)
    labels = _LABEL.findall(text)
    return _labelled(labels[-1]) if labels else _last(text)


def read(number: str) -> Fraction | None:
    """The exact value of a number as NUMBER writes it; None if it is too long to be worth it, or divides by zero."""
    above, _, below = number.replace(" ", "").partition("/")
    exponent = re.split("[eE]", above)[1:]
    if len(number) > _LONGEST or any(len(digits.lstrip("-+")) > _EXPONENT_DIGITS for digits in exponent):
        return None
    if not below:
        return Fraction(above)
    return Fraction(above) / int(below) if int(below) else None


def _inside(answer: str, start: int) -> str | None:
    """The text from `start` to the brace that closes it, or None."""
    depth = 1
    for brace in re.finditer(r"[{}]", answer[start:]):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return answer[start : start + brace.start()]
    return None


def _plain(text: str) -> str:
    """Takes away what only decorates numbers: separators, LaTeX, bold, the many minus signs."""
    text = text.replace("\u2212", "-").replace("\u2013", "-")
    text = _THOUSANDS.sub(lambda match: re.sub(r"[^0-9]", "", match.group()), text)
    text = _DECORATION.sub(" ", _WRAPPED.sub(r" \1 ", text))
    text = _LATEX_FRACTION.sub(r"\1\2/\3\4", text)
    return _NEGATIVE.sub(r"\1-", text)


def _boxed(content: str) -> Found:
    whole = _BOXED_NUMBER.fullmatch(content)
    return _found(whole.group(1)) if whole else Found(_short(content), None)


def _labelled(line: str) -> Found:
    given = []
    for clause in _CLAUSE_END.split(line):
        settled = clause.rpartition("=")[2]
        numbers = list(_NUMBER.finditer(settled))
        if any(_operand(settled, number) for number in numbers):
            return Found(_short(line), None)
        given += [_found(number.group()) for number in numbers]
    if not given or any(other.value != given[0].value for other in given):
        return Found(_short(line), None)
    return given[0]


def _last(text: str) -> Found:
    numbers = list(_NUMBER.finditer(text))
    if not numbers or re.search(r"\w", text[numbers[-1].end() :]):
        return Found("", None)
    last = numbers[-1]
    found = _found(last.group())
    if _operand(text, last):
        return Found(_short(text[: last.end()], end=True), None)
    if len(numbers) > 1:
        before = numbers[-2]
        between = text[before.end() : last.start()]
        if len(between) <= _NEAR and _HEDGE.fullmatch(between) and read(before.group()) != found.value:
            return Found(_short(text[before.start() : last.end()]), None)
    return found


def _operand(text: str, number: re.Match[str]) -> bool:
    before = text[max(0, number.start() - _NEAR) : number.start()]
    after = text[number.end() : number.end() + _NEAR]
    return bool(_OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after))


def _found(number: str) -> Found:
    return Found(_short(number), read(number))


def _short(text: str, end: bool = False) -> str:
    text = " ".join(text.split())
    if len(text) <= _SHOWN:
        return text
    return f"...{text[-_SHOWN:]}" if end else f"{text[:_SHOWN]}..."
