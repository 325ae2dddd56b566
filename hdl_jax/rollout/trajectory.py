"""The types that pass between rollout, localization, update and report: turns, trajectories, groups.

Token ids are recorded once, when they are sampled or rendered, and only ever appended to. Text is derived from them for
people and environments; it is never encoded again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hdl_jax.domains.domain import Problem, Verdict


@dataclasses.dataclass(frozen=True)
class Turn:
    """One action of the policy and what came back.

    Attributes:
        start: index of the action's first token in the trajectory.
        end: index one past its last token (the stop token, where it was sampled, is inside).
        action: the decoded text, without the stop token.
        observation: the environment's answer; empty after the last action.
    """

    start: int
    end: int
    action: str
    observation: str


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One complete path: prompt, then the policy's tokens and the environment's, as recorded.

    Attributes:
        tokens: int32 [T], the prompt included.
        generated: bool [T], True where the policy sampled the token; never inferred from token values.
        log_probs: float32 [T], the sampler's log-probability of each generated token; 0 elsewhere. A continuation
            carries its root's values before the fork.
        prompt_length: tokens of the prompt.
        fork: index of the first token this trajectory sampled itself: prompt_length for a root, the branch point's
            index for a continuation. Only generated tokens at or after it are trained.
        turns: the actions taken, the shared ones of the root included.
        verdict: the verifier's record, None where the environment or verifier failed (never trained, never reward 0).
        truncated: whether the token or action budget ended it rather than the environment.
        origin: for a continuation, the position of its root among the group's roots; None for a root.
    """

    tokens: np.ndarray
    generated: np.ndarray
    log_probs: np.ndarray
    prompt_length: int
    fork: int
    turns: tuple[Turn, ...]
    verdict: Verdict | None
    truncated: bool
    origin: int | None = None

    @property
    def trained(self) -> np.ndarray:
        """bool [T]: the tokens the update trains on, generated at or after the fork (method step 9)."""
        return self.generated & (np.arange(len(self.tokens)) >= self.fork)


@dataclasses.dataclass(frozen=True)
class BranchPoint:
    """Where continuations of one root start.

    Attributes:
        root: position of the root among the group's roots.
        position: token index in the root; the token there is drawn again.
        score: the signal's value there; None for the fallback point of a root without a valid one.
        continuations: how many start here.
    """

    root: int
    position: int
    score: float | None
    continuations: int


@dataclasses.dataclass(frozen=True)
class Reflection:
    """The policy's own account of one root.

    Attributes:
        text: what it said. tokens: int32 [n], as sampled.
        outcome: the parsed label, `success` or `failure`; None where there is none to trust.
        truncated: whether its token budget ended it.
        cut: whether the attempt it read, or the reflection in the hindsight context, was shortened to fit.
    """

    text: str
    tokens: np.ndarray
    outcome: str | None
    truncated: bool
    cut: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Everything sampled for one problem in one step; the unit of the advantage.

    Attributes:
        problem: the problem.
        trajectories: the roots first, then the continuations in (root, point, lane) order.
        scores: per root, float32 [T] of the localization signal, NaN-free, 0 where not eligible; empty for GRPO.
        points: the branch points, highest score first within a root; empty for GRPO.
        reflections: per root; empty where the signal asks for none.
    """

    problem: Problem
    trajectories: tuple[Trajectory, ...]
    scores: tuple[np.ndarray, ...] = ()
    points: tuple[BranchPoint, ...] = ()
    reflections: tuple[Reflection, ...] = ()

    @property
    def roots(self) -> tuple[Trajectory, ...]:
        return tuple(t for t in self.trajectories if t.origin is None)
