"""What a step costs and contains, on groups built by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hdl_jax.domains.domain import Problem, Verdict
from hdl_jax.rollout import accounting
from hdl_jax.rollout.trajectory import BranchPoint, Group, Reflection, Trajectory, Turn

PROBLEM = Problem("echo/train/0", 0, "train")


def _verdict(reward, success=False):
    return Verdict(reward, success, "f")


def _trajectory(prompt, response, *, fork=None, origin=None, verdict=None, generated=None, turns=(), truncated=False):
    """`response` tokens after a prompt; all of them generated unless a mask is given."""
    n = prompt + response
    mask = np.arange(n) >= prompt
    if generated is not None:
        mask[prompt:] = generated
    return Trajectory(
        np.arange(n, dtype=np.int32),
        mask,
        np.zeros(n, np.float32),
        prompt,
        prompt if fork is None else fork,
        turns,
        verdict,
        truncated,
        origin,
    )


def _reflection(n, outcome=None, truncated=False):
    return Reflection("", np.zeros(n, np.int32), outcome, truncated)


def _h10() -> Group:
    """Case H10: a root of 10 after a prompt of 4, points at response index 6 and 3, 5 and 8 new tokens."""
    root = _trajectory(4, 10)
    continuations = (_trajectory(4, 11, fork=10, origin=0), _trajectory(4, 11, fork=7, origin=0))
    points = (BranchPoint(0, 10, 2.0, 1), BranchPoint(0, 7, 1.0, 1))
    return Group(PROBLEM, (root, *continuations), (np.zeros(14, np.float32),), points, (_reflection(7),))


def test_tokens_of_a_group():
    """Case H10."""
    group = _h10()
    assert accounting.token_counts([group], sampled=30) == {
        "rollout/generated_tokens": 30,
        "rollout/generated_tokens/root": 10,
        "rollout/generated_tokens/reflection": 7,
        "rollout/generated_tokens/continuation": 13,
        "rollout/generated_tokens/discarded": 0,
        "rollout/scored_tokens": 20,
        "rollout/reused_prefix_tokens": 9,
        "rollout/packed_tokens": 27,
        "rollout/unpacked_tokens": 44,
    }
    assert sum(int(t.trained.sum()) for t in group.trajectories) == 23


def test_what_was_sampled_and_dropped_is_counted_apart():
    counts = accounting.token_counts([_h10(), _h10()], sampled=75)
    assert counts["rollout/generated_tokens"] == 75 and counts["rollout/generated_tokens/discarded"] == 15


def test_observations_are_neither_generated_reused_nor_scored():
    mask = [1, 1, 0, 0, 0, 1, 1, 1]
    root = _trajectory(3, 8, generated=mask)
    child = _trajectory(3, 9, fork=9, origin=0, generated=[*mask[:6], 1, 0, 1])
    group = Group(PROBLEM, (root, child), (np.zeros(11, np.float32),), (BranchPoint(0, 9, 1.0, 1),))
    counts = accounting.token_counts([group], sampled=7)
    assert counts["rollout/generated_tokens/root"] == 5
    assert counts["rollout/generated_tokens/continuation"] == 2
    assert counts["rollout/reused_prefix_tokens"] == 3
    assert counts["rollout/scored_tokens"] == 5, "without reflections there is one context"
    assert counts["rollout/packed_tokens"] == 11 + 3


def test_grpo_scores_and_reuses_nothing():
    group = Group(PROBLEM, tuple(_trajectory(4, n) for n in (3, 5)))
    counts = accounting.token_counts([group], sampled=8)
    assert counts["rollout/scored_tokens"] == counts["rollout/reused_prefix_tokens"] == 0
    assert counts["rollout/packed_tokens"] == counts["rollout/unpacked_tokens"] == 16
    assert accounting.branch_metrics([group], lambda t, i: "verb") == {}
    assert accounting.reflection_metrics([group]) == {}
    assert accounting.token_ratio([group], 2) == {}


def test_the_token_ratio_is_its_own_arithmetic():
    """(M + sum over continuations of (1 - fork fraction)) / G + reflections / (G x episode tokens)."""
    ratio = accounting.token_ratio([_h10()], 3)
    assert ratio["cost/root_episode_tokens"] == 10
    assert ratio["cost/predicted_token_ratio"] == pytest.approx((1 + (1 - 0.6) + (1 - 0.3)) / 3 + 7 / (3 * 10))
    assert ratio["cost/token_ratio"] == pytest.approx(30 / 30)


def test_prediction_and_count_agree_where_continuations_are_as_long_as_their_roots():
    """Groups of two roots whose continuations all end where the root does, forks anywhere."""
    rng = np.random.default_rng(0)
    groups = []
    for _ in range(3):
        roots = [_trajectory(4, 20) for _ in range(2)]
        points = [BranchPoint(r, int(rng.integers(4, 24)), 1.0, n) for r in range(2) for n in (3, 4)]
        children = [_trajectory(4, 20, fork=p.position, origin=p.root) for p in points for _ in range(p.continuations)]
        groups.append(Group(PROBLEM, (*roots, *children), (), tuple(points), (_reflection(5), _reflection(9))))
    ratio = accounting.token_ratio(groups, 16)
    assert ratio["cost/predicted_token_ratio"] == pytest.approx(ratio["cost/token_ratio"])
    counts = accounting.token_counts(groups, 0)
    parts = ("root", "reflection", "continuation")
    total = sum(counts[f"rollout/generated_tokens/{p}"] for p in parts)
    assert ratio["cost/token_ratio"] == pytest.approx(total / (3 * 16 * 20))


def test_branch_metrics():
    mask = [1, 1, 0, 0, 1, 1]  # positions 4..9, four generated
    first, second = _trajectory(4, 6, generated=mask), _trajectory(4, 4)
    children = [_trajectory(4, 6, fork=8, origin=0, generated=mask) for _ in range(3)]
    points = (BranchPoint(0, 8, 3.0, 3), BranchPoint(0, 5, 1.0, 4), BranchPoint(1, 4, None, 7))
    group = Group(PROBLEM, (first, second, *children), (), points)
    other = Group(PROBLEM, (_trajectory(4, 4), _trajectory(4, 4)), (), (BranchPoint(1, 6, 5.0, 1),))
    kinds = {8: "verb", 5: "filler", 6: "verb", 4: "end"}
    got = accounting.branch_metrics([group, other], lambda t, i: kinds[i])
    assert got["branch/valid_points_per_group"] == 3 / 2
    assert got["branch/roots_without_point"] == 1
    assert got["branch/dropped_continuations"] == 15 - 3
    assert got["branch/position_fraction"] == pytest.approx(np.mean([2 / 4, 1 / 4, 0, 2 / 4]))
    assert got["branch/fork_fraction"] == pytest.approx((3 * 2 / 4 + 4 * 1 / 4 + 7 * 0 + 2 / 4) / 15)
    assert got["branch/score_at_points"] == pytest.approx(3.0)
    shares = {kind: got[f"branch/share_{kind}"] for kind in ("filler", "verb", "argument", "end")}
    assert shares == {"filler": 1 / 3, "verb": 2 / 3, "argument": 0, "end": 0}, "the fallback point is no choice"


def test_reflections_that_do_not_parse_count_against_agreement():
    roots = [
        _trajectory(4, 3, verdict=_verdict(1.0, True)),
        _trajectory(4, 3, verdict=_verdict(0.0)),
        _trajectory(4, 3, verdict=_verdict(0.9)),
        _trajectory(4, 3, verdict=_verdict(1.0, True)),
    ]
    reflections = [_reflection(5, "success"), _reflection(7, "success"), _reflection(9, "failure"), _reflection(3)]
    group = Group(PROBLEM, tuple(roots), reflections=tuple(reflections[:4]))
    reflections[3] = _reflection(4, None, truncated=True)
    other = Group(PROBLEM, (roots[0],), reflections=(reflections[3],))
    got = accounting.reflection_metrics([group, other])
    assert got == {
        "reflection/outcome_agreement": 2 / 5,
        "reflection/cut": 0,
        "reflection/unparsed": 2,
        "reflection/truncated": 1,
        "reflection/tokens": pytest.approx(28 / 5),
    }


def test_rewards_are_of_verified_trajectories():
    turns = (Turn(4, 6, "a", ""), Turn(6, 7, "b", ""))
    group = Group(
        PROBLEM,
        (
            _trajectory(4, 3, verdict=_verdict(1.0, True), turns=turns),
            _trajectory(4, 3, verdict=None),
            _trajectory(4, 5, fork=5, origin=0, verdict=_verdict(0.5), truncated=True),
            _trajectory(4, 5, fork=5, origin=0, verdict=_verdict(0.0)),
        ),
    )
    flat = Group(Problem("echo/train/1", 1, "train"), (_trajectory(4, 2, verdict=_verdict(0.5)),) * 2)
    got = accounting.reward_metrics([group, flat])
    assert got["reward/mean"] == pytest.approx((1 + 0.5 + 0 + 0.5 + 0.5) / 5)
    assert got["reward/root_mean"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert got["reward/continuation_mean"] == pytest.approx(0.25)
    assert got["reward/success"] == pytest.approx(1 / 5)
    assert got["group/zero_variance_fraction"] == 0.5
    assert got["rollout/truncated_fraction"] == pytest.approx(1 / 6)
    assert got["rollout/failed_verifications"] == 1
    assert got["rollout/actions"] == pytest.approx(2 / 6)
    assert got["rollout/trajectory_tokens"] == pytest.approx((3 + 3 + 5 + 5 + 2 + 2) / 6)
