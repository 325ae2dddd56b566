"""`--dry_run`: checks the config and the data and says what a run would cost, without running it."""

from __future__ import annotations

from typing import Any

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.policy import transformer as tr
from hdl_jax.sampling.cache import cache_bytes


def plan(config: Any) -> str:
    """The plan as text. Raises ValueError or FileNotFoundError as a run would, before any work."""
    config_lib.validate(config)
    domain, chat = setup_run.make_domain(config), setup_run.make_chat(config)
    setup_run.check_sizes(config, domain)
    longest = setup_run.check_prompts(config, domain, chat, ("train", config.eval.split))
    shape = config_lib.policy_shape(config)
    parameters = tr.parameter_count(setup_run.load_policy(config))
    cache = config_lib.cache_shape(config)
    total, arithmetic = config_lib.total_group_size(config)
    rollout = config.rollout
    most = rollout.problems_per_step * total * rollout.max_response_tokens
    steps_an_epoch = len(domain.problems("train")) // rollout.problems_per_step
    mib = 2**20
    lines = [
        f"method          {config.method}" + (f", signal {config.branch.signal}" if config.method == "hdl" else ""),
        f"policy          {config.policy.preset}: {parameters:,} parameters, vocabulary {shape.vocab_size}",
        f"data            {domain.name}: {len(domain.problems('train')):,} train, "
        f"{len(domain.problems(config.eval.split)):,} {config.eval.split}; longest prompt "
        f"{max(longest.values())} of {rollout.max_prompt_tokens} tokens",
        f"step            {rollout.problems_per_step} problems x {arithmetic} trajectories, "
        f"at most {most:,} response tokens",
        f"run             {config.steps} steps of {steps_an_epoch} an epoch, evaluated every {config.eval.every}: "
        f"{config.eval.variations} variations x {config.eval.episodes} episodes",
        # float32: parameters, their gradient, and AdamW's two moments.
        f"train state     {16 * parameters / mib:.1f} MiB: parameters, gradient, two moments, float32",
        f"cache           {cache_bytes(shape, cache) / mib:.1f} MiB: {cache.rows} rows of {cache.prefix} tokens, "
        f"{cache.lanes} lanes of {cache.suffix}",
        f"update          packed streams of at most {config.learn.tokens_per_microbatch:,} tokens, "
        f"{config.learn.attention} attention",
    ]
    return "\n".join(lines)
