"""Judges a response: finds its program, runs it on every test, and says what came of it. docs/code.md shows it.

All tests are run, whatever the first ones give; the reward is the share of them that pass. The program never sees what
is expected, so nothing that it prints or returns can claim to be right.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from hdl_jax.data.code_row import CodeRow, CodeTest
from hdl_jax.domains import code_answer
from hdl_jax.domains.code_compare import same_output, same_value
from hdl_jax.domains.sandbox_types import Program, Run, Sandbox

SHOWN_TESTS = 3  # of those that failed, the first ones
SHOWN = 200  # characters of each text in the feedback
QUOTE = '"'
NO_PROGRAM = (
    "No program was found: the answer must have the whole program in a closed ```python block, the last of its kind."
)

# Solutions of sites that call a function use names that the site has imported for them. None of these hides a built-in
# function, and what the program itself defines or imports replaces them.
PRELUDE = """\
from typing import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re, string
import sys, time
from bisect import bisect_left, bisect_right, insort, insort_left, insort_right
from collections import *
from copy import deepcopy
from functools import cache, cmp_to_key, lru_cache, partial, reduce
from heapq import *
from itertools import *
from math import ceil, comb, cos, dist, e, exp, fabs, factorial, floor, fmod, gcd, hypot, inf, isclose, isqrt, lcm, log
from math import log2, log10, nan, perm, pi, prod, sin, sqrt, tan, trunc
from operator import add, and_, attrgetter, itemgetter, mul, or_, sub, xor
from random import choice, randint, randrange, shuffle
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, punctuation
"""


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a response earned.

    Attributes:
        reward: the share of the tests that passed.
        feedback: the text for hindsight. It quotes what the program printed, escaped and cut.
        outcomes: one a test: `passed`, `wrong`, `error`, `timeout`, `memory` or `output`; none without a program.
        unparsed: whether no program was found.
    """

    reward: float
    feedback: str
    outcomes: tuple[str, ...]
    unparsed: bool


def judge(sandbox: Sandbox, row: CodeRow, response: str) -> Judged:
    """Runs the program of a response on all tests of a problem.

    Raises:
        SandboxFailure: the sandbox failed, which says nothing about the response.
    """
    source = code_answer.find(response)
    if source is None:
        return Judged(0.0, NO_PROGRAM, (), True)
    runs = sandbox.run(Program(source, row.entry, PRELUDE), [test.input for test in row.tests])
    same = same_value if row.entry else same_output
    outcomes = []
    for test, run in zip(row.tests, runs, strict=True):
        ended = "passed" if same(test.output, run.output) else "wrong"
        outcomes.append(ended if run.outcome == "ran" else run.outcome)
    return Judged(outcomes.count("passed") / len(outcomes), _feedback(row, runs, outcomes), tuple(outcomes), False)


def _feedback(row: CodeRow, runs: list[Run], outcomes: list[str]) -> str:
    total, passed = len(outcomes), outcomes.count("passed")
    if passed == total:
        return f"Passed all {total} tests." if total > 1 else "Passed the only test."
    failed = [index for index, outcome in enumerate(outcomes) if outcome != "passed"]
    parts = [f"Passed {passed} of {total} tests."]
    for index in failed[:SHOWN_TESTS]:
        parts.append(f"Test {index + 1}: {_failure(row.entry, row.tests[index], runs[index], outcomes[index])}")
    others = Counter(outcomes[index] for index in failed[SHOWN_TESTS:])
    if others:
        parts.append(f"Other tests: {', '.join(f'{count} {outcome}' for outcome, count in sorted(others.items()))}")
    return "\n\n".join(parts)


def _failure(entry: str, test: CodeTest, run: Run, outcome: str) -> str:
    """What there is to say of a test that failed, each thing on a line of its own."""
    lines = [outcome if outcome == "wrong" or not run.detail else f"{outcome}, {_line(run.detail)}"]
    if entry:
        arguments = test.input.strip().removeprefix("[").removesuffix("]")
        lines += [f"call: {entry}({_line(arguments)})", f"expected: {_line(test.output)}"]
        returned = f"returned: {_line(run.output)}"
    else:
        lines += [f"input: {_line(test.input, QUOTE)}", f"expected output: {_line(test.output, QUOTE)}"]
        returned = f"output: {_line(run.output, QUOTE)}"
    if run.output or outcome == "wrong":
        lines.append(returned)
    return "\n".join(lines)


def _line(text: str, quote: str = "") -> str:
    """A text on one line: what cannot be printed is written as in a Python literal, and so is all of it in quotes.

    It has at most SHOWN characters, half of them of its end, apart from the quotes and from what says how many are
    left out between.
    """

    def fitting(chars: Iterable[str], room: int) -> list[str]:
        found = []
        for char in chars:
            if not char.isprintable():
                char = repr(char)[1:-1]
            elif quote and char in (quote, "\\"):
                char = "\\" + char
            room -= len(char)
            if room < 0:
                break
            found.append(char)
        return found

    whole = fitting(text, SHOWN)
    if len(whole) == len(text):
        return f"{quote}{''.join(whole)}{quote}"
    head, tail = fitting(text, SHOWN // 2), fitting(reversed(text), SHOWN // 2)[::-1]
    left_out = len(text) - len(head) - len(tail)
    return f"{quote}{''.join(head)}{quote} ... {left_out} characters ... {quote}{''.join(tail)}{quote}"
