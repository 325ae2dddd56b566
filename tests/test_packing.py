"""Micro-batches: static shapes, a token budget, every trained token once and after its own path, masks from the record.

Cases B1, B5, T3, T4, T4b, H10.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_fixtures import random_continuation, random_group, random_root, trajectory

from hdl_jax.learn.packing import Streams, empty, families, pack, trained_tokens


def packed(groups, streams):
    """Micro-batches of groups, each trajectory's advantage being its number, from 1, which names it."""
    names = iter(range(1, 1000))
    return pack([f for group in groups for f in families(group, [float(next(names)) for _ in group])], streams)


def path(batch, place):
    """The tokens that a place in the stream sees, itself last, by the definition of a layout."""
    lay = batch.layout
    before = batch.tokens[lay.prefix_start[place] : lay.prefix_end[place]]
    return [*before.tolist(), *batch.tokens[lay.start[place] : place + 1].tolist()]


def read(batches):
    """What is trained: (name of the trajectory, what its source sees, target, sampler's log-prob), one a token."""
    for batch in batches:
        for i in range(int(batch.count)):
            place = batch.source[i]
            assert int(batch.layout.positions[place]) == len(path(batch, place)) - 1, "positions are depths in the path"
            yield int(batch.advantage[i]), path(batch, place), int(batch.target[i]), float(batch.sampler[i])


@settings(deadline=None, max_examples=40)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 7)), max_size=5),
    budget=st.integers(40, 300),
    seed=st.integers(0, 2**31),
)
def test_every_trained_token_once_and_predicted_from_its_own_path(shapes, budget, seed):
    rng = np.random.default_rng(seed)
    groups = [
        random_group(rng, range(6, 40), vocabulary=99, roots=roots, continuations=continuations)
        for roots, continuations in shapes
    ]
    streams = Streams(budget, 40)
    batches = packed(groups, streams)
    lengths = [len(batch.tokens) for batch in batches]
    assert set(lengths) <= set(streams.lengths) and lengths == sorted(lengths, reverse=True)
    assert not lengths or lengths[0] == budget
    every = [t for group in groups for t in group]
    wanted = [
        (name, t.tokens[:i].tolist(), int(t.tokens[i]), float(t.log_probs[i]))
        for name, t in enumerate(every, 1)
        if t.verdict is not None
        for i in np.flatnonzero(t.trained)
    ]
    assert sorted(read(batches)) == sorted(wanted)
    assert sum(int(b.count) for b in batches) == trained_tokens(every)


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(5, 64), min_size=1, max_size=24), budget=st.integers(64, 300))
def test_streams_are_filled(lengths, budget):
    """No two of them, half full, where one would do."""
    groups = [[trajectory(range(100 * i, 100 * i + n), [0] * 3 + [1] * (n - 3))] for i, n in enumerate(lengths)]
    batches = packed(groups, Streams(budget, 64))
    assert len(batches) <= max(1, 2 * sum(lengths) // budget + 1)


def test_b1_trajectories_that_do_not_fit_together_get_a_stream_each():
    rng = np.random.default_rng(0)
    groups = [[random_root(rng, 7, vocabulary=9, prompt=(1, 2, i))] for i in range(8)]
    batches = packed(groups, Streams(8, 8))
    assert [batch.tokens.size for batch in batches] == [8] * 8, "ceil(56 / 8) = 7 would make one of 14 tokens"


def test_b5_a_trajectory_longer_than_a_stream_is_an_error_that_names_the_field():
    row = random_root(np.random.default_rng(0), 33, vocabulary=9)
    with pytest.raises(ValueError, match=r"33 tokens .* learn\.tokens_per_microbatch=32: raise it"):
        packed([[row]], Streams(32, 40))


def test_h10_tokens_of_a_root_and_two_continuations():
    """Trained 10 + 5 + 8: a continuation's prefix is not counted again. Forwarded 4 + 10 + 5 + 8, not 14 + 15 + 15."""
    root = trajectory(range(14), [0] * 4 + [1] * 10)
    six = trajectory([*range(10), *range(50, 55)], [0] * 4 + [1] * 11, fork=4 + 6)
    three = trajectory([*range(7), *range(60, 68)], [0] * 4 + [1] * 11, fork=4 + 3)
    assert trained_tokens([root, six, three]) == 10 + 5 + 8
    (family,) = families([root, six, three], [1.0, 1.0, 1.0])
    assert family.size == 4 + 10 + 5 + 8
    (batch,) = pack([family], Streams(27, 15))
    assert batch.count == 10 + 5 + 8
    assert sum(f.size for t in (root, six, three) for f in families([dataclasses.replace(t, origin=None)], [1])) == 44


def test_a_group_of_one_prompt_forwards_it_once():
    """GRPO: 5 prompt tokens and three answers of 4; another prompt is another family."""
    rows = [trajectory([1, 2, 3, 4, 5, *answer], [0] * 5 + [1] * 4) for answer in np.arange(6, 18).reshape(3, 4)]
    (family,) = families(rows, [1.0, 2.0, 3.0])
    assert family.size == 5 + 3 * 4
    other = trajectory([1, 2, 3, 4, 6, 7], [0] * 5 + [1])
    assert sorted(f.size for f in families([*rows, other], [1.0] * 4)) == [6, 17]


def test_a_root_that_is_not_trained_is_forwarded_as_far_as_it_is_seen():
    rng = np.random.default_rng(0)
    root = random_root(rng, 30, vocabulary=9, reward=None)
    forks = np.flatnonzero(root.generated)[[2, 5]].tolist()
    branches = [random_continuation(rng, root, 20, vocabulary=9, fork=fork) for fork in forks]
    (family,) = families([root, *branches], [1.0] * 3)
    assert family.size == max(forks) + sum(20 - fork for fork in forks)
    assert trained_tokens([root, *branches]) == pack([family], Streams(128, 30))[0].count


def test_a_family_that_is_split_takes_along_what_its_members_see():
    """Root 20 and three continuations of 10 own tokens at 15: one stream of 50, or with 30 two of 30 and 15 + 20."""
    root = trajectory(range(20), [0] * 4 + [1] * 16)
    branches = [trajectory([*range(15), *range(50, 60)], [0] * 4 + [1] * 21, fork=15) for _ in range(3)]
    group = [root, *branches]
    assert [len(b.tokens) for b in packed([group], Streams(50, 25))] == [50]
    split = packed([group], Streams(36, 25))
    assert sorted(int(b.count) for b in split) == sorted([16 + 10, 20])
    assert sorted(name for name, *_ in read(split)) == [1] * 16 + [2] * 10 + [3] * 10 + [4] * 10


def test_a_continuation_of_another_root_is_refused():
    root, other = trajectory(range(10), [0] * 4 + [1] * 6), trajectory(range(1, 11), [0] * 4 + [1] * 6)
    stray = trajectory(range(12), [0] * 4 + [1] * 8, fork=6, origin=1)
    with pytest.raises(ValueError, match="first 6 tokens are not those of its root"):
        families([root, other, stray], [1.0] * 3)


def test_a_trajectory_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="nothing comes before it"):
        families([trajectory([1, 2], [1, 1])], [1.0])


def _trained(row, length):
    """Which places of a stream with that one trajectory are trained."""
    (batch,) = packed([[row]], Streams(length, length))
    mask = np.zeros(length, int)
    mask[batch.source[: batch.count] + 1] = 1
    assert batch.tokens[: len(row.tokens)].tolist() == row.tokens.tolist()
    return mask.tolist()


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_t3_masks_come_from_lengths_not_from_token_values(stop):
    """Prompt [7], response [9, stop]: the stop token may be any id, and so may the others, the padding id included."""
    assert _trained(trajectory([7, 9, stop], [0, 1, 1]), 5) == [0, 1, 1, 0, 0]
    assert _trained(trajectory([7, 0, 0, stop], [0, 1, 1, 1]), 6) == [0, 1, 1, 1, 0, 0]
    # Cut off before any stop token: truncated, and trained all the same.
    assert _trained(trajectory([7, 9, 9], [0, 1, 1], truncated=True), 5) == [0, 1, 1, 0, 0]


def test_t4_observations_are_never_trained():
    """The logits that predict a token are those of the one before it (see test_update)."""
    row = trajectory([1, 2, 10, 11, 3, 20, 21, 12, 3], [0, 0, 1, 1, 1, 0, 0, 1, 1])
    assert _trained(row, 9) == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert _trained(row, 12) == [0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0]


def test_t4b_a_continuation_is_trained_from_its_fork_on():
    root = trajectory([1, 2, 10, 11, 12, 3], [0, 0, 1, 1, 1, 1], reward=None)
    row = trajectory([1, 2, 10, 15, 3], [0, 0, 1, 1, 1], fork=3)
    (batch,) = packed([[root, row]], Streams(8, 8))
    assert list(read([batch])) == [(2, [1, 2, 10], 15, 0.0), (2, [1, 2, 10, 15], 3, 0.0)]
    assert trained_tokens([root, row]) == 2


def test_unscored_and_empty_rows_are_left_out_and_rows_of_advantage_zero_are_not():
    rng = np.random.default_rng(0)
    unscored = random_root(rng, 9, vocabulary=9, reward=None)
    nothing = trajectory([1, 2, 3], [0, 0, 0])
    plain = random_root(rng, 9, vocabulary=9)
    (batch,) = pack(families([unscored, nothing, plain], [5.0, 5.0, 0.0]), Streams(64, 16))
    assert batch.count == plain.trained.sum() == trained_tokens([unscored, nothing, plain])
    assert pack(families([unscored, nothing], [1.0, 1.0]), Streams(64, 16)) == []
    assert pack([], Streams(64, 16)) == []


@pytest.mark.parametrize("attention", ["xla", "cudnn", "splash"])
def test_warm_up_batches_have_the_shapes_of_the_real_ones_and_nothing_in_them(attention):
    streams = Streams(64, 32, attention)
    warm = [batch for length in streams.lengths for batch in empty(streams, length)]
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), batch) for batch in warm]
    rng = np.random.default_rng(0)
    groups = [random_group(rng, (8, 30), vocabulary=9, roots=2, continuations=3) for _ in range(4)]
    for batch in packed(groups, streams):
        assert jax.tree.map(lambda x: (x.shape, x.dtype), batch) in shapes
    assert not any(batch.count for batch in warm)
