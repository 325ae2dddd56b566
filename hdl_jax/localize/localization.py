"""What a localization signal returns, and the pass over the original context that all of them share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from hdl_jax.domains.domain import Problem
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.trajectory import Reflection, Trajectory
from hdl_jax.sampling.requests import Held, Job, Score, Scored


@dataclasses.dataclass(frozen=True)
class Localization:
    """Attributes:
    scores: per root, float32 [T], the signal at every generated token, 0 elsewhere.
    prefixes: per root, the KV of its original-context pass, held for its continuations.
    reflections: per root, where the signal reflects.
    """

    scores: list[np.ndarray]
    prefixes: list[Held]
    reflections: list[Reflection] = dataclasses.field(default_factory=list)


Signal = Callable[[Context, Problem, Sequence[Trajectory]], Job[Localization]]


def original_pass(ctx: Context, roots: Sequence[Trajectory]) -> Job[tuple[list[Scored], list[Held]]]:
    """Teacher-forces the recorded roots under their own context and holds their KV.

    Gives log-probabilities, exact entropies, and the prefix of every continuation, in one prefill a root.
    """
    scored = yield [Score(root.tokens, "score", hold=True, temperature=ctx.temperature) for root in roots]
    return scored, [s.held for s in scored]
