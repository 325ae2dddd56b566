"""Held-out evaluation: what is in which mean, what is kept of every sample, and going on after a kill."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import EchoDomain, chat, context

from hdl_jax.eval_store import EvalSample, OtherSettings, SampleFile, drop_samples_after, read_samples, samples_path
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
    measured = measures(samples((1, 1, 1, 1, 0, 0, 0, 0, None, None)))
    assert (measured["score"], measured["score_all"], measured["failed"]) == (0.5, 0.4, 2)
    assert (measured["problems"], measured["samples"]) == (1, 10)
    measured = measures(samples((1, 1, 0, 0, None), (1, None, None, None, None)))
    assert measured["score"] == 0.75 and measured["score_all"] == pytest.approx(0.3), "problems weigh the same"


def test_e1_e2_of_k_samples_one_is_right_or_all_are():
    assert measures(samples((1, 0, 0, 0)))["success"] == 0.25
    assert [measures(samples((1, 0, 0, 0)))[f"pass@{k}"] for k in (2, 4)] == [0.5, 1.0]
    assert measures(samples((1, 0)))["pass@2"] == 1
    assert measures(samples((1,) * 3 + (0,) * 13))["pass@8"] == pytest.approx(0.9)
    assert measures(samples((1, 1, 0, 0)))["all@2"] == pytest.approx(0.1667, abs=5e-5)


def test_e3_problems_are_the_evidence():
    measured = measures(samples((1, 1, 1, 1), (1, 0, 1, 0), (0, 0, 0, 0)))
    assert measured["score"] == 0.5 and measured["score_se"] == pytest.approx(0.2887, abs=5e-5)


def test_e8_few_problems_leave_a_wide_error():
    """AIME: 30 problems, 12 solved. The row's .0894 is for a known p; estimated from the same problems it is wider."""
    aime = [(1,)] * 12 + [(0,)] * 18
    measured = measures(samples(*aime))
    assert measured["score_se"] * math.sqrt(29 / 30) == pytest.approx(0.0894, abs=5e-5)
    assert measures(samples((1,), *aime[:12], *aime[13:]))["score"] - measured["score"] == pytest.approx(
        0.0333, abs=5e-5
    )


def test_pass_at_k_is_over_problems_with_that_many_verdicts():
    measured = measures(samples((1, 0, 0, 0), (0, 0, 0, 0), (1, 1, None, None)))
    assert measured["pass@2"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert measured["all@2"] == pytest.approx((0 + 0 + 1) / 3)
    assert measured["pass@4"] == pytest.approx((1 + 0) / 2), "the third problem has two verdicts"
    assert measured["pass@4_se"] == pytest.approx(0.5)
    assert "pass@1" not in measured and "pass@8" not in measured
    assert not any("@" in name for name in measures(samples((1, None), (None, None))))


REWARDS = st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=1, max_size=6)


@given(st.lists(REWARDS, min_size=1, max_size=5))
def test_measures_against_every_choice_of_samples(rewards):
    """Each by its definition: means of means, and all ways of taking k of a problem's verdicts."""
    measured = measures(samples(*rewards))
    known = [[r for r in of if r is not None] for of in rewards]
    means = [statistics.fmean(of) for of in known if of]
    if not means:
        assert math.isnan(measured["score"]) and math.isnan(measured["success"]) and measured["score_all"] == 0
        return
    assert measured["score"] == pytest.approx(statistics.fmean(means))
    if len(means) > 1:
        assert measured["score_se"] == pytest.approx(statistics.stdev(means) / math.sqrt(len(means)))
    assert measured["success"] == pytest.approx(
        statistics.fmean(statistics.fmean(r == 1 for r in of) for of in known if of)
    )
    assert measured["score_all"] == pytest.approx(statistics.fmean(sum(r or 0 for r in of) / len(of) for of in rewards))
    most = max(map(len, known))
    assert {name for name in measured if "@" in name and name[-3:] != "_se"} == {
        f"{kind}@{k}" for kind in ("pass", "all") for k in (2, 4) if k <= most
    }
    for k in (k for k in (2, 4) if k <= most):
        for kind, holds in (("pass", any), ("all", all)):
            shares = [
                statistics.fmean(holds(r == 1 for r in chosen) for chosen in itertools.combinations(of, k))
                for of in known
                if len(of) >= k
            ]
            assert measured[f"{kind}@{k}"] == pytest.approx(statistics.fmean(shares))


def test_rates_are_of_all_samples():
    made = [
        [sample("p", 0, 1.0, truncated=True), sample("p", 1, 0.0, unparsed=True, tokens=8, actions=("a", "b", "c"))]
    ]
    measured = measures(made)
    assert (measured["truncated"], measured["unparsed"], measured["tokens"], measured["actions"]) == (0.5, 0.5, 6, 2)
    assert measured["tokens_truncated"] == 4 and "tokens_truncated" not in measures(samples((1, 0)))


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
    again = evaluate(engine, EchoDomain(), chat(), config, 7, tmp_path)  # other random keys
    assert again == metrics
    assert read_samples(samples_path(tmp_path, 7, "validation"))[1] == stored


def test_e4_a_sample_less_is_said(engine, tmp_path, caplog):
    one, three = (
        context(eval__sets=(f"validation@{k}",), eval__problems=1, eval__temperature=0.0).config for k in (1, 3)
    )
    evaluate(engine, EchoDomain(), chat(), one, 0, tmp_path / "one")
    assert "temperature 0" not in caplog.text
    evaluate(engine, EchoDomain(), chat(), three, 0, tmp_path / "three")
    assert "validation: at temperature 0 all samples are the same: 1 is taken, not 3" in caplog.text


class Stop(BaseException):
    """A kill."""


def test_a_killed_evaluation_goes_on_with_the_problems_it_lacks(engine, tmp_path, monkeypatch):
    """The kill comes in the second batch; that problems are played in batches changes no sample."""
    config = context(eval__sets=SETS, eval__problems=4).config
    whole = evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path / "whole")

    monkeypatch.setattr("hdl_jax.evaluation.PROBLEMS_AT_ONCE", 2)
    domain, start = EchoDomain(), EchoDomain.start
    opened: list[str] = []

    def killing(problem):
        if problem.index == 3:
            raise Stop
        return start(domain, problem)

    def counted(problem):
        opened.append(problem.id)
        return start(domain, problem)

    monkeypatch.setattr(domain, "start", killing)
    with pytest.raises(Stop):
        evaluate(engine, domain, chat(), config, 1, tmp_path / "killed", resume=True)
    path = samples_path(tmp_path / "killed", 1, "validation")
    kept = {*read_samples(path)[1]}
    assert {p.id for p in domain.problems("validation")[:2]} <= kept and "echo/validation/3" not in kept
    with path.open("a") as file:
        file.write('{"problem": "echo/validation/3", "sam')  # cut short
    monkeypatch.setattr(domain, "start", counted)
    assert evaluate(engine, domain, chat(), config, 1, tmp_path / "killed", resume=True) == whole
    assert set(opened) == {p.id for p in domain.problems("validation")[:4]} - kept
    assert read_samples(path)[1] == read_samples(samples_path(tmp_path / "whole", 1, "validation"))[1]

    more = context(eval__sets=SETS, eval__problems=5).config
    opened.clear()
    evaluate(engine, domain, chat(), more, 1, tmp_path / "killed", resume=True)
    assert set(opened) == {"echo/validation/4"}, "more problems are no other settings"


def test_other_settings_are_not_mixed(engine, tmp_path):
    evaluate(engine, EchoDomain(), chat(), context(eval__sets=SETS, eval__problems=1).config, 1, tmp_path)
    other = context(eval__sets=SETS, eval__problems=1, eval__temperature=0.9).config
    with pytest.raises(OtherSettings, match=r"validation.jsonl holds samples of other settings \(temperature\)"):
        evaluate(engine, EchoDomain(), chat(), other, 1, tmp_path, resume=True)
    evaluate(engine, EchoDomain(), chat(), other, 1, tmp_path)
    assert read_samples(samples_path(tmp_path, 1, "validation"))[0]["temperature"] == 0.9, "a training starts anew"


def test_all_sets_are_looked_at_before_one_is_played(engine, tmp_path):
    evaluate(engine, EchoDomain(), chat(), context(eval__sets=("test@1",), eval__problems=1).config, 1, tmp_path)
    config = context(eval__sets=("validation@1", "test@2"), eval__problems=1).config
    with pytest.raises(OtherSettings, match=r"test.jsonl holds samples of other settings \(samples\)"):
        evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path, resume=True)
    assert not samples_path(tmp_path, 1, "validation").exists()


def test_other_weights_of_the_same_name_are_other_settings(engine, params, tmp_path):
    """Two runs of one config into one --out: the step, the policy's name and everything else are the same."""
    config = context(eval__sets=SETS, eval__problems=1).config
    evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path)
    engine.load(jax.tree.map(lambda p: p, params))
    evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path, resume=True)
    moved = jax.tree.leaves(params)[-1].at[..., 0].add(1e-6)
    engine.load(jax.tree.unflatten(jax.tree.structure(params), [*jax.tree.leaves(params)[:-1], moved]))
    with pytest.raises(OtherSettings, match=r"\(weights\)"):
        evaluate(engine, EchoDomain(), chat(), config, 1, tmp_path, resume=True)


# ---- the file -------------------------------------------------------------------------------------------------------


def test_samples_of_later_steps_are_dropped(tmp_path):
    for step in (0, 10, 20):
        samples_path(tmp_path, step, "validation").parent.mkdir(parents=True)
    (tmp_path / "eval" / "step_notes").mkdir()
    drop_samples_after(tmp_path, 10)
    assert {p.name for p in (tmp_path / "eval").iterdir()} == {"step_000000", "step_000010", "step_notes"}


TEXTS = st.text(max_size=6)
PLAYED = st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=4)


@given(PLAYED, st.floats(0, 1))
def test_a_file_cut_anywhere_is_gone_on_with(tmp_path_factory, texts, place):
    """What is whole stays, what is not is gone, and the finished file is the one that was never cut."""
    folder = tmp_path_factory.mktemp("cut")
    played = {
        f"p/{i}": [sample(f"p/{i}", j, 0.5, actions=(text, text), feedback=text) for j, text in enumerate(of)]
        for i, of in enumerate(texts)
    }

    def write(path):
        file = SampleFile(path, {"a": (1, 2)}, whole=2, resume=True)
        done = dict(file.done)
        for problem, of in played.items():
            if problem not in done:
                file.add(problem, of)
        file.close()
        return done, file.done

    done, now = write(folder / "whole.jsonl")
    assert done == {} and {*now} == {*played}
    assert all(s.actions == ("", "") and s.feedback is None for of in now.values() for s in of), "texts stay on disk"
    data = (folder / "whole.jsonl").read_bytes()
    (folder / "cut.jsonl").write_bytes(data[: round(place * len(data))])
    settings, before = read_samples(folder / "cut.jsonl")
    assert settings == ({"a": [1, 2]} if settings else {})
    SampleFile(folder / "cut.jsonl", {"a": (1, 2)}, whole=2, resume=True).close()
    assert {**before, **read_samples(folder / "cut.jsonl")[1]} == before, "nothing is added by looking"
    assert all(len(of) == 2 for of in read_samples(folder / "cut.jsonl")[1].values())
    done, _ = write(folder / "cut.jsonl")
    assert {*done} == {problem for problem, of in before.items() if len(of) == 2}
    assert (folder / "cut.jsonl").read_bytes() == data
    assert read_samples(folder / "cut.jsonl")[1] == played


@pytest.mark.parametrize("line", ["{", "[]", '{"problem": "p"}', '{"settings": {}}'])
def test_another_file_is_refused_by_line(tmp_path, line):
    path = tmp_path / "validation.jsonl"
    path.write_text(json.dumps({"settings": {}}) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"validation.jsonl:2 is not a line of samples"):
        read_samples(path)
