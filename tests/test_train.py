"""A small run, whole: what it writes, and that stopping and resuming changes nothing (cases R1 to R5, R8)."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from learn_fixtures import assert_trees_identical
from test_evaluate import run as evaluate_command

from hdl_jax import config as config_lib
from hdl_jax import setup_run, train
from hdl_jax.checkpoint import Checkpoints, load_checkpoint
from hdl_jax.domains.domain import Problem
from hdl_jax.domains.errands import Errands
from hdl_jax.learn import state as train_state
from hdl_jax.learn.update import Updater
from hdl_jax.metrics import read_metrics
from hdl_jax.rollout.store import read_groups, stored_steps

STEPS = 4
TRAIN_PROBLEMS = 5  # two steps an epoch, one problem of each left over
# What differs between two runs of the same numbers.
CLOCKS = ("timing_s/", "perf/")


class Few(Errands):
    def problems(self, split):
        return super().problems(split)[:TRAIN_PROBLEMS]


class Killed(BaseException):
    """Stands for a process that is gone: nothing after it runs, not even a close."""


@pytest.fixture(scope="module", autouse=True)
def few_problems():
    """A tiny train split; and the update compiled once for all runs, which differ in nothing it depends on."""
    compiled = {}

    def updater(shape, tx, update, temperature, longest):
        key = update.to_json()
        if key not in compiled:
            compiled[key] = Updater(shape, tx, update, temperature, longest)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(setup_run.DOMAINS, "errands", lambda _: Few())
        patch.setattr(train, "Updater", updater)
        yield


def tiny(method="hdl", signal="hindsight", **changes):
    config = config_lib.get_run(method, signal, seed="3")
    for name, value in {
        "total_steps": STEPS,
        "rollout.problems_per_step": 2,
        "rollout.group_size": 8,
        "rollout.max_prompt_tokens": 24,
        "rollout.max_response_tokens": 88,
        "branch.continuations": (1, 2),
        "reflection.max_tokens": 16,
        "engine.rows": 4,
        "engine.lanes": 8,
        "engine.width": 4,
        "engine.context_tokens": 320,
        "learn.tokens_per_microbatch": 448,
        "eval.every": 2,
        "eval.sets": ("validation@2",),
        "eval.problems": 2,
        "oracle.problems": 0,
        "checkpoint.every": 1,
        "checkpoint.best": 1,
        "log.rollouts_every": 1,
        **changes,
    }.items():
        config.update_from_flattened_dict({name: value})
    return config.lock()


def evaluated_steps(monkeypatch) -> list[int]:
    """Fills with the step of every evaluation from here on."""
    steps: list[int] = []

    def evaluate(*args, step=None, **kwargs):
        steps.append(args[4] if step is None else step)
        return real(*args, **kwargs) if step is None else real(*args, step=step, **kwargs)

    real = train.evaluate
    monkeypatch.setattr(train, "evaluate", evaluate)
    return steps


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """HDL with hindsight, four steps without a stop."""
    workdir = tmp_path_factory.mktemp("straight") / "run"
    config = tiny(**{"oracle.problems": 1, "oracle.positions": 1, "oracle.samples": 2})
    train.train(config, workdir)
    return workdir


def final_state(workdir: Path, step: int = STEPS):
    config = tiny()
    state = jax.eval_shape(
        lambda: train_state.create(setup_run.make_policy(config).load(None), train_state.optimizer(config.learn))
    )
    return load_checkpoint(workdir / "checkpoints" / str(step), state).state


def numbers(workdir: Path) -> list[dict]:
    """The metrics that must repeat, exactly as they are in the file."""
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{n: v for n, v in row.items() if not n.startswith(CLOCKS)} for row in rows]


def problems_of(workdir: Path, step: int) -> list[str]:
    return [group[0].record["problem"] for group in read_groups(workdir, step)]


# ---- the order of problems ------------------------------------------------------------------------------------------


def _problems(n):
    return [Problem(f"p/{i}", i, "train") for i in range(n)]


def take(n_problems, seed, per_step, steps):
    batches = itertools.islice(train.problem_order(_problems(n_problems), seed, per_step), steps)
    return [[p.index for p in batch] for batch in batches]


def test_every_epoch_is_a_new_permutation():
    batches = take(12, seed=0, per_step=4, steps=9)
    epochs = [sum(batches[i : i + 3], []) for i in range(0, 9, 3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_no_step_holds_a_problem_twice_and_none_is_short():
    """Also where an epoch does not end with a step: 10 problems, 4 a step; over the epochs no problem is left out."""
    batches = take(10, seed=1, per_step=4, steps=60)
    assert all(len(set(batch)) == 4 for batch in batches)
    assert {i for batch in batches for i in batch} == set(range(10))
    for epoch in zip(batches[::2], batches[1::2], strict=True):
        assert len(set(sum(epoch, []))) == 8


def test_the_order_is_the_seeds():
    assert take(20, seed=0, per_step=5, steps=8) == take(20, seed=0, per_step=5, steps=8)
    assert take(20, seed=0, per_step=5, steps=8) != take(20, seed=1, per_step=5, steps=8)


def test_r1_a_resume_at_the_end_of_an_epoch_goes_on_with_the_next():
    """10 rows, 5 a step: steps 3 and 4 have the second epoch's order, whether or not the run stopped after step 2."""
    whole = take(10, seed=0, per_step=5, steps=4)
    order = train.problem_order(_problems(10), 0, 5)
    resumed = [[p.index for p in batch] for batch in itertools.islice(order, 2, 4)]
    assert resumed == whole[2:]
    assert sorted(sum(resumed, [])) == list(range(10)) and resumed != whole[:2]


def test_more_problems_a_step_than_there_are():
    with pytest.raises(ValueError, match=r"rollout\.problems_per_step=5, but the train split has 4"):
        next(train.problem_order(_problems(4), 0, 5))


# ---- a run ----------------------------------------------------------------------------------------------------------

EVALUATION = [f"eval/validation/{name}{error}" for name in ("score", "success") for error in ("", "_se")]
EVERY_METHOD = (
    "reward/mean reward/root_mean group/zero_variance_fraction rollout/generated_tokens rollout/generated_tokens/root "
    "rollout/generated_tokens/reflection rollout/generated_tokens/continuation rollout/generated_tokens/discarded "
    "rollout/scored_tokens rollout/reused_prefix_tokens rollout/truncated_fraction update/trained_tokens "
    "update/clip_fraction update/kl_to_old update/entropy update/grad_norm update/sampler_logprob_gap timing_s/rollout "
    "timing_s/verify timing_s/update timing_s/step perf/compilations"
).split()
BRANCHING = (
    "reward/continuation_mean branch/valid_points_per_group branch/position_fraction branch/score_at_points "
    "timing_s/score timing_s/continue cost/predicted_token_ratio cost/token_ratio"
).split()
REFLECTING = ("reflection/outcome_agreement", "timing_s/reflect")


def test_every_promised_metric_is_written(straight):
    rows = read_metrics(straight)
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    for row in rows[1:]:
        assert not {*EVERY_METHOD, *BRANCHING, *REFLECTING} - row.keys()
        assert all(np.isfinite(v) for n, v in row.items() if not n.startswith("localize/"))
    for row in rows[::2]:
        assert not {*EVALUATION, "timing_s/eval"} - row.keys(), "evaluated before the first step and every two"
    assert not any(name in row for row in rows[1::2] for name in EVALUATION)
    for signal in ("hindsight", "entropy", "uniform"):
        assert f"localize/oracle_auc/{signal}" in rows[-1] and f"localize/oracle_auc/{signal}" not in rows[0]


def test_the_metrics_agree_with_the_rollouts_kept(straight):
    assert stored_steps(straight) == [1, 2, 3, 4]
    rows = {row["step"]: row for row in read_metrics(straight)}
    for step in (1, 4):
        row, groups = rows[step], read_groups(straight, step)
        assert len(groups) == 2 and all(len(group) == 8 for group in groups)
        members = [t for group in groups for t in group]
        new = [int((t.generated & (np.arange(len(t.tokens)) >= t.record["fork"])).sum()) for t in members]
        roots = [t.record["origin"] is None for t in members]
        assert row["update/trained_tokens"] == sum(new)
        assert row["rollout/generated_tokens/root"] == sum(n for n, root in zip(new, roots, strict=True) if root)
        assert row["rollout/generated_tokens/continuation"] == sum(n for n, r in zip(new, roots, strict=True) if not r)
        parts = ("root", "reflection", "continuation", "discarded")
        assert row["rollout/generated_tokens"] == sum(row[f"rollout/generated_tokens/{part}"] for part in parts)
        assert row["rollout/generated_tokens/discarded"] == 0
        rewards = [[t.record["reward"] for t in group] for group in groups]
        assert row["reward/mean"] == pytest.approx(np.mean(rewards))
        for group, of_group in zip(groups, rewards, strict=True):
            advantages = [t.record["advantage"] for t in group]
            np.testing.assert_allclose(advantages, np.asarray(of_group) - np.mean(of_group), atol=1e-12)
        for group in groups:
            for t in group:
                if t.record["origin"] is not None:
                    root, fork = group[t.record["origin"]], t.record["fork"]
                    assert t.tokens[:fork].tolist() == root.tokens[:fork].tolist()
                else:
                    assert t.record["reflection"]["text"] is not None and len(t.record["points"]) in (1, 2)
                    assert t.scores.shape == t.tokens.shape and not t.scores[~t.generated].any()


def test_the_trainer_and_the_sampler_agree_and_the_first_update_is_on_policy(straight):
    for row in read_metrics(straight)[1:]:
        assert row["update/sampler_logprob_gap"] < 1e-4
        assert row["update/clip_fraction"] == 0 and abs(row["update/kl_to_old"]) < 1e-8
        assert row["update/grad_norm"] > 0 and row["update/skipped"] == 0


def test_nothing_compiles_after_the_second_step(straight):
    compilations = [row["perf/compilations"] for row in read_metrics(straight)[1:]]
    assert compilations[0] > 0 and compilations[1:] == [compilations[1]] * (STEPS - 1)


def test_the_workdir_has_all_its_files(straight):
    assert {p.name for p in straight.iterdir()} == {
        "config.json", "policy.json", "metrics.jsonl", "tensorboard", "rollouts", "eval", "checkpoints", "report.html"
    }  # fmt: skip
    config = json.loads((straight / "config.json").read_text())
    assert config["branch"]["continuations"] == [1, 2] and config["seed"] == 3
    assert any((straight / "tensorboard").iterdir())
    page = (straight / "report.html").read_text()
    assert "</html>" in page and "hindsight" in page
    with Checkpoints(straight / "checkpoints", best=1) as checkpoints:
        (best, score), steps = checkpoints.ranking()[0], checkpoints.steps()
    evaluations = {r["step"]: r["eval/validation/score"] for r in read_metrics(straight)[::2]}
    assert steps == sorted({best, STEPS})
    assert score == evaluations[best] == max(evaluations.values())


def test_the_policy_has_changed_and_every_step_was_an_update(straight):
    state = final_state(straight)
    assert int(state.step) == STEPS
    before = setup_run.make_policy(tiny()).load(None)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((np.asarray(a) != b).any()), state.params, before)))


def test_a_checkpoint_is_the_policy_whose_samples_the_run_has(straight, tmp_path, monkeypatch, capsys):
    """Evaluated again with the run's own sets, nothing is left to play; and the figures are those of training."""
    workdir = tmp_path / "run"
    shutil.copytree(straight, workdir)
    monkeypatch.setattr("hdl_jax.sampling.engine.Engine.run", lambda *_, **__: pytest.fail("an episode was played"))
    evaluate_command(workdir=str(workdir), step="latest")
    figures = json.loads((workdir / "eval" / f"step_{STEPS:06d}" / "validation.json").read_text())["figures"]
    row = read_metrics(straight)[-1]
    assert {f"eval/validation/{name}": value for name, value in figures.items()} == {
        name: value for name, value in row.items() if name.startswith("eval/validation/")
    }
    assert f"step {STEPS} of {workdir}" in capsys.readouterr().out


# ---- resume ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumed(straight, tmp_path_factory) -> tuple[Path, list[int], list[int]]:
    """The same run, killed after step 3 had written its metrics and rollouts and before it was saved, and resumed.

    Step 2, where it goes on, ends an epoch (R1) and was evaluated (R5); beside it lies a half-written step 3 (R8).
    """
    workdir = tmp_path_factory.mktemp("resumed") / "run"
    config = tiny(**{"oracle.problems": 1, "oracle.positions": 1, "oracle.samples": 2})
    real = Checkpoints.save

    def save(self, step, *rest):
        if step == 3:
            raise Killed
        real(self, step, *rest)

    with pytest.MonkeyPatch.context() as patch:
        first = evaluated_steps(patch)
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Killed):
            train.train(config, workdir)
    assert [row["step"] for row in read_metrics(workdir)] == [0, 1, 2, 3], "the kill came at the wrong place"
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rewa')
    shutil.copytree(workdir / "checkpoints" / "2", workdir / "checkpoints" / "3")
    shutil.rmtree(workdir / "checkpoints" / "3" / "state")
    with pytest.MonkeyPatch.context() as patch:
        second = evaluated_steps(patch)
        train.train(config, workdir)
    return workdir, first, second


def test_r2_r3_parameters_and_optimizer_are_those_of_a_run_that_never_stopped(straight, resumed):
    assert_trees_identical(final_state(resumed[0]), final_state(straight))


def test_r2_metrics_are_those_of_a_run_that_never_stopped(straight, resumed):
    assert numbers(resumed[0]) == numbers(straight)


def test_r1_r2_problems_and_sampled_tokens_are_those_of_a_run_that_never_stopped(straight, resumed):
    for step in range(1, STEPS + 1):
        name = f"rollouts/step_{step:06d}.jsonl"
        assert (resumed[0] / name).read_bytes() == (straight / name).read_bytes()
        for group, other in zip(read_groups(resumed[0], step), read_groups(straight, step), strict=True):
            for t, o in zip(group, other, strict=True):
                assert t.tokens.tobytes() == o.tokens.tobytes() and t.log_probs.tobytes() == o.log_probs.tobytes()
    epochs = [sum((problems_of(straight, s) for s in steps), []) for steps in ((1, 2), (3, 4))]
    assert all(len(set(epoch)) == 4 for epoch in epochs) and epochs[0] != epochs[1]


def test_r5_the_step_resumed_from_is_not_evaluated_again(resumed):
    workdir, first, second = resumed
    assert (first, second) == ([0, 2], [4])
    assert [row["step"] for row in read_metrics(workdir)] == list(range(STEPS + 1))


def test_r8_the_half_written_checkpoint_was_set_aside(resumed):
    names = {p.name for p in (resumed[0] / "checkpoints").iterdir()}
    assert str(STEPS) in names and "3" not in names


def test_r4_a_changed_config_is_refused_by_name_and_nothing_is_touched(straight):
    before = {p: p.read_bytes() for p in straight.rglob("*") if p.is_file()}
    config = tiny(**{"learn.learning_rate": 0.123, "rollout.temperature": 0.9, "total_steps": 9})
    with pytest.raises(ValueError) as error:
        train.train(config, straight)
    for name in ("learn.learning_rate", "rollout.temperature"):
        assert name in str(error.value)
    assert "total_steps" not in str(error.value), "a run may be continued for longer"
    assert {p: p.read_bytes() for p in straight.rglob("*") if p.is_file()} == before


def test_a_finished_run_is_left_as_it_is_and_can_go_on_for_longer(straight, tmp_path, monkeypatch):
    workdir = tmp_path / "run"
    shutil.copytree(straight, workdir)
    steps = evaluated_steps(monkeypatch)
    oracle = {"oracle.problems": 1, "oracle.positions": 1, "oracle.samples": 2}
    train.train(tiny(**oracle), workdir)
    assert steps == [] and numbers(workdir) == numbers(straight)
    assert_trees_identical(final_state(workdir), final_state(straight))
    with pytest.raises(train.Refused, match="has done 4 steps already, more than total_steps=3"):
        train.train(tiny(**oracle, total_steps=3), workdir)
    train.train(tiny(**oracle, total_steps=5, **{"log.rollouts_every": 5}), workdir)
    assert steps == [5] and numbers(workdir)[:-1] == numbers(straight)
    assert int(final_state(workdir, 5).step) == 5


# ---- the other methods ----------------------------------------------------------------------------------------------

QUICK = {"eval.sets": ("validation@1",), "eval.problems": 1, "eval.every": 100}


@functools.cache
def _run_of(root: Path, method: str, signal: str, steps: int) -> Path:
    workdir = root / f"{method}_{signal}"
    train.train(tiny(method, signal, total_steps=steps, **QUICK), workdir)
    return workdir


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    return functools.partial(_run_of, tmp_path_factory.mktemp("methods"))


@pytest.mark.parametrize("signal", ["entropy", "uniform"])
def test_signals_without_a_reflection(run_of, signal):
    workdir = run_of("hdl", signal, 1)
    row = read_metrics(workdir)[1]
    assert not {*EVERY_METHOD, *BRANCHING} - row.keys()
    assert not any(name.startswith("reflection/") for name in row)
    assert row["rollout/generated_tokens/reflection"] == 0 and row["update/sampler_logprob_gap"] < 1e-4
    groups = read_groups(workdir, 1)
    assert [len(group) for group in groups] == [8, 8]
    assert all("reflection" not in t.record for group in groups for t in group)
    assert "</html>" in (workdir / "report.html").read_text()


def test_grpo(run_of):
    workdir = run_of("grpo", "hindsight", 2)
    row = read_metrics(workdir)[1]
    assert not set(EVERY_METHOD) - row.keys()
    assert not any(name.startswith(("reflection/", "branch/")) for name in row)
    assert row["rollout/generated_tokens"] == row["rollout/generated_tokens/root"] == row["update/trained_tokens"]
    assert row["rollout/scored_tokens"] == row["rollout/reused_prefix_tokens"] == 0
    groups = read_groups(workdir, 1)
    assert [len(group) for group in groups] == [8, 8]
    assert all(t.record["origin"] is None and t.scores is None for group in groups for t in group)
    assert len({t.tokens.tobytes() for t in groups[0]}) == 8, "siblings differ"
    assert "</html>" in (workdir / "report.html").read_text()


def test_two_methods_of_one_seed_see_the_same_problems_in_the_same_order(straight, run_of):
    grpo = run_of("grpo", "hindsight", 2)
    for step in (1, 2):
        assert problems_of(grpo, step) == problems_of(straight, step)
    assert problems_of(grpo, 1) != problems_of(grpo, 2)
    assert problems_of(run_of("hdl", "entropy", 1), 1) == problems_of(straight, 1)
