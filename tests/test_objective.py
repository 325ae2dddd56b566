"""The clipped surrogate against sums written by hand (cases V1, V2, V4, K1, K2, L1, L5, L6)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hdl_jax.learn import objective

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def surrogate(log_p, old, advantages, mask, **clip):
    """With one advantage a row of [B, T]."""
    return objective.surrogate(log_p, old, jnp.broadcast_to(advantages[:, None], jnp.shape(log_p)), mask, **clip)


def by_hand(log_p, old, advantages, mask, low=0.2, high=0.28):
    """Loss, its gradient and the sums, in float64, one token after another."""
    loss, clipped, kl, tokens = 0.0, 0, 0.0, 0
    gradient = np.zeros(np.shape(log_p))
    for b in range(len(advantages)):
        for t in range(len(mask[b])):
            if not mask[b][t]:
                continue
            ratio, a = math.exp(float(log_p[b][t]) - float(old[b][t])), float(advantages[b])
            outside = ratio > 1 + high if a > 0 else ratio < 1 - low if a < 0 else False
            bound = 1 + high if a > 0 else 1 - low
            loss -= (bound if outside else ratio) * a
            gradient[b, t] = 0.0 if outside else -ratio * a
            clipped += outside
            kl += float(old[b][t]) - float(log_p[b][t])
            tokens += 1
    return loss, gradient, {"clipped": clipped, "kl": kl, "tokens": tokens}


def one(ratio, advantage, **clip):
    """Loss of a single token of this ratio, and whether it was clipped."""
    log_p, mask = jnp.log(jnp.full((1, 1), ratio)), jnp.ones((1, 1), bool)
    loss, sums = surrogate(log_p, jnp.zeros((1, 1)), jnp.full(1, advantage), mask, **CLIP | clip)
    return float(loss), float(sums["clipped"])


@pytest.mark.parametrize(
    "ratio, advantage, high, loss, clipped",
    [
        pytest.param(1.5, 1.0, 0.2, -1.2, 1, id="V1 symmetric"),
        pytest.param(1.5, 1.0, 0.28, -1.28, 1, id="V1 asymmetric"),
        pytest.param(1.5, -1.0, 0.28, 1.5, 0, id="V2 up against a bad token is not held back"),
        pytest.param(0.5, 1.0, 0.28, -0.5, 0, id="V2 down against a good token is not held back"),
        pytest.param(0.5, -1.0, 0.28, 0.8, 1, id="V2 low side"),
        pytest.param(5.0, -1.0, 0.28, 5.0, 0, id="no dual clip"),
        pytest.param(1.25, 1.0, 0.28, -1.25, 0, id="between the two bounds"),
        pytest.param(0.75, -1.0, 0.28, 0.8, 1, id="just below the low bound"),
        pytest.param(1.7, 0.0, 0.28, 0.0, 0, id="no advantage, nothing to clip"),
    ],
)
def test_one_token(ratio, advantage, high, loss, clipped):
    measured, count = one(ratio, advantage, clip_high=high)
    assert measured == pytest.approx(loss, abs=1e-6)
    assert count == clipped


@pytest.mark.parametrize("seed", range(8))
def test_loss_gradient_and_sums_against_the_hand_written_ones(seed):
    rng = np.random.default_rng(seed)
    rows, length = rng.integers(1, 7), rng.integers(1, 12)
    old = rng.normal(-2, 1, (rows, length)).astype(np.float32)
    log_p = (old + rng.normal(0, 0.4, old.shape)).astype(np.float32)
    advantages = rng.choice([-0.75, -0.25, 0.0, 0.5, 1.0], rows).astype(np.float32)
    mask = rng.random(old.shape) < 0.6
    (loss, sums), gradient = jax.value_and_grad(surrogate, has_aux=True)(log_p, old, advantages, mask, **CLIP)
    expected, expected_gradient, expected_sums = by_hand(log_p, old, advantages, mask)
    assert float(loss) == pytest.approx(expected, abs=2e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)
    for name, value in expected_sums.items():
        assert float(sums[name]) == pytest.approx(value, abs=2e-5), name


def test_v4_on_policy_the_loss_is_the_advantage_and_nothing_is_clipped():
    rng = np.random.default_rng(0)
    log_p = rng.normal(-3, 2, (5, 9)).astype(np.float32)
    advantages, mask = rng.normal(0, 1, 5).astype(np.float32), rng.random((5, 9)) < 0.5
    (loss, sums), gradient = jax.value_and_grad(surrogate, has_aux=True)(
        jnp.asarray(log_p), jnp.asarray(log_p), advantages, mask, **CLIP
    )
    assert float(loss) == pytest.approx(-float((advantages[:, None] * mask).sum()), abs=1e-5)
    assert (float(sums["kl"]), float(sums["clipped"])) == (0.0, 0.0)
    np.testing.assert_allclose(gradient, -advantages[:, None] * mask, atol=1e-6)


@pytest.mark.parametrize(
    "log_p, old, kl", [pytest.param(-1.5, -1.0, 0.5, id="K1"), pytest.param(-1.0, -2.0, -1.0, id="K2")]
)
def test_kl_is_old_minus_new_and_may_be_negative(log_p, old, kl):
    """The cases call the policy that was sampled from `logp`; here it is `old`."""
    mask = jnp.array([[1, 0, 1]], bool)
    _, sums = surrogate(jnp.full((1, 3), log_p), jnp.full((1, 3), old), jnp.ones(1), mask, **CLIP)
    assert float(sums["kl"] / sums["tokens"]) == pytest.approx(kl)


def _losses_1_and_3(mask):
    """Rows whose tokens have losses of 1 and of 3 (cases L): on policy, with advantages of -1 and -3."""
    log_p = jnp.zeros((2, 4))
    loss, sums = surrogate(log_p, log_p, jnp.array([-1.0, -3.0]), jnp.asarray(mask, bool), **CLIP)
    return float(loss), float(sums["tokens"])


def test_l1_token_mean():
    loss, tokens = _losses_1_and_3([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert (loss, tokens) == (10.0, 6.0)
    assert loss / tokens == pytest.approx(1.6667, abs=1e-4)


def test_l2_micro_batches_add_up_to_one_batch():
    a = _losses_1_and_3([[1, 1, 1, 1], [0, 0, 0, 0]])
    b = _losses_1_and_3([[0, 0, 0, 0], [1, 1, 0, 0]])
    assert (a[0] + b[0], a[1] + b[1]) == (10.0, 6.0)


def test_l5_a_masked_row_is_in_neither_part():
    assert _losses_1_and_3([[1, 1, 1, 1], [0, 0, 0, 0]]) == (4.0, 4.0)


def test_l6_everything_masked():
    assert _losses_1_and_3(np.zeros((2, 4))) == (0.0, 0.0)


@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 1e30])
def test_masked_positions_leak_into_neither_loss_nor_gradient(rubbish):
    rng = np.random.default_rng(1)
    log_p, old = rng.normal(-2, 1, (2, 3, 6)).astype(np.float32)
    advantages = np.array([0.5, -0.5, 1.0], np.float32)
    mask = rng.random((3, 6)) < 0.5
    run = jax.value_and_grad(surrogate, has_aux=True)
    (clean, clean_sums), clean_gradient = run(log_p, old, advantages, mask, **CLIP)
    for dirty in (
        (np.where(mask, log_p, rubbish), old),
        (log_p, np.where(mask, old, rubbish)),
        (np.where(mask, log_p, rubbish), np.where(mask, old, rubbish)),
    ):
        (loss, sums), gradient = run(*dirty, advantages, mask, **CLIP)
        assert float(loss) == float(clean)
        np.testing.assert_array_equal(gradient, clean_gradient)
        assert {k: float(v) for k, v in sums.items()} == {k: float(v) for k, v in clean_sums.items()}


@pytest.mark.parametrize("wrong", range(1, 4))
def test_shapes_that_do_not_match_are_refused(wrong):
    parts = [jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), jnp.ones(3, bool)]
    parts[wrong] = parts[wrong][:1]  # would broadcast
    with pytest.raises(AssertionError):
        objective.surrogate(*parts, **CLIP)
