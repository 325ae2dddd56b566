"""Trajectories to micro-batches: unpacked rows, padded to a few static lengths under a token budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.struct
import numpy as np

from hdl_jax.rollout.trajectory import Trajectory


@flax.struct.dataclass
class Batch:
    """One micro-batch of rows, right-padded.

    Attributes:
        tokens: int32 [B, T]. mask: bool [B, T], trained tokens; never true at index 0 or in padding.
        sampler: float32 [B, T], the sampler's log-probs of trained tokens. advantages: float32 [B].
    """

    tokens: np.ndarray
    mask: np.ndarray
    sampler: np.ndarray
    advantages: np.ndarray


@dataclasses.dataclass(frozen=True)
class Buckets:
    """The static shapes of the update: rows padded to one of `lengths`, as many a micro-batch as `tokens` allow."""

    lengths: tuple[int, ...]
    tokens: int

    def rows(self, length: int) -> int:
        return max(1, self.tokens // length)

    def of(self, n: int) -> int:
        """The bucket of a row of n tokens. Raises ValueError where there is none: nothing is silently cut."""
        for length in sorted(self.lengths):
            if n <= length:
                return length
        raise ValueError(f"a trajectory of {n} tokens is longer than the longest of learn.row_lengths={self.lengths}")


def pack(trajectories: Sequence[Trajectory], advantages: Sequence[float], buckets: Buckets) -> list[Batch]:
    """Micro-batches of all rows with a verdict, shortest first; the last of a length is filled up with empty rows.

    Rows of advantage 0 are forwarded too: they add no gradient, but the step's entropy and log-prob gap are over all
    trained tokens, as its denominator is.
    """
    by_length: dict[int, list[tuple[Trajectory, float]]] = {}
    for trajectory, advantage in zip(trajectories, advantages, strict=True):
        if trajectory.verdict is not None and trajectory.trained.any():
            by_length.setdefault(buckets.of(len(trajectory.tokens)), []).append((trajectory, advantage))
    batches = []
    for length in sorted(by_length):
        rows, n = by_length[length], buckets.rows(length)
        for i in range(0, len(rows), n):
            batches.append(_batch(rows[i : i + n], n, length))
    return batches


def trained_tokens(trajectories: Sequence[Trajectory]) -> int:
    """The step's denominator: trained tokens of every trajectory that has a verdict."""
    return sum(int(t.trained.sum()) for t in trajectories if t.verdict is not None)


def empty(buckets: Buckets, length: int) -> Batch:
    """A micro-batch of that length with nothing in it, for warming up."""
    return _batch([], buckets.rows(length), length)


def _batch(rows: Sequence[tuple[Trajectory, float]], n: int, length: int) -> Batch:
    batch = Batch(
        tokens=np.zeros((n, length), np.int32),
        mask=np.zeros((n, length), bool),
        sampler=np.zeros((n, length), np.float32),
        advantages=np.zeros(n, np.float32),
    )
    for b, (t, advantage) in enumerate(rows):
        end = len(t.tokens)
        batch.tokens[b, :end], batch.mask[b, :end], batch.sampler[b, :end] = t.tokens, t.trained, t.log_probs
        batch.advantages[b] = advantage
    return batch
