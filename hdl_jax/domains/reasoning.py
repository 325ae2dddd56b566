"""Reasoning: short arithmetic tasks of the reasoning_gym package, one answer each, easy enough for a model of 135M.

The package draws the numbers and works out the references; the wording is ours, because its own asks for the bare
result, which leaves nothing to branch in. Its scorers are never called: some run what an answer contains, and the
default one pays for a substring. reasoning_answer.py reads and compares answers instead.

Only families that draw from a seeded generator alone are used, so that an item is the same in every process, whatever
PYTHONHASHSEED. Items with a negative result are left out: a model this small does not solve them.
Within a family no question is asked twice, so that no two splits share one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hdl_jax.domains import reasoning_answer
from hdl_jax.domains.domain import Problem, Step, Verdict


@dataclasses.dataclass(frozen=True)
class Family:
    """Tasks of one kind.

    Attributes:
        dataset: its name in reasoning_gym.
        settings: the level, as that dataset's configuration takes it.
        question: a `str.format` template over an item's metadata.
        sizes: questions in train, validation and test.
    """

    dataset: str
    settings: Mapping[str, Any]
    question: str
    sizes: tuple[int, int, int]


_END = "in one line and end with the result."
_PLUS_MINUS = {"operators": ("+", "-"), "operators_weights": (0.5, 0.5)}
# Levels are as easy as they can be while a family still has enough different questions.
FAMILIES: dict[str, Family] = {
    "sums": Family(
        "chain_sum",
        {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        f"Compute {{expression}}. Show the calculation {_END}",
        (112, 14, 14),
    ),
    "long sums": Family(
        "chain_sum",
        {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2},
        f"Compute {{expression}}. Show the calculation {_END}",
        (224, 28, 28),
    ),
    "products": Family(
        "products",
        {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        f"Compute {{expression}}. Show the calculation {_END}",
        (72, 9, 9),
    ),
    "divisors": Family(
        "gcd",
        {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 20},
        f"What is the greatest common divisor of {{numbers[0]}} and {{numbers[1]}}? Answer {_END}",
        (256, 32, 32),
    ),
    "multiples": Family(
        "lcm",
        {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 20},
        f"What is the least common multiple of {{numbers[0]}} and {{numbers[1]}}? Answer {_END}",
        (256, 32, 32),
    ),
    "equations": Family(
        "simple_equations",
        {"min_terms": 2, "max_terms": 2, "min_value": 1, "max_value": 5, **_PLUS_MINUS},
        f"If {{equation}}, what is {{variable}}? Answer {_END}",
        (104, 13, 13),
    ),
}
SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Item:
    """One task: the key of its family, the question as it is asked, and the reference answer, a whole number."""

    family: str
    question: str
    reference: str


@functools.cache
def items(split: str) -> tuple[Item, ...]:
    """All tasks of a split, the families mixed, so that the first few are a sample of all. Drawn once a process.

    Raises:
        ImportError: reasoning_gym is not installed.
    """
    try:
        import reasoning_gym
    except ImportError as error:
        raise ImportError(
            "domain.name='reasoning' needs the reasoning-gym package: pip install 'hdl_jax[reasoning]'"
        ) from error
    tasks = []
    for number, (name, family) in enumerate(FAMILIES.items()):
        # An item is a function of seed + index alone: families must not start at the same seed.
        dataset = reasoning_gym.create_dataset(family.dataset, seed=number * 1_000_000, **family.settings)
        drawn: dict[str, Item] = {}
        for index in itertools.count():
            if len(drawn) == sum(family.sizes):
                break
            entry = dataset[index]
            question = family.question.format(**entry["metadata"])
            if int(entry["answer"]) >= 0:
                drawn.setdefault(question, Item(name, question, entry["answer"]))
        # The held-out splits come first: a larger train split would leave them as they are.
        train, validation, test = family.sizes
        start = {"test": 0, "validation": test, "train": test + validation}[split]
        tasks += list(drawn.values())[start : start + family.sizes[SPLITS.index(split)]]
    random.Random(f"reasoning/{split}").shuffle(tasks)
    return tuple(tasks)


class ReasoningEpisode:
    """One attempt at one task: the first action is the answer and ends the episode."""

    def __init__(self, item: Item):
        self._item = item
        self._answer: str | None = None

    def opening(self) -> str:
        """The question, with the form the answer should have."""
        return self._item.question

    def step(self, action: str) -> Step:
        """Takes the answer; later actions change nothing. There is nothing to observe."""
        if self._answer is None:
            self._answer = action
        return Step("", True)

    def verdict(self) -> Verdict:
        """Reward 1 for a right answer, 0 for any other or none. Reading an answer cannot fail."""
        found = reasoning_answer.find(self._answer or "")
        if found.value == int(self._item.reference):
            return Verdict(1.0, True, "Correct.")
        if found.value is not None:
            said = f"The answer given was {found.text}"
        elif found.text:
            said = f"The answer given, {found.text}, is not one number"
        else:
            said = "No answer was found"
        return Verdict(0.0, False, f"Wrong. {said}; the right answer is {self._item.reference}.")


_WORD = re.compile(r"(?P<argument>[0-9]+(?:[.,][0-9]+)*)|(?P<operator>[-+*/×÷=^<>≡])|(?P<word>[^\W\d_]+)")
_OPERATION = re.compile(
    r"(?:add|sum|plus|total|subtract|minus|differ|multipl|product|times|divi|quotient|remainder|modulo|equal|factor)\w*"
    r"|gcd|lcm|is|are|solve[sd]?|solving|simplif\w*|cancel\w*|comput\w*|calculat\w*",
    re.I,
)


class Reasoning:
    """The domain: one-step arithmetic. See the module's docstring for the tasks, reasoning_answer.py for the rule.

    Raises:
        ImportError: reasoning_gym is not installed.
    """

    name = "reasoning"
    max_actions = 1

    def __init__(self) -> None:
        for split in SPLITS:
            items(split)

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order. Raises ValueError for an unknown split, naming the known ones."""
        if split not in SPLITS:
            raise ValueError(f"reasoning has no split {split!r}; it has {', '.join(SPLITS)}")
        return [Problem(f"reasoning/{split}/{index}", index, split) for index in range(len(items(split)))]

    def start(self, problem: Problem) -> ReasoningEpisode:
        """A fresh episode of the problem. Raises ValueError for a problem that is in no split."""
        if problem.split not in SPLITS or not 0 <= problem.index < len(items(problem.split)):
            raise ValueError(f"reasoning has no problem {problem.index} in split {problem.split!r}")
        return ReasoningEpisode(items(problem.split)[problem.index])

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """Numbers are arguments, operators and words for operations verbs, all other words fillers."""
        spans = []
        for match in _WORD.finditer(action):
            kind = match.lastgroup
            if kind != "argument":
                kind = "verb" if kind == "operator" or _OPERATION.fullmatch(match.group()) else "filler"
            spans.append((match.start(), match.end(), kind))
        return spans
