"""What a method may ask of the engine: sample lanes from a prefix, teacher-force ids, run host work.

A method is a generator that yields lists of these and is sent the list of their results, in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np

# Called with (token ids sampled since the last call, whether a stop token ended them rather than the budget).
# Returns the observation's ids and the token budget of the next turn, or None when the lane is over.
Respond = Callable[[list[int], bool], tuple[list[int], int] | None]


@dataclasses.dataclass(frozen=True)
class Lane:
    """One sampled path.

    Attributes:
        path: (stream, problem, root, fork, round, lane), the lane's name among all draws of the step.
        fork: prefix tokens kept; the first sampled token has this index. 1 <= fork <= len(prefix).
        budget: tokens it may sample in its first turn, at least 1.
        temperature: of the draw; recorded log-probs are of the tempered distribution.
        stop: token ids that end a turn.
        respond: what happens at the end of a turn; None ends the lane there.
    """

    path: tuple[int, int, int, int, int, int]
    fork: int
    budget: int
    temperature: float
    stop: tuple[int, ...]
    respond: Respond | None = None


@dataclasses.dataclass(frozen=True)
class LaneResult:
    """A finished lane. All arrays [n], the tokens after the fork.

    Attributes:
        tokens: int32; generated: bool, sampled rather than fed; log_probs: float32, 0 where fed.
        stopped: whether the last turn drew its stop token (False: a budget or the cache ended it).
        failure: the environment failure that ended it, if one did.
    """

    tokens: np.ndarray
    generated: np.ndarray
    log_probs: np.ndarray
    stopped: bool
    failure: Exception | None = None


@dataclasses.dataclass(frozen=True)
class Held:
    """A cache row that keeps a scored prefix for its continuations. Given to one Sample request, which frees it."""

    row: int
    tokens: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sample:
    """Sample lanes from one prefix (ids, or a Held row). phase names what its time and tokens are booked under."""

    prefix: np.ndarray | Held
    lanes: tuple[Lane, ...]
    phase: str


@dataclasses.dataclass(frozen=True)
class Score:
    """Teacher-force `tokens`: one prefill pass, at `temperature`. hold keeps the row's KV for a Sample to come."""

    tokens: np.ndarray
    phase: str
    hold: bool = False
    temperature: float = 1.0


@dataclasses.dataclass(frozen=True)
class Scored:
    """Result of a Score; arrays float32 [T] indexed like its tokens, entry 0 is 0.

    Attributes:
        log_probs: log-probability of tokens[i] given tokens[:i]. entropies: of the distribution tokens[i] came from.
        held: the row, where it was asked to be held.
    """

    log_probs: np.ndarray
    entropies: np.ndarray
    held: Held | None


@dataclasses.dataclass(frozen=True)
class Call:
    """Host work (an environment replay, a verifier) for the worker pool. An EnvironmentFailure is its result."""

    function: Callable[[], Any]
    phase: str


@dataclasses.dataclass(frozen=True)
class Release:
    """Gives a held row back unused; its result is None. What a finished coroutine still holds is released for it."""

    held: Held


Request = Sample | Score | Call | Release
T = TypeVar("T")
Job = Generator[list[Request], list[Any], T]
