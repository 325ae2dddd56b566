"""Estimators against their definitions, worked out the slow way."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.statistics import all_of_k, clustered, paired_bootstrap, pass_at_k, powers_of_two, top_three

COUNTS = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
REWARDS = st.lists(st.floats(0, 1), max_size=4)


# ---- means and their errors -----------------------------------------------------------------------------------------


def test_clustered_counts_problems_as_evidence():
    mean, error = clustered([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])  # case E3
    assert (mean, error) == (0.5, pytest.approx(0.2887, abs=5e-5))
    # What the twelve samples would claim, were each evidence of its own.
    assert statistics.stdev([1] * 4 + [1, 0, 1, 0] + [0] * 4) / math.sqrt(12) == pytest.approx(0.1508, abs=5e-5)


def test_clustered_of_one_sample_a_problem():
    # Case E8 has sqrt(p (1 - p) / n) = .0894, for a known p. Here p is estimated from the same 30 problems, and the
    # sample variance divides by 29: .0910.
    mean, error = clustered([[1.0]] * 12 + [[0.0]] * 18)
    assert mean == pytest.approx(0.4)
    assert error == pytest.approx(math.sqrt(0.4 * 0.6 / 29)) == pytest.approx(0.0910, abs=5e-5)
    assert error * math.sqrt(29 / 30) == pytest.approx(0.0894, abs=5e-5)
    right = [[1.0]] * 13 + [[0.0]] * 17
    assert clustered(right)[0] - mean == pytest.approx(1 / 30)  # one problem is 3.33 points


@given(st.lists(REWARDS, max_size=8))
def test_clustered_is_the_error_of_the_problems_means(values):
    means = [statistics.fmean(v) for v in values if v]
    mean, error = clustered(values)
    if not means:
        assert math.isnan(mean) and math.isnan(error)
        return
    assert mean == pytest.approx(statistics.fmean(means))
    if len(means) == 1:
        assert math.isnan(error)
    else:
        assert error == pytest.approx(statistics.stdev(means) / math.sqrt(len(means)), abs=1e-12)


# ---- k samples ------------------------------------------------------------------------------------------------------


def test_cases_of_k():
    assert [pass_at_k(4, 1, k) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]  # case E1
    assert pass_at_k(2, 1, 2) == 1
    assert pass_at_k(16, 3, 8) == pytest.approx(0.9)
    assert all_of_k(4, 2, 2) == pytest.approx(0.1667, abs=5e-5)  # case E2


@given(COUNTS)
def test_k_samples_are_every_choice_of_them(counts):
    n, right, k = counts
    choices = [any(i < right for i in chosen) for chosen in itertools.combinations(range(n), k)]
    assert pass_at_k(n, right, k) == pytest.approx(statistics.fmean(choices))
    choices = [all(i < right for i in chosen) for chosen in itertools.combinations(range(n), k)]
    assert all_of_k(n, right, k) == pytest.approx(statistics.fmean(choices))


@pytest.mark.parametrize("counts", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_k_samples_that_do_not_exist(counts):
    with pytest.raises(ValueError, match="does not exist"):
        pass_at_k(*counts)
    with pytest.raises(ValueError, match="does not exist"):
        all_of_k(*counts)


def test_powers_of_two():
    for most in range(70):
        assert powers_of_two(most) == [k for k in range(2, most + 1) if math.log2(k).is_integer()]


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def test_top_three():
    curve = {0: 0.2, 10: 0.5, 20: 0.4, 30: 0.45, 40: 0.3}  # case E7
    top = top_three(curve)
    assert top.steps == (10, 30, 20) and curve[top.steps[0]] == 0.5
    assert (top.mean, top.std) == (pytest.approx(0.45), pytest.approx(0.05))


def test_top_three_of_equals_and_of_few():
    assert top_three({30: 0.5, 10: 0.5, 20: 0.5, 0: 0.5}).steps == (30, 20, 10)
    assert top_three({0: 0.2, 5: 0.4}).steps == (5, 0)
    assert math.isnan(top_three({0: 0.2}).std)
    with pytest.raises(ValueError, match="empty curve"):
        top_three({})


# ---- paired bootstrap -----------------------------------------------------------------------------------------------


def test_paired_bootstrap_of_all_resamples():
    """Five problems have 5^5 resamples; the drawn ones must agree with all of them."""
    a, b = [[1, 1], [1, 0], [0, 0], [1, 1], [0, 1]], [[0, 1], [1, 0], [0, 1], [0, 0], [0, 0]]
    differences = [statistics.fmean(x) - statistics.fmean(y) for x, y in zip(a, b, strict=True)]
    every = np.array([statistics.fmean(c) for c in itertools.product(differences, repeat=5)])
    found = paired_bootstrap(a, b)
    assert found.problems == 5 and found.difference == pytest.approx(0.3)
    assert found.low == pytest.approx(np.quantile(every, 0.025), abs=0.1001)  # a lattice of tenths
    assert found.high == pytest.approx(np.quantile(every, 0.975), abs=0.1001)
    assert found.p == pytest.approx(2 * np.mean(every <= 1e-12), abs=0.02)
    assert found == paired_bootstrap(a, b)  # the same draws every time


def test_paired_bootstrap_of_many_problems_is_the_normal_interval():
    """And memory is bounded: 3,000 problems take more than one block."""
    random = np.random.default_rng(3)
    hard = random.random(3000)
    a, b = [(random.random((3000, 2)) < (hard + shift)[:, None]).astype(float) for shift in (0.02, 0.0)]
    found = paired_bootstrap(a, b)
    differences = a.mean(1) - b.mean(1)
    error = differences.std(ddof=1) / math.sqrt(3000)
    assert found.difference == pytest.approx(differences.mean())
    assert found.low == pytest.approx(found.difference - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(found.difference + 1.96 * error, abs=0.1 * error)
    z = found.difference / error
    assert found.p == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), abs=0.02)
    # Difficulty cancels: the interval is narrower than that of two unpaired means.
    assert found.high - found.low < 2 * 1.96 * math.hypot(clustered(a)[1], clustered(b)[1]) * 0.95


@given(st.lists(st.tuples(REWARDS, REWARDS), min_size=2, max_size=6))
def test_paired_bootstrap_turned_around(pairs):
    a, b = [list(side) for side in zip(*pairs, strict=True)]
    one, other = paired_bootstrap(a, b), paired_bootstrap(b, a)
    kept = [statistics.fmean(x) - statistics.fmean(y) for x, y in pairs if x and y]
    assert (one.problems, one.left_out) == (len(kept), len(pairs) - len(kept))
    if not kept:
        assert math.isnan(one.difference)
        return
    assert one.difference == pytest.approx(statistics.fmean(kept), abs=1e-12)
    if len(kept) == 1:
        assert math.isnan(one.low) and math.isnan(one.high) and math.isnan(one.p)
        return
    assert (one.low, one.high) == (pytest.approx(-other.high, abs=1e-9), pytest.approx(-other.low, abs=1e-9))
    assert one.p == other.p and 0 < one.p <= 1
    if one.p < 0.045:
        assert one.low >= 0 or one.high <= 0


def test_paired_bootstrap_of_no_difference():
    same = paired_bootstrap([[1, 0]] * 5, [[0, 1]] * 5)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    # 0.1 + 0.2 - 0.3 is not 0 in floating point; such a resample is on neither side.
    thirds = paired_bootstrap([[0.1], [0.2], [0.0], [0.3]], [[0.0], [0.0], [0.3], [0.3]])
    assert thirds.p == 1
    always = paired_bootstrap([[1]] * 9, [[0]] * 9)
    assert (always.low, always.high, always.p) == (1, 1, pytest.approx(2 / 10_001))


def test_paired_bootstrap_needs_the_same_problems():
    with pytest.raises(ValueError):
        paired_bootstrap([[1]], [[1], [0]])
