"""Held-out evaluation: the standard error of clustered episodes, and what is in the mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support import EchoDomain, chat, context

from hdl_jax.evaluation import clustered, evaluate
from hdl_jax.rollout.play import complete
from hdl_jax.sampling.draw import Stream


def test_the_error_is_that_of_problems_not_of_episodes():
    """Case E3: .2887, where episodes taken one by one would give .1508."""
    score, error = clustered([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    assert score == 0.5
    assert error == pytest.approx(0.2887, abs=5e-5)


def test_problems_weigh_the_same_however_many_episodes_survive():
    score, error = clustered([[1.0], [0, 0, 0, 0], []])
    assert score == 0.5 and error == pytest.approx(0.5)


def test_one_problem_has_no_error_and_none_no_score():
    assert clustered([[0.25, 0.75]])[0] == 0.5 and math.isnan(clustered([[0.25, 0.75]])[1])
    assert all(math.isnan(x) for x in clustered([[], []]))


def test_evaluation_plays_the_first_problems_and_leaves_failures_out(engine):
    domain = EchoDomain()
    domain.verifier_failures = {2: 2}
    config = context(eval__variations=4, eval__episodes=3).config
    metrics = evaluate(engine, domain, chat(), config, step=5)
    assert metrics["eval/validation/failed"] == 3

    ctx = context(domain, step=5)
    ctx = type(ctx)(domain, ctx.chat, config, 5, config.eval.temperature)
    problems = domain.problems("validation")[:4]
    played = engine.run([complete(ctx, p, 3, Stream.EVALUATION, "eval") for p in problems], 5)
    means = [np.mean([t.verdict.reward for t in played[i]]) for i in (0, 1, 3)]
    assert metrics["eval/validation/score"] == pytest.approx(np.mean(means))
    assert metrics["eval/validation/score_se"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(3))
    assert metrics["eval/validation/actions"] == pytest.approx(np.mean([len(t.turns) for e in played for t in e]))
    assert len({tuple(t.tokens.tolist()) for episodes in played for t in episodes}) == 12


def test_more_variations_than_problems_are_refused(engine):
    with pytest.raises(ValueError, match="eval.variations=9, but echo/validation has 8"):
        evaluate(engine, EchoDomain(), chat(), context(eval__variations=9).config, step=0)
