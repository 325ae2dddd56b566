"""The evaluation command: which policy it takes, what it keeps, and judging samples again."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from hdl_jax import config as config_lib
from hdl_jax import evaluate, setup_run
from hdl_jax.checkpoint import Checkpoints, find_step
from hdl_jax.domains.domain import EnvironmentFailure
from hdl_jax.domains.errands import Errands, ErrandsEpisode
from hdl_jax.eval_store import read_samples
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


def figures(folder):
    return json.loads((folder / "results.json").read_text())["metrics"]


def test_it_plays_the_checkpoint_it_is_asked_for_and_says_what_it_found(workdir, evaluated, tmp_path, capsys):
    """The shipped policy scores; constant weights do not."""
    assert figures(evaluated)["eval/validation/score"] > 0.05
    run(workdir=str(workdir), sets=["validation@2"], problems=6, out=str(tmp_path))
    assert figures(tmp_path / "eval" / "step_000002")["eval/validation/score"] < 0.05
    header, _, row = [line for line in capsys.readouterr().out.splitlines() if line][1:4]
    assert header.split() == ["set", "score", "success", "pass@2", "truncated", "unparsed", "failed", "tokens"]
    assert row.split()[:2] == ["validation", "0.000"]


def test_the_same_command_plays_nothing_twice(workdir, evaluated, monkeypatch):
    before = figures(evaluated), (evaluated / "test.jsonl").read_bytes()
    monkeypatch.setattr(Errands, "start", lambda *_: pytest.fail("an episode was opened"))
    monkeypatch.setattr(setup_run, "check_prompts", lambda *_: {})
    run(workdir=str(workdir), step="0", sets=["validation@2", "test@1"], problems=6, out=str(evaluated.parents[1]))
    assert (figures(evaluated), (evaluated / "test.jsonl").read_bytes()) == before


def test_other_settings_want_another_folder(workdir, evaluated):
    with pytest.raises(SystemExit, match=r"error: .*other settings \(samples\).*--out names another folder"):
        run(workdir=str(workdir), step="0", sets=["validation@3"], problems=2, out=str(evaluated.parents[1]))


def test_a_config_is_enough(tmp_path):
    config = config_lib.default()
    config.engine.rows, config.engine.lanes, config.engine.width = 4, 8, 4
    config.eval.sets, config.eval.problems, config.oracle.problems = ("validation@1",), 3, 0
    table = evaluate.run(config, setup_run.make_policy(config), 0, tmp_path)
    assert table.startswith("errands\n")
    assert len(read_samples(tmp_path / "eval" / "step_000000" / "validation.jsonl")[1]) == 3


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
    assert [row[0] for row in rows] == ["validation", "test"]
    assert all(row[2] == row[3] and row[4] == "0" for row in rows)
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
    row = capsys.readouterr().out.splitlines()[2].split()
    _, before = read_samples(evaluated / "validation.jsonl")
    _, after = read_samples(evaluated / "validation.rescored.jsonl")
    old, new = ([s for of in samples.values() for s in of] for samples in (before, after))
    assert new[0].reward is None and row[5:] == ["0", "1"], "a verifier that fails twice gives no verdict"
    assert [s.reward for s in new[1:]] == [s.reward / 2 for s in old[1:]]
    assert [s.actions for s in new] == [s.actions for s in old]
    assert int(row[4]) == 1 + sum(s.reward > 0 for s in old[1:])


class InTurn:
    """An executor without threads."""

    map = staticmethod(map)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_samples_of_other_data_are_refused(evaluated, tmp_path):
    text = (evaluated / "test.jsonl").read_text().replace("errands/test/0", "errands/test/x")
    (tmp_path / "test.jsonl").write_text(text)
    (tmp_path / "results.json").write_bytes((evaluated / "results.json").read_bytes())
    with pytest.raises(SystemExit, match="errands/test has no problem errands/test/x"):
        run(rescore=[str(tmp_path / "test.jsonl")])
    with pytest.raises(SystemExit, match="no samples at"):
        run(rescore=[str(tmp_path / "dev.jsonl")])
