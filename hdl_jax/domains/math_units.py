r"""Units of a value, and words that scale one: `5 km`, `12 \text{ cm}^2`, `45^\circ`, `\$5`, `18 dollars`, `3 million`.

Units are compared by name. `km`, `kilometre` and `\text{kilometers}` are one unit, but nothing is converted: 5 km is
neither 5 m nor 5000 m.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

from hdl_jax.domains import math_number

Unit = tuple[tuple[str, int], ...]  # (name, power), in the order of names; empty: none

# The first spelling of a line is the unit's name; a plural in s needs no entry.
_SPELLINGS = r"""
m metre meter
cm centimetre centimeter
mm millimetre millimeter
km kilometre kilometer
nm nanometre nanometer
inch inches in
foot feet ft
yard yd
mile mi
lightyear ly
g gram gm
kg kilogram kilo
mg milligram
tonne
ton
pound lb
ounce oz
second sec s
millisecond ms
minute min
hour hr h
day
week wk
month
year yr
litre liter l L
ml millilitre milliliter
gallon gal
degree deg circ
radian rad
dollar usd $
cent
euro eur
sterling gbp
rupee rs inr
newton N
joule J
kilojoule kj
watt W
kilowatt kw
volt V
ampere amp A
ohm Omega
pascal pa
kilopascal kpa
hertz hz
kelvin K
celsius
fahrenheit
coulomb C
farad F
tesla T
mole mol
electronvolt ev
unit
person people
man men
woman women
child children
penny pennies
"""
_NAMES = {spelling: line.split()[0] for line in _SPELLINGS.strip().splitlines() for spelling in line.split()}
_KNOWN = frozenset(_NAMES.values())
_RATES = {"mph": "mile/hour", "kmh": "km/hour", "kph": "km/hour", "kmph": "km/hour"}
_BEFORE = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER = {"squared": 2, "cubed": 3}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
# What follows a number in these words is no unit of it.
_NO_UNITS = frozenset(
    """a above an and any approximately are as at base because below but by choose exactly factorial for from hence if
    is less many mod modulo more most no not of only or otherwise over plus minus power since so solution solutions
    such sum than the then there thus times to total was were when where which while with
    half halves third thirds quarter quarters fifth fifths sixth sixths eighth eighths tenth tenths hundredth
    hundredths thousandth thousandths""".split()
)
_LONGEST = 4  # words

_POWER = r"(?:\s*\^\s*(?:\{\s*[-+]?[1-4]\s*\}|[-+]?[1-4]))?"
_WORD = r"(?:\\text\s*\{[^{}]*\}|\\degree|\\Omega(?![a-zA-Z])|\\\$|(?<![\\a-zA-Z])[a-zA-Z]+\.?)"
_TAIL = re.compile(rf"(?:{_WORD}{_POWER}\s*(?:(?:/|\\cdot|\*)\s*)?)+$")
_QUOTIENT = re.compile(rf"\\frac\s*\{{\s*({_WORD}{_POWER})\s*\}}\s*\{{\s*({_WORD}{_POWER})\s*\}}$")
_SURE = re.compile(r"\\text|\\degree|\\\$")
_MONEY = re.compile(r"^([-+]?)\s*(\\\$|\\euro|\\pounds|Rs\.?|USD)\s*(?=[-+0-9.\\(])")
_PERCENT = re.compile(r"\s*(?:\\%|%|(?:\\text\s*\{\s*)?(?:percent|per cent|pct)(?:age)?(?: points?)?(?:\s*\})?)$", re.I)
_ATOM = re.compile(r"(/)|([a-zA-Z$]+)\.?\s*(?:\^\s*\{?\s*([-+]?[0-9])\s*\}?)?|(\S)")
_TRIGONOMETRY = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A value's text with what was around it: its unit, the factor of words such as `million`, and a percent sign."""

    value: str
    unit: Unit = ()
    scale: int = 1
    percent: bool = False


def read(text: str) -> Unit | None:
    r"""A unit by itself, from a cleaned text: `km/h`, `\text{cm}^2`, `square metres`. None where it is no unit."""
    text = re.sub(r"\\frac\s*\{(.*)\}\s*\{(.*)\}", r"\1 / \2", text)
    for command in (r"\text", r"\cdot", r"\times", "{", "}", "*", "\\"):
        text = re.sub(re.escape(command) + ("(?![a-zA-Z])" if command[1:] else ""), " ", text)
    words = re.sub(r"(?<![a-zA-Z])(?:per|a)(?![a-zA-Z])", "/", text)
    for short, long in _RATES.items():
        words = re.sub(rf"(?<![a-zA-Z]){short}(?![a-zA-Z])", long, words)
    powers: Counter[str] = Counter()
    sign, pending, last = 1, 1, ""
    for slash, word, power, other in _ATOM.findall(words):
        if other or word.lower() in _NO_UNITS:
            return None
        if slash:
            sign = -1
        elif word.lower() in _BEFORE:
            pending = _BEFORE[word.lower()]
        elif word.lower() in _AFTER:
            if not last:
                return None
            powers[last] *= _AFTER[word.lower()]
        else:
            last = _name(word)
            powers[last] += sign * pending * int(power or 1)
            pending = 1
    for letter, scale in (("coulomb", "celsius"), ("farad", "fahrenheit")):
        if "degree" in powers and powers.keys() & {letter, scale}:
            powers = Counter({scale: 1})
    return tuple(sorted(item for item in powers.items() if item[1])) or None


def _name(word: str) -> str:
    if word in _NAMES or len(word) == 1:
        return _NAMES.get(word, word)
    singular = re.sub(r"(?<=[a-z]{2})s$", "", word.lower())
    return _NAMES.get(word.lower()) or _NAMES.get(singular, singular)


def cut(text: str, letters: bool = False) -> Quantity:
    r"""Cuts unit, scale and percent sign off a cleaned text; what cannot be such is left in the value.

    Words in `\text{}` are a unit of whatever precedes them. Bare words are one after a number: any words after a plain
    number, known units after another, and single letters, which could be variables, only if `letters` says so.
    """
    if money := _MONEY.match(text):
        rest = cut(text[money.end() :])
        money_unit = read(money[2].replace("pounds", "gbp")) or ()
        return dataclasses.replace(rest, value=money[1] + rest.value, unit=tuple(sorted(money_unit + rest.unit)))
    if (percent := _PERCENT.search(text)) and percent.start():
        return Quantity(text[: percent.start()].strip(), percent=True)
    found = _QUOTIENT.search(text) or _TAIL.search(text)
    if not found:
        return Quantity(text)
    # Bare letters before the first unit that is surely one may be variables: x \text{ km}.
    starts = [found.start(), *(found.start() + sure.start() for sure in _SURE.finditer(found.group()))]
    for start in starts[:2]:
        if quantity := _quantity(text[:start].strip(), text[start:].strip(), letters):
            return quantity
    return Quantity(text)


def _quantity(value: str, words: str, letters: bool) -> Quantity | None:
    if not value or value[-1] in "+-/*^_=(,\\":
        return None
    scale = 1
    for word, factor in _SCALES.items():
        if scaled := re.match(rf"(?:\\text\s*\{{\s*)?{word}s?(?![a-zA-Z])", words, re.I):
            words, scale = words[scaled.end() :].strip(" }"), factor
            break
    if not words and scale > 1:
        return Quantity(value, scale=scale)
    unit = read(words)
    if unit is None or len(unit) > _LONGEST or not _plausible(value, words, unit, letters):
        return None
    return Quantity(value, unit, scale)


def _plausible(value: str, words: str, unit: Unit, letters: bool) -> bool:
    if "\\degree" in words and _TRIGONOMETRY.search(value):
        return False  # the argument's, not the value's
    if words.startswith(("\\text", "\\degree", "\\$", "\\frac")):
        letter = re.fullmatch(r"\\text ?\{ ?([a-zA-Z]) ?\}", words)
        return not letter or letter[1] in _NAMES
    plain = math_number.read(value) is not None
    if letters and plain:
        return True
    bare = re.findall(r"[a-zA-Z]+", words)
    if all(name in _KNOWN for name, _ in unit) and len(bare[0]) > 1:
        return plain or not re.search(r"(?<![\\a-zA-Z])[a-zA-Z]", value)
    return plain and all(len(word) > 2 for word in bare)
