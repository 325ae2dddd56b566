"""The evaluation command: which policy it takes, what it keeps, and judging samples again."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from hdl_jax import config as config_lib
from hdl_jax import evaluate, rescore, setup_run
from hdl_jax.checkpoint import Checkpoints, find_step
from hdl_jax.domains.domain import EnvironmentFailure, Step
from hdl_jax.domains.errands import Errands, ErrandsEpisode
from hdl_jax.eval_store import EvalSample, read_samples
from hdl_jax.learn import state as train_state


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of two evaluated checkpoints: the shipped policy at step 0, and noise, ranked higher, at step 2."""
    path = tmp_path_factory.mktemp("run")
    config = config_lib.default()
    config.engine.rows, config.engine.lanes, config.engine.width = 4, 8, 4
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    good = train_state.create(setup_run.make_policy(config).load(None), train_state.optimizer(config.learn))
    noise = good.replace(params=jax.tree.map(lambda p: np.asarray(p) * 0 + 0.01, good.params))
    with Checkpoints(path / "checkpoints") as checkpoints:
        checkpoints.save(0, good, {}, score=0.2)
        checkpoints.save(2, noise, {}, score=0.3)
        checkpoints.save(3, good, {}, score=None)
    return path


def run(**values):
    """The command with these flags; the others as they are by default."""
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(**values):
        evaluate.main(["evaluate"])


def test_find_step(workdir, tmp_path):
    assert find_step(workdir, "best") == 2
    assert find_step(workdir, "latest") == 3
    assert find_step(workdir, "0") == 0
    with pytest.raises(ValueError, match="--step=first"):
        find_step(workdir, "first")
    with pytest.raises(FileNotFoundError, match="no checkpoints at"):
        find_step(tmp_path, "best")


@pytest.fixture(scope="module")
def evaluated(workdir, tmp_path_factory):
    """The folder of an evaluation of the shipped policy."""
    out = tmp_path_factory.mktemp("out")
    run(workdir=str(workdir), step="0", sets=["validation@2", "test@1"], problems=6, out=str(out))
    return out / "eval" / "step_000000"


def figures(folder, name="validation"):
    return json.loads((folder / f"{name}.json").read_text())["figures"]


def test_it_plays_the_checkpoint_it_is_asked_for_and_says_what_it_found(workdir, evaluated, tmp_path, capsys):
    """The shipped policy scores; constant weights do not."""
    assert figures(evaluated)["score"] > 0.05 and figures(evaluated, "test")["samples"] == 6
    run(workdir=str(workdir), sets=["validation@2"], problems=6, out=str(tmp_path))
    found = figures(tmp_path / "eval" / "step_000002")
    assert found["score"] < 0.05 and found["failed"] == 0
    title, header, _, row = [line for line in capsys.readouterr().out.splitlines() if line][:4]
    assert title == f"errands at step 2 of {workdir}"
    assert header.split() == ["set", "problems", "k", "score", "pass@2", "truncated", "unparsed", "failed", "tokens"]
    assert row.split()[:4] == ["validation", "6", "2", "0.000"]


def test_the_same_command_plays_nothing_twice(workdir, evaluated, monkeypatch):
    def files():
        return {path.name: path.read_bytes() for path in evaluated.iterdir()}

    before = files()
    monkeypatch.setattr(Errands, "start", lambda *_: pytest.fail("an episode was opened"))
    monkeypatch.setattr(setup_run, "check_prompts", lambda *_: {})
    run(workdir=str(workdir), step="0", sets=["validation@2", "test@1"], problems=6, out=str(evaluated.parents[1]))
    assert files() == before and {*before} == {
        f"{name}.{kind}" for name in ("validation", "test") for kind in ("json", "jsonl")
    }


def test_one_set_after_another_loses_nothing(workdir, tmp_path):
    for name in ("validation", "test"):
        run(workdir=str(workdir), step="0", sets=[f"{name}@1"], problems=2, out=str(tmp_path))
    assert all(figures(tmp_path / "eval" / "step_000000", name)["problems"] == 2 for name in ("validation", "test"))


def test_other_settings_want_another_folder(workdir, evaluated):
    with pytest.raises(SystemExit, match=r"error: .*other settings \(samples\).*--out names another folder"):
        run(workdir=str(workdir), step="0", sets=["validation@3"], problems=2, out=str(evaluated.parents[1]))


def test_a_config_is_enough(tmp_path, monkeypatch):
    """No run, and no training data either."""
    problems = Errands.problems
    monkeypatch.setattr(
        Errands, "problems", lambda self, split: problems(self, split) if split != "train" else pytest.fail("train")
    )
    config = config_lib.default()
    config.engine.rows, config.engine.lanes, config.engine.width = 4, 8, 4
    config.eval.sets, config.eval.problems, config.oracle.problems = ("validation@1",), 3, 0
    run(config=config.lock(), out=str(tmp_path))
    assert len(read_samples(tmp_path / "eval" / "step_000000" / "validation.jsonl")[1]) == 3
    assert json.loads((tmp_path / "eval" / "step_000000" / "validation.json").read_text())["policy"] == "errands"


def test_the_table_shows_sizes_errors_and_which_mean_is_which():
    metrics = {"eval/score": 0.55, "eval/score_se": 0.05}
    for name, problems, k, failed in (("aime24", 30, 16, 2), ("minerva", 272, 2, 0)):
        of_set = {"score": 0.5, "score_se": 0.089, "success": 0.5, "success_se": 0.089, "score_all": 0.4, "pass@2": 0.6}
        of_set |= {"pass@2_se": 0.01, "truncated": 0.125, "unparsed": 0.0, "failed": failed, "tokens": 12345.6}
        of_set |= {"problems": problems, "samples": problems * k}
        if k == 16:
            of_set |= {"pass@16": 0.9, "pass@16_se": math.nan}
        metrics |= {f"eval/{name}/{measure}": value for measure, value in of_set.items()}
    lines = evaluate.results_table(metrics, ["aime24", "minerva"]).splitlines()
    assert lines[0].split() == "set problems k score pass@2 pass@16 truncated unparsed failed tokens".split()
    assert lines[2].split() == (
        "aime24 30 16 0.500 +- 0.089 (0.400 of all) 0.600 +- 0.010 0.900 +- nan 12.5% 0.0% 2 12,346".split()
    )
    assert lines[3].split() == "minerva 272 2 0.500 +- 0.089 0.600 +- 0.010 - 12.5% 0.0% 0 12,346".split()
    assert lines[4].split() == "mean 0.550 +- 0.050".split()
    metrics["eval/minerva/success"] = 0.2
    assert evaluate.results_table(metrics, ["minerva"]).splitlines()[0].split()[3:5] == ["score", "success"]


def test_it_judges_signals_on_request(workdir, capsys):
    config = json.loads((workdir / "config.json").read_text())
    config["oracle"] |= {"positions": 2, "samples": 3}
    (workdir / "config.json").write_text(json.dumps(config))
    run(workdir=str(workdir), step="0", oracle=1)
    out = capsys.readouterr().out
    assert all(f"localize/oracle_auc/{signal} " in out for signal in ("hindsight", "entropy", "uniform"))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"workdir": None}, "either --workdir=RUN or --config=FILE is needed"),
        ({"config": config_lib.default()}, "either --workdir=RUN or --config=FILE is needed, and not both"),
        ({"workdir": None, "config": config_lib.default()}, "--out=DIR is needed beside --config"),
        ({"workdir": "nowhere"}, "nowhere"),
        ({"step": "7"}, "no checkpoint at"),
        ({"sets": ["holdout@4"]}, "holdout"),
        ({"sets": ["test"]}, r"eval.sets=.*'test' must be NAME@K"),
        ({"sets": ["test@2", "test@4"]}, r"each once"),
        ({"oracle": 100000}, "oracle.problems=100000"),
        ({"problems": -1}, "eval.problems=-1"),
    ],
)
def test_bad_flags_are_errors_before_any_work(workdir, values, message, monkeypatch):
    monkeypatch.setattr(setup_run, "make_engine", lambda *_: pytest.fail("work began"))
    with pytest.raises(SystemExit, match=message):
        run(**{"workdir": str(workdir), "step": "0", **values})


# ---- judging again --------------------------------------------------------------------------------------------------


def test_samples_are_judged_again_as_they_were(evaluated, capsys):
    before = (evaluated / "validation.jsonl").read_bytes()
    run(rescore=[str(evaluated / "validation.jsonl"), str(evaluated / "test.jsonl")])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["validation", "test"], "and nothing is listed as changed"
    assert all(row[2:5] == row[5:8] and row[8:] == ["0", "0", "0"] for row in rows)
    assert (evaluated / "validation.jsonl").read_bytes() == before
    assert (evaluated / "validation.rescored.jsonl").read_bytes() == before


def test_another_verifier_shows(evaluated, capsys, monkeypatch):
    verdict, failing = ErrandsEpisode.verdict, iter([True, True])

    def harsher(episode):
        if next(failing, False):
            raise EnvironmentFailure("it is down")
        found = verdict(episode)
        return type(found)(found.reward / 2, False, found.feedback)

    monkeypatch.setattr(ErrandsEpisode, "verdict", harsher)
    monkeypatch.setattr("hdl_jax.rescore.ThreadPoolExecutor", lambda _: InTurn())
    run(rescore=[str(evaluated / "validation.jsonl")])
    _, _, row, _, *changes = capsys.readouterr().out.splitlines()
    row = row.split()
    _, before = read_samples(evaluated / "validation.jsonl")
    _, after = read_samples(evaluated / "validation.rescored.jsonl")
    old, new = ([s for of in samples.values() for s in of] for samples in (before, after))
    assert new[0].reward is None and row[9:] == ["0", "1"], "a verifier that fails twice gives no verdict"
    assert [s.reward for s in new[1:]] == [s.reward / 2 for s in old[1:]]
    assert [s.actions for s in new] == [s.actions for s in old]
    changed = 1 + sum(s.reward > 0 for s in old[1:])
    assert int(row[8]) == changed
    assert changes[0] == f"{old[0].problem}, sample 0: {old[0].reward:g} -> no verdict"
    assert len(changes) == min(changed, rescore.SHOWN) + (changed > rescore.SHOWN)


class InTurn:
    """An executor without threads."""

    map = staticmethod(map)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_an_episode_that_the_environment_broke_off_stays_without_a_verdict(monkeypatch):
    """Where only its verifier had failed, or a budget ended it, there is one to be had."""
    domain = Errands()
    problem = domain.problems("validation")[0]
    broken = EvalSample(problem.id, 0, ("look around",), None, None, None, False, False, 4)
    assert rescore.judged_again(domain, problem, broken) == broken
    cut = dataclasses.replace(broken, truncated=True)
    assert rescore.judged_again(domain, problem, cut).reward == 0.0
    unopened = dataclasses.replace(broken, actions=())
    assert rescore.judged_again(domain, problem, unopened) == unopened

    step = ErrandsEpisode.step
    monkeypatch.setattr(ErrandsEpisode, "step", lambda self, action: Step(step(self, action).observation, True))
    assert rescore.judged_again(domain, problem, broken).reward == 0.0


def test_samples_of_other_data_are_refused(evaluated, tmp_path):
    text = (evaluated / "test.jsonl").read_text().replace("errands/test/0", "errands/test/x")
    (tmp_path / "test.jsonl").write_text(text)
    (tmp_path / "test.json").write_bytes((evaluated / "test.json").read_bytes())
    with pytest.raises(SystemExit, match="errands/test has no problem errands/test/x"):
        run(rescore=[str(evaluated / "validation.jsonl"), str(tmp_path / "test.jsonl")])
    (tmp_path / "test.jsonl").write_text(text.splitlines()[0] + "\n")
    with pytest.raises(SystemExit, match="test.jsonl: it has no samples"):
        run(rescore=[str(tmp_path / "test.jsonl")])
    (tmp_path / "test.json").write_text("[]")
    with pytest.raises(SystemExit, match="test.json does not say what its samples were made with"):
        run(rescore=[str(tmp_path / "test.jsonl")])
    (tmp_path / "dev.json").write_bytes((evaluated / "test.json").read_bytes())
    with pytest.raises(SystemExit, match="no samples at"):
        run(rescore=[str(tmp_path / "dev.jsonl")])


def test_the_samples_of_a_run_are_judged_by_its_own_config(workdir, evaluated, tmp_path, capsys):
    shutil.copy(workdir / "config.json", tmp_path)
    folder = tmp_path / "eval" / "step_000000"
    folder.mkdir(parents=True)
    shutil.copy(evaluated / "test.jsonl", folder)
    run(rescore=[str(folder / "test.jsonl")])
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["test", "6"]
    shutil.copy(evaluated / "test.jsonl", tmp_path)
    with pytest.raises(SystemExit, match="config.json"):
        run(rescore=[str(tmp_path / "test.jsonl")])
