"""When the output of a program is the expected one: one rule for what is printed, one for what a call returns.

Printed text is compared line by line; blanks at the end of a line and blank lines at the end are ignored. Lines that
differ are compared token by token, tokens being what blanks separate. Two tokens are the same

* as text, where case counts; whole numbers are text, so they are exact and `007` is not `7`; or
* as numbers, where both are plain decimal numbers and one of them has a point or an exponent: they may differ by
  `TOLERANCE`, and where both have one, by that share of the expected number. An exponent has at most four digits.

So `7.0` is 7 and `0.3333333` is a third, but 1e18 is not 10**18 + 1. `nan` and `inf` are words.

Returned values are compared as JSON: numbers as above, lists in order, objects by key, and nothing is equal across
kinds (`true` is not 1, `"1"` is not 1). NaN is never equal to anything. What is no JSON, has a key twice, is nested
deeper than the parser goes, or is more than `LONGER` times as long as the expected text and 1000 characters, is wrong.

Both rules are linear in the length of the texts.
"""

from __future__ import annotations

import decimal
import json
import re
from typing import Any

LONGER = 32  # a number of one digit can be written with 24 characters, a character with 12
TOLERANCE = decimal.Decimal("1e-6")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_CONTEXT = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)  # of a difference, which is rounded


def same_output(expected: str, output: str) -> bool:
    """Whether a printed text is the expected one."""
    expected, output = expected.rstrip(), output.rstrip()
    if expected.count("\n") != output.count("\n"):
        return False
    return all(map(_same_line, expected.split("\n"), output.split("\n")))


def same_value(expected: str, output: str) -> bool:
    """Whether a returned value is the expected one, both as JSON texts."""
    if len(output) > LONGER * len(expected) + 1000:  # parsing megabytes takes seconds
        return False
    try:
        left = [(_parsed(expected), _parsed(output))]
    except (ValueError, RecursionError):
        return False
    while left:  # no recursion: the depth is the program's to choose
        wanted, given = left.pop()
        if type(wanted) is not type(given):
            return False
        if isinstance(wanted, list):
            if len(wanted) != len(given):
                return False
            left.extend(zip(wanted, given, strict=True))
        elif isinstance(wanted, dict):
            if wanted.keys() != given.keys():
                return False
            left.extend((value, given[key]) for key, value in wanted.items())
        elif isinstance(wanted, _Number):
            if not _same_token(wanted.text, given.text):
                return False
        elif wanted != given:  # NaN, which is no _Number, differs from itself
            return False
    return True


def _same_line(expected: str, output: str) -> bool:
    if expected == output:
        return True
    wanted, given = expected.split(), output.split()
    return len(wanted) == len(given) and all(map(_same_token, wanted, given))


def _same_token(expected: str, output: str) -> bool:
    if expected == output:
        return True
    if not _NUMBER.fullmatch(expected) or not _NUMBER.fullmatch(output):
        return False
    whole = _WHOLE.fullmatch(expected), _WHOLE.fullmatch(output)
    if all(whole):
        return False
    first, second = decimal.Decimal(expected), decimal.Decimal(output)
    difference = _CONTEXT.subtract(first, second).copy_abs()
    return difference <= TOLERANCE or not any(whole) and difference <= _CONTEXT.multiply(TOLERANCE, first.copy_abs())


class _Number:
    """A number of a JSON text, as it was written: it may have more digits than Python turns into an integer."""

    def __init__(self, text: str):
        self.text = text


def _parsed(text: str) -> Any:
    """Raises ValueError: no JSON, or a key twice. RecursionError: nested too deeply."""
    return json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a key twice")
    return names
