"""Whole groups on the engine: each trajectory is what the slow sampler plays; what goes wrong is dropped and told."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import support
from support import STOPS, EchoDomain, context, play, same_log_probs

from hdl_jax.domains.domain import EnvironmentFailure, Problem
from hdl_jax.rollout import accounting
from hdl_jax.rollout.grpo import grpo
from hdl_jax.rollout.hdl import hdl
from hdl_jax.rollout.session import Session
from hdl_jax.sampling import pool as device
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Lane, LaneResult


@pytest.fixture(scope="module")
def groups(shared):
    """HDL groups of three problems, by hindsight."""
    return play(shared, hdl, context())


def _resample(oracle, ctx, problem, path, parent=None, fork=None, origin=None):
    """The trajectory as the slow sampler plays it: no cache, no batching, one problem."""
    session = Session(ctx, problem, parent, fork, origin)
    lane = Lane(path, session.fork, session.budget(), ctx.temperature, STOPS, session.respond)
    slow = oracle.sample(session.tokens, lane, ctx.step)
    arrays = np.array(slow.tokens), np.array(slow.generated), np.array(slow.log_probs, np.float32)
    return session.trajectory(LaneResult(*arrays, slow.stopped), session.episode.verdict())


def _assert_same(t, slow):
    assert t.tokens.tolist() == slow.tokens.tolist()
    assert t.generated.tolist() == slow.generated.tolist()
    np.testing.assert_allclose(t.log_probs, slow.log_probs, atol=1e-5)
    for field in ("prompt_length", "fork", "turns", "verdict", "truncated", "origin"):
        assert getattr(t, field) == getattr(slow, field), field


def test_every_trajectory_of_a_group_is_what_the_slow_sampler_plays(groups, oracle):
    """Roots, then continuations of a root's own tokens under the original context, in (root, point, lane) order."""
    ctx = context()
    for group in groups:
        i = group.problem.index
        for n, root in enumerate(group.roots):
            _assert_same(root, _resample(oracle, ctx, group.problem, (Stream.ROOT, i, 0, root.fork, 0, n)))
        continuations = iter(group.trajectories[len(group.roots) :])
        for point in group.points:
            for n in range(point.continuations):
                path = (Stream.CONTINUATION, i, point.root, point.position, 0, n)
                root = group.roots[point.root]
                slow = _resample(oracle, ctx, group.problem, path, root, point.position, point.root)
                _assert_same(next(continuations), slow)
        assert next(continuations, None) is None


def test_the_shape_of_a_group(groups):
    for group in groups:
        assert [t.origin for t in group.trajectories] == [None] * 2 + [0] * 7 + [1] * 7
        for root in range(2):
            points = [p for p in group.points if p.root == root]
            assert [p.continuations for p in points] in ([3, 4], [7])
            assert all(group.roots[root].generated[p.position] for p in points)
            scores = group.scores[root]
            assert [scores[p.position] for p in points] == [p.score for p in points]
            eligible = group.roots[root].generated
            assert points[0].score == scores[eligible].max()


def test_a_continuation_keeps_its_roots_ids_and_nothing_else(groups):
    reencoded_differs = inside_an_action = 0
    ctx = context()
    for group in groups:
        for t in group.trajectories[2:]:
            root = group.roots[t.origin]
            assert t.tokens[: t.fork].tolist() == root.tokens[: t.fork].tolist()
            assert t.trained.sum() == t.generated[t.fork :].sum() > 0
            for turn in (turn for turn in t.turns if turn.start < t.fork):
                inside_an_action += turn.end > t.fork
                kept = [i for i in t.tokens[turn.start : min(turn.end, t.fork)].tolist() if i > 5]
                reencoded_differs += ctx.chat.tokenizer.encode(ctx.chat.tokenizer.decode(kept)) != kept
    assert inside_an_action and reencoded_differs, "another seed: no fork inside an action, or in ids that text changes"


def test_siblings_differ_and_no_continuation_replays_its_root(shared, groups):
    """Told by three tokens that were unlikely together: others may coincide by chance."""
    groups = [*groups, *play(shared, hdl, context(step=2)), *play(shared, grpo, context())]
    compared = 0
    for group in groups:
        by_fork = collections.defaultdict(list)
        for t in group.trajectories:
            by_fork[t.origin, t.fork].append(t)
        for (origin, fork), paths in by_fork.items():
            paths += [group.roots[origin]] if origin is not None else []
            new = slice(fork, fork + 3)
            heads = [tuple(t.tokens[new].tolist()) for t in paths if t.log_probs[new].sum() < -8]
            compared += len(heads)
            assert len(set(heads)) == len(heads)
    assert compared > 60


def test_steps_and_seeds_sample_anew(shared, groups):
    (again,) = play(shared, hdl, context(), [1])
    (other,) = play(shared, hdl, context(step=2), [1])
    tokens = [[t.tokens.tolist() for t in group.trajectories] for group in (groups[1], again, other)]
    assert tokens[0] == tokens[1], "a group does not depend on the problems beside it"
    assert tokens[0][0] != tokens[2][0]
    pairs = zip(groups[1].trajectories, again.trajectories, strict=True)
    assert all(same_log_probs(a.log_probs, b.log_probs) for a, b in pairs)


def test_limits_hold_in_every_trajectory(groups):
    ctx = context()
    cut = 0
    for t in (t for group in groups for t in group.trajectories):
        assert len(t.tokens) <= t.prompt_length + ctx.config.rollout.max_response_tokens
        assert len(t.turns) <= ctx.domain.max_actions
        for turn in t.turns:
            assert 1 <= turn.end - turn.start <= ctx.config.rollout.max_action_tokens
            assert t.generated[turn.start : turn.end].all()
            if turn.end < len(t.tokens) and t.tokens[turn.end - 1] not in STOPS:
                assert t.tokens[turn.end] == STOPS[0] and not t.generated[turn.end]
                cut += 1
        assert t.generated.sum() == sum(turn.end - turn.start for turn in t.turns)
        assert (t.log_probs[~t.generated] == 0).all() and (t.log_probs[t.generated] < 0).all()
        ended = t.turns[-1].action.startswith("d") and t.tokens[-1] in STOPS
        assert t.truncated != ended
    assert cut


def test_recorded_turns_replay_in_a_fresh_environment(groups):
    domain = EchoDomain()
    for group in groups:
        for t in group.trajectories:
            episode = domain.start(group.problem)
            assert [episode.step(turn.action).observation for turn in t.turns] == [turn.observation for turn in t.turns]
            assert episode.verdict() == t.verdict


def test_continuations_start_from_the_scored_keys_and_values(shared, monkeypatch):
    """A prefill a root, a prompt, a reflection and a hindsight context; none for fourteen continuations."""
    chunks: collections.Counter[bool] = collections.Counter()
    prefill = device.prefill

    def counted(params, cache, rows, *args, **kwargs):
        chunks[kwargs["score"]] += int((rows < cache.prefix_k[0].shape[0] - 1).sum())
        return prefill(params, cache, rows, *args, **kwargs)

    monkeypatch.setattr(device, "prefill", counted)
    ctx = context()
    (group,) = play(shared, hdl, ctx, [1])
    opening = ctx.domain.start(group.problem).opening()

    def of(ids) -> int:
        return -(-len(ids) // ctx.config.engine.block)

    sampled, scored = of(ctx.chat.prompt(opening)), 0
    for root, reflection in zip(group.roots, group.reflections, strict=True):
        turns = [(t.action, t.observation) for t in root.turns]
        sampled += of(ctx.chat.reflection_prompt(opening, turns, root.verdict.feedback))
        h = ctx.chat.hindsight(root.verdict.feedback, reflection.text)
        scored += of(root.tokens)
        scored += of(ctx.chat.prompt(opening, hindsight=h) + root.tokens[root.prompt_length :].tolist())
    assert len(group.trajectories) == 16
    assert chunks == {True: scored, False: sampled}


def test_grpo_is_complete_trajectories(shared, oracle):
    ctx = context(rollout__group_size=7)
    for group in play(shared, grpo, ctx, (0, 5)):
        assert len(group.trajectories) == len(group.roots) == 7 and not group.points
        for n, t in enumerate(group.trajectories):
            path = (Stream.ROOT, group.problem.index, 0, t.fork, 0, n)
            _assert_same(t, _resample(oracle, ctx, group.problem, path))


@pytest.mark.parametrize(("roots", "points", "continuations"), [(2, 1, (7,)), (3, 2, (1, 2))], ids=["2x1", "3x2"])
@pytest.mark.parametrize("signal", ["entropy", "uniform"])
def test_other_shapes_and_signals(shared, roots, points, continuations, signal):
    branch = {"roots": roots, "points_per_root": points, "continuations": continuations, "signal": signal}
    (group,) = play(shared, hdl, context(**{f"branch__{k}": v for k, v in branch.items()}), [3])
    total = sum(continuations)
    assert [t.origin for t in group.trajectories] == [None] * roots + [r for r in range(roots) for _ in range(total)]
    assert not group.reflections and len(group.scores) == roots


@pytest.mark.parametrize("signal", ["hindsight", "entropy", "uniform"])
def test_the_smallest_engine_plays_the_same_groups(shared, params, signal):
    """As many rows as a problem has roots, which is all that the config asks for, and one lane at a time."""
    small = support.engine(rows=2, lanes=1)
    small.load(params)
    expected, got = (play(e, hdl, context(branch__signal=signal)) for e in (shared, small))
    for a, b in zip(expected, got, strict=True):
        assert a.points == b.points
        for x, y in zip(a.trajectories, b.trajectories, strict=True):
            assert x.tokens.tolist() == y.tokens.tolist() and same_log_probs(x.log_probs, y.log_probs)


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_verifier_that_fails_once_is_asked_again(shared, groups):
    domain = EchoDomain()
    domain.verifier_failures = {1: 1}
    (group,) = play(shared, hdl, context(domain), [1])
    assert [t.verdict for t in group.trajectories] == [t.verdict for t in groups[1].trajectories]


def test_a_verifier_that_fails_twice_gives_no_verdict_and_hdl_no_group(shared, groups):
    domain = EchoDomain()
    domain.verifier_failures = {1: 2}
    first, dropped, third = play(shared, hdl, context(domain))
    assert dropped is None
    for got, expected in ((first, groups[0]), (third, groups[2])):
        assert [t.tokens.tolist() for t in got.trajectories] == [t.tokens.tolist() for t in expected.trajectories]
    (group,) = play(shared, grpo, context(domain, rollout__group_size=3), [1])
    assert [t.verdict for t in group.trajectories] == [None] * 3
    assert accounting.reward_metrics([group])["rollout/failed_verifications"] == 3


def test_an_environment_that_fails_in_an_episode_gives_no_verdict(shared):
    domain = EchoDomain()
    domain.broken = {(1, 1)}
    (group,) = play(shared, grpo, context(domain, rollout__group_size=6), [1])
    for t in group.trajectories:
        assert len(t.turns) == 1
        assert (t.verdict is None) == (t.turns[0].observation != "" and not t.turns[0].action.startswith("d"))
    assert any(t.verdict is None for t in group.trajectories)


class Drifting(EchoDomain):
    """Answers otherwise from the third episode of a problem on, after two roots: no replay repeats its record."""

    def __init__(self):
        super().__init__()
        self.started: collections.Counter[Problem] = collections.Counter()

    def start(self, problem):
        self.started[problem] += 1
        if self.started[problem] == 3:
            self.salt = "0"
        return super().start(problem)


def test_a_replay_that_differs_drops_its_continuations_and_counts_them(shared):
    ctx = context(Drifting(), branch__signal="uniform")
    (group,) = play(shared, hdl, ctx, [1])
    replayed = [p for p in group.points if any(t.end <= p.position for t in group.roots[p.root].turns)]
    dropped = sum(p.continuations for p in replayed)
    assert dropped > 0
    assert len(group.trajectories) == 16 - dropped
    kept = {(p.root, p.position) for p in group.points} - {(p.root, p.position) for p in replayed}
    assert {(t.origin, t.fork) for t in group.trajectories[2:]} == kept
    assert accounting.branch_metrics([group], lambda t, i: "verb")["branch/dropped_continuations"] == dropped
    assert not any(row for row in shared.pool.rows), "rows held for nothing are free again"


@pytest.mark.parametrize("method", [hdl, grpo])
def test_an_environment_that_does_not_open_is_tried_again_and_then_dropped(shared, method):
    class Shut(EchoDomain):
        """Opens only after so many failures a problem."""

        def __init__(self, failures: int):
            super().__init__()
            self.left = {1: failures}

        def start(self, problem: Problem):
            if self.left.get(problem.index, 0):
                self.left[problem.index] -= 1
                raise EnvironmentFailure("it does not open")
            return super().start(problem)

    plain = play(shared, method, context())
    once = play(shared, method, context(Shut(1)))
    for a, b in zip(plain, once, strict=True):
        assert [t.tokens.tolist() for t in a.trajectories] == [t.tokens.tolist() for t in b.trajectories]
    never = play(shared, method, context(Shut(10**6)))
    assert [group is None for group in never] == [False, True, False]
