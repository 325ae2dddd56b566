"""The command line in processes of its own: the plan, and bad input that ends it with a clear error before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = "configs/quickstart.py"


def run(*arguments: str, config: str = CONFIG) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hdl_jax.train", f"--config={config}", *arguments]
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def test_dry_run_prints_the_plan_and_touches_nothing(tmp_path):
    workdir = tmp_path / "run"
    done = run("--dry_run", f"--workdir={workdir}", "--config.total_steps=7", config=f"{CONFIG}:method=grpo,seed=1")
    assert done.returncode == 0, done.stderr
    assert "method          grpo" in done.stdout and "7 steps" in done.stdout and "parameters" in done.stdout
    assert not workdir.exists()


@pytest.mark.parametrize(
    "arguments, config, message",
    [
        pytest.param(["--config.learn.rate=1"], CONFIG, "the config has no field 'rate'", id="unknown field"),
        pytest.param(["--config.total_steps=many"], CONFIG, "total_steps", id="wrong type"),
        pytest.param(["--config.branch.continuations=(2,3)"], CONFIG, "2 x (1 + 2 + 3) = 12", id="group size"),
        pytest.param(
            ["--config.policy.source=nowhere"], CONFIG, "policy.source=nowhere: neither a folder", id="no policy"
        ),
        pytest.param([], f"{CONFIG}:optimizer=sgd", "optimizer", id="unknown argument of the config"),
        pytest.param(["surplus"], CONFIG, "unexpected arguments: surplus", id="surplus argument"),
    ],
)
def test_bad_input_is_refused_before_work_starts(tmp_path, arguments, config, message):
    workdir = tmp_path / "run"
    done = run(f"--workdir={workdir}", *arguments, config=config)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout
    assert "compiling" not in done.stderr and not workdir.exists()
    assert "\nTraceback" not in "\n" + done.stderr


def test_a_run_needs_a_workdir():
    done = run()
    assert done.returncode != 0
    assert "--workdir is needed" in done.stderr + done.stdout
    assert "compiling" not in done.stderr
