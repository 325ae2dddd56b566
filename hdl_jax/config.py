"""Every field of a run, with its default and meaning, and the checks that need no device.

A config file's `get_config(arg)` takes `default()`, changes what it wants and returns it; `--config.FIELD=VALUE` on the
command line changes it further. Unknown fields and wrong types are refused by ml_collections, wrong values by
`validate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from hdl_jax.localize import SIGNALS
from hdl_jax.policy.flash import ATTENTION
from hdl_jax.policy.presets import DTYPES
from hdl_jax.rollout.methods import METHODS
from hdl_jax.sampling.cache import CacheShape

# What `--config=FILE:ARG` may set; everything else is a field.
ARGUMENTS = ("method", "signal", "seed")
# Less than this is not meant; 0 is another thing.
MIN_TEMPERATURE = 0.01


def default() -> ConfigDict:
    """The method as the paper has it, at the sizes of the embedded domain and policy."""
    config = ConfigDict()
    config.seed = 0
    config.method = "hdl"  # hdl | grpo
    config.total_steps = 30

    config.domain = ConfigDict()
    config.domain.name = "errands"  # errands | reasoning | math | code | custom
    config.domain.data = ""  # math, code: the folder of prepared sets; custom: FILE.jsonl of the prompts to train on
    config.domain.train = ""  # math, code: the prepared set to train on
    config.domain.eval_data = ""  # custom: FILE.jsonl of the prompts that `validation` is
    config.domain.reward = ""  # custom: FILE.py:FUNCTION
    config.domain.instruction = ""  # math, code: what follows a question; empty: what the extraction rule asks for
    config.domain.kept = ""  # kept.json of hdl_jax.filter: the problems to train on; empty: all
    config.domain.workers = 2  # math, code, custom: answers that are checked at the same time
    config.domain.limit_s = 10.0  # math, custom: seconds of work that a check may take; code: of a test
    config.domain.budget_s = 60.0  # code: seconds that all tests of a program may take together
    config.domain.memory_mb = 1024  # code: memory of a program
    config.domain.isolation = "bubblewrap"  # code: at least this: bubblewrap | sandlock | rlimits; or http://HOST:PORT
    config.domain.python = ""  # code: the interpreter of programs; empty: the first that the sandbox can run

    config.policy = ConfigDict()
    # errands (embedded) | a Hugging Face folder | FILE.gguf | package:NAME | a preset; see hdl_jax/policy/source.py
    config.policy.source = "errands"
    config.policy.dtype = "float32"  # of computation and cache; the optimizer's copy of the weights is float32
    config.policy.system = ""  # system prompt of every conversation; empty: what the chat template puts
    config.policy.thinking = False  # whether the policy thinks before it speaks; reflections never do

    config.mesh = ConfigDict()
    config.mesh.devices = 1  # that parameters and training state are cut over (fsdp)

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
    config.engine.rows = 32  # prefixes in flight: prompts, reflection prompts, roots with their continuations
    config.engine.lanes = 128  # sampled paths in flight
    config.engine.context_tokens = 512  # longest prefix: prompt, hindsight and a whole response
    config.engine.block = 64  # tokens of a cache block, an attention block, a prefill chunk
    config.engine.tile = 1  # lanes of a family that read its prefix together; more for long prefixes
    config.engine.width = 16  # lanes that go through the network together; engine.lanes where weights are large
    config.engine.chunks = 8  # prefill chunks that do
    config.engine.steps = 16  # decode steps between two looks at the environments
    config.engine.workers = 16  # threads for environments and verifiers

    config.learn = ConfigDict()
    config.learn.learning_rate = 1e-3  # the embedded policy is small; 1e-6 for billions of parameters
    config.learn.beta1 = 0.9
    config.learn.beta2 = 0.98
    config.learn.weight_decay = 0.1
    config.learn.max_grad_norm = 1.0
    config.learn.clip_low = 0.2
    config.learn.clip_high = 0.28
    config.learn.minibatches = 1  # optimizer steps a rollout, each divided by its own trained tokens
    config.learn.tokens_per_microbatch = 4096  # of a packed stream; at least the longest trajectory
    config.learn.attention = "xla"  # xla (anywhere) | cudnn (NVIDIA) | splash (TPU)

    config.eval = ConfigDict()
    config.eval.every = 10
    config.eval.sets = ("validation@4",)  # NAME@K: K episodes of each problem of that split; all sets weigh the same
    config.eval.problems = 64  # the first so many of each set; 0: all
    config.eval.temperature = 0.6  # 0: the likeliest token

    # hdl_jax.filter keeps problems that the policy solves neither never nor always.
    config.filter = ConfigDict()
    config.filter.samples = 8  # episodes of each problem, at rollout.temperature
    config.filter.min_rate = 0.01  # of them, solved
    config.filter.max_rate = 0.99

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


def parse_arg(arg: str | None, known: Sequence[str] = ARGUMENTS) -> dict[str, str]:
    """`method=grpo,seed=1` -> {"method": "grpo", "seed": "1"}; the part after the colon of `--config=FILE:ARG`."""
    if not arg:
        return {}
    pairs = [part.partition("=") for part in arg.split(",")]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(f"config argument {arg!r}: expected name=value pairs separated by commas, got {name!r}")
        if name not in known:
            raise ValueError(f"config argument {name}={value}: unknown; known arguments: {', '.join(known)}")
    return {name: value for name, _, value in pairs}


def eval_sets(config: Any) -> list[tuple[str, int]]:
    """(split, episodes a problem) of each of `eval.sets`. Raises ValueError naming the entry that is none."""
    sets = []
    for entry in config.eval.sets:
        name, _, episodes = str(entry).partition("@")
        if not (name and episodes.isdecimal() and int(episodes) > 0):
            raise ValueError(
                f"eval.sets={tuple(config.eval.sets)}: {entry!r} must be NAME@K, K episodes of each problem, such as "
                "validation@4"
            )
        sets.append((name, int(episodes)))
    if not sets or len({name for name, _ in sets}) < len(sets):
        raise ValueError(f"eval.sets={tuple(config.eval.sets)}: must name at least one set, and each once")
    return sets


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
    need(config.policy.dtype in DTYPES, f"policy.dtype={config.policy.dtype!r}: must be one of {', '.join(DTYPES)}")
    positive = (
        "total_steps mesh.devices rollout.problems_per_step rollout.group_size "
        "rollout.max_prompt_tokens rollout.max_response_tokens rollout.max_action_tokens branch.roots "
        "branch.points_per_root branch.min_spacing reflection.max_tokens engine.rows "
        "engine.lanes engine.context_tokens engine.block engine.tile engine.width engine.chunks engine.steps "
        "engine.workers domain.workers domain.limit_s domain.budget_s domain.memory_mb "
        "learn.learning_rate learn.max_grad_norm learn.clip_low learn.clip_high learn.minibatches "
        "learn.tokens_per_microbatch eval.every filter.samples oracle.positions "
        "oracle.samples checkpoint.every log.rollouts_every"
    )
    for name in positive.split():
        value = _field(config, name)
        need(0 < value < math.inf, f"{name}={value}: must be positive and finite")
    need(config.seed < 2**31, f"seed={config.seed}: must be less than 2**31")
    for name in ("seed", "learn.weight_decay", "eval.problems", "oracle.problems", "checkpoint.best"):
        value = _field(config, name)
        need(0 <= value < math.inf, f"{name}={value}: must be 0 or more, and finite")
    for name in ("rollout.temperature", "reflection.temperature", "eval.temperature"):
        value = _field(config, name)
        allowed = MIN_TEMPERATURE <= value < math.inf or (name == "eval.temperature" and value == 0)
        need(
            allowed,
            f"{name}={value}: must be finite and at least {MIN_TEMPERATURE}" + " or 0" * name.startswith("eval"),
        )
    try:
        eval_sets(config)
    except ValueError as error:
        need(False, str(error))
    low, high = config.filter.min_rate, config.filter.max_rate
    need(0 <= low <= high <= 1, f"filter.min_rate={low}, filter.max_rate={high}: must be in [0, 1], in this order")
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
    engine = config.engine
    need(
        engine.tile < 1 or engine.width % engine.tile == 0,
        f"engine.width={engine.width}: must be a multiple of engine.tile={engine.tile}",
    )
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
        need(
            branch.roots <= engine.rows,
            f"branch.roots={branch.roots}: engine.rows={engine.rows} cannot hold that many at once",
        )
    longest = longest_trajectory(config)
    need(
        config.engine.context_tokens >= longest,
        f"engine.context_tokens={config.engine.context_tokens} is less than rollout.max_prompt_tokens + "
        f"rollout.max_response_tokens = {longest}",
    )
    need(
        config.learn.tokens_per_microbatch >= longest,
        f"learn.tokens_per_microbatch={config.learn.tokens_per_microbatch} is less than the longest trajectory, "
        f"rollout.max_prompt_tokens + rollout.max_response_tokens = {longest}",
    )
    need(
        config.learn.attention in ATTENTION,
        f"learn.attention={config.learn.attention!r}: must be one of {', '.join(ATTENTION)}",
    )
    if errors:
        raise ValueError("this config cannot run:\n  " + "\n  ".join(errors))


def longest_trajectory(config: Any) -> int:
    """Tokens of the longest trajectory that a run can make, prompt and observations included."""
    return config.rollout.max_prompt_tokens + config.rollout.max_response_tokens


def _field(config: Any, name: str) -> Any:
    section, _, field = name.rpartition(".")
    return config[section][field] if section else config[field]


def _counts(values: Any) -> bool:
    """Whether this is a non-empty sequence of positive whole numbers."""
    return isinstance(values, list | tuple) and len(values) > 0 and all(isinstance(n, int) and n > 0 for n in values)


def cache_shape(config: Any) -> CacheShape:
    """The engine's cache: every row can hold the longest prefix, every lane the longest answer or reflection."""
    suffix = 1 + max(config.rollout.max_response_tokens, config.reflection.max_tokens)
    engine = config.engine
    return CacheShape(engine.rows, engine.lanes, engine.context_tokens, suffix, engine.block)
