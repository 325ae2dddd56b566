"""Reasoning: short arithmetic tasks of the reasoning_gym package, some within reach of a model of 135M parameters.

The package draws the numbers and works out the references. The wording is ours: its own asks for the bare result,
which leaves nothing to branch in, and prompts must ask for what the verifier reads. The package's scorers are never
called, because some run code found in an answer and the default one pays for a substring: reasoning_answer.py reads
and compares answers.

Only families that draw everything from a seeded generator are used, so that a task is the same in every process; some,
polynomial_multiplication for one, depend on PYTHONHASHSEED. Tasks with a negative result are left out: models of this
size fail them. Within a family no question is asked twice, and families are worded apart, so no two splits share a
question; `3 + 4` and `4 + 3` are two.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hdl_jax.domains import reasoning_answer
from hdl_jax.domains.domain import Problem, Verdict
from hdl_jax.domains.single_turn import SingleTurn
from hdl_jax.domains.words import classify


@dataclasses.dataclass(frozen=True)
class Family:
    """Tasks of one kind.

    Attributes:
        dataset: its name in reasoning_gym.
        settings: the level, as that dataset's configuration takes it.
        task: a `str.format` template over an item's metadata.
        form: asks for the form of the answer.
        sizes: how many different questions each split has.
    """

    dataset: str
    settings: Mapping[str, Any]
    task: str
    form: str
    sizes: Mapping[str, int]


_TWO_TERMS = {"min_terms": 2, "max_terms": 2}
_TWO_NUMBERS = {"min_numbers": 2, "max_numbers": 2}
_CALCULATION = "Show the calculation in one line and end with the result."
_ANSWER = "Answer in one line and end with the result."
# Levels and wording are those at which SmolLM2-135M-Instruct, at temperature 1, often solves a task in one attempt and
# not in another: 34 % of answers are right in arithmetic, 17 % in divisors, 9 % in multiples, 1 % in equations. Easy
# levels have few different questions, so that the sizes are near what there is, but for the equations, kept few. The
# one-digit tasks of the datasets chain_sum and products are among those of basic_arithmetic.
FAMILIES: dict[str, Family] = {
    "arithmetic": Family(
        "basic_arithmetic",
        {**_TWO_TERMS, "max_digits": 1, "operators": ("+", "-", "*"), "allow_parentheses": False},
        "Compute {expression}.",
        _CALCULATION,
        {"train": 224, "validation": 32, "test": 32},
    ),
    "divisors": Family(
        "gcd",
        {**_TWO_NUMBERS, "min_value": 2, "max_value": 15},
        "What is the greatest common divisor of {numbers[0]} and {numbers[1]}?",
        _ANSWER,
        {"train": 96, "validation": 16, "test": 16},
    ),
    "multiples": Family(
        "lcm",
        {**_TWO_NUMBERS, "min_value": 1, "max_value": 10},
        "What is the least common multiple of {numbers[0]} and {numbers[1]}?",
        _ANSWER,
        {"train": 48, "validation": 8, "test": 8},
    ),
    "equations": Family(
        "simple_equations",
        {**_TWO_TERMS, "min_value": 1, "max_value": 5, "operators": ("+",), "operators_weights": (1.0,)},
        "If {equation}, what is {variable}?",
        _ANSWER,
        {"train": 16, "validation": 8, "test": 8},
    ),
}
SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Item:
    """One task: the key of its family, what asks for the form of the answer, and the reference, a whole number."""

    family: str
    task: str
    form: str
    reference: str

    @property
    def question(self) -> str:
        """The task as it is asked."""
        return f"{self.task} {self.form}"


@functools.cache
def tasks() -> dict[str, tuple[Item, ...]]:
    """All tasks of each split, the families mixed, so that the first few are a sample of all. Drawn once a process.

    Raises:
        ImportError: reasoning_gym is not installed.
    """
    try:
        import reasoning_gym
    except ImportError as error:
        raise ImportError(
            "domain.name='reasoning' needs the reasoning-gym package: pip install 'hdl_jax[reasoning]'"
        ) from error
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for number, (name, family) in enumerate(FAMILIES.items()):
        # An item is a function of seed + index alone: families must not start at the same seed.
        dataset = reasoning_gym.create_dataset(family.dataset, seed=number * 1_000_000, **family.settings)
        drawn: dict[str, Item] = {}
        for index in itertools.count():
            if len(drawn) == sum(family.sizes.values()):
                break
            entry = dataset[index]
            task = family.task.format(**entry["metadata"])
            if int(entry["answer"]) >= 0:
                drawn.setdefault(task, Item(name, task, family.form, entry["answer"]))
        different = iter(drawn.values())
        # The held-out splits take theirs first: a larger train split would leave them as they are.
        for split in reversed(SPLITS):
            splits[split] += itertools.islice(different, family.sizes[split])
    for split, chosen in splits.items():
        random.Random(f"reasoning/{split}").shuffle(chosen)
    return {split: tuple(chosen) for split, chosen in splits.items()}


class ReasoningEpisode(SingleTurn):
    """One attempt at one task: the first action is the answer and ends the episode."""

    def __init__(self, item: Item):
        self._item = item

    def opening(self) -> str:
        """The question, with the form the answer should have."""
        return self._item.question

    def verdict(self) -> Verdict:
        """Reward 1 for a right answer, 0 for any other or none. Reading an answer cannot fail."""
        found = reasoning_answer.find(self.response)
        if found.value == int(self._item.reference):
            return Verdict(1.0, True, "Correct.")
        if found.value is not None:
            said = f"The answer given was {found.text}"
        elif found.text:
            said = f"The answer given, {found.text}, is not one number"
        else:
            said = "No answer was found"
        feedback = f"Wrong. {said}; the right answer is {self._item.reference}."
        return Verdict(0.0, False, feedback, unparsed=found.value is None)


class Reasoning:
    """The domain: one-step arithmetic. See the module's docstring for the tasks, reasoning_answer.py for the rule.

    Raises:
        ImportError: reasoning_gym is not installed.
    """

    name = "reasoning"
    max_actions = 1

    def __init__(self) -> None:
        self._tasks = tasks()

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order. Raises ValueError for an unknown split, naming the known ones."""
        if split not in SPLITS:
            raise ValueError(f"reasoning has no split {split!r}; it has {', '.join(SPLITS)}")
        return [Problem(f"reasoning/{split}/{index}", index, split) for index in range(len(self._tasks[split]))]

    def start(self, problem: Problem) -> ReasoningEpisode:
        """A fresh episode of the problem. Raises ValueError for a problem that is in no split."""
        if problem.split not in SPLITS or not 0 <= problem.index < len(self._tasks[problem.split]):
            raise ValueError(f"reasoning has no problem {problem.index} in split {problem.split!r}")
        return ReasoningEpisode(self._tasks[problem.split][problem.index])

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """See `words.classify`."""
        return classify(action)
