"""From a config to the things a run is made of: domain, chat, weights, engine. Shared by the mains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hdl_jax import config as config_lib
from hdl_jax.domains.code import Code
from hdl_jax.domains.custom import Custom
from hdl_jax.domains.domain import Domain
from hdl_jax.domains.errands import Errands
from hdl_jax.domains.kept import Kept
from hdl_jax.domains.math import Math
from hdl_jax.domains.reasoning import Reasoning
from hdl_jax.domains.sandbox import Limits, open_sandbox
from hdl_jax.policy.chat import Chat
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.policy.source import Policy, open_policy
from hdl_jax.sampling.engine import Engine


def _code(d: Any) -> Code:
    limits = Limits(wall_s=d.limit_s, budget_s=d.budget_s, memory_mb=d.memory_mb)
    sandbox = open_sandbox(d.isolation, limits, d.workers, d.python)
    print(f"programs run in {sandbox.description}", file=sys.stderr, flush=True)
    return Code(d.data, d.train, d.instruction, sandbox)


# From config.domain.
DOMAINS: dict[str, Callable[[Any], Domain]] = {
    "errands": lambda _: Errands(),
    "reasoning": lambda _: Reasoning(),
    "math": lambda d: Math(d.data, d.train, d.instruction, d.workers, d.limit_s),
    "code": _code,
    "custom": lambda d: Custom(d.data, d.eval_data, d.reward, d.workers, d.limit_s),
}


def make_domain(config: Any) -> Domain:
    """The config's domain, its `train` split cut down to what a filter kept.

    Raises:
        ValueError: there is no such domain; names the known ones. As the domains and `Kept` do, too.
        FileNotFoundError, ImportError: as the domains do.
    """
    if config.domain.name not in DOMAINS:
        raise ValueError(f"domain.name={config.domain.name!r}: must be one of {', '.join(DOMAINS)}")
    domain = DOMAINS[config.domain.name](config.domain)
    return Kept(domain, Path(config.domain.kept)) if config.domain.kept else domain


def make_policy(config: Any) -> Policy:
    """The config's policy, its weights not yet read. Raises as `open_policy` does."""
    policy = config.policy
    return open_policy(policy.source, dtype=policy.dtype, system=policy.system, thinking=policy.thinking)


def make_engine(config: Any, shape: TransformerConfig) -> Engine:
    """An engine of the config's sizes for a policy of that shape, without weights yet."""
    engine = config.engine
    return Engine(
        shape,
        config_lib.cache_shape(config),
        seed=config.seed,
        tile=engine.tile,
        width=engine.width,
        chunks=engine.chunks,
        steps=engine.steps,
        workers=engine.workers,
    )


def check_sizes(config: Any, domain: Domain) -> None:
    """Refuses a step or an oracle of more problems than the data has, before it starts. Raises ValueError."""
    first = config_lib.eval_sets(config)[0][0]
    for name, wanted, split in (
        ("rollout.problems_per_step", config.rollout.problems_per_step, "train"),
        ("oracle.problems", config.oracle.problems, first),
    ):
        there = len(domain.problems(split))
        if wanted > there:
            raise ValueError(f"{name}={wanted}, but {domain.name}/{split} has {there} problems")


def check_prompts(config: Any, domain: Domain, chat: Chat, splits: Sequence[str]) -> dict[str, int]:
    """Renders every prompt of some splits, before any work.

    Returns:
        the longest prompt of each split, in tokens.

    Raises:
        ValueError: a prompt is longer than `rollout.max_prompt_tokens`; names the problem. Or a split is unknown.
    """
    longest = {}
    limit = config.rollout.max_prompt_tokens
    for split in splits:
        longest[split] = 0
        for problem in domain.problems(split):
            n = len(chat.prompt(domain.start(problem).opening()))
            longest[split] = max(longest[split], n)
            if n > limit:
                raise ValueError(
                    f"{problem.id}: its prompt has {n} tokens, more than rollout.max_prompt_tokens={limit}: raise it, "
                    "or drop the problem from the data"
                )
    return longest
