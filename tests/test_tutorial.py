"""docs/bring_your_own.md does what it says: its files are written, its command is run, and the score rises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from guides import ROOT, commands, files

from hdl_jax.domains.custom import Custom
from hdl_jax.metrics import read_metrics

PAGE = "bring_your_own.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A checkout's folder as the page asks for it: its configs, and the page's files."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "configs").symlink_to(ROOT / "configs")
    for name, content in files(PAGE).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(folder) -> subprocess.CompletedProcess[str]:
    """The page's command, to the letter, but for the interpreter it names."""
    (command,) = commands(PAGE)
    assert command.startswith("python ")
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    shell = ["sh", "-c", f'"$0" {command.removeprefix("python ")}', sys.executable]
    return subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=500)


def test_the_page_names_the_files_that_its_command_reads():
    (command,) = commands(PAGE)
    assert set(files(PAGE)) == {"mine/train.jsonl", "mine/heldout.jsonl", "mine/my_reward.py"}
    assert all(name in command for name in files(PAGE))


def test_the_reward_is_what_the_page_says(folder):
    arguments = [str(folder / name) for name in ("mine/train.jsonl", "mine/heldout.jsonl")]
    domain = Custom(*arguments, f"{folder / 'mine/my_reward.py'}:reward", workers=1, limit_s=20)
    episode = domain.start(domain.problems("train")[0])
    episode.step("well go bedroom")
    assert episode.verdict().success and episode.verdict().feedback == "score 100 . completed"
    episode = domain.start(domain.problems("train")[0])
    episode.step("go shed")
    assert episode.verdict().reward == 0.2 and episode.verdict().feedback == "score 20 . not completed"
    prompts = [{domain.start(p).opening() for p in domain.problems(split)} for split in ("train", "validation")]
    assert not prompts[0] & prompts[1], "held-out objects are not trained on"


def test_the_command_trains_and_the_held_out_score_rises(run, folder):
    assert run.returncode == 0, run.stderr
    rows = read_metrics(folder / "runs/mine")
    score = [row["eval/validation/score"] for row in (rows[0], rows[-1])]
    assert score[1] > score[0] + 0.1
    assert rows[-1]["reward/mean"] > rows[1]["reward/mean"]
    assert rows[1]["reflection/outcome_agreement"] > 0.2, "the policy understands the feedback"
    assert all(row["rollout/failed_verifications"] == 0 for row in rows[1:])


def test_what_the_page_points_at_is_there(run, folder):
    workdir = folder / "runs/mine"
    assert "eval/validation/success" in run.stdout and "before" in run.stdout and "after" in run.stdout
    assert "score 20 . not completed" in (workdir / "report.html").read_text()
    rows = [json.loads(line) for path in (workdir / "rollouts").glob("*.jsonl") for line in path.open()]
    assert rows and all({"problem", "reward", "feedback", "text"} <= row.keys() for row in rows)
    metrics = read_metrics(workdir)[-1]
    text = (ROOT / "docs" / PAGE).read_text()
    for name in ("group/zero_variance_fraction", "reflection/outcome_agreement", "rollout/failed_verifications"):
        assert name in metrics and name in text


def test_a_mistake_in_the_function_ends_the_run_before_any_work(folder):
    (folder / "mine/broken.py").write_text("def reward(row, response):\n    return row['rooms']\n")
    (command,) = commands(PAGE)
    flags = command.removeprefix("python ").replace("my_reward.py", "broken.py").replace("runs/mine", "runs/broken")
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    shell = ["sh", "-c", f'"$0" {flags}', sys.executable]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0 and "KeyError: 'rooms'" in done.stderr and "line 1" in done.stderr
    assert "compiling" not in done.stderr and not (folder / "runs/broken").exists()
