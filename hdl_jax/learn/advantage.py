"""Group advantages: reward minus the group's mean, groups keyed by explicit id (method step 8)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def group_advantages(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> np.ndarray:
    """A_j = R_j - mean of R over the scored members of j's group; no division by the standard deviation.

    Args:
        rewards: R in [0, 1], None for a trajectory whose verifier or environment failed.
        groups: the group of each, any hashable id; groups may differ in size and come in any order.

    Returns:
        float64 [N]; 0 for an unscored member, which is left out of the mean (cases G6, G10) and must be masked, and for
        a group with one scored member (G4).
    """
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards for {len(groups)} group ids")
    totals: dict[Hashable, tuple[float, int]] = {}
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            total, count = totals.get(group, (0.0, 0))
            totals[group] = (total + reward, count + 1)
    out = np.zeros(len(rewards))
    for j, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if reward is not None:
            total, count = totals[group]
            out[j] = reward - total / count
    return out


def zero_variance_fraction(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> float:
    """Share of groups whose scored members all have one reward: no gradient comes from them (std <= 1e-6)."""
    by_group: dict[Hashable, list[float]] = {}
    for reward, group in zip(rewards, groups, strict=True):
        by_group.setdefault(group, []).extend([] if reward is None else [reward])
    return float(np.mean([len(r) == 0 or np.std(r) <= 1e-6 for r in by_group.values()]))
