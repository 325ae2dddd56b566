"""Every field of a run, with its default and meaning, and the checks that need no device.

A config file's `get_config(arg)` takes `default()`, changes what it wants and returns it; `--config.FIELD=VALUE` on the
command line changes it further. Unknown fields and wrong types are refused by ml_collections, wrong values by
`validate`.
"""

from __future__ import annotations

import math
from typing import Any

from ml_collections import ConfigDict

from hdl_jax.localize import SIGNALS
from hdl_jax.policy.presets import PRESETS, TransformerConfig, preset
from hdl_jax.rollout.methods import METHODS
from hdl_jax.sampling.cache import PoolShape

# What `--config=FILE:ARG` may set; everything else is a field.
ARGUMENTS = ("method", "signal", "seed")


def default() -> ConfigDict:
    """The method as the paper has it, at the sizes of the embedded domain and policy."""
    config = ConfigDict()
    config.seed = 0
    config.method = "hdl"  # hdl | grpo
    config.steps = 30

    config.domain = ConfigDict()
    config.domain.name = "errands"

    config.policy = ConfigDict()
    config.policy.preset = "errands"
    config.policy.weights = ""  # a safetensors file of ours; empty: the weights that ship with the preset

    config.rollout = ConfigDict()
    config.rollout.problems_per_step = 8
    config.rollout.group_size = 16
    config.rollout.temperature = 1.0
    config.rollout.max_prompt_tokens = 64
    config.rollout.max_response_tokens = 320  # observations included
    config.rollout.max_action_tokens = 12

    config.branch = ConfigDict()
    config.branch.signal = "hindsight"  # hindsight | entropy | uniform
    config.branch.roots = 2
    config.branch.points_per_root = 2
    config.branch.continuations = (3, 4)  # per point, the highest-scoring one first
    config.branch.min_spacing = 6  # tokens; 16 for long responses

    config.reflection = ConfigDict()
    config.reflection.max_tokens = 64
    config.reflection.temperature = 1.0

    config.engine = ConfigDict()
    config.engine.pools = ((8, 2), (16, 4))  # (rows, lanes) of each
    config.engine.context_tokens = 512  # longest prefix: prompt, hindsight and a whole response
    config.engine.block = 32  # attention block and prefill chunk
    config.engine.steps = 16  # decode steps between two looks at the environments
    config.engine.workers = 2  # threads for environments and verifiers

    config.learn = ConfigDict()
    config.learn.learning_rate = 1e-3  # the embedded policy is small; 1e-6 for billions of parameters
    config.learn.beta1 = 0.9
    config.learn.beta2 = 0.98
    config.learn.weight_decay = 0.1
    config.learn.max_grad_norm = 1.0
    config.learn.clip_low = 0.2
    config.learn.clip_high = 0.28
    config.learn.minibatches = 1  # optimizer steps a rollout, each divided by its own trained tokens
    config.learn.row_lengths = (128, 160, 192, 224, 384)  # static lengths that rows are padded to
    config.learn.tokens_per_microbatch = 4096

    config.eval = ConfigDict()
    config.eval.every = 10
    config.eval.split = "validation"
    config.eval.variations = 64
    config.eval.episodes = 4
    config.eval.temperature = 0.6

    # Which tokens really decide, by Monte-Carlo, after the last step; see localize/oracle.py.
    config.oracle = ConfigDict()
    config.oracle.problems = 8  # 0: not measured
    config.oracle.positions = 8  # tokens a root
    config.oracle.samples = 24  # continuations from before each, and as many from after it

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 10
    config.checkpoint.best = 3

    config.log = ConfigDict()
    config.log.rollouts_every = 10  # steps whose rollouts are kept; the first and the last always are
    config.log.rollout_share = 1.0  # share of a kept step's groups
    return config


def get_run(method: str = "hdl", signal: str = "hindsight", seed: str = "0") -> ConfigDict:
    """The default config with what runs of a comparison differ in."""
    if not seed.isdecimal():
        raise ValueError(f"config argument seed={seed}: must be a whole number, 0 or more")
    config = default()
    config.method, config.branch.signal, config.seed = method, signal, int(seed)
    return config


def parse_arg(arg: str | None) -> dict[str, str]:
    """`method=grpo,seed=1` -> {"method": "grpo", "seed": "1"}; the part after the colon of `--config=FILE:ARG`."""
    if not arg:
        return {}
    pairs = [part.partition("=") for part in arg.split(",")]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(f"config argument {arg!r}: expected name=value pairs separated by commas, got {name!r}")
        if name not in ARGUMENTS:
            raise ValueError(f"config argument {name}={value}: unknown; known arguments: {', '.join(ARGUMENTS)}")
    return {name: value for name, _, value in pairs}


def total_group_size(config: Any) -> tuple[int, str]:
    """Trajectories a group ends up with, and the sum that gives it."""
    if config.method != "hdl":
        return config.rollout.group_size, str(config.rollout.group_size)
    branch = config.branch
    terms = " + ".join(["1", *map(str, branch.continuations)])
    total = branch.roots * (1 + sum(branch.continuations))
    return total, f"branch.roots x (1 + branch.continuations) = {branch.roots} x ({terms}) = {total}"


def validate(config: Any) -> None:
    """Refuses values that cannot work. Raises ValueError naming every offending field and what to do."""
    errors: list[str] = []

    def need(ok: bool, message: str) -> None:
        if not ok:
            errors.append(message)

    need(config.method in METHODS, f"method={config.method!r}: must be one of {', '.join(METHODS)}")
    need(
        config.branch.signal in SIGNALS, f"branch.signal={config.branch.signal!r}: must be one of {', '.join(SIGNALS)}"
    )
    need(
        config.policy.preset in PRESETS, f"policy.preset={config.policy.preset!r}: must be one of {', '.join(PRESETS)}"
    )
    positive = (
        "steps rollout.problems_per_step rollout.group_size rollout.temperature rollout.max_prompt_tokens "
        "rollout.max_response_tokens rollout.max_action_tokens branch.roots branch.points_per_root branch.min_spacing "
        "reflection.max_tokens reflection.temperature engine.context_tokens engine.block engine.steps engine.workers "
        "learn.learning_rate learn.max_grad_norm learn.clip_low learn.clip_high learn.minibatches "
        "learn.tokens_per_microbatch eval.every eval.variations eval.episodes eval.temperature oracle.positions "
        "oracle.samples checkpoint.every log.rollouts_every"
    )
    for name in positive.split():
        value = _field(config, name)
        need(0 < value < math.inf, f"{name}={value}: must be positive and finite")
    need(config.seed < 2**31, f"seed={config.seed}: must be less than 2**31")
    for name in ("seed", "learn.weight_decay", "oracle.problems", "checkpoint.best"):
        value = _field(config, name)
        need(0 <= value < math.inf, f"{name}={value}: must be 0 or more, and finite")
    for name in ("learn.beta1", "learn.beta2"):
        value = _field(config, name)
        need(0 <= value < 1, f"{name}={value}: must be in [0, 1)")
    need(config.learn.clip_low < 1, f"learn.clip_low={config.learn.clip_low}: must be less than 1")
    need(0 < config.log.rollout_share <= 1, f"log.rollout_share={config.log.rollout_share}: must be in (0, 1]")
    need(
        config.learn.minibatches <= config.rollout.problems_per_step,
        f"learn.minibatches={config.learn.minibatches}: more than rollout.problems_per_step="
        f"{config.rollout.problems_per_step}",
    )
    pools = config.engine.pools
    pools_fit = bool(pools) and all(_counts(pool) and len(pool) == 2 for pool in pools)
    need(pools_fit, f"engine.pools={pools}: must be (rows, lanes) pairs of positive whole numbers")
    # The oracle plays HDL's roots and asks for its branch points whatever the method trained is.
    if config.method == "hdl" or config.oracle.problems:
        branch = config.branch
        if _counts(branch.continuations):
            need(
                len(branch.continuations) == branch.points_per_root,
                f"branch.continuations={tuple(branch.continuations)} must have one entry for each of "
                f"branch.points_per_root={branch.points_per_root}",
            )
            total, shown = total_group_size(config)
            need(
                total == config.rollout.group_size or config.method != "hdl",
                f"{shown}, but rollout.group_size={config.rollout.group_size}: change one of them",
            )
        else:
            need(False, f"branch.continuations={branch.continuations}: every entry must be a positive whole number")
        if pools_fit:
            # Roots are held where their continuations run, in the widest pool.
            rows = sorted(pools, key=lambda pool: pool[1])[-1][0]
            need(
                branch.roots <= rows,
                f"branch.roots={branch.roots}: the widest of engine.pools={pools} has only {rows} rows to hold them",
            )
    longest = config.rollout.max_prompt_tokens + config.rollout.max_response_tokens
    need(
        config.engine.context_tokens >= longest,
        f"engine.context_tokens={config.engine.context_tokens} is less than rollout.max_prompt_tokens + "
        f"rollout.max_response_tokens = {longest}",
    )
    lengths = config.learn.row_lengths
    need(
        _counts(lengths) and max(lengths) >= longest,
        f"learn.row_lengths={lengths}: must be positive whole numbers, the longest enough for a trajectory of "
        f"{longest} tokens (rollout.max_prompt_tokens + rollout.max_response_tokens)",
    )
    if errors:
        raise ValueError("this config cannot run:\n  " + "\n  ".join(errors))


def _field(config: Any, name: str) -> Any:
    section, _, field = name.rpartition(".")
    return config[section][field] if section else config[field]


def _counts(values: Any) -> bool:
    """Whether this is a non-empty sequence of positive whole numbers."""
    return isinstance(values, list | tuple) and len(values) > 0 and all(isinstance(n, int) and n > 0 for n in values)


def policy_shape(config: Any) -> TransformerConfig:
    """The policy's shape."""
    return preset(config.policy.preset)


def pool_shapes(config: Any) -> list[PoolShape]:
    """The engine's pools: every row can hold the longest prefix, every lane the longest answer or reflection."""
    suffix = 1 + max(config.rollout.max_response_tokens, config.reflection.max_tokens)
    return [PoolShape(rows, lanes, config.engine.context_tokens, suffix) for rows, lanes in config.engine.pools]
