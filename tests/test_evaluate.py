"""The evaluation command: which checkpoint it takes, and what it says when there is none."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from hdl_jax import config as config_lib
from hdl_jax import evaluate, setup_run
from hdl_jax.checkpoint import Checkpoints
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


def test_find_step(workdir, tmp_path):
    assert evaluate.find_step(workdir, "best") == 2
    assert evaluate.find_step(workdir, "latest") == 3
    assert evaluate.find_step(workdir, "0") == 0
    with pytest.raises(ValueError, match="--step=first"):
        evaluate.find_step(workdir, "first")
    with pytest.raises(FileNotFoundError, match="no checkpoints at"):
        evaluate.find_step(tmp_path, "best")


def _score(out: str) -> float:
    (line,) = [line for line in out.splitlines() if line.startswith("eval/validation/score")]
    return float(line.split()[1])


def test_it_plays_the_checkpoint_it_is_asked_for(workdir, capsys):
    """The shipped policy scores; constant weights do not."""
    flags = [f"--workdir={workdir}", "--split=validation", "--variations=6", "--episodes=2"]
    assert evaluate.main([*flags, "--step=0"]) == 0
    assert _score(capsys.readouterr().out) > 0.05
    assert evaluate.main([*flags, "--step=best"]) == 0
    assert _score(capsys.readouterr().out) < 0.05


def test_it_judges_signals_on_request(workdir, capsys):
    config = json.loads((workdir / "config.json").read_text())
    config["oracle"] |= {"positions": 2, "samples": 3}
    (workdir / "config.json").write_text(json.dumps(config))
    evaluate.main([f"--workdir={workdir}", "--step=0", "--oracle=1"])
    out = capsys.readouterr().out
    assert all(f"localize/oracle_auc/{signal} " in out for signal in ("hindsight", "entropy", "uniform"))


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--workdir=nowhere"], "nowhere"),
        (["--step=7"], "no checkpoint at"),
        (["--split=holdout"], "holdout"),
        (["--variations=100000"], "100000"),
    ],
)
def test_bad_flags_are_errors_before_any_work(workdir, flags, message, capsys):
    with pytest.raises(SystemExit):
        evaluate.main([f"--workdir={workdir}", *flags])
    assert message in capsys.readouterr().err
