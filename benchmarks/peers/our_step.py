"""One whole GRPO step with our engine and update, in a process of its own, as the peer's is; see protocol.py."""

from __future__ import annotations

import itertools
import time
from typing import Any

import jax
import numpy as np

from benchmarks import common
from benchmarks.peers.protocol import Channel, peak_rss_bytes, specification
from hdl_jax import config as config_lib
from hdl_jax.domains.domain import Verdict
from hdl_jax.host_memory import return_freed_blocks
from hdl_jax.learn import state as learn_state
from hdl_jax.learn.advantage import group_advantages
from hdl_jax.learn.update import Updater
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.rollout.trajectory import Trajectory
from hdl_jax.sampling.requests import LaneResult


def trajectory(prompt: np.ndarray, lane: LaneResult, reward: float) -> Trajectory:
    """The record of one sampled and rewarded lane."""
    n = len(prompt)
    return Trajectory(
        tokens=np.concatenate([prompt, lane.tokens]).astype(np.int32),
        generated=np.concatenate([np.zeros(n, bool), lane.generated]),
        log_probs=np.concatenate([np.zeros(n, np.float32), lane.log_probs]),
        prompt_length=n,
        fork=n,
        turns=(),
        verdict=Verdict(reward, reward > 0.5, ""),
        truncated=True,
    )


def main() -> None:
    return_freed_blocks()
    channel, spec = Channel(), specification()
    cfg, lanes, length, new = TransformerConfig(**spec["shape"]), spec["generations"], spec["prompt"], spec["new"]
    learn = config_lib.default().learn
    learn.update(spec["optimizer"])
    learn.tokens_per_microbatch = spec["prompts"] * (length + lanes * new)  # all of them: a prompt is forwarded once
    tx = learn_state.optimizer(learn)
    updater = Updater(cfg, tx, learn, temperature=1.0, longest=length + new)
    state = learn_state.create(common.random_params(cfg, spec["seed"]), tx)
    engine = common.make_engine(cfg, families=spec["prompts"], lanes=lanes, prefix=length, suffix=new)
    rewards = [float(i % 2) for i in range(lanes)]
    steps = itertools.count()

    def step(prompts: list[list[int]]) -> dict[str, Any]:
        nonlocal state
        begun = time.perf_counter()
        engine.load(state.params)
        rows = [np.asarray(p, np.int32) for p in prompts]
        families = common.sample(engine, rows, lanes=lanes, new_tokens=new, step=next(steps))
        engine.unload()
        sampled = time.perf_counter()
        groups = [
            [trajectory(row, lane, reward) for lane, reward in zip(family, rewards, strict=True)]
            for row, family in zip(rows, families, strict=True)
        ]
        advantages = group_advantages(rewards, [0] * lanes).tolist()
        state, metrics = updater(state, groups, [advantages] * len(groups))
        jax.block_until_ready(state)
        ended = time.perf_counter()
        return {
            "seconds": ended - begun,
            "sample_seconds": sampled - begun,
            "new_tokens": metrics["update/trained_tokens"],
            "peak_rss_bytes": peak_rss_bytes(),
        }

    channel.say(
        {"versions": {"jax": jax.__version__}, "settings": {"micro_batch": "all", "attention": learn.attention}}
    )
    channel.serve({"step": step})


if __name__ == "__main__":
    main()
