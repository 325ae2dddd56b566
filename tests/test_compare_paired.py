"""Pairing over problems: which files are paired, what is refused, and the figures from stored samples."""

from __future__ import annotations

import csv
import json

import pytest

from hdl_jax.compare import compare, main
from hdl_jax.compare_paired import pair_evaluations, pair_groups
from hdl_jax.compare_runs import grouped, read_run
from hdl_jax.eval_store import EvalSample, SampleFile, samples_path
from hdl_jax.metrics import MetricsWriter
from hdl_jax.statistics import paired_bootstrap

EASY = {"p/0": [1, 1], "p/1": [1, 0], "p/2": [1, 1], "p/3": [0, 0]}
HARD = {"p/0": [1, 0], "p/1": [0, 0], "p/2": [1, 1], "p/3": [0, 0]}


def _samples(path, problems, **settings):
    """A file of samples with these rewards; None failed."""
    file = SampleFile(path, {"temperature": 0.6, "domain": {"name": "p"}} | settings, whole=1, resume=False)
    for id, rewards in problems.items():
        file.add(id, [EvalSample(id, i, ("x",), r, None, None, False, False, 1) for i, r in enumerate(rewards)])
    file.close()


def _run(path, method, seed, samples, **settings):
    """A run whose samples are {step: {set: {problem: rewards}}}."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"method": method, "seed": seed, "branch": {"signal": "hindsight"}}))
    with MetricsWriter(path) as writer:
        writer.write(0, {"eval/score": 0.5, "eval/validation/score": 0.5, "rollout/generated_tokens": 1})
    for step, sets in samples.items():
        for name, problems in sets.items():
            _samples(samples_path(path, step, name), problems, step=step, seed=seed, **settings)
    return path


def _pair(*paths):
    return pair_groups(grouped([read_run(path) for path in paths]))


def test_last_step_of_both_per_set(tmp_path):
    h = _run(tmp_path / "h", "hdl", 0, {5: {"validation": HARD}, 10: {"validation": EASY, "test": HARD}})
    g = _run(
        tmp_path / "g",
        "grpo",
        0,
        {10: {"validation": HARD}, 5: {"test": HARD, "validation": HARD}, 20: {"validation": EASY}},
    )
    records, notes = _pair(g, h)
    (record,) = records
    expected = paired_bootstrap([[1], [0.5], [1], [0]], [[0.5], [0], [1], [0]])
    assert (record["runs"], record["against"], record["set"]) == ("hdl hindsight", "grpo", "validation")
    assert (record["step"], record["seeds"]) == (10, 1)
    assert record["difference"] == 0.25 and (record["low"], record["p"]) == (expected.low, expected.p)
    assert notes == ["hdl hindsight and grpo are not paired over test: no step has samples of all of them."]


def test_failed_samples_are_left_out_and_counted(tmp_path):
    problems = EASY | {"p/0": [None, 0], "p/4": [None, None]}
    h = _run(tmp_path / "h", "hdl", 0, {0: {"validation": problems}})
    g = _run(tmp_path / "g", "grpo", 0, {0: {"validation": HARD | {"p/4": [1, 1]}}})
    ((record,), _) = _pair(g, h)
    assert (record["problems"], record["left_out"]) == (4, 1)
    assert record["difference"] == pytest.approx((0 - 0.5 + 0.5 - 0 + 1 - 1 + 0) / 4)
    assert "left out" in compare([g, h])


def test_seeds_are_pooled_problem_by_problem(tmp_path):
    runs = [
        _run(tmp_path / "h0", "hdl", 0, {5: {"validation": {"a": [1, 1], "b": [1, None]}}}),
        # Of problem b the baseline's seed 1 has no verdict: this seed's counts on neither side.
        _run(tmp_path / "h1", "hdl", 1, {5: {"validation": {"a": [1, 0], "b": [1, 1]}}}),
        _run(tmp_path / "h2", "hdl", 2, {5: {"validation": {"a": [1, 1], "b": [1, 1]}}}),  # no such baseline
        _run(tmp_path / "g0", "grpo", 0, {5: {"validation": {"a": [0, 0], "b": [0, 0]}}}),
        _run(tmp_path / "g1", "grpo", 1, {5: {"validation": {"a": [1, 1], "b": [None, None]}}}),
    ]
    ((record,), notes) = _pair(*runs)
    assert (record["seeds"], record["problems"], record["left_out"]) == (2, 2, 0)
    assert record["difference"] == pytest.approx(((1 + 0.5) / 2 - (0 + 1) / 2 + 1 - 0) / 2)
    assert not notes


def test_without_a_baseline_the_first_group_is_it(tmp_path):
    runs = [_run(tmp_path / m, m, 0, {0: {"validation": HARD}}) for m in ("a", "b", "c")]
    records, _ = _pair(*runs)
    assert [(r["runs"], r["against"]) for r in records] == [
        ("b hindsight", "a hindsight"),
        ("c hindsight", "a hindsight"),
    ]


def test_runs_that_cannot_be_paired_say_why(tmp_path, capsys):
    g = _run(tmp_path / "g", "grpo", 0, {0: {"validation": HARD}})
    other = _run(tmp_path / "s1", "hdl", 1, {0: {"validation": HARD}})
    assert _pair(g, other) == (
        [],
        ["hdl hindsight and grpo are not paired over problems: they have no seed in common."],
    )
    bare = _run(tmp_path / "bare", "hdl", 0, {})
    assert _pair(g, bare)[1] == [
        "hdl hindsight and grpo are not paired over problems: no samples of the same set and seed are stored."
    ]
    few = _run(tmp_path / "few", "hdl", 0, {0: {"validation": {"p/0": [1, 1], "q": [1, 1]}}})
    # The other tables are printed all the same, and an older file of pairs does not stay beside them.
    (tmp_path / "compare_paired.csv").write_text("old")
    assert main([str(g), str(few)]) == 0
    out = capsys.readouterr().out
    assert "hdl hindsight and grpo are not paired over validation: at step 0, validation has other problems: " in out
    assert "1 of 2 in few alone (such as q), 3 of 4 in g alone (such as p/1)." in out
    assert "not paired over validation" in (tmp_path / "compare.html").read_text()
    assert not (tmp_path / "compare_paired.csv").exists()


def test_seeds_of_other_problems_are_not_pooled(tmp_path):
    runs = [
        _run(tmp_path / f"{m}{i}", m, i, {0: {"validation": {f"{i}/a": [1]}}}) for m in ("hdl", "grpo") for i in (0, 1)
    ]
    records, (note,) = _pair(*runs)
    assert not records and "1 of 1 in hdl1 alone (such as 1/a)" in note


def test_page_and_csv(tmp_path):
    runs = [_run(tmp_path / m, m, 0, {5: {"validation": p, "b": p}}) for m, p in (("hdl", EASY), ("grpo", HARD))]
    text = compare(runs)
    with (tmp_path / "compare_paired.csv").open() as file:
        records = list(csv.DictReader(file))
    assert [r["set"] for r in records] == ["b", "validation"] and float(records[0]["difference"]) == 0.25
    page = (tmp_path / "compare.html").read_text()
    for shown in (text, page):
        assert "paired over problems" in shown.lower() and "+0.000 to +0.500" in shown
    assert "left out" not in text


def test_other_settings_are_noted(tmp_path):
    _samples(tmp_path / "a" / "s.jsonl", EASY, domain={"name": "p", "level": 1}, policy={"source": "x"}, step=1)
    _samples(tmp_path / "b" / "s.jsonl", HARD, domain={"name": "p", "level": 2}, temperature=1.0, step=2)
    _, notes = pair_evaluations(tmp_path / "a", tmp_path / "b")
    assert notes == ["s was sampled with other domain.level, temperature on the two sides."]


# ---- two evaluations ------------------------------------------------------------------------------------------------


def test_two_evaluations(tmp_path, capsys):
    """A folder of a run, and one that `evaluate --out` wrote: no table but the paired one, and no file unless asked."""
    run = _run(tmp_path / "h", "hdl", 0, {10: {"validation": EASY, "test": EASY}})
    _samples(samples_path(tmp_path / "out", 0, "validation"), HARD)
    argv = [str(run / "eval" / "step_000010"), str(tmp_path / "out")]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "+0.250" in out and "Only one of the two has test." in out and "checkpoints" not in out
    assert not list(tmp_path.glob("compare*"))
    assert main([argv[1], argv[0], f"--out={tmp_path / 'kept'}"]) == 0
    assert "-0.250" in capsys.readouterr().out
    with (tmp_path / "kept" / "compare_paired.csv").open() as file:
        (record,) = csv.DictReader(file)
    assert (record["runs"], record["against"], record["set"]) == (argv[1], argv[0], "validation")


def test_one_problem_claims_no_interval(tmp_path, capsys):
    for name, reward in (("a", 1), ("b", None)):
        _samples(tmp_path / name / "s.jsonl", {"p": [reward], "q": [1]})
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), f"--out={tmp_path}"]) == 0
    assert "nan" not in capsys.readouterr().out
    with (tmp_path / "compare_paired.csv").open() as file:
        (record,) = csv.DictReader(file)
    assert (record["problems"], record["left_out"], record["difference"], record["p"]) == ("1", "1", "0.0", "")


def test_evaluations_that_are_refused(tmp_path, capsys):
    def refused(*folders):
        assert main([str(folder) for folder in folders]) == 1
        return capsys.readouterr().err

    a, b, run = tmp_path / "a", tmp_path / "b", _run(tmp_path / "run", "hdl", 0, {0: {"s": EASY}, 5: {"s": EASY}})
    _samples(a / "s.jsonl", EASY)
    _samples(b / "s.jsonl", {**HARD, "p/3": [0, 0, 0]})
    assert "s has 2 samples of p/3 in " in refused(a, b)
    _samples(b / "s.jsonl", {"p/0": [0, 0]})
    assert f"s has other problems: 3 of 4 in {a} alone (such as p/1), 0 of 1 in {b} alone" in refused(a, b)
    (b / "s.jsonl").rename(b / "t.jsonl")
    assert f"no set in common: {a} has s; {b} has t" in refused(a, b)
    assert "give it one other evaluation" in refused(a, run)
    assert "give it one other evaluation" in refused(a)
    (b / "s.jsonl").write_text('{"settings": {}}\n{"problem": 1}\n')
    assert "s.jsonl:2 is not a line of samples" in refused(a, b)
    several = tmp_path / "several"
    for step in (0, 5):
        _samples(samples_path(several, step, "s"), EASY)
    assert "holds evaluations of several steps; name one: " in refused(a, several)
    assert "no config at" in refused(tmp_path / "nowhere", a.parent)
