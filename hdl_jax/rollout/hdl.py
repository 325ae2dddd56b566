"""HDL's rollout: roots, localize, select, continuations (method steps 1 to 7). The signal is a parameter."""

from __future__ import annotations

from hdl_jax.domains.domain import Problem
from hdl_jax.localize import SIGNALS
from hdl_jax.localize.select import choose
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import Forks, branches, complete
from hdl_jax.rollout.trajectory import Group
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Job


def hdl(ctx: Context, problem: Problem) -> Job[Group | None]:
    """Returns the problem's group; None where a root could not be played or verified (no verdict, no hindsight)."""
    cfg = ctx.config.branch
    roots = yield from complete(ctx, problem, cfg.roots, Stream.ROOT, "root")
    if not roots or any(root.verdict is None for root in roots):
        return None
    found = yield from SIGNALS[cfg.signal](ctx, problem, roots)
    points = choose(
        problem.id,
        roots,
        found.scores,
        points=cfg.points_per_root,
        spacing=cfg.min_spacing,
        continuations=cfg.continuations,
        capacity=ctx.max_tokens,
    )
    forks = [Forks(r, i, h, p) for i, (r, h, p) in enumerate(zip(roots, found.prefixes, points, strict=True))]
    continuations = yield from branches(ctx, problem, forks, Stream.CONTINUATION, "continue")
    return Group(
        problem,
        trajectories=(*roots, *continuations),
        scores=tuple(found.scores),
        points=tuple(p for of_root in points for p in of_root),
        reflections=tuple(found.reflections),
    )
