"""The examples of docs/add_signal.md, add_method.md and add_domain.md work as they stand there."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest
from guides import ROOT, files
from support import context, play

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.localize import SIGNALS
from hdl_jax.rollout.grpo import grpo
from hdl_jax.rollout.hdl import hdl
from hdl_jax.rollout.methods import METHODS
from hdl_jax.rollout.tokenclass import classifier
from hdl_jax.train import rollout_metrics


@pytest.fixture
def example(tmp_path, monkeypatch):
    """(page, the file it tells to write) -> that file as a module."""

    def load(page: str, file: str) -> ModuleType:
        path = tmp_path / file.rpartition("/")[2]
        path.write_text(files(page)[file], encoding="utf-8")
        name = file.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize(
    "page, file, addition",
    [
        ("add_signal.md", "hdl_jax/localize/__init__.py", ', "surprise": surprise'),
        ("add_method.md", "hdl_jax/rollout/methods.py", ', "halfway": halfway'),
    ],
)
def test_the_line_to_change_is_the_line_that_is_there(page, file, addition):
    line = files(page)[file]
    assert addition in line and line.replace(addition, "") in (ROOT / file).read_text()


def test_a_signal(example, shared, monkeypatch):
    surprise = example("add_signal.md", "hdl_jax/localize/surprise.py").surprise
    monkeypatch.setitem(SIGNALS, "surprise", surprise)
    ctx = context(branch__signal="surprise")
    config_lib.validate(config_lib.get_run(signal="surprise"))
    for group in play(shared, hdl, ctx):
        assert len(group.trajectories) == 16
        for root, scores in zip(group.roots, group.scores, strict=True):
            assert scores.dtype == np.float32 and not scores[~root.generated].any()
            np.testing.assert_allclose(scores[root.generated], -root.log_probs[root.generated], atol=1e-4)
        for i, root in enumerate(group.roots):
            best = next(p for p in group.points if p.root == i)
            assert group.scores[i][best.position] == group.scores[i][root.generated].max()


def test_a_method(example, shared, monkeypatch):
    halfway = example("add_method.md", "hdl_jax/rollout/halfway.py").halfway
    monkeypatch.setitem(METHODS, "halfway", halfway)
    config_lib.validate(config_lib.get_run(method="halfway"))
    ctx = context(rollout__group_size=6)
    groups = play(shared, halfway, ctx)
    for group in groups:
        assert len(group.trajectories) == 6 and len(group.roots) == 3
        for i, t in enumerate(group.trajectories[3:]):
            root = group.roots[i]
            assert t.origin == i and t.tokens[: t.fork].tolist() == root.tokens[: t.fork].tolist()
            before = int(root.generated[: t.fork].sum())
            assert before == int(root.generated.sum()) // 2 and root.generated[t.fork]
            assert t.verdict is not None
    sampled = sum(int(t.trained.sum()) for group in groups for t in group.trajectories)
    metrics = rollout_metrics(groups, ctx.config, classifier(ctx.domain, ctx.chat), sampled)
    assert metrics["rollout/generated_tokens/discarded"] == 0 and metrics["rollout/generated_tokens/continuation"] > 0


def test_a_domain(example, shared, monkeypatch):
    module = example("add_domain.md", "hdl_jax/domains/spell.py")
    line = files("add_domain.md")["hdl_jax/setup_run.py"]
    monkeypatch.setattr(setup_run, "DOMAINS", setup_run.DOMAINS | eval(f"{{{line.strip()}}}", vars(module)))
    config = config_lib.default()
    config.domain.name = "spell"
    domain = setup_run.make_domain(config)
    problems = domain.problems("train")
    assert [p.id for p in problems][:2] == ["spell/train/cab", "spell/train/fade"]
    with pytest.raises(ValueError, match="no split 'test'; it has train, validation"):
        domain.problems("test")

    def spelt(*actions: str):
        episode = domain.start(problems[0])
        steps = [episode.step(action) for action in actions]
        verdict = episode.verdict()
        return [s.done for s in steps], verdict.reward, verdict.success

    assert spelt("c", "a", "b") == ([False, False, True], 1.0, True)
    assert spelt("cool", "", "x") == ([False, False, True], pytest.approx(1 / 3), False)
    assert spelt() == ([], 0.0, False)
    assert domain.token_class("a 1b") == [(0, 1, "argument"), (3, 4, "argument")]

    ctx = context(domain, rollout__max_prompt_tokens=40, rollout__group_size=4, rollout__max_action_tokens=2)
    trajectories = [t for group in play(shared, grpo, ctx) + play(shared, hdl, ctx, (1,)) for t in group.trajectories]
    assert len(trajectories) == 3 * 4 + 16 and all(t.verdict is not None for t in trajectories)
    assert any(len(t.turns) > 1 for t in trajectories), "some go on after their first letter"
