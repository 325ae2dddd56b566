"""`--dry_run`: checks the config and the data and says what a run would cost, without running it."""

from __future__ import annotations

import dataclasses
from typing import Any

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.evaluation import selected
from hdl_jax.mesh import bytes_a_device
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import PRESETS
from hdl_jax.policy.source import EMBEDDED
from hdl_jax.sampling.cache import cache_bytes


def plan(config: Any) -> str:
    """The plan as text. Raises what a run would, before any work; needs no weights where a preset is named."""
    config_lib.validate(config)
    domain, source = setup_run.make_domain(config), config.policy.source
    setup_run.check_sizes(config, domain)
    if source in PRESETS and source != EMBEDDED:
        shape, prompts = dataclasses.replace(PRESETS[source], dtype=config.policy.dtype), "unknown without a vocabulary"
    else:
        policy = setup_run.make_policy(config)
        shape = policy.shape
        longest = setup_run.check_prompts(
            config, domain, policy.chat, ["train", *(name for name, _ in config_lib.eval_sets(config))]
        )
        prompts = f"{max(longest.values())} of {config.rollout.max_prompt_tokens} tokens"
    cache = config_lib.cache_shape(config)
    total, arithmetic = config_lib.total_group_size(config)
    rollout, devices = config.rollout, config.mesh.devices
    most = rollout.problems_per_step * total * rollout.max_response_tokens
    sets = [
        f"{name}: {len(selected(domain, config, name)):,} of {len(domain.problems(name)):,} problems x {episodes}"
        for name, episodes in config_lib.eval_sets(config)
    ]
    steps_an_epoch = len(domain.problems("train")) // rollout.problems_per_step
    held = bytes_a_device(shape, devices) | {"cache": cache_bytes(shape, cache)}
    lines = [
        f"method          {config.method}" + (f", signal {config.branch.signal}" if config.method == "hdl" else ""),
        f"policy          {source}: {tr.parameter_count(tr.abstract_params(shape)):,} parameters, vocabulary "
        f"{shape.vocab_size}, computes in {shape.dtype}",
        f"data            {domain.name}: {len(domain.problems('train')):,} train; longest prompt {prompts}",
        f"step            {rollout.problems_per_step} problems x {arithmetic} trajectories, "
        f"at most {most:,} response tokens",
        f"run             {config.total_steps} steps of {steps_an_epoch} an epoch, evaluated every {config.eval.every}",
        f"evaluation      {', '.join(sets)}, at temperature {config.eval.temperature}",
        f"cache           {cache.rows} rows of {cache.prefix} tokens, {cache.lanes} lanes of {cache.suffix}",
        f"update          packed streams of at most {config.learn.tokens_per_microbatch:,} tokens, "
        f"{config.learn.attention} attention",
        f"memory          on each of {devices} device{'s' * (devices > 1)}, activations apart (docs/memory.md):",
        *(f"  {name:<14}{size(n):>10}" for name, n in held.items()),
        f"  {'in all':<14}{size(sum(held.values())):>10}",
    ]
    return "\n".join(lines)


def size(n: int) -> str:
    """Bytes in words."""
    return f"{n / 2**30:.2f} GiB" if n >= 2**30 else f"{n / 2**20:.1f} MiB"
