"""GRPO's rollout: G independent complete trajectories."""

from __future__ import annotations

from hdl_jax.domains.domain import Problem
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import complete
from hdl_jax.rollout.trajectory import Group
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Job


def grpo(ctx: Context, problem: Problem) -> Job[Group]:
    """Returns the problem's group; where a verifier failed twice there is no verdict, which is left out of the mean."""
    size = ctx.config.rollout.group_size
    roots = yield from complete(ctx, problem, size, Stream.ROOT, "root", per_family=ctx.widest)
    return Group(problem, tuple(roots))
