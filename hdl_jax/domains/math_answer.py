r"""Where a response gives its final answer: one rule a data set, with the instruction that asks for what it reads.

A rule looks at what follows the last `</think>`; where a `<think>` is still open there, the response is unfinished and
has no answer. It then reads:

* `boxed`: the last `\boxed{...}` or `\fbox{...}`, to the brace that closes it. The last one decides: if it is cut off
  or empty there is no answer. `\boxed 42`, without a brace, is no box.
* `hash`: what follows the last `####` on its line, or on the next line that is not blank.
* `answer`: the same after the last `Answer:`, in any case, bold or not.
* `end`: the number that the text ends with, as reasoning_answer.py reads it. For models too small to keep to a form.

Nothing else in a response is ever taken for its answer. Reading is linear in the length of a response.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable

from hdl_jax.domains import reasoning_answer

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.S)  # an escaped brace is a character
_HASH = re.compile(r"(?<!#)####(?!#)")
_LABEL = re.compile(r"\banswer(?:\*\*|__)?[ \t]*:", re.I)
_BOLD = re.compile(r"^(?:\*\*|__)\s*|\s*(?:\*\*|__)$")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    # A deque of one keeps the last without a list of them all.
    return next(iter(collections.deque(pattern.finditer(text), maxlen=1)), None)


def _boxed(text: str) -> str | None:
    last = _last(_BOX, text)
    if last is None:
        return None
    depth = 1
    for brace in _BRACE.finditer(text, last.end()):
        depth += (brace.group() == "{") - (brace.group() == "}")
        if depth == 0:
            return text[last.end() : brace.start()].strip() or None
    return None


def _marked(marker: re.Pattern[str], text: str) -> str | None:
    last = _last(marker, text)
    if last is None:
        return None
    line = text[last.end() :].lstrip().partition("\n")[0].strip()
    return _BOLD.sub("", line) or None


def _ending(text: str) -> str | None:
    found = reasoning_answer.find(text)
    return found.text if found.value is not None else None


@dataclasses.dataclass(frozen=True)
class Rule:
    r"""How a final answer is asked for and read.

    Attributes:
        name: in `RULES`.
        instruction: follows a question.
        marker: what an instruction must name for the rule to find anything.
        reader: the answer in the part of a response that follows its thinking.
    """

    name: str
    instruction: str
    marker: str
    reader: Callable[[str], str | None]

    def find(self, response: str) -> str | None:
        """The final answer as it was written; None where there is none."""
        finished = response.rpartition("</think>")[2]
        return None if "<think>" in finished else self.reader(finished)


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "boxed",
            "Think it through step by step. At the end, write your final answer, and only that, inside \\boxed{}.",
            "\\boxed",
            _boxed,
        ),
        Rule(
            "hash",
            "Work it out step by step. Then write a last line of four hash signs and the answer, like #### ANSWER",
            "####",
            lambda text: _marked(_HASH, text),
        ),
        Rule(
            "answer",
            "Work it out step by step. Then write the final answer on a last line of its own: Answer: ANSWER",
            "Answer:",
            lambda text: _marked(_LABEL, text),
        ),
        Rule(
            "end",
            "Show the calculation in one line and end with the result.",
            "end with the result",
            _ending,
        ),
    )
}


def check_prompt(rule: Rule, instruction: str) -> None:
    """Refuses an instruction after which right answers would not be found.

    Raises:
        ValueError: the instruction does not ask for the form that the rule reads.
    """
    if rule.marker.casefold() not in instruction.casefold():
        others = [other.name for other in RULES.values() if other.marker.casefold() in instruction.casefold()]
        hint = f"; it asks for what the rule {others[0]!r} reads" if others else ""
        raise ValueError(
            f"the extraction rule {rule.name!r} reads an answer after {rule.marker!r}, which the instruction "
            f"{instruction!r} does not ask for{hint}. Change one of the two, for example to: {rule.instruction}"
        )
