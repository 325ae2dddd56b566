"""The update against one that goes a row and a token at a time, and against a hand-written AdamW."""

from __future__ import annotations

import dataclasses
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
    random_continuation,
    random_group,
    random_params,
    random_root,
    trajectory,
)

from hdl_jax.compilations import count_compilations
from hdl_jax.learn import packing
from hdl_jax.learn import state as train_state
from hdl_jax.learn.update import Updater, batch_logprobs
from hdl_jax.policy.packed import packed_attention

PARAMS = random_params()
SLOW = SlowUpdate()
# Plain descent at rate 1 changes the parameters by the gradient, which Adam would hide behind its sign.
DESCENT = optax.sgd(1.0)
FAR = optax.sgd(8.0)  # far enough that a second minibatch's ratios leave the clip's range
ADAMW = train_state.optimizer(learn_config(learning_rate=1e-3))
LENGTHS = (9, 16, 30)  # few, because each is a program of the slow update
LONGEST = max(LENGTHS)


@functools.cache
def updater(tx: optax.GradientTransformation, temperature: float = 1.0, **changes) -> tuple[Updater, int]:
    """A warmed-up updater, and how many programs its first updates compiled after the warm-up."""
    update = Updater(POLICY, tx, learn_config(**changes), temperature, LONGEST)
    state = train_state.create(PARAMS, tx)
    update.warm_up(state)
    assert_trees_identical(state.params, PARAMS)
    count = count_compilations()
    for seed in range(5):
        state, _ = update(state, *groups_of(seed, n=1 + seed))
    return update, count()


def groups_of(seed: int, n: int = 2):
    """Families of HDL and (every third) of GRPO, some members unverified, with advantages."""
    rng = np.random.default_rng(seed)
    groups = [
        random_group(
            rng, LENGTHS, vocabulary=POLICY.vocab_size, roots=4 if i % 3 == 2 else 2, continuations=4 * (i % 3 < 2)
        )
        for i in range(n)
    ]
    return groups, [rng.choice([-0.75, -0.25, 0.0, 0.5, 1.0], len(group)) for group in groups]


def flat(groups, advantages):
    return [t for group in groups for t in group], np.concatenate(advantages)


def step(groups, advantages, tx=DESCENT, **changes):
    update, _ = updater(tx, **changes)
    return update(train_state.create(PARAMS, tx), groups, advantages)


def change(groups, advantages, **changes):
    """The gradient that the update followed."""
    return jax.tree.map(lambda p, q: np.asarray(p - q), PARAMS, step(groups, advantages, **changes)[0].params)


def descended(params, gradient, rate=1.0):
    return jax.tree.map(lambda p, g: np.asarray(p - rate * g, np.float32), params, gradient)


# ---- the gradient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed, budget", [(0, 96), (1, 96), (2, 96), (3, 512), (4, 30)])
def test_gradient_and_metrics_against_unpacked_rows_one_at_a_time(seed, budget):
    """V4 with it: in one minibatch the ratio is 1, so that the loss is -sum(A over trained tokens) / their number.

    Streams of 512 hold everything; of 30, the longest trajectory alone, so that families are split.
    """
    groups, per_group = groups_of(seed, n=3)
    rows, advantages = flat(groups, per_group)
    slow = [SLOW.row(PARAMS, t, a) for t, a in zip(rows, advantages, strict=True)]
    state, metrics = step(groups, per_group, tokens_per_microbatch=budget)
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


@pytest.mark.parametrize("budget", [30, 70])
def test_l2_micro_batches_are_one_batch(budget):
    """Parameters and moments after a step, with a row or two at a time and with all of them at once."""
    groups = groups_of(5, n=3)
    whole, expected = step(*groups, ADAMW, tokens_per_microbatch=512)
    parts, metrics = step(*groups, ADAMW, tokens_per_microbatch=budget)
    assert_trees_close(parts.params, whole.params, atol=1e-6)
    assert_trees_close(parts.opt_state, whole.opt_state, atol=1e-7)
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_l1_l2_the_mean_is_over_tokens_not_over_rows_or_micro_batches():
    """Rows of four and of two trained tokens with losses of 1 and 3, one micro-batch each: 10 / 6, not 2."""
    rows = [trajectory(range(8, 14), [0, 0, 1, 1, 1, 1]), trajectory(range(20, 24), [0, 0, 1, 1])]
    _, metrics = step([rows], [[-1.0, -3.0]], ADAMW, tokens_per_microbatch=30)
    assert metrics["update/loss"] == pytest.approx(10 / 6)
    assert metrics["update/trained_tokens"] == 6


def test_the_order_of_groups_does_not_matter():
    groups, advantages = groups_of(6, n=4)
    order = [2, 0, 3, 1]
    plain, metrics = step(groups, advantages)
    shuffled, other = step([groups[i] for i in order], [advantages[i] for i in order])
    assert_trees_close(shuffled.params, plain.params, atol=1e-6)
    assert other == pytest.approx(metrics, rel=1e-4, abs=1e-6)


def test_h11_the_first_token_of_a_continuation_is_predicted_from_before_the_fork():
    """Where the root goes on differently; and two continuations at one fork read the same logits."""
    rng = np.random.default_rng(2)
    root = random_root(rng, 16, vocabulary=48)
    fork = int(np.flatnonzero(root.generated)[3])
    pair = [random_continuation(rng, root, 16, vocabulary=48, fork=fork) for _ in range(2)]
    assert len({int(t.tokens[fork]) for t in (root, *pair)}) == 3
    log_p = packed_log_probs([root, *pair])
    for t, got in zip((root, *pair), log_p, strict=True):
        np.testing.assert_allclose(got, SLOW.log_probs(PARAMS, t)[t.trained], atol=1e-5)
    prefix = trajectory(root.tokens[:fork], root.generated[:fork])
    z = SLOW.logits(PARAMS, prefix)[-1]
    for t, got in zip(pair, log_p[1:], strict=True):
        assert got[0] == pytest.approx(float(jax.nn.log_softmax(z)[t.tokens[fork]]), abs=1e-5)


def packed_log_probs(group):
    """The log-probs of each trajectory's trained tokens, the group in one stream."""
    streams = packing.Streams(128, LONGEST)
    # The advantage names the trajectory.
    names = [float(i + 1) for i in range(len(group))]
    (batch,) = packing.pack(packing.families(group, names), streams)
    log_p, _ = jax.jit(batch_logprobs, static_argnums=(1, 4))(PARAMS, POLICY, batch, 1.0, packed_attention)
    return [np.asarray(log_p)[: batch.count][batch.advantage[: batch.count] == name] for name in names]


def test_a_continuations_prefix_is_context_only():
    """The prefix has no part in numerator or denominator, but the new tokens are conditioned on it (H10, T4b)."""
    rng = np.random.default_rng(1)

    def family(seen=None, generated=(0, 0, 0, *[1] * 13), log_probs=0.0):
        """An unverified root of 16 and its continuation at 11, of 5 trained tokens."""
        tokens = np.array(root_tokens if seen is None else seen)
        root = trajectory(tokens, generated, reward=None, log_probs=np.full(16, log_probs))
        mine = trajectory([*tokens[:11], *suffix], [*generated[:11], *[1] * 5], fork=11, log_probs=np.full(16, -1.0))
        return [[root, mine]], [[0.0, 1.0]]

    root_tokens, suffix = rng.integers(6, 48, 16), rng.integers(6, 48, 5)
    plain = family()
    _, metrics = step(*plain)
    assert metrics["update/trained_tokens"] == 5
    assert metrics["update/loss"] == pytest.approx(-1.0)
    assert_trees_close(change(*plain), SLOW.gradient(PARAMS, plain[0][0], [0.0, 1.0]), atol=5e-6)
    # Nothing recorded about the prefix matters: who wrote it, and with what probability.
    assert_trees_identical(change(*plain), change(*family(generated=[0] * 7 + [1] * 9, log_probs=7.0)))
    # What it says does, up to the fork.
    other = root_tokens.copy()
    other[12:] = 7
    assert_trees_identical(change(*plain), change(*family(other)))
    other[10] = 6 + (other[10] + 1) % 40
    differences = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), change(*plain), change(*family(other)))
    assert max(jax.tree.leaves(differences)) > 1e-4


def test_g6_l5_an_unverified_row_is_in_neither_part():
    rng = np.random.default_rng(7)
    rows = [random_root(rng, 16, vocabulary=48, reward=reward) for reward in (0.5, 0.5, None)]
    with_it, metrics = step([rows], [[1.0, -0.5, 100.0]])
    without, expected = step([rows[:2]], [[1.0, -0.5]])
    assert_trees_identical(with_it.params, without.params)
    assert metrics == expected


def test_a_row_without_advantage_stays_in_the_denominator():
    """Zero-variance groups are not dropped: they make the others' step smaller."""
    rng = np.random.default_rng(0)
    rows = [trajectory(rng.integers(6, 48, 16), [0] * 4 + [1] * 12) for _ in range(2)]
    alone = change([rows[:1]], [[1.0]])
    _, metrics = step([rows], [[1.0, 0.0]])
    assert metrics["update/trained_tokens"] == 24
    assert_trees_close(change([rows], [[1.0, 0.0]]), jax.tree.map(lambda g: g / 2, alone), atol=1e-6)


@pytest.mark.parametrize("rows", ["unverified", "none"])
def test_l6_nothing_to_train_on_takes_no_step_and_is_counted(rows):
    update, _ = updater(ADAMW, tokens_per_microbatch=70)
    state = train_state.create(PARAMS, ADAMW)
    before = jax.tree.map(np.asarray, state)
    rng = np.random.default_rng(0)
    groups = [[random_root(rng, 9, vocabulary=48, reward=None) for _ in range(3)]] if rows == "unverified" else []
    state, metrics = update(state, groups, [np.zeros(len(group)) for group in groups])
    assert_trees_identical(state, before)
    assert metrics["update/skipped"] == 1
    assert metrics["update/trained_tokens"] == metrics["update/loss"] == metrics["update/grad_norm"] == 0
    assert all(math.isfinite(v) for v in metrics.values())


# ---- log-probs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_p1_log_probs_and_entropy_are_of_the_samplers_distribution(temperature):
    t = random_root(np.random.default_rng(3), LENGTHS[1], vocabulary=48)
    (batch,) = packing.pack(packing.families([t], [1.0]), packing.Streams(32, LONGEST))
    log_p, entropy = jax.jit(batch_logprobs, static_argnums=(1, 4))(
        PARAMS, POLICY, batch, temperature, packed_attention
    )
    slow = SlowUpdate(temperature).row(PARAMS, t, 1.0)
    np.testing.assert_allclose(log_p[: batch.count], slow.log_probs[t.trained], atol=1e-5)
    np.testing.assert_allclose(entropy[: batch.count], slow.entropies[t.trained], atol=1e-5)


def test_the_update_trains_at_the_samplers_temperature():
    rng = np.random.default_rng(8)
    rows = [random_root(rng, LENGTHS[0], vocabulary=48) for _ in range(3)]
    update = Updater(POLICY, DESCENT, learn_config(tokens_per_microbatch=30), 0.6, LONGEST)
    state, _ = update(train_state.create(PARAMS, DESCENT), [rows], [np.array([1.0, -0.5, 0.25])])
    gradient = SlowUpdate(0.6).gradient(PARAMS, rows, [1.0, -0.5, 0.25])
    assert_trees_close(state.params, descended(PARAMS, gradient), atol=1e-5)


def test_gap_to_the_sampler():
    """Nothing where the sampler's log-probs are the trainer's own; a gap of 0.5 at one of n tokens is 0.5 / n."""
    (rows,), (advantages,) = groups_of(9, n=1)

    def with_log_probs(t, shift_at=None):
        log_p = SLOW.log_probs(PARAMS, t) * t.generated
        if shift_at is not None:
            log_p[shift_at] -= 0.5
        return dataclasses.replace(t, log_probs=log_p.astype(np.float32))

    exact = [with_log_probs(t) for t in rows]
    _, metrics = step([exact], [advantages])
    assert metrics["update/sampler_logprob_gap"] < 1e-5
    i = next(i for i, t in enumerate(rows) if SLOW.places(t))
    exact[i] = with_log_probs(rows[i], SLOW.places(rows[i])[-1])
    _, metrics = step([exact], [advantages])
    assert metrics["update/sampler_logprob_gap"] == pytest.approx(0.5 / metrics["update/trained_tokens"], abs=1e-5)
    assert metrics["update/sampler_logprob_gap_max"] == pytest.approx(0.5, abs=1e-5)


# ---- minibatches ----------------------------------------------------------------------------------------------------


def test_the_second_minibatch_is_measured_against_the_policy_before_the_first():
    groups, per_group = groups_of(10, n=4)
    rows, advantages = flat(groups, per_group)
    half = sum(len(group) for group in groups[:2])
    old = [SLOW.log_probs(PARAMS, t) for t in rows]
    state, metrics = step(groups, per_group, FAR, minibatches=2)

    middle = descended(PARAMS, SLOW.gradient(PARAMS, rows[:half], advantages[:half]), 8)
    second = SLOW.gradient(middle, rows[half:], advantages[half:], old[half:])
    assert_trees_close(state.params, descended(middle, second, 8), atol=5e-5, rtol=1e-4)
    assert int(state.step) == 2

    ratios, signs = [], []
    for t, before, a in zip(rows[half:], old[half:], advantages[half:], strict=True):
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
    (rows,), (advantages,) = groups_of(11, n=1)
    unverified = random_root(np.random.default_rng(0), 9, vocabulary=48, reward=None)
    state, metrics = step([rows, [unverified] * 2], [advantages, [0, 0]], FAR, minibatches=2)
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
    update, _ = updater(ADAMW, tokens_per_microbatch=512)
    for seed in (12, 13):
        groups, advantages = groups_of(seed)
        gradient = jax.tree.map(jnp.float32, SLOW.gradient(slow, *flat(groups, advantages)))
        updates, opt_state = ADAMW.update(gradient, opt_state, slow)
        slow = optax.apply_updates(slow, updates)
        state, _ = update(state, groups, advantages)
    # Where a gradient is next to nothing, Adam scales up its rounding.
    assert_trees_close(state.params, slow, atol=2e-5)
    assert int(state.step) == 2


def test_the_state_is_a_float32_copy():
    """The update donates its state: the caller's parameters must survive it."""
    params = jax.tree.map(jnp.array, PARAMS)
    update, _ = updater(DESCENT)
    update(train_state.create(params, DESCENT), *groups_of(0))
    assert_trees_identical(params, PARAMS)
    half = train_state.create(jax.tree.map(lambda p: p.astype(jnp.bfloat16), params), DESCENT)
    assert {p.dtype for p in jax.tree.leaves(half.params)} == {jnp.dtype("float32")}


@pytest.mark.parametrize("tx, changes", [(DESCENT, {}), (FAR, {"minibatches": 2})], ids=["one minibatch", "two"])
def test_nothing_compiles_after_the_warm_up(tx, changes):
    """B4: groups of any size, and a program for the first micro-batch and one for the others, by length."""
    assert updater(tx, **changes)[1] == 0
    count = count_compilations()
    jax.jit(lambda x: x * 3)(np.float32(1))
    assert count() == 1, "the counter counts"
