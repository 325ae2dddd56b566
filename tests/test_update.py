"""The update against one that goes a row and a token at a time, and against a hand-written AdamW."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from learn_fixtures import (
    POLICY,
    SlowUpdate,
    assert_trees_close,
    assert_trees_identical,
    learn_config,
    random_params,
    random_trajectory,
    trajectory,
)

from hdl_jax.compilations import count_compilations
from hdl_jax.learn import state as train_state
from hdl_jax.learn.update import Updater, row_logprobs

PARAMS = random_params()
SLOW = SlowUpdate()
# Plain descent at rate 1 changes the parameters by the gradient, which Adam would hide behind its sign.
DESCENT = optax.sgd(1.0)
FAR = optax.sgd(8.0)  # far enough that a second minibatch's ratios leave the clip's range
ADAMW = train_state.optimizer(learn_config(learning_rate=1e-3))
LENGTHS = (9, 16, 30)  # few, because each is a program of the slow update


@functools.cache
def updater(tx: optax.GradientTransformation, temperature: float = 1.0, **changes) -> tuple[Updater, int]:
    """A warmed-up updater, and how many programs its first updates compiled after the warm-up."""
    update = Updater(POLICY, tx, learn_config(**changes), temperature)
    state = train_state.create(PARAMS, tx)
    update.warm_up(state)
    assert_trees_identical(state.params, PARAMS)
    count = count_compilations()
    for seed in range(5):
        rows, advantages = rows_of(seed, n=1 + 3 * seed)
        state, _ = update(state, rows, advantages)
    return update, count()


def rows_of(seed: int, n: int = 9):
    """Roots, continuations and (every fourth) unverified rows of all lengths, with advantages."""
    rng = np.random.default_rng(seed)
    rows = [
        random_trajectory(
            rng,
            int(rng.choice(LENGTHS)),
            vocabulary=POLICY.vocab_size,
            continuation=i % 3 > 0,
            reward=None if i % 4 == 3 else 0.5,
        )
        for i in range(n)
    ]
    return rows, rng.choice([-0.75, -0.25, 0.0, 0.5, 1.0], n)


def step(rows, advantages, tx=DESCENT, **changes):
    update, _ = updater(tx, **changes)
    return update(train_state.create(PARAMS, tx), rows, np.asarray(advantages))


def change(rows, advantages):
    """The gradient that the update followed."""
    return jax.tree.map(lambda p, q: np.asarray(p - q), PARAMS, step(rows, advantages)[0].params)


def descended(params, gradient, rate=1.0):
    return jax.tree.map(lambda p, g: np.asarray(p - rate * g, np.float32), params, gradient)


# ---- the gradient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_metrics_against_a_row_at_a_time(seed):
    """V4 with it: in one minibatch the ratio is 1, so that the loss is -sum(A over trained tokens) / their number."""
    rows, advantages = rows_of(seed)
    slow = [SLOW.row(PARAMS, t, a) for t, a in zip(rows, advantages, strict=True)]
    state, metrics = step(rows, advantages)
    gradient = SLOW.gradient(PARAMS, rows, advantages)
    assert_trees_close(state.params, descended(PARAMS, gradient), atol=1e-6)
    assert int(state.step) == 1

    places = [SLOW.places(t) for t in rows]
    count = sum(map(len, places))
    assert metrics["update/trained_tokens"] == count
    by_hand = -sum(a * len(p) for a, p in zip(advantages, places, strict=True)) / count
    assert metrics["update/loss"] == pytest.approx(by_hand, abs=1e-6)
    assert by_hand == pytest.approx(sum(s.loss for s in slow) / count, abs=1e-6)
    assert metrics["update/clip_fraction"] == 0
    assert abs(metrics["update/kl_to_old"]) < 1e-8
    entropy = sum(s.entropies[p].sum() for s, p in zip(slow, places, strict=True)) / count
    assert metrics["update/entropy"] == pytest.approx(entropy, abs=1e-5)
    gaps = np.concatenate([np.abs(s.log_probs - t.log_probs)[p] for s, t, p in zip(slow, rows, places, strict=True)])
    assert metrics["update/sampler_logprob_gap"] == pytest.approx(gaps.mean(), abs=1e-5)
    assert metrics["update/sampler_logprob_gap_max"] == pytest.approx(gaps.max(), abs=1e-5)
    norm = math.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
    assert metrics["update/grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["update/skipped"] == 0


@pytest.mark.parametrize("budget", [1, 70])
def test_l2_micro_batches_are_one_batch(budget):
    """Parameters and moments after a step, with one row and with two at a time and with all of them at once."""
    rows, advantages = rows_of(5, n=12)
    whole, expected = step(rows, advantages, ADAMW, row_lengths=(32,), tokens_per_microbatch=4096)
    parts, metrics = step(rows, advantages, ADAMW, row_lengths=(32,), tokens_per_microbatch=budget)
    assert_trees_close(parts.params, whole.params, atol=1e-6)
    assert_trees_close(parts.opt_state, whole.opt_state, atol=1e-7)
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_l1_l2_the_mean_is_over_tokens_not_over_rows_or_micro_batches():
    """Rows of four and of two trained tokens with losses of 1 and 3, one micro-batch each: 10 / 6, not 2."""
    rows = [trajectory(range(8, 14), [0, 0, 1, 1, 1, 1]), trajectory(range(8, 12), [0, 0, 1, 1])]
    _, metrics = step(rows, [-1.0, -3.0], ADAMW, row_lengths=(32,), tokens_per_microbatch=1)
    assert metrics["update/loss"] == pytest.approx(10 / 6)
    assert metrics["update/trained_tokens"] == 6


def test_the_order_of_rows_does_not_matter():
    rows, advantages = rows_of(6)
    order = np.random.default_rng(0).permutation(len(rows))
    plain, metrics = step(rows, advantages)
    shuffled, other = step([rows[i] for i in order], advantages[order])
    assert_trees_close(shuffled.params, plain.params, atol=1e-6)
    assert other == pytest.approx(metrics, rel=1e-4, abs=1e-6)


def test_a_continuations_prefix_is_context_only():
    """The prefix has no part in numerator or denominator, but the new tokens are conditioned on it (H10, T4b)."""
    tokens = np.random.default_rng(1).integers(6, POLICY.vocab_size, 16)
    plain = trajectory(tokens, [0] * 3 + [1] * 13, fork=11, log_probs=np.full(16, -1.0))
    _, metrics = step([plain], [1.0])
    assert metrics["update/trained_tokens"] == 5
    assert metrics["update/loss"] == pytest.approx(-1.0)
    assert_trees_close(change([plain], [1.0]), SLOW.gradient(PARAMS, [plain], [1.0]), atol=1e-6)
    # Nothing recorded about the prefix matters: who wrote it, and with what probability.
    observed = trajectory(tokens, [0] * 7 + [1] * 9, fork=11, log_probs=[*np.full(11, 7.0), *np.full(5, -1.0)])
    assert_trees_identical(change([plain], [1.0]), change([observed], [1.0]))
    # What it says does.
    tokens[5] = 6 + (tokens[5] + 1) % 40
    other = trajectory(tokens, [0] * 3 + [1] * 13, fork=11)
    differences = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), change([plain], [1.0]), change([other], [1.0]))
    assert max(jax.tree.leaves(differences)) > 1e-4


def test_g6_l5_an_unverified_row_is_in_neither_part():
    rows, advantages = rows_of(7, n=4)  # the fourth has no verdict
    assert rows[3].verdict is None
    with_it, metrics = step(rows, [*advantages[:3], 100.0])
    without, expected = step(rows[:3], advantages[:3])
    assert_trees_identical(with_it.params, without.params)
    assert metrics == expected


def test_a_row_without_advantage_stays_in_the_denominator():
    """Zero-variance groups are not dropped: they make the others' step smaller."""
    rng = np.random.default_rng(0)
    rows = [trajectory(rng.integers(6, 48, 16), [0] * 4 + [1] * 12) for _ in range(2)]
    alone = change(rows[:1], [1.0])
    _, metrics = step(rows, [1.0, 0.0])
    assert metrics["update/trained_tokens"] == 24
    assert_trees_close(change(rows, [1.0, 0.0]), jax.tree.map(lambda g: g / 2, alone), atol=1e-6)


@pytest.mark.parametrize("rows", ["unverified", "none"])
def test_l6_nothing_to_train_on_takes_no_step_and_is_counted(rows):
    update, _ = updater(ADAMW, row_lengths=(32,), tokens_per_microbatch=70)
    state = train_state.create(PARAMS, ADAMW)
    before = jax.tree.map(np.asarray, state)
    rng = np.random.default_rng(0)
    batch = [random_trajectory(rng, 9, vocabulary=48, reward=None) for _ in range(3)] if rows == "unverified" else []
    state, metrics = update(state, batch, np.zeros(len(batch)))
    assert_trees_identical(state, before)
    assert metrics["update/skipped"] == 1
    assert metrics["update/trained_tokens"] == metrics["update/loss"] == metrics["update/grad_norm"] == 0
    assert all(math.isfinite(v) for v in metrics.values())


# ---- log-probs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_p1_log_probs_and_entropy_are_of_the_samplers_distribution(temperature):
    t = random_trajectory(np.random.default_rng(3), LENGTHS[0], vocabulary=48)
    log_p, entropy = jax.jit(row_logprobs, static_argnums=(1, 3))(PARAMS, POLICY, t.tokens[None], temperature)
    slow = SlowUpdate(temperature).row(PARAMS, t, 1.0)
    np.testing.assert_allclose(log_p[0], slow.log_probs, atol=1e-5)
    np.testing.assert_allclose(entropy[0], slow.entropies, atol=1e-5)
    assert log_p[0, 0] == entropy[0, 0] == 0, "nothing predicts the first token"


def test_the_update_trains_at_the_samplers_temperature():
    rng = np.random.default_rng(8)
    rows = [random_trajectory(rng, LENGTHS[0], vocabulary=48) for _ in range(3)]
    update = Updater(POLICY, DESCENT, learn_config(row_lengths=(16,)), 0.6)
    state, _ = update(train_state.create(PARAMS, DESCENT), rows, np.array([1.0, -0.5, 0.25]))
    gradient = SlowUpdate(0.6).gradient(PARAMS, rows, [1.0, -0.5, 0.25])
    assert_trees_close(state.params, descended(PARAMS, gradient), atol=1e-5)


def test_gap_to_the_sampler():
    """Nothing where the sampler's log-probs are the trainer's own; a gap of 0.5 at one of n tokens is 0.5 / n."""
    rows, advantages = rows_of(9, n=3)

    def with_log_probs(t, shift_at=None):
        log_p = SLOW.log_probs(PARAMS, t) * t.generated
        if shift_at is not None:
            log_p[shift_at] -= 0.5
        return trajectory(t.tokens, t.generated, fork=None if t.origin is None else t.fork, log_probs=log_p)

    exact = [with_log_probs(t) for t in rows]
    _, metrics = step(exact, advantages)
    assert metrics["update/sampler_logprob_gap"] < 1e-5
    shifted = [with_log_probs(rows[0], SLOW.places(rows[0])[-1]), *exact[1:]]
    _, metrics = step(shifted, advantages)
    assert metrics["update/sampler_logprob_gap"] == pytest.approx(0.5 / metrics["update/trained_tokens"], abs=1e-5)
    assert metrics["update/sampler_logprob_gap_max"] == pytest.approx(0.5, abs=1e-5)


# ---- minibatches ----------------------------------------------------------------------------------------------------


def test_the_second_minibatch_is_measured_against_the_policy_before_the_first():
    rows, advantages = rows_of(10, n=8)
    old = [SLOW.log_probs(PARAMS, t) for t in rows]
    state, metrics = step(rows, advantages, FAR, minibatches=2)

    middle = descended(PARAMS, SLOW.gradient(PARAMS, rows[:4], advantages[:4]), 8)
    second = SLOW.gradient(middle, rows[4:], advantages[4:], old[4:])
    assert_trees_close(state.params, descended(middle, second, 8), atol=5e-5, rtol=1e-4)
    assert int(state.step) == 2

    ratios, signs = [], []
    for t, before, a in zip(rows[4:], old[4:], advantages[4:], strict=True):
        places = SLOW.places(t)
        ratios += np.exp(SLOW.log_probs(middle, t) - before)[places].tolist()
        signs += [a] * len(places)
    clipped = sum((r > 1.28 and a > 0) or (r < 0.8 and a < 0) for r, a in zip(ratios, signs, strict=True))
    count = sum(len(SLOW.places(t)) for t in rows)
    assert metrics["update/trained_tokens"] == count
    assert clipped > 0, "the case must reach the clip to test it"
    assert metrics["update/clip_fraction"] == pytest.approx(clipped / count)
    assert metrics["update/kl_to_old"] == pytest.approx(-np.log(ratios).sum() / count, rel=1e-3)


def test_a_minibatch_without_verified_rows_is_skipped_and_the_other_is_not():
    rows, advantages = rows_of(11, n=2)
    unverified = random_trajectory(np.random.default_rng(0), 9, vocabulary=48, reward=None)
    state, metrics = step([*rows, unverified, unverified], [*advantages, 0, 0], FAR, minibatches=2)
    assert metrics["update/skipped"] == 1
    assert int(state.step) == 1
    assert_trees_close(state.params, descended(PARAMS, SLOW.gradient(PARAMS, rows, advantages), 8), atol=1e-5)


# ---- optimizer and compilation --------------------------------------------------------------------------------------


def test_adamw_and_the_clipped_norm_against_a_hand_written_one():
    cfg = learn_config(learning_rate=0.01, beta1=0.8, beta2=0.9, weight_decay=0.3, max_grad_norm=1.0)
    tx = train_state.optimizer(cfg)
    rng = np.random.default_rng(0)
    x = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    state = train_state.create(x, tx)
    opt_state, current = state.opt_state, state.params
    m, v = {k: np.zeros_like(p) for k, p in x.items()}, {k: np.zeros_like(p) for k, p in x.items()}
    for n, size in enumerate((0.1, 5.0, 0.3), 1):  # the second is beyond the norm
        grads = {k: rng.normal(size=p.shape) * size for k, p in x.items()}
        updates, opt_state = tx.update(jax.tree.map(jnp.float32, grads), opt_state, current)
        current = optax.apply_updates(current, updates)
        norm = math.sqrt(sum((g**2).sum() for g in grads.values()))
        for k in x:
            g = grads[k] / max(1.0, norm)
            m[k], v[k] = 0.8 * m[k] + 0.2 * g, 0.9 * v[k] + 0.1 * g**2
            direction = (m[k] / (1 - 0.8**n)) / (np.sqrt(v[k] / (1 - 0.9**n)) + 1e-8)
            x[k] = x[k] - 0.01 * (direction + 0.3 * x[k])
    assert_trees_close(current, x, atol=1e-6)


def test_the_update_hands_its_gradient_to_the_optimizer():
    """Two steps: AdamW by optax on the slow gradient, moments and counts carried over."""
    state, slow, opt_state = train_state.create(PARAMS, ADAMW), PARAMS, ADAMW.init(PARAMS)
    update, _ = updater(ADAMW, row_lengths=(32,), tokens_per_microbatch=4096)
    for seed in (12, 13):
        rows, advantages = rows_of(seed, n=5)
        gradient = jax.tree.map(jnp.float32, SLOW.gradient(slow, rows, advantages))
        updates, opt_state = ADAMW.update(gradient, opt_state, slow)
        slow = optax.apply_updates(slow, updates)
        state, _ = update(state, rows, advantages)
    # Where a gradient is next to nothing, Adam scales up its rounding.
    assert_trees_close(state.params, slow, atol=2e-5)
    assert int(state.step) == 2


def test_the_state_is_a_float32_copy():
    """The update donates its state: the caller's parameters must survive it."""
    params = jax.tree.map(jnp.array, PARAMS)
    update, _ = updater(DESCENT)
    update(train_state.create(params, DESCENT), *rows_of(0))
    assert_trees_identical(params, PARAMS)
    half = train_state.create(jax.tree.map(lambda p: p.astype(jnp.bfloat16), params), DESCENT)
    assert {p.dtype for p in jax.tree.leaves(half.params)} == {jnp.dtype("float32")}


@pytest.mark.parametrize("tx, changes", [(DESCENT, {}), (FAR, {"minibatches": 2})], ids=["one minibatch", "two"])
def test_nothing_compiles_after_the_warm_up(tx, changes):
    """B4: rows of every length, any number of them."""
    assert updater(tx, **changes)[1] == 0
    count = count_compilations()
    jax.jit(lambda x: x * 3)(np.float32(1))
    assert count() == 1, "the counter counts"
