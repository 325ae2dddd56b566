"""The anatomy of a given response: the scores of a root in training, and clear refusals."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from hdl_jax import anatomy, setup_run
from hdl_jax.command_line import Refused
from hdl_jax.localize.hindsight import hindsight
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.store import read_groups

ROOT = Path(__file__).parents[1]
ACTIONS = ["look", "go north", "look"]


@pytest.fixture(scope="module")
def config():
    spec = importlib.util.spec_from_file_location("quickstart", ROOT / "configs" / "quickstart.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config()
    config.engine.rows, config.engine.lanes = 4, 4
    return config


@pytest.fixture(scope="module")
def problem(config):
    return setup_run.make_domain(config).problems("train")[3]


def actions_to_the_end(config, problem) -> list[str]:
    """As many as the episode takes."""
    domain = setup_run.make_domain(config)
    episode, actions = domain.start(problem), []
    episode.opening()
    while len(actions) < domain.max_actions:
        actions.append(ACTIONS[len(actions) % len(ACTIONS)])
        if episode.step(actions[-1]).done:
            break
    return actions


def test_the_scores_are_those_of_a_root_in_training(config, problem, tmp_path):
    actions = actions_to_the_end(config, problem)
    said = anatomy.anatomy(config, problem.id, actions, None, tmp_path)
    ((stored,),) = read_groups(tmp_path, 0)
    assert [turn["action"] for turn in stored.record["turns"]] == actions
    assert stored.record["reward"] is not None and f"reward {stored.record['reward']:.3g}" in said

    domain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
    ctx = Context(domain, policy.chat, config, 0, config.rollout.temperature)
    root = anatomy.recorded(ctx, problem, actions)
    engine = setup_run.make_engine(config, policy.shape)
    engine.load(policy.load(None))
    (found,) = engine.run([hindsight(ctx, problem, [root])], 0)
    np.testing.assert_array_equal(stored.scores, found.scores[0])
    assert stored.scores.max() > 0 and (stored.log_probs[stored.generated] < 0).any()
    best = int(np.argmax(np.where(stored.generated, stored.scores, -1)))
    assert re.search(rf"^1 +{best - stored.record['prompt_length']} +{stored.scores[best]:.3f} ", said, re.MULTILINE)
    assert "reflection:" in said and (tmp_path / "anatomy.html").read_text().count('<section class="root">') == 1


def test_a_reflection_that_is_given_takes_the_policys_place(config, problem, tmp_path):
    actions = actions_to_the_end(config, problem)
    scores = []
    for text in ("OUTCOME: FAILURE\nSUMMARY: it looked.", "OUTCOME: SUCCESS\nSUMMARY: it went north and then looked."):
        said = anatomy.anatomy(config, problem.id, actions, text, tmp_path)
        ((stored,),) = read_groups(tmp_path, 0)
        assert text in said and stored.record["reflection"]["text"] == text
        scores.append(stored.scores)
    assert not np.array_equal(*scores)


@pytest.mark.parametrize(
    ("id", "actions", "message"),
    [
        ("errands/train/none", ["look"], r"--problem=errands/train/none: not in train, .*errands/train/"),
        (None, ["look"], "goes on after action 1 of 1|ends after"),
        (None, ["look " * 200], "action 1 has .* tokens, and the policy's may have"),
    ],
)
def test_what_cannot_be_is_refused(config, problem, tmp_path, id, actions, message):
    with pytest.raises(Refused, match=message):
        anatomy.anatomy(config, id or problem.id, actions, None, tmp_path)


def test_another_signal_takes_no_reflection(config, problem, tmp_path):
    changed = config.copy_and_resolve_references()
    changed.branch.signal = "entropy"
    with pytest.raises(Refused, match="--reflection is for branch.signal='hindsight'"):
        anatomy.anatomy(changed, problem.id, ["look"], "OUTCOME: SUCCESS", tmp_path)
