"""Where to branch: the jitted selector against a naive greedy loop, and the allocation of continuations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.localize.select import allocate, choose, select
from hdl_jax.rollout.trajectory import Trajectory

T = 24


def _greedy(scores, eligible, points: int, spacing: int) -> list[int]:
    """Highest score first, the earlier position on ties, skipping whatever is too close to one already taken."""
    taken: list[int] = []
    for position in sorted(np.flatnonzero(eligible), key=lambda i: (-scores[i], i)):
        if len(taken) < points and all(abs(position - t) >= spacing for t in taken):
            taken.append(int(position))
    return taken


def _select(scores, eligible, points: int, spacing: int) -> list[list[int]]:
    """Valid positions of every root; rows are padded to one shape, as in use."""
    padded = np.zeros((len(scores), T), np.float32)
    mask = np.zeros((len(scores), T), bool)
    for m, (s, e) in enumerate(zip(scores, eligible, strict=True)):
        padded[m, : len(s)], mask[m, : len(s)] = s, e
    positions, valid = select(padded, mask, points=points, spacing=spacing)
    return [np.asarray(p)[np.asarray(v)].tolist() for p, v in zip(positions, valid, strict=True)]


@pytest.mark.parametrize(
    ("scores", "generated", "spacing", "expected"),
    [
        ([0.1, 5, 4.9, 0.2, 3], [1, 1, 1, 1, 1], 2, [1, 4]),  # H1
        ([3, 3, 3], [1, 1, 1], 1, [0, 1]),  # H2
        ([9, 1, 2], [0, 1, 1], 1, [2, 1]),  # H3
        ([9, 1, 2], [0, 1, 0], 1, [1]),  # H6
        ([9, 8, 7], [1, 1, 1], 3, [0]),  # H6: the others are too close
        ([9, 1, 2], [0, 0, 0], 1, []),  # H7
        ([0, 0, 0], [0, 1, 1], 1, [1, 2]),  # a score of 0 is a score
        ([-3, -1, -2], [1, 1, 1], 1, [1, 2]),
    ],
)
def test_known_cases(scores, generated, spacing, expected):
    assert _select([scores], [generated], 2, spacing) == [expected]


SCORE = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(-1e3, 1e3, width=32, allow_subnormal=False))
ROOT = st.integers(1, T).flatmap(
    lambda n: st.tuples(
        st.lists(SCORE, min_size=n, max_size=n),
        st.one_of(st.lists(st.booleans(), min_size=n, max_size=n), st.just([False] * n), st.just([True] * n)),
    )
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROOT, min_size=2, max_size=2), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 5, 30]))
def test_the_selector_is_the_greedy_loop(roots, points, spacing):
    scores, eligible = ([root[i] for root in roots] for i in (0, 1))
    expected = [_greedy(np.float32(s), e, points, spacing) for s, e in zip(scores, eligible, strict=True)]
    assert _select(scores, eligible, points, spacing) == expected


# ---- roots in, branch points out ------------------------------------------------------------------------------------


def _root(generated) -> Trajectory:
    generated = np.asarray(generated, bool)
    n = len(generated)
    return Trajectory(np.arange(n, dtype=np.int32), generated, np.zeros(n, np.float32), 1, 1, (), None, False)


def _choose(roots, scores, continuations=(3, 4), spacing=2):
    return choose(
        "echo/train/3",
        roots,
        [np.asarray(s, np.float32) for s in scores],
        points=len(continuations),
        spacing=spacing,
        continuations=continuations,
        capacity=T,
    )


def _plain(points):
    return [(p.root, p.position, p.score, p.continuations) for p in points]


def test_the_higher_scoring_point_gets_the_first_share():
    """H5, with the higher score second in the text."""
    ((first, second),) = _choose([_root([0, 1, 1, 1, 1, 1])], [[0, 2, 1, 1, 7, 1]])
    assert _plain([first, second]) == [(0, 4, 7.0, 3), (0, 1, 2.0, 4)]


def test_one_valid_point_gets_all_and_none_starts_at_the_first_generated_token():
    one, none = _choose([_root([0, 0, 1, 0]), _root([0, 0, 0, 0])], [[0, 0, 5, 0], [0, 0, 0, 0]])
    assert _plain(one) == [(0, 2, 5.0, 7)]
    assert len(none) == 1 and none[0].root == 1 and none[0].score is None and none[0].continuations == 7
    (spaced,) = _choose([_root([0, 1, 1, 1])], [[0, 1, 2, 1]], spacing=50)
    assert _plain(spaced) == [(0, 2, 2.0, 7)]


def test_without_a_point_all_start_at_the_first_generated_token():
    root = _root([0, 0, 0, 1, 1])
    assert _plain(allocate(1, root, [], np.zeros(5), (3, 4))) == [(1, 3, None, 7)]


def test_with_three_shares_and_two_points_the_share_left_over_goes_to_the_best():
    assert [p.continuations for p in allocate(0, _root([1] * 9), [4, 0], np.arange(9.0), (1, 2, 3))] == [4, 2]


def test_prompt_and_observation_tokens_are_never_chosen():
    """Whatever their scores say: infinite ones too, since they are no scores."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        roots = [_root(np.concatenate([[0], rng.random(rng.integers(3, T)) < 0.5])) for _ in range(2)]
        scores = [np.where(r.generated, rng.random(len(r.tokens)), rng.choice([9, np.nan, np.inf])) for r in roots]
        for root, points in zip(roots, _choose(roots, scores), strict=True):
            assert all(root.generated[p.position] for p in points) or not root.generated.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_names_problem_root_and_position(bad):
    roots = [_root([0, 1, 1]), _root([0, 1, 1, 1])]
    with pytest.raises(FloatingPointError, match=r"echo/train/3: score -?(nan|inf) at position 2 of root 1"):
        _choose(roots, [[0, 1, 1], [0, 1, bad, 1]])


@pytest.mark.parametrize(
    ("roots", "continuations", "total"), [(2, (3, 4), 16), (2, (7,), 16), (4, (1, 2), 16), (2, (2, 3), 12)]
)
def test_a_group_adds_up_however_many_points_are_valid(roots, continuations, total):
    """H8, with roots that have all, one and no valid points."""
    kinds = [_root([0] + [1] * 9), _root([0, 0, 1, 0]), _root([0, 1, 1]), _root([0, 1, 0, 0])]
    chosen = [kinds[i % len(kinds)] for i in range(roots)]
    points = _choose(chosen, [np.random.default_rng(0).random(len(r.tokens)) for r in chosen], continuations)
    assert roots + sum(p.continuations for of_root in points for p in of_root) == total
