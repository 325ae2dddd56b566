"""GRPO's rollout: G independent complete trajectories."""

from __future__ import annotations

from hdl_jax.domains.domain import Problem
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import complete
from hdl_jax.rollout.trajectory import Group
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Job


def grpo(ctx: Context, problem: Problem) -> Job[Group | None]:
    """Returns the problem's group; None where its environment could not be opened.

    A trajectory whose verifier failed twice has no verdict and is left out of the group's mean and of the loss.
    """
    size = ctx.config.rollout.group_size
    roots = yield from complete(ctx, problem, size, Stream.ROOT, "root")
    return Group(problem, tuple(roots)) if roots else None
