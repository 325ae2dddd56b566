"""The Uniform control: random positions under the same constraints, which tells whether any signal matters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdl_jax.domains.domain import Problem
from hdl_jax.localize.localization import Localization, original_pass
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.trajectory import Trajectory
from hdl_jax.sampling.requests import Job


def uniform(ctx: Context, problem: Problem, roots: Sequence[Trajectory]) -> Job[Localization]:
    """s_i ~ U(0, 1), drawn from (seed, step, problem, root)."""
    _, prefixes = yield from original_pass(ctx, roots)
    scores = []
    for i, root in enumerate(roots):
        rng = np.random.default_rng([ctx.config.seed, ctx.step, problem.index, i])
        scores.append(np.where(root.generated, rng.random(len(root.tokens)), 0).astype(np.float32))
    return Localization(scores, prefixes)
