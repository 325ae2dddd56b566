"""The protocol every domain speaks: a problem, an episode played in turns, a verdict.

A domain knows text and rewards, never tokens: the rollout layer turns text into token ids once and only appends to
them. A single-turn domain (maths, code) is an episode whose first action ends it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Problem:
    """One task of a domain.

    Attributes:
        id: unique within the domain, stable across runs, e.g. `errands/train/17`.
        index: the variation number, from which the domain rebuilds the task exactly.
        split: `train`, `validation` or `test`.
    """

    id: str
    index: int
    split: str


@dataclasses.dataclass(frozen=True)
class Step:
    """What the environment answers to one action: the observation text and whether the episode is over."""

    observation: str
    done: bool


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verifier's record of a finished (or truncated) episode.

    Attributes:
        reward: R(x, y) in [0, 1].
        success: whether the task was completed in full.
        feedback: the text f that the reflection and the hindsight context are given.
        subgoals: named sub-goals and whether each was reached; empty where a domain has none.
        unparsed: whether no answer could be read in what the policy said; never where a domain reads none.
    """

    reward: float
    success: bool
    feedback: str
    subgoals: tuple[tuple[str, bool], ...] = ()
    unparsed: bool = False


class EnvironmentFailure(RuntimeError):
    """The environment or checker failed, which says nothing about the policy: counted apart, never rewarded 0."""


class Episode(Protocol):
    """One play of one problem. Deterministic: the same actions give the same observations and verdict."""

    def opening(self) -> str:
        """The first user message: the task and the first observation."""
        ...

    def step(self, action: str) -> Step:
        """Takes one action (any text at all) and returns the observation. Never raises for a bad action."""
        ...

    def verdict(self) -> Verdict:
        """Verifies what has been done so far. Raises EnvironmentFailure when the checker itself fails."""
        ...


class Domain(Protocol):
    """A family of problems with disjoint splits.

    Attributes:
        name: the domain's name in configs and reports.
        max_actions: actions allowed an episode, counted by the rollout layer; 1 for single-turn domains.
    """

    name: str
    max_actions: int

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order. Raises ValueError for an unknown split, naming the known ones."""
        ...

    def start(self, problem: Problem) -> Episode:
        """A fresh episode of the problem."""
        ...

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """Splits an action into `(start, end, class)` character spans, class in `filler`, `verb`, `argument`.

        Used only by analyses (which kind of token a signal branches at). Spans do not overlap; characters outside
        every span have no class.
        """
        ...
