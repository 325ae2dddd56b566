"""What the paper's maths and code runs share: models, branch configurations, sizes of rollout, engine and update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict

from hdl_jax.config import ARGUMENTS, get_run, parse_arg

# name -> folder of the checkpoint, system prompt, whether the chat template switches thinking on
MODELS = {
    "qwen3-1.7b": ("models/Qwen3-1.7B", "", True),
    "qwen3-4b": ("models/Qwen3-4B", "", True),
    "qwen3-8b": ("models/Qwen3-8B", "", True),
    "nemotron-nano-8b": ("models/Llama-3.1-Nemotron-Nano-8B-v1", "detailed thinking on", True),
}
# name -> roots, points a root, continuations of each; every group has 16 trajectories
BRANCHES = {"2x2": (2, 2, (3, 4)), "2x1": (2, 1, (7,)), "4x2": (4, 2, (1, 2))}

_T = TypeVar("_T")


def chosen(table: Mapping[str, _T], name: str, value: str) -> _T:
    """An entry of a table. Raises ValueError naming the known ones."""
    if value not in table:
        raise ValueError(f"config argument {name}={value}: must be one of {', '.join(table)}")
    return table[value]


def single_turn(arg: str | None) -> ConfigDict:
    """The config of a run with long answers, all but its domain and evaluation sets.

    Args:
        arg: of the config file: those of every run, `model` (qwen3-8b) and `branch` (2x2).

    Raises:
        ValueError: an argument is unknown, or its value is.
    """
    args: dict[str, Any] = parse_arg(arg, known=(*ARGUMENTS, "model", "branch"))
    source, system, thinking = chosen(MODELS, "model", args.pop("model", "qwen3-8b"))
    roots, points, continuations = chosen(BRANCHES, "branch", args.pop("branch", "2x2"))
    config = get_run(**args)
    config.total_steps = 200

    config.policy.source, config.policy.system, config.policy.thinking = source, system, thinking
    config.policy.dtype = "bfloat16"

    config.rollout.problems_per_step = 128
    config.rollout.max_response_tokens = config.rollout.max_action_tokens = 32_768
    config.branch.roots, config.branch.points_per_root, config.branch.continuations = roots, points, continuations
    config.branch.min_spacing = 16
    config.reflection.max_tokens = 192

    # A row or a lane of 32,768 tokens of an 8B model is 4.8 GB of cache in bfloat16.
    config.engine.rows, config.engine.lanes, config.engine.width = 8, 16, 16
    config.engine.context_tokens = 36_864
    config.engine.block, config.engine.tile, config.engine.chunks, config.engine.steps = 512, 4, 16, 128
    config.engine.workers = 64

    config.learn.learning_rate = 1e-6
    config.learn.tokens_per_microbatch = 36_864

    config.eval.every = 10
    config.eval.problems = 0  # all
    config.eval.temperature = 0.6
    config.oracle.problems = 0
    config.filter.samples = 16
    return config
