"""Reads an answer of the Reflection baseline: the two steps the policy would branch at (method, "Baselines")."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class StepAnswer:
    """What an answer named.

    Attributes:
        steps: the usable ones, STEP before STEP2; never defaulted.
        unparsed, out_of_range, too_close: how many of the two were dropped, and why.
    """

    steps: tuple[int, ...]
    unparsed: int
    out_of_range: int
    too_close: int


def parse_steps(text: str, lo: int, hi: int, spacing: int = 1) -> StepAnswer:
    """Parses the answer lines `STEP: n` and `STEP2: n`.

    A line has to be nothing but its field, in any case; a field named twice with different numbers is unparsed. A step
    outside lo..hi is dropped, and STEP2 if it is less than `spacing` steps from STEP.

    Args:
        lo, hi: the smallest and largest step there is. spacing: least distance in steps.
    """
    steps: list[int] = []
    unparsed = out_of_range = too_close = 0
    for field in ("step", "step2"):
        named = re.findall(rf"^[\s*_]*{field}[\s*_]*:(.*)$", text, re.IGNORECASE | re.MULTILINE)
        numbers = {re.sub(r"[\s*_.]", "", value) for value in named}
        number = numbers.pop() if len(numbers) == 1 else ""
        if not re.fullmatch(r"[0-9]{1,9}", number):
            unparsed += 1
        elif not lo <= int(number) <= hi:
            out_of_range += 1
        elif steps and abs(int(number) - steps[0]) < spacing:
            too_close += 1
        else:
            steps.append(int(number))
    return StepAnswer(tuple(steps), unparsed, out_of_range, too_close)
