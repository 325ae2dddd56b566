"""The Monte-Carlo judge of signals, on a domain whose outcome is known to hang on one token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains.domain import Problem, Step, Verdict
from hdl_jax.localize import SIGNALS, oracle


class FirstLetterEpisode:
    """One action; it is worth 1 if its first character is a letter from a to c, whatever follows."""

    def __init__(self):
        self.action = ""

    def opening(self) -> str:
        return "abc"

    def step(self, action: str) -> Step:
        self.action = action
        return Step("", True)

    def verdict(self) -> Verdict:
        good = self.action[:1] in ("a", "b", "c")
        return Verdict(float(good), good, "1" if good else "0")


class FirstLetterDomain:
    name = "first_letter"
    max_actions = 1

    def problems(self, split: str) -> list[Problem]:
        return [Problem(f"first_letter/{split}/{i}", i, split) for i in range(8)]

    def start(self, problem: Problem) -> FirstLetterEpisode:
        return FirstLetterEpisode()

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        return [(0, 1, "verb")]


@pytest.fixture(scope="module")
def estimates(shared):
    ctx = support.context(FirstLetterDomain())
    problems = ctx.domain.problems("validation")
    found = shared.run([oracle.estimate(ctx, p, positions=40, samples=30) for p in problems], ctx.step)
    assert not any(row for row in shared.pool.rows), "every held row was given back"
    return [e for of_problem in found for e in of_problem]


def _undecided(e: oracle.RootEstimate) -> int:
    """Tokens up to and with the last that had any consequence."""
    return int(np.flatnonzero(e.consequence).max(initial=-1)) + 1


def test_only_the_token_that_decides_has_a_consequence(estimates):
    """Once a character is there the reward is settled, exactly. A space or a control symbol may come first."""
    assert all(_undecided(e) <= 3 for e in estimates)
    first = [e for e in estimates if _undecided(e) == 1]
    assert len(first) > len(estimates) / 2
    assert sum(bool(e.consequential[0]) for e in first) > len(first) / 2


def test_a_known_signal_is_ranked_as_it_deserves(estimates):
    """A score that is highest at the first token has AUC 1, its opposite 0, a constant 0.5."""
    told = [
        oracle.RootEstimate(e.consequence, e.error, {"up": -np.arange(n), "down": np.arange(n), "flat": np.ones(n)}, {})
        for e in estimates
        if (n := len(e.consequence)) > 1 and _undecided(e) == 1
    ]
    assert [oracle.pair_auc(told, signal)[0] for signal in ("up", "down", "flat")] == [1.0, 0.0, 0.5]


def test_no_two_draws_share_a_name(shared, monkeypatch):
    """Continuations of the first generated token, too, are other samples than their root."""
    names = []
    seen = type(shared.pool).admit, type(shared.pool).resume

    def spy(original):
        def call(pool, where, request, *rest):
            names.extend(lane.path for lane in getattr(request, "lanes", ()))
            return original(pool, where, request, *rest)

        return call

    monkeypatch.setattr(type(shared.pool), "admit", spy(seen[0]))
    monkeypatch.setattr(type(shared.pool), "resume", spy(seen[1]))
    ctx = support.context(FirstLetterDomain())
    problem = ctx.domain.problems("validation")[0]
    shared.run([oracle.estimate(ctx, problem, positions=40, samples=4)], ctx.step)
    # The one reflecting signal reflects once a root.
    assert len(names) == len(set(names)) > 20


def test_every_signal_is_scored_where_it_was_sampled(estimates):
    for e in estimates:
        assert set(e.scores) == set(e.kinds) == set(SIGNALS)
        assert all(len(s) == len(e.consequence) for s in e.scores.values())
        assert all(kind in ("verb", "end", "other") for kinds in e.kinds.values() for kind in kinds)


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=6), max_size=4))
def test_auc_counts_pairs_inside_roots(roots):
    """Against the definition, pair by pair."""
    built = [
        oracle.RootEstimate(
            np.array([float(high) for high, _ in root]),
            np.full(len(root), 0.1),
            {"s": np.array([float(score) for _, score in root])},
            {},
        )
        for root in roots
    ]
    outcomes = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for root in roots
        for high, a in root
        for low, b in root
        if high and not low
    ]
    auc, pairs = oracle.pair_auc(built, "s")
    assert pairs == len(outcomes)
    assert math.isnan(auc) if not outcomes else auc == pytest.approx(np.mean(outcomes))


def test_measure_names_its_figures(shared):
    ctx = support.context(FirstLetterDomain(), oracle__problems=4, oracle__positions=6, oracle__samples=6)
    out = oracle.measure(shared, ctx.domain, ctx.chat, ctx.config, step=3)
    for signal in SIGNALS:
        assert 0 <= out[f"localize/oracle_auc/{signal}"] <= 1
        assert out[f"localize/oracle_auc/{signal}_se"] >= 0
        assert sum(out[f"localize/share_{kind}/{signal}"] for kind in ("filler", "verb", "argument", "end")) <= 1 + 1e-9
    assert out["localize/oracle_pairs"] > 0 and 0 < out["localize/oracle_consequential"] < 1
