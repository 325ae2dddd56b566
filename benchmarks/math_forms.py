r"""Reference answers in another typesetting, for benchmarks.math_check. Written apart from the code that it tries.

Every form below changes the text, most of them so that only its value is left in common:

| kind | becomes |
|---|---|
| 2125, 1234567 | `2{,}125` |
| 2,125 | `2\,125` |
| 033 | `33` |
| 7 | `7.0` |
| 204, 0.006 | `2.04 \times 10^{2}`, `6 \times 10^{-3}` |
| 4.5e33 | `4.5 \times 10^{33}` |
| `\frac{1}{2}`, 1/3 | `1/2`, `\tfrac{1}{3}` |
| 62.5% | `0.625` |
| (2, 4), [1/2, 8] | brackets with `\left`, `\right`, other spaces, each part re-typeset |
| a union of sets | its parts in reverse order |
| several answers | in reverse order, joined by `\text{ and }`, each re-typeset |
| k = 1, f(x) = 2x | the value alone, re-typeset |
| another equation | its sides swapped |
| x >= 2 | `2 \leq x` |
| an expression of several terms | its terms in reverse order |
| another expression | `\left(...\right)` around it, `\dfrac`, `\cdot` between a number and a letter |
| words | in `\text{}`, in capitals |
| with a unit | the same, followed by `\text{ UNIT}` |
"""

from __future__ import annotations

import re
from fractions import Fraction

from hdl_jax.domains.math_compare import Reference

_OPEN, _CLOSE = "([{", ")]}"


def retypeset(reference: Reference) -> tuple[str, str]:
    """`(kind, answer)`: the reference answer in another form, and what kind of answer it was taken for."""
    parts = [part for answer in reference.answers for part in _cut(_plain(answer), ",")]
    if len(parts) > 1 and not _words(" ".join(reference.answers)):
        kind, answer = "several", r" \text{ and } ".join(_one(part)[1] for part in reversed(parts))
    else:
        kind, answer = _one(_plain(reference.answers[0]))
    unit = reference.unit.replace("$", "")
    if unit == "%":
        return f"{kind}, percent", rf"{answer}\%"
    if re.fullmatch(r"[a-z]+(?:/[a-z]+|\^[23])?", unit):
        base, _, power = unit.partition("^")
        return f"{kind}, unit", rf"{answer}\text{{ {base}}}{'^' + power if power else ''}"
    return (f"{kind}, unit", answer + unit) if unit else (kind, answer)


def _plain(answer: str) -> str:
    return " ".join(answer.replace("$", "").split()).strip().removesuffix(".")


def _cut(text: str, separator: str) -> list[str]:
    """The parts between separators that are inside no bracket; a comma between thousands is none."""
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        thousands = separator == "," and re.fullmatch(r"\d,\d{3}", text[i - 1 : i + 4])
        if depth == 0 and text.startswith(separator, i) and not thousands:
            parts.append(text[begin:i].strip())
            begin = i + len(separator)
    return [part for part in (*parts, text[begin:].strip()) if part]


def _words(text: str) -> bool:
    return bool(re.search(r"(?<![\\a-zA-Z])(?!arc|exp)[a-z]{4,}", re.sub(r"\\text ?\{[^}]*\}", "", text)))


def _one(text: str) -> tuple[str, str]:
    for form in (_number, _words_form, _relation, _sets, _brackets):
        if found := form(text):
            return found
    return _expression(text)


def _scientific(value: Fraction) -> str:
    power = 0
    while abs(value) >= 10:
        value, power = value / 10, power + 1
    while 0 < abs(value) < 1:
        value, power = value * 10, power - 1
    return rf"{float(value):.15g} \times 10^{{{power}}}"


def _number(text: str) -> tuple[str, str] | None:
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        return "thousands", text.replace(",", r"\,")
    if re.fullmatch(r"0\d+", text):
        return "leading zeros", text.lstrip("0")
    if re.fullmatch(r"-?\d{4,}", text):
        return "whole number", re.sub(r"(?<=\d)(?=(\d{3})+$)", "{,}", text)
    if re.fullmatch(r"[-+]?\d", text):
        return "digit", f"{text}.0"
    if re.fullmatch(r"[-+]?\d*\.?\d+", text) and len(text) < 16:
        return "decimal", _scientific(Fraction(text))
    if found := re.fullmatch(r"([-+]?\d*\.?\d+)e([-+]?\d+)", text):
        return "e-notation", rf"{found[1]} \times 10^{{{found[2]}}}"
    if found := re.fullmatch(r"(-?)\\frac\{(-?\d+)\}\{(\d+)\}", text):
        return "fraction", f"{found[1]}{found[2]}/{found[3]}"
    if found := re.fullmatch(r"(-?\d+)\.?/(\d+)", text):
        return "fraction", rf"\tfrac{{{found[1]}}}{{{found[2]}}}"
    if found := re.fullmatch(r"(-?[\d.]+) ?\\?%", text):
        return "percent", str(float(Fraction(found[1]) / 100))
    return None


def _words_form(text: str) -> tuple[str, str] | None:
    if not _words(text):
        return None
    return "words", re.sub(r"(?<![\\a-zA-Z])[a-z]{4,}", lambda match: rf"\text{{{match.group().upper()}}}", text)


def _relation(text: str) -> tuple[str, str] | None:
    sides = _cut(text, "=")
    if len(sides) == 2:
        name = re.fullmatch(
            r"\\angle [A-Z_{}1 ]+|[a-zA-Z](_\{?[^=+]*\}?)?|[a-zA-Z]\([a-z]\)|\\frac\{d ?.\}\{d ?.\}", sides[0]
        )
        if name:
            return "name = value", _one(sides[1])[1]
        return "equation", f"{sides[1]} = {sides[0]}"
    if found := re.fullmatch(r"(.*)\\geqslant(.*)", text):
        return "inequality", rf"{found[2].strip()} \leq {found[1].strip()}"
    return None


def _sets(text: str) -> tuple[str, str] | None:
    parts = _cut(text, r"\cup")
    return ("union", r" \cup ".join(_one(part)[1] for part in reversed(parts))) if len(parts) > 1 else None


def _brackets(text: str) -> tuple[str, str] | None:
    text = text.removeprefix(r"\quad")
    found = re.fullmatch(r"([a-z]?)(?:\\left)?([(\[])(.*?)(?:\\right)?([)\]])", text)
    if not found or _cut(f"({found[3]})", ",") != [f"({found[3]})"]:
        return None
    parts = _cut(found[3], ",")
    if len(parts) < 2:
        return None
    inside = r",\; ".join(_one(part)[1] for part in parts)
    return "brackets", rf"{found[1]}\left{found[2]}{inside}\right{found[4]}"


def _expression(text: str) -> tuple[str, str]:
    terms, signs, depth = [""], [""], 0
    for i, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        depth += text.startswith(r"\left", i) - text.startswith(r"\right", i) if character == "\\" else 0
        if depth == 0 and character in "+-" and terms[-1].strip():
            terms.append("")
            signs.append(character)
        elif depth == 0 and character == "-":
            signs[-1] = "-"
        else:
            terms[-1] += character
    if len(terms) > 1 and all(term.strip() for term in terms):
        pairs = list(zip(signs, terms, strict=True))[::-1]
        text = " ".join(f"{sign or '+'} {_spaced(term)}" for sign, term in pairs).removeprefix("+ ")
        return "several terms", text
    return "expression", rf"\left({_spaced(text)}\right)"


def _spaced(term: str) -> str:
    term = term.strip().replace(r"\frac", r"\dfrac")
    return re.sub(r"(?<![\d.^_{\\])(\d+) ?(?=[a-zA-Z])", r"\1 \\cdot ", term)
