"""From scores to branch points: a pure selector, jitted and vmapped over roots, for every signal (method step 5)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from hdl_jax.rollout.trajectory import BranchPoint, Trajectory


@functools.partial(jax.jit, static_argnames=("points", "spacing"))
def select(scores: Array, eligible: Array, *, points: int, spacing: int) -> tuple[Array, Array]:
    """The highest-scoring eligible positions of each root that keep their distance.

    Args:
        scores: float32 [M, T]. eligible: bool [M, T].
        points: how many to pick a root. spacing: least distance between two of them, in tokens.

    Returns:
        positions int32 [M, points] and valid bool [M, points], highest score first; ties go to the earlier position.
        A position that is not valid means nothing.
    """
    chex.assert_equal_shape([scores, eligible])
    index = jnp.arange(scores.shape[1])

    def one_root(scores: Array, eligible: Array) -> tuple[Array, Array]:
        def pick(open_: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
            best = jnp.argmax(jnp.where(open_, scores, -jnp.inf))
            return open_ & (jnp.abs(index - best) >= spacing), (best, open_.any())

        return jax.lax.scan(pick, eligible, None, length=points)[1]

    return jax.vmap(one_root)(scores, eligible)


def allocate(
    root: int, trajectory: Trajectory, positions: Sequence[int], scores: np.ndarray, continuations: Sequence[int]
) -> list[BranchPoint]:
    """Gives a root's continuations to its valid points, the first share to the highest-scoring one.

    With fewer points than shares, the shares left over go to the highest-scoring point, so that one valid point gets
    them all (paper); with none, all start at the first generated token (the point then has no score).

    Args:
        root: the root's position in its group. trajectory: the root.
        positions: its valid points, highest score first. scores: float [T].
        continuations: how many for each point, `branch.continuations`.
    """
    if not len(positions):
        first = int(np.argmax(trajectory.generated))
        return [BranchPoint(root, first, None, sum(continuations))]
    counts = list(continuations[: len(positions)])
    counts[0] += sum(continuations[len(positions) :])
    return [BranchPoint(root, int(p), float(scores[p]), n) for p, n in zip(positions, counts, strict=True)]


def choose(
    problem: str,
    roots: Sequence[Trajectory],
    scores: Sequence[np.ndarray],
    *,
    points: int,
    spacing: int,
    continuations: Sequence[int],
    capacity: int,
) -> list[list[BranchPoint]]:
    """Branch points of all roots of a problem.

    Only tokens the policy generated can be chosen. Roots are padded to `capacity` tokens for the device, one shape.

    Raises:
        FloatingPointError: a score of a generated token is not finite; names the problem, root and position.
    """
    padded = np.zeros((len(roots), capacity), np.float32)
    eligible = np.zeros((len(roots), capacity), bool)
    for m, (root, s) in enumerate(zip(roots, scores, strict=True)):
        bad = np.flatnonzero(root.generated & ~np.isfinite(s))
        if len(bad):
            raise FloatingPointError(f"{problem}: score {s[bad[0]]} at position {bad[0]} of root {m} is not finite")
        padded[m, : len(s)], eligible[m, : len(s)] = np.where(root.generated, s, 0), root.generated
    positions, valid = jax.device_get(select(padded, eligible, points=points, spacing=spacing))
    return [allocate(m, root, positions[m][valid[m]], scores[m], continuations) for m, root in enumerate(roots)]
