"""One whole GRPO step with google-tunix's learner, in its own environment; see protocol.py for how it is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from tunix.rl import rl_cluster
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rollout.base_rollout import RolloutConfig

from benchmarks.peers import tunix_model
from benchmarks.peers.protocol import Channel, peak_rss_bytes, specification


def main() -> None:
    channel, spec = Channel(), specification()
    model, o = tunix_model.load(spec), spec["optimizer"]
    mesh = Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    cluster = rl_cluster.RLCluster(
        actor=model,
        tokenizer=tunix_model.Ids(),
        cluster_config=rl_cluster.ClusterConfig(
            role_to_mesh=dict.fromkeys(rl_cluster.Role, mesh),
            training_config=rl_cluster.RLTrainingConfig(
                actor_optimizer=optax.chain(
                    optax.clip_by_global_norm(o["max_grad_norm"]),
                    optax.adamw(o["learning_rate"], b1=o["beta1"], b2=o["beta2"], weight_decay=o["weight_decay"]),
                ),
                eval_every_n_steps=1 << 30,
                max_steps=1 << 30,
                mini_batch_size=spec["prompts"],
                train_micro_batch_size=spec["prompts"],
            ),
            rollout_config=RolloutConfig(
                max_tokens_to_generate=spec["new"],
                max_prompt_length=spec["prompt"],
                kv_cache_size=spec["prompt"] + spec["new"],
                temperature=1.0,
                top_p=1.0,
                top_k=None,
            ),
        ),
    )
    new_tokens: list[int] = []

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        new_tokens.append(sum(len(c.split()) for c in completions))
        return [float(i % 2) for i in range(len(prompts))]

    def steps() -> Iterator[dict[str, np.ndarray]]:
        """A batch for every step that is asked for. The learner wants the next one when it is done with the last."""
        while (request := channel.hear()) is not None:
            if request["do"] == "log_probs":
                channel.say(tunix_model.log_probs(model, request["tokens"]))
                continue
            begun = time.perf_counter()
            yield {"prompts": np.asarray([" ".join(map(str, p)) for p in request["prompts"]])}
            trainer = cluster.actor_trainer
            jax.block_until_ready((nnx.state(trainer.model), nnx.state(trainer.optimizer)))
            channel.say(
                {
                    "seconds": time.perf_counter() - begun,
                    "new_tokens": new_tokens.pop(),
                    "peak_rss_bytes": peak_rss_bytes(),
                }
            )

    learner = GRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(num_generations=spec["generations"], num_iterations=1, beta=0.0),
        reward_fns=reward,
    )
    settings = {"micro_batch": "all", "remat": spec["remat"], "beta": 0.0, "cache": "prompt + new tokens, exactly"}
    channel.say({"versions": tunix_model.versions(), "settings": settings, "rope_theta": tunix_model.ROPE_THETA})
    with mesh:
        learner.train(steps())


if __name__ == "__main__":
    main()
