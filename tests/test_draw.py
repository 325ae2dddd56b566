"""Drawing tokens: the inverse CDF against a plain cumulative sum, and keys that name their draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hdl_jax.sampling.draw import PATH_LENGTH, Stream, inverse_cdf, lane_keys, uniforms

JITTED, KEYS = jax.jit(inverse_cdf), jax.jit(lane_keys)
ALMOST_ONE = np.float32(1 - 2**-24)
N = 32


def _log_softmax(z):
    z = np.asarray(z, np.float64)
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def _draws(z, us):
    """Draws from one column of logits [V] with every u, padded to one static number of lanes."""
    us = np.resize(np.asarray(us, np.float32), N)
    tokens, log_p = JITTED(np.tile(np.asarray(z, np.float32)[:, None], N), us)
    return us, np.asarray(tokens), np.asarray(log_p)


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 37, 64, 100])
def test_frequencies_follow_the_softmax(vocabulary):
    """Chi-square over many keys of neighbouring paths and positions."""
    z = np.random.default_rng(vocabulary).normal(size=vocabulary).astype(np.float32) * 1.5
    paths = np.zeros((256, PATH_LENGTH), np.int32)
    paths[:, -1] = np.arange(256)
    keys = KEYS(jax.random.key(3), paths)
    draw = jax.jit(jax.vmap(lambda i: inverse_cdf(jnp.tile(z[:, None], 256), uniforms(keys, jnp.full(256, i)))[0]))
    counts = np.bincount(np.asarray(draw(np.arange(128))).ravel(), minlength=vocabulary)
    expected = np.exp(_log_softmax(z)) * counts.sum()
    chi_square, freedom = ((counts - expected) ** 2 / expected).sum(), vocabulary - 1
    assert len(counts) == vocabulary
    assert chi_square <= freedom + 5 * np.sqrt(2 * freedom) + 1e-9


# Logits with wide gaps, many of them ruled out: exp underflows to 0, or -inf.
LOGITS = hnp.arrays(
    np.float32,
    st.sampled_from([2, 8, 37, 64]),
    elements=st.one_of(
        st.floats(-8, 8, width=32), st.sampled_from([-np.inf, -1e4, -104.0, -88.0, -60.0, -17.0, 0.0, 30.0])
    ),
).filter(lambda z: np.isfinite(z).any())


def _border_uniforms(z) -> np.ndarray:
    """Uniforms at and around some token borders of the CDF, and the two ends."""
    cdf = np.cumsum(np.exp(_log_softmax(z)))
    borders = np.float32(cdf[np.linspace(0, len(cdf) - 1, 8).astype(int)])
    around = [np.nextafter(borders, np.float32(-1)), borders, np.nextafter(borders, np.float32(2))]
    return np.concatenate([[0, ALMOST_ONE, 2**-24], *around]).astype(np.float32).clip(0, ALMOST_ONE)


@settings(max_examples=150, deadline=None)
@given(LOGITS, st.lists(st.floats(0, float(ALMOST_ONE), width=32), min_size=1, max_size=5))
@example(np.array([0, -np.inf, 0, 0], np.float32).repeat(16), [0.25])
def test_each_draw_is_the_token_whose_interval_holds_u(z, us):
    us, tokens, log_p = _draws(z, np.concatenate([us, _border_uniforms(z)]))
    exact = _log_softmax(z)
    upper = np.cumsum(np.exp(exact))
    lower = upper - np.exp(exact)
    assert ((0 <= tokens) & (tokens < len(z))).all()
    # Rounding may move a border, never by more than float32 sums do.
    assert (lower[tokens] - 2e-6 <= us).all() and (us <= upper[tokens] + 2e-6).all()
    np.testing.assert_allclose(log_p, exact[tokens], atol=1e-5, rtol=1e-5)
    assert (np.exp(z[tokens] - z.max()) > 0).all(), "a token of probability 0 was drawn"


@pytest.mark.parametrize("seed", range(20))
def test_impossible_tokens_are_never_drawn_at_any_border(seed):
    """Every border of a spiky distribution, where sums in blocks and sums of all round differently."""
    rng = np.random.default_rng(seed)
    z = np.where(rng.random(64) < 0.5, -np.inf, rng.normal(size=64) * 4).astype(np.float32)
    z[rng.integers(64)] = 1.0
    # Exactly what the function compares with: its own cumulative sums of blocks, as uniforms.
    mass = np.exp(z - z.max())
    for sums in (np.cumsum(mass), np.cumsum(mass.reshape(-1, 8).sum(-1))):
        border = np.float32(sums / sums[-1]).clip(0, ALMOST_ONE)
        us = np.concatenate([border, np.nextafter(border, np.float32(-1)).clip(0)])
        for i in range(0, len(us), N):
            _, tokens, _ = _draws(z, us[i : i + N])
            assert np.isfinite(z[tokens]).all()


def test_temperature_sharpens_both_the_draw_and_its_log_prob():
    z = np.array([2, 1, 0], np.float32)
    us = np.linspace(0, 0.999, N)
    for temperature, first in [(1.0, -0.407606), (0.6, -0.202573)]:
        us, tokens, log_p = _draws(z / np.float32(temperature), us)
        assert (tokens == 0).mean() == pytest.approx((us < np.exp(first)).mean(), abs=1 / N)
        np.testing.assert_allclose(log_p[tokens == 0], first, atol=1e-6)


# ---- keys -----------------------------------------------------------------------------------------------------------


def test_a_recorded_log_prob_is_that_of_the_whole_vocabulary():
    """P2: nothing is cut off, so no token's ratio to the trainer is off by the mass that was."""
    drawn, log_p = inverse_cdf(jnp.tile(jnp.array([[2.0], [1.0], [0.0]]), (1, 3)), jnp.array([0.1, 0.8, 0.95]))
    assert drawn.tolist() == [0, 1, 2]
    np.testing.assert_allclose(log_p, [-0.407606, -1.407606, -2.407606], atol=1e-6)


def _data(keys) -> list:
    return np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()


def test_a_lane_key_is_named_by_every_part_of_its_path():
    seed = jax.random.key(0)
    base = np.arange(1, PATH_LENGTH + 1, dtype=np.int32)
    paths = np.tile(base, (PATH_LENGTH + 1, 1))
    paths[np.arange(PATH_LENGTH), np.arange(PATH_LENGTH)] += 1
    data = _data(KEYS(seed, paths))
    assert len({tuple(d) for d in data}) == PATH_LENGTH + 1
    assert _data(KEYS(jax.random.key(1), base)) != _data(KEYS(seed, base))


def test_parts_of_a_path_cannot_be_exchanged():
    paths = np.zeros((2, PATH_LENGTH), np.int32)
    paths[0, 3], paths[1, 4] = 7, 7
    a, b = _data(KEYS(jax.random.key(0), paths))
    assert a != b


def test_keys_are_the_same_wherever_a_lane_sits():
    seed = jax.random.key(5)
    paths = np.random.default_rng(0).integers(0, 1000, (3, 4, PATH_LENGTH)).astype(np.int32)
    together = _data(KEYS(seed, paths))
    alone = [_data(KEYS(seed, path))[0] for path in paths.reshape(-1, PATH_LENGTH)]
    slow = []
    for path in paths.reshape(-1, PATH_LENGTH):
        key = seed
        for part in path:
            key = jax.random.fold_in(key, part)
        slow += _data(key)
    assert together == alone == slow


def test_streams_and_positions_give_their_own_uniforms():
    paths = np.zeros((len(Stream), PATH_LENGTH), np.int32)
    paths[:, 1] = list(Stream)
    keys = KEYS(jax.random.key(0), paths)
    us = np.stack([uniforms(keys, jnp.full(len(Stream), i)) for i in range(8)])
    assert len(set(us.ravel().tolist())) == us.size
    assert ((0 <= us) & (us < 1)).all()
