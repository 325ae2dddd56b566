"""Group advantages: one mean a group, keyed by id, no standard deviation (cases G2, G4 to G7, G10, H9)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.learn.advantage import group_advantages, zero_variance_fraction

# Exact in binary, so that the slow reference can be exact too.
REWARDS = st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 64))


def test_h9_the_group_of_sixteen():
    rewards = [1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    advantages = group_advantages(rewards, ["g"] * 16)
    assert advantages.tolist() == [0.75 if r else -0.25 for r in rewards]
    assert advantages.sum() == 0


def test_g9_roots_and_continuations_share_one_mean():
    """A root of 0, its four continuations, another root of 1: mean 2/6 over all six."""
    np.testing.assert_allclose(group_advantages([0, 1, 0, 0, 0, 1], [3] * 6), [-1 / 3, 2 / 3, *[-1 / 3] * 3, 2 / 3])


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.3, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_g2_equal_rewards_give_nothing_and_are_counted(reward, size):
    advantages = group_advantages([reward] * size, ["a"] * size)
    np.testing.assert_allclose(advantages, 0, atol=1e-15)
    assert zero_variance_fraction([reward] * size, ["a"] * size) == 1.0


def test_g4_a_group_of_one_is_zero_and_never_nan():
    assert group_advantages([0.7], ["only"]).tolist() == [0.0]
    assert group_advantages([0.7, None], ["only", "only"]).tolist() == [0.0, 0.0]


def test_g6_g10_an_unscored_member_is_left_out_of_the_mean():
    advantages = group_advantages([1, None, 0], ["g"] * 3)
    assert advantages.tolist() == [0.5, 0.0, -0.5], "None counted as 0 would give a mean of 1/3"


def test_a_group_without_any_score():
    assert group_advantages([None, None, 1, 0], ["a", "a", "b", "b"]).tolist() == [0, 0, 0.5, -0.5]
    assert zero_variance_fraction([None, None, 1, 0], ["a", "a", "b", "b"]) == 0.5


def test_no_trajectories_at_all():
    assert group_advantages([], []).shape == (0,)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="2 rewards for 1 group ids"):
        group_advantages([1, 0], ["a"])


@settings(deadline=None)
@given(members=st.lists(st.tuples(REWARDS, st.sampled_from(["a", "b", ("c", 1), 7])), min_size=1, max_size=40))
def test_g5_groups_of_any_size_in_any_order(members):
    """Interleaved groups: each member against the exact mean of the scored members that carry its id."""
    rewards, ids = [r for r, _ in members], [g for _, g in members]
    advantages = group_advantages(rewards, ids)
    assert np.isfinite(advantages).all()
    for advantage, reward, group in zip(advantages, rewards, ids, strict=True):
        if reward is None:
            assert advantage == 0
            continue
        scored = [Fraction(r) for r, g in members if g == group and r is not None]
        assert advantage == pytest.approx(float(Fraction(reward) - sum(scored) / len(scored)), abs=1e-12)

    groups = {g: [r for r, h in members if h == g and r is not None] for g in set(ids)}
    silent = sum(len(set(of_group)) <= 1 for of_group in groups.values())
    assert zero_variance_fraction(rewards, ids) == pytest.approx(silent / len(groups))


@settings(deadline=None)
@given(st.permutations(range(9)))
def test_the_order_of_rows_does_not_matter(order):
    rewards, ids = [0.1, 0.9, 0.4, 1.0, None, 0.0, 0.25, 0.5, 0.75], list("aabbbcacb")
    plain = group_advantages(rewards, ids)
    shuffled = group_advantages([rewards[i] for i in order], [ids[i] for i in order])
    np.testing.assert_allclose(shuffled, plain[list(order)], atol=1e-12)


@pytest.mark.parametrize(
    "p, size, share", [(0.5, 8, 0.0078), (0.9, 8, 0.4305), (0.95, 8, 0.6634), (0.99, 8, 0.9227), (0.9, 16, 0.1853)]
)
def test_g7_share_of_groups_without_signal(p, size, share):
    assert p**size + (1 - p) ** size == pytest.approx(share, abs=5e-5)
    n = 4000
    rewards = (np.random.default_rng(int(1000 * p) + size).random((n, size)) < p).astype(float)
    ids = np.repeat(np.arange(n), size)
    measured = zero_variance_fraction(rewards.ravel().tolist(), ids.tolist())
    assert abs(measured - share) < 4 * math.sqrt(share * (1 - share) / n) + 1e-4
