"""Held-out evaluation: what is in which mean, what is kept of every sample, and going on after a kill."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from support import EchoDomain, chat, context

from hdl_jax.eval_store import EvalSample, drop_samples_after, read_samples, samples_path
from hdl_jax.evaluation import evaluate, measures
from hdl_jax.rollout.play import complete
from hdl_jax.sampling.draw import Stream

SETS = ("validation@3",)


def sample(problem, number, reward, **changes):
    failed = reward is None
    made = EvalSample(
        problem, number, ("go",), reward, None if failed else reward == 1, None if failed else "", False, False, 4
    )
    return dataclasses.replace(made, **changes)


def samples(*rewards):
    """A list of samples for every tuple of rewards."""
    return [[sample(f"p/{i}", j, r) for j, r in enumerate(of)] for i, of in enumerate(rewards)]


# ---- measures -------------------------------------------------------------------------------------------------------


def test_e5_failed_samples_are_in_no_mean_and_the_mean_of_all_is_beside_it():
    measured = measures(samples((1, 1, 0, 0, None), (1, 1, 0, 0, None)))
    assert measured["score"] == 0.5 and measured["score_all"] == 0.4 and measured["failed"] == 2


def test_pass_at_k_is_unbiased_and_over_problems_with_that_many_verdicts():
    measured = measures(samples((1, 0, 0, 0), (0, 0, 0, 0), (1, 1, None, None)))
    assert measured["pass@2"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert measured["pass@4"] == pytest.approx((1 + 0) / 2), "the third problem has two verdicts"
    assert measured["pass@4_se"] == pytest.approx(0.5)
    assert "pass@1" not in measured and "pass@8" not in measured


def test_rates_are_of_all_samples():
    made = [
        [sample("p", 0, 1.0, truncated=True), sample("p", 1, 0.0, unparsed=True, tokens=8, actions=("a", "b", "c"))]
    ]
    measured = measures(made)
    assert (measured["truncated"], measured["unparsed"], measured["tokens"], measured["actions"]) == (0.5, 0.5, 6, 2)


def test_partial_rewards_score_and_do_not_succeed():
    measured = measures(samples((0.5, 1.0), (0.0, 0.5)))
    assert measured["score"] == 0.5 and measured["success"] == 0.25
    assert measured["score_se"] == pytest.approx(np.std([0.75, 0.25], ddof=1) / math.sqrt(2))


# ---- playing --------------------------------------------------------------------------------------------------------


def test_it_plays_the_first_problems_and_leaves_failures_out(engine, tmp_path):
    domain = EchoDomain()
    domain.verifier_failures = {2: 2}
    config = context(eval__sets=SETS, eval__problems=4).config
    metrics = evaluate(engine, domain, chat(), config, 5, tmp_path)
    assert metrics["eval/validation/failed"] == 3

    ctx = context(domain, step=5)
    ctx = type(ctx)(domain, ctx.chat, config, 5, config.eval.temperature)
    problems = domain.problems("validation")[:4]
    played = engine.run([complete(ctx, p, 3, Stream.EVALUATION, "eval") for p in problems], 5)
    means = [np.mean([t.verdict.reward for t in played[i]]) for i in (0, 1, 3)]
    assert metrics["eval/validation/score"] == pytest.approx(np.mean(means))
    assert metrics["eval/score"] == metrics["eval/validation/score"]
    assert metrics["eval/validation/score_se"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(3))
    assert metrics["eval/validation/actions"] == pytest.approx(np.mean([len(t.turns) for e in played for t in e]))
    assert len({tuple(t.tokens.tolist()) for episodes in played for t in episodes}) == 12

    settings, stored = read_samples(samples_path(tmp_path, 5, "validation"))
    assert settings["samples"] == 3 and settings["step"] == 5
    assert list(stored) != [] and {s for s in stored} == {p.id for p in problems}
    for problem, episodes in zip(problems, played, strict=True):
        assert [s.actions for s in stored[problem.id]] == [tuple(t.action for t in e.turns) for e in episodes]
        assert [s.tokens for s in stored[problem.id]] == [int(t.generated.sum()) for t in episodes]


def test_several_sets_weigh_the_same(engine, tmp_path):
    config = context(eval__sets=("validation@2", "test@3"), eval__problems=3).config
    metrics = evaluate(engine, EchoDomain(), chat(), config, 0, tmp_path)
    scores, errors = ([metrics[f"eval/{name}/{m}"] for name in ("validation", "test")] for m in ("score", "score_se"))
    assert metrics["eval/score"] == pytest.approx(np.mean(scores))
    assert metrics["eval/score_se"] == pytest.approx(math.hypot(*errors) / 2)
    assert {p.name for p in samples_path(tmp_path, 0, "test").parent.iterdir()} == {"validation.jsonl", "test.jsonl"}


def test_e4_at_temperature_0_one_sample_is_all_there_is(engine, tmp_path):
    config = context(eval__sets=SETS, eval__problems=2, eval__temperature=0.0).config
    metrics = evaluate(engine, EchoDomain(), chat(), config, 0, tmp_path)
    assert not any("pass@" in name for name in metrics)
    _, stored = read_samples(samples_path(tmp_path, 0, "validation"))
    assert [len(of) for of in stored.values()] == [1, 1]
    again = evaluate(engine, EchoDomain(), chat(), config, 0, tmp_path / "again")
    assert again == metrics


class Stop(BaseException):
    """A kill."""


def test_a_killed_evaluation_goes_on_with_the_problems_it_lacks(engine, tmp_path, monkeypatch):
    config = context(eval__sets=SETS, eval__problems=4).config
    whole = evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path / "whole")

    domain = EchoDomain()
    opened: list[str] = []
    start = domain.start

    def counted(problem):
        opened.append(problem.id)
        return start(problem)

    monkeypatch.setattr("hdl_jax.evaluation.PROBLEMS_AT_ONCE", 2)
    run, batches = engine.run, []

    def killed(*args, **kwargs):
        if batches:
            raise Stop
        batches.append(1)
        return run(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", killed)
        with pytest.raises(Stop):
            evaluate(engine, domain, chat(), config, 1, tmp_path / "killed", resume=True)
    path = samples_path(tmp_path / "killed", 1, "validation")
    with path.open("a") as file:
        file.write('{"problem": "echo/validation/2", "sam')  # cut short
    monkeypatch.setattr(domain, "start", counted)
    assert evaluate(engine, domain, chat(), config, 1, tmp_path / "killed", resume=True) == whole
    assert set(opened) == {p.id for p in domain.problems("validation")[2:4]}
    assert read_samples(path)[1] == read_samples(samples_path(tmp_path / "whole", 1, "validation"))[1]


def test_other_settings_are_not_mixed(engine, tmp_path):
    evaluate(engine, EchoDomain(), chat(), context(eval__sets=SETS, eval__problems=1).config, 1, tmp_path)
    other = context(eval__sets=SETS, eval__problems=1, eval__temperature=0.9).config
    with pytest.raises(ValueError, match=r"validation.jsonl holds samples of other settings \(temperature\)"):
        evaluate(engine, EchoDomain(), chat(), other, 1, tmp_path, resume=True)
    evaluate(engine, EchoDomain(), chat(), other, 1, tmp_path)
    assert read_samples(samples_path(tmp_path, 1, "validation"))[0]["temperature"] == 0.9, "a training starts anew"


# ---- the file -------------------------------------------------------------------------------------------------------


def test_samples_of_later_steps_are_dropped(tmp_path):
    for step in (0, 10, 20):
        samples_path(tmp_path, step, "validation").parent.mkdir(parents=True)
    (tmp_path / "eval" / "step_notes").mkdir()
    drop_samples_after(tmp_path, 10)
    assert {p.name for p in (tmp_path / "eval").iterdir()} == {"step_000000", "step_000010", "step_notes"}


@pytest.mark.parametrize("line", ["{", "[]", '{"problem": "p"}', '{"settings": {}}'])
def test_another_file_is_refused_by_line(tmp_path, line):
    path = tmp_path / "validation.jsonl"
    path.write_text(json.dumps({"settings": {}}) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"validation.jsonl:2 is not a line of samples"):
        read_samples(path)
