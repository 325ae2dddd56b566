"""Micro-batches: static shapes, a token budget, every row once, masks from the record alone.

Cases B1, B5, T3, T4, T4b, H10.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_fixtures import random_trajectory, trajectory

from hdl_jax.learn.packing import Buckets, empty, pack, trained_tokens


def _rows(batches):
    """What was packed, as (advantage, tokens up to the last trained one, trained positions), for non-empty rows."""
    for batch in batches:
        for b in range(len(batch.tokens)):
            if batch.mask[b].any():
                yield float(batch.advantages[b]), batch.tokens[b], batch.mask[b], batch.sampler[b]


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(4, 64), max_size=24),
    buckets=st.sets(st.integers(4, 63), max_size=3),
    budget=st.integers(1, 300),
    seed=st.integers(0, 2**31),
)
def test_every_row_once_in_static_shapes_within_the_budget(lengths, buckets, budget, seed):
    rng = np.random.default_rng(seed)
    shapes = Buckets((*buckets, 64), budget)  # in any order
    rows = [
        random_trajectory(
            rng, n, vocabulary=9, continuation=bool(rng.random() < 0.5), reward=None if rng.random() < 0.2 else 0.5
        )
        for n in lengths
    ]
    advantages = [1.0 + i for i in range(len(rows))]  # names the row
    batches = pack(rows, advantages, shapes)
    for batch in batches:
        n, length = batch.tokens.shape
        assert length in shapes.lengths
        assert n * length <= budget or n == 1
        assert n == max(1, budget // length), "one shape a length, or every count of rows would compile anew"
        for array in (batch.mask, batch.sampler):
            assert array.shape == (n, length)
        assert batch.advantages.shape == (n,)
    packed = {advantage: rest for advantage, *rest in _rows(batches)}
    assert len(packed) == sum(1 for _ in _rows(batches)), "a row was packed twice"
    assert set(packed) == {a for t, a in zip(rows, advantages, strict=True) if t.verdict is not None}
    for a, (tokens, mask, sampler) in packed.items():
        t = rows[int(a) - 1]
        end = len(t.tokens)
        assert len(tokens) == min(length for length in shapes.lengths if length >= end)
        assert tokens[:end].tolist() == t.tokens.tolist() and not tokens[end:].any()
        assert mask[:end].tolist() == t.trained.tolist() and not mask[end:].any()
        np.testing.assert_array_equal(sampler[mask], t.log_probs[t.trained])
    assert sum(int(b.mask.sum()) for b in batches) == trained_tokens(rows)


def test_b1_rows_that_do_not_fit_together_get_a_micro_batch_each():
    rng = np.random.default_rng(0)
    rows = [random_trajectory(rng, 7, vocabulary=9) for _ in range(8)]
    for lengths in ((7,), (8,), (4, 8)):
        batches = pack(rows, [1.0] * 8, Buckets(lengths, 8))
        assert len(batches) == 8, "ceil(56 / 8) = 7 would make one of 14 tokens"
        assert all(batch.tokens.size <= 8 for batch in batches)


def test_b5_a_row_longer_than_the_longest_bucket_is_an_error_that_names_the_field():
    row = random_trajectory(np.random.default_rng(0), 33, vocabulary=9)
    with pytest.raises(ValueError, match=r"33 tokens .* learn\.row_lengths=\(16, 32\)"):
        pack([row], [1.0], Buckets((16, 32), 1000))


def test_a_row_may_be_longer_than_the_budget_but_goes_alone():
    rng = np.random.default_rng(0)
    batches = pack([random_trajectory(rng, 30, vocabulary=9) for _ in range(2)], [1.0, 2.0], Buckets((32,), 10))
    assert [batch.tokens.shape for batch in batches] == [(1, 32), (1, 32)]


def _only(row, length):
    (batch,) = pack([row], [1.0], Buckets((length,), length))
    return batch.mask[0].astype(int).tolist()


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_t3_masks_come_from_lengths_not_from_token_values(stop):
    """Prompt [7], response [9, stop]: the stop token may be any id, and so may the others, the padding id included."""
    assert _only(trajectory([7, 9, stop], [0, 1, 1]), 5) == [0, 1, 1, 0, 0]
    assert _only(trajectory([7, 0, 0, stop], [0, 1, 1, 1]), 6) == [0, 1, 1, 1, 0, 0]
    # Cut off before any stop token: truncated, and trained all the same.
    assert _only(trajectory([7, 9, 9], [0, 1, 1], truncated=True), 5) == [0, 1, 1, 0, 0]


def test_t4_observations_are_never_trained():
    """Index t of the mask is token t; the logits that predict it are at t - 1 (see test_update)."""
    row = trajectory([1, 2, 10, 11, 3, 20, 21, 12, 3], [0, 0, 1, 1, 1, 0, 0, 1, 1])
    assert _only(row, 9) == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert _only(row, 12) == [0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0]


def test_t4b_a_continuation_is_trained_from_its_fork_on():
    row = trajectory([1, 2, 10, 15, 3], [0, 0, 1, 1, 1], fork=3)
    assert _only(row, 8) == [0, 0, 0, 1, 1, 0, 0, 0]
    assert trained_tokens([row]) == 2


def test_h10_trained_tokens_of_a_root_and_two_continuations():
    """10 + 5 + 8: a continuation's prefix is not counted again."""
    root = trajectory(range(14), [0] * 4 + [1] * 10)
    six = trajectory(range(15), [0] * 4 + [1] * 11, fork=4 + 6)
    three = trajectory(range(15), [0] * 4 + [1] * 11, fork=4 + 3)
    assert trained_tokens([root, six, three]) == 10 + 5 + 8


def test_unscored_and_empty_rows_are_left_out_and_rows_of_advantage_zero_are_not():
    rng = np.random.default_rng(0)
    unscored = random_trajectory(rng, 9, vocabulary=9, reward=None)
    nothing = trajectory([1, 2, 3], [0, 0, 0])
    plain = random_trajectory(rng, 9, vocabulary=9)
    batches = pack([unscored, nothing, plain], [5.0, 5.0, 0.0], Buckets((16,), 64))
    assert len(batches) == 1
    assert batches[0].mask.sum() == plain.trained.sum() == trained_tokens([unscored, nothing, plain])
    assert pack([unscored, nothing], [1.0, 1.0], Buckets((16,), 64)) == []
    assert pack([], [], Buckets((16,), 64)) == []


def test_the_warm_up_batch_has_the_shapes_of_the_real_ones_and_nothing_in_it():
    shapes = Buckets((16, 32), 70)
    for length in shapes.lengths:
        real = pack([random_trajectory(np.random.default_rng(0), length, vocabulary=9)], [1.0], shapes)[0]
        warm = empty(shapes, length)
        for a, b in ((real.tokens, warm.tokens), (real.mask, warm.mask), (real.sampler, warm.sampler)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert (real.advantages.shape, real.advantages.dtype) == (warm.advantages.shape, warm.advantages.dtype)
        assert not warm.mask.any()
