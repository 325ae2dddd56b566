"""The masked GRPO update: gradients summed over micro-batches, divided by the whole step's trained tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hdl_jax.learn import packing
from hdl_jax.learn.objective import surrogate
from hdl_jax.learn.packing import Batch, Buckets
from hdl_jax.learn.state import TrainState
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig

SUMS = ("loss", "clipped", "kl", "tokens", "entropy", "gap", "max_gap")


def row_logprobs(params: tr.Params, cfg: TransformerConfig, tokens: Array, temperature: float) -> tuple[Array, Array]:
    """Log-probability and entropy of each token given those before it.

    Returns float32 [B, T] both; index 0, which nothing predicts, is 0.

    Args:
        tokens: int32 [B, T]. temperature: the sampler's.
    """
    hidden = tr.forward(params, cfg, tokens)
    log_p, entropy = tr.token_logprobs(params, cfg, hidden[:, :-1], tokens[:, 1:], temperature)
    return jnp.pad(log_p, ((0, 0), (1, 0))), jnp.pad(entropy, ((0, 0), (1, 0)))


class Updater:
    """The compiled pieces of an update, for one config.

    Args:
        cfg: the policy's shape. tx: the optimizer. update: the config's learn section. temperature: the sampler's.
    """

    def __init__(self, cfg: TransformerConfig, tx: optax.GradientTransformation, update: Any, temperature: float):
        self.buckets = Buckets(tuple(update.row_lengths), update.tokens_per_microbatch)
        self.minibatches = update.minibatches
        log_probs = functools.partial(row_logprobs, cfg=cfg, temperature=temperature)

        def accumulate(params: tr.Params, carry: tuple, batch: Batch, old: Array | None, scale: Array) -> tuple:
            tokens, mask, advantages = (jnp.asarray(x) for x in (batch.tokens, batch.mask, batch.advantages))

            def loss(params: tr.Params) -> tuple[Array, dict[str, Array]]:
                log_p, entropy = log_probs(params, tokens=tokens)
                before = jax.lax.stop_gradient(log_p) if old is None else old
                total, sums = surrogate(
                    log_p, before, advantages, mask, clip_low=update.clip_low, clip_high=update.clip_high
                )
                gap = jnp.where(mask, jnp.abs(before - batch.sampler), 0.0)
                sums |= {
                    "loss": total,
                    "entropy": jnp.where(mask, entropy, 0.0).sum(),
                    "gap": gap.sum(),
                    "max_gap": gap.max(),
                }
                return total * scale, jax.lax.stop_gradient(sums)

            grads, sums = jax.grad(loss, has_aux=True)(params)
            carry_grads, carry_sums = carry
            merged = {k: (jnp.maximum if k == "max_gap" else jnp.add)(carry_sums[k], sums[k]) for k in SUMS}
            return jax.tree.map(jnp.add, carry_grads, grads), merged

        def apply(state: TrainState, grads: tr.Params) -> tuple[TrainState, Array]:
            updates, opt_state = tx.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            return TrainState(params, opt_state, state.step + 1), optax.tree.norm(grads)

        self._accumulate = jax.jit(accumulate, donate_argnums=1)
        self._apply = jax.jit(apply, donate_argnums=0)
        self._old = jax.jit(lambda params, tokens: log_probs(params, tokens=tokens)[0])
        self._zeros = jax.jit(lambda params: (jax.tree.map(jnp.zeros_like, params), dict.fromkeys(SUMS, jnp.zeros(()))))

    def __call__(
        self, state: TrainState, trajectories: Sequence[packing.Trajectory], advantages: np.ndarray
    ) -> tuple[TrainState, dict[str, float]]:
        """One update on all trajectories of a step: `minibatches` optimizer steps, each on an equal share of them.

        The denominator of an optimizer step is the trained tokens of its own share: of the whole step, with one.

        Args:
            state: donated. trajectories: of all groups. advantages: float [N].

        Returns:
            the new state and the `update/*` metrics. Where nothing is trained (every row masked), no optimizer step is
            taken and `update/skipped` is 1 (case L6).
        """
        parts = [
            range(i * len(trajectories) // self.minibatches, (i + 1) * len(trajectories) // self.minibatches)
            for i in range(self.minibatches)
        ]
        packed = [
            packing.pack([trajectories[j] for j in part], [float(advantages[j]) for j in part], self.buckets)
            for part in parts
        ]
        # With one minibatch the old policy is the same forward pass; with more, all rows are passed once before the
        # first.
        old = [[self._old(state.params, b.tokens) if self.minibatches > 1 else None for b in bs] for bs in packed]
        totals, norms, skipped = dict.fromkeys(SUMS, 0.0), [], 0
        for part, batches, olds in zip(parts, packed, old, strict=True):
            denominator = packing.trained_tokens([trajectories[j] for j in part])
            if not denominator:
                skipped += 1
                continue
            carry = self._zeros(state.params)
            for batch, before in zip(batches, olds, strict=True):
                carry = self._accumulate(state.params, carry, batch, before, np.float32(1 / denominator))
            grads, sums = carry
            state, norm = self._apply(state, grads)
            sums, norm = jax.device_get((sums, norm))
            norms.append(float(norm))
            for k in SUMS:
                totals[k] = max(totals[k], float(sums[k])) if k == "max_gap" else totals[k] + float(sums[k])
        n = max(totals["tokens"], 1.0)
        return state, {
            "update/loss": totals["loss"] / n,
            "update/trained_tokens": int(totals["tokens"]),
            "update/clip_fraction": totals["clipped"] / n,
            "update/kl_to_old": totals["kl"] / n,
            "update/entropy": totals["entropy"] / n,
            "update/sampler_logprob_gap": totals["gap"] / n,
            "update/sampler_logprob_gap_max": totals["max_gap"],
            "update/grad_norm": float(np.mean(norms)) if norms else 0.0,
            "update/skipped": skipped,
        }

    def warm_up(self, state: TrainState) -> None:
        """Compiles every bucket's program, so that no step has to."""
        for length in self.buckets.lengths:
            batch = packing.empty(self.buckets, length)
            old = self._old(state.params, batch.tokens) if self.minibatches > 1 else None
            self._accumulate(state.params, self._zeros(state.params), batch, old, np.float32(1))
        scratch = jax.tree.map(jnp.copy, state)
        jax.block_until_ready(self._apply(scratch, self._zeros(state.params)[0]))
