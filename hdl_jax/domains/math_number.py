r"""Plain numbers, read exactly from a cleaned text: `-1234.5`, `6.02e23`, `6.02\times10^{23}`, `\frac{3}{4}`, `3/4`,
`1 1/2`, `0.1\overline{6}`, `0.333\ldots`. Anything else, and any number too large to be worth it, is None.
"""

from __future__ import annotations

import re
from fractions import Fraction

BITS = 1 << 17  # of numerator or denominator: arithmetic on more is no longer cheap
_DIGITS = 1000
_EXPONENT = 10_000

_DECIMAL = r"(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)"
_TIMES_TEN = r"\s*(?:\\times|\\cdot|\*|(?<=[0-9. ])x)\s*10\s*(?:\^|\*\*)\s*"
_POWER = r"(?:\{\s*([-+]?[0-9]+)\s*\}|\(\s*([-+]?[0-9]+)\s*\)|([-+]?[0-9]+))"
_NUMBER = re.compile(rf"({_DECIMAL})(?:[eE]([-+]?[0-9]+)|{_TIMES_TEN}{_POWER})?")
_TEN_TO = re.compile(rf"10\s*(?:\^|\*\*)\s*{_POWER}")
_SIGNS = re.compile(r"(?:[-+]\s*)+")
_BRACED = r"(?:\{\s*([-+]?[^{}]+?)\s*\}|([0-9]))"
_FRACTION = re.compile(rf"\\frac\s*{_BRACED}\s*{_BRACED}")
_MIXED = re.compile(
    r"([0-9]+)\s*(?:\\frac\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))|(?<=\s)([0-9]+)/([0-9]+))"
)
_SPACED = re.compile(r"[0-9]{1,3}(?: [0-9]{3})+(?:\.[0-9]+)?")
_REPEATING = re.compile(
    r"([0-9]*)\.([0-9]*)(?:\\overline\s*\{\s*([0-9]+)\s*\}|\\dot\s*\{?\s*([0-9])\s*\}?|\(([0-9]+)\))(?:\s*\\ldots)?"
)
_ENDLESS = re.compile(r"([0-9]*)\.([0-9]*?)(?:([0-9])\3{2,}|([0-9]{2,6})\4+)\s*\\ldots")


def read(text: str) -> Fraction | None:
    """The exact value of a plain number; None where the text is anything else, or too large."""
    text = text.strip()
    if len(text) > _DIGITS:
        return None
    signs = _SIGNS.match(text)
    negative = signs is not None and signs.group().count("-") % 2 == 1
    value = _unsigned(text[signs.end() :] if signs else text)
    return -value if value is not None and negative else value


def _unsigned(text: str) -> Fraction | None:
    if number := _NUMBER.fullmatch(text):
        mantissa, *exponents = number.groups()
        return _scaled(mantissa, next((e for e in exponents if e), "0"))
    if power := _TEN_TO.fullmatch(text):
        return _scaled("1", next(e for e in power.groups() if e))
    if mixed := _MIXED.fullmatch(text):
        whole, above, below = mixed[1], mixed[2] or mixed[3] or mixed[6], mixed[4] or mixed[5] or mixed[7]
        part = _divided(Fraction(above), Fraction(below))
        return None if part is None else Fraction(whole) + part
    if _SPACED.fullmatch(text):
        return Fraction(text.replace(" ", ""))
    if fraction := _FRACTION.fullmatch(text):
        return _divided(read(fraction[1] or fraction[2]), read(fraction[3] or fraction[4]))
    if text.count("/") == 1:
        above, below = text.split("/")
        return _divided(_simple(above), _simple(below))
    if (repeating := _REPEATING.fullmatch(text)) or (repeating := _ENDLESS.fullmatch(text)):
        whole, fixed, *blocks = repeating.groups()
        return _repeated(whole or "0", fixed, next(block for block in blocks if block))
    return None


def _simple(text: str) -> Fraction | None:
    """A decimal with or without a sign; not a fraction or a mixed number, which no `/` could follow or precede."""
    return read(text) if re.fullmatch(rf"\s*[-+]?\s*{_DECIMAL}\s*", text) else None


def _scaled(mantissa: str, exponent: str) -> Fraction | None:
    if len(exponent.lstrip("-+").lstrip("0")) > 6 or abs(int(exponent)) > _EXPONENT:
        return None
    return Fraction(mantissa if mantissa[-1] != "." else mantissa[:-1]) * Fraction(10) ** int(exponent)


def _divided(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    return None if above is None or not below else above / below


def _repeated(whole: str, fixed: str, block: str) -> Fraction:
    shift = 10 ** len(fixed)
    return Fraction(int(whole + fixed), shift) + Fraction(int(block), shift * (10 ** len(block) - 1))
