"""Maths from the publisher's file to a score: prepare, filter, train, evaluate, judge again, on the embedded policy."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from test_evaluate import run as evaluate_command

from hdl_jax import config as config_lib
from hdl_jax import train
from hdl_jax.data.prepare import prepare
from hdl_jax.eval_store import read_samples
from hdl_jax.filter import filter_problems
from hdl_jax.metrics import read_metrics
from hdl_jax.rollout.store import read_groups

QUESTIONS = [f"{name} to shelf ." for name in ("pen", "map", "sock", "egg", "hat", "book", "saw", "soap")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two prepared sets, of questions in words that the policy knows."""
    folder = tmp_path_factory.mktemp("pipeline")
    for name in ("arithmetic_train", "arithmetic"):
        rows = [{"question": question, "answer": "#### 7"} for question in QUESTIONS]
        source = folder / f"{name}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        prepare(name, source, folder / "data")
    return folder


def tiny(folder: Path):
    config = config_lib.get_run(seed="3")
    for name, value in {
        "total_steps": 1,
        "domain.name": "math",
        "domain.data": str(folder / "data"),
        "domain.train": "arithmetic_train",
        "domain.instruction": "end with the result 7",
        "domain.workers": 1,
        "domain.limit_s": 30.0,
        "rollout.problems_per_step": 2,
        "rollout.group_size": 8,
        "rollout.max_prompt_tokens": 64,
        "rollout.max_response_tokens": 24,
        "rollout.max_action_tokens": 24,
        "branch.continuations": (1, 2),
        "branch.min_spacing": 2,
        "reflection.max_tokens": 16,
        "engine.rows": 4,
        "engine.lanes": 8,
        "engine.width": 4,
        "engine.context_tokens": 320,
        "learn.tokens_per_microbatch": 448,
        "filter.samples": 2,
        "filter.min_rate": 0.0,
        "eval.sets": ("arithmetic@2",),
        "eval.problems": 2,
        "oracle.problems": 0,
        "checkpoint.best": 1,
    }.items():
        config.update_from_flattened_dict({name: value})
    return config.lock()


@pytest.fixture(scope="module")
def workdir(folder):
    """A run of one step on what the filter kept."""
    config = tiny(folder)
    filter_problems(config, folder / "filter")
    with config.unlocked():
        config.domain.kept = str(folder / "filter" / "kept.json")
    train.train(config, folder / "run")
    return folder / "run"


def test_the_filter_judges_every_problem_by_the_sets_rule(folder, workdir):
    _, samples = read_samples(folder / "filter" / "train.jsonl")
    assert set(samples) == {f"arithmetic_train/{i}" for i in range(len(QUESTIONS))}
    assert all(s.reward in (0.0, 1.0) and s.feedback for of in samples.values() for s in of)
    kept = json.loads((folder / "filter" / "kept.json").read_text())
    assert kept["domain"]["train"] == "arithmetic_train" and len(kept["ids"]) == len(QUESTIONS)


def test_a_step_of_hdl_is_trained_and_evaluated(workdir):
    before, after = read_metrics(workdir)
    for row in (before, after):
        assert row["eval/score"] == row["eval/arithmetic/score"]
        assert 0 <= row["eval/arithmetic/unparsed"] <= 1 and row["eval/arithmetic/failed"] == 0
        assert "eval/arithmetic/pass@2" in row
    assert after["rollout/failed_verifications"] == 0 and after["reflection/tokens"] > 0
    for group in read_groups(workdir, 1):
        assert group[0].record["problem"].startswith("arithmetic_train/")
        assert "the reference answer is 7" in group[0].record["feedback"] or group[0].record["success"]


def test_the_checkpoint_is_evaluated_and_judged_again(workdir, folder, capsys):
    out = folder / "evaluation"
    evaluate_command(workdir=str(workdir), step="latest", sets=["arithmetic@3"], problems=0, out=str(out))
    path = out / "eval" / "step_000001" / "arithmetic.jsonl"
    _, samples = read_samples(path)
    assert [len(of) for of in samples.values()] == [3] * len(QUESTIONS)
    capsys.readouterr()
    evaluate_command(rescore=[str(path)])
    row = capsys.readouterr().out.splitlines()[2].split()
    assert row[2:5] == row[5:8] and row[8] == "0", "the same verifier says the same"


def test_an_unprepared_set_is_told_before_any_work(folder):
    config = tiny(folder)
    with config.unlocked():
        config.eval.sets, config.domain.instruction = ("minerva@8",), ""
    with pytest.raises(train.Refused, match="(?s)minerva is not prepared.*hdl_jax.data.prepare minerva"):
        train.train(config, folder / "refused")
    assert not (folder / "refused").exists()


def test_every_config_of_maths_is_one_that_can_run():
    arithmetic, gsm8k, math = (config_file(name) for name in ("arithmetic", "gsm8k", "math"))
    for module in (arithmetic, gsm8k, math):
        config_lib.validate(module["get_config"]())
    for model in math["MODELS"]:
        for branch, (roots, _, continuations) in math["BRANCHES"].items():
            config = math["get_config"](f"model={model},branch={branch},seed=2")
            config_lib.validate(config)
            assert roots * (1 + sum(continuations)) == config.rollout.group_size == 16
            assert config.seed == 2 and config.branch.roots == roots
    with pytest.raises(ValueError, match="branch=3x3: must be one of 2x2, 2x1, 4x2"):
        math["get_config"]("branch=3x3")


def config_file(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[1] / "configs" / f"{name}.py"))
