"""The Entropy baseline: exact entropy of the policy over its full vocabulary at every generated token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdl_jax.domains.domain import Problem
from hdl_jax.localize.localization import Localization, original_pass
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.trajectory import Trajectory
from hdl_jax.sampling.requests import Job


def entropy(ctx: Context, problem: Problem, roots: Sequence[Trajectory]) -> Job[Localization]:
    """s_i = H(pi_old(. | x, y_<i)), in nats; no reflection."""
    scored, prefixes = yield from original_pass(ctx, roots)
    return Localization(
        [np.where(r.generated, s.entropies, 0).astype(np.float32) for r, s in zip(roots, scored, strict=True)], prefixes
    )
