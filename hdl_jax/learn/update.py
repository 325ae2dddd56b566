"""The masked GRPO update: gradients summed over micro-batches, divided by the whole step's trained tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hdl_jax.learn import packing
from hdl_jax.learn.objective import surrogate
from hdl_jax.learn.packing import Batch, Streams
from hdl_jax.learn.state import TrainState
from hdl_jax.policy import flash
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.rollout.trajectory import Trajectory

SUMS = ("loss", "clipped", "kl", "tokens", "entropy", "gap", "max_gap")


def batch_logprobs(
    params: tr.Params, cfg: TransformerConfig, batch: Batch, temperature: float, attention: tr.PackedAttention
) -> tuple[Array, Array]:
    """Log-probability and entropy of each trained token given those before it in its path.

    Returns float32 [N] both, as the batch lists them; what stands behind its `count` means nothing.

    Args:
        temperature: the sampler's.
    """
    hidden = tr.packed_forward(params, cfg, jnp.asarray(batch.tokens), batch.layout, attention)
    return tr.token_logprobs(
        params, cfg, hidden[batch.source], jnp.asarray(batch.target), temperature, jnp.asarray(batch.count)
    )


def make_loss(
    cfg: TransformerConfig, update: Any, temperature: float
) -> Callable[[tr.Params, Batch, Array | None, Array], tuple[Array, dict[str, Array]]]:
    """The loss of a micro-batch, times `scale`, and its sums: (params, batch, old log-probs [N] or None, scale).

    Args:
        cfg: the policy's shape. update: the config's learn section. temperature: the sampler's.
    """
    attention = flash.ATTENTION[update.attention]

    def loss(params: tr.Params, batch: Batch, old: Array | None, scale: Array) -> tuple[Array, dict[str, Array]]:
        log_p, entropy = batch_logprobs(params, cfg, batch, temperature, attention)
        mask = jnp.arange(log_p.shape[0]) < batch.count
        before = jax.lax.stop_gradient(log_p) if old is None else old
        advantages = jnp.asarray(batch.advantage)
        total, sums = surrogate(log_p, before, advantages, mask, clip_low=update.clip_low, clip_high=update.clip_high)
        gap = jnp.where(mask, jnp.abs(before - batch.sampler), 0.0)
        entropies = jnp.where(mask, entropy, 0.0).sum()
        sums |= {"loss": total, "entropy": entropies, "gap": gap.sum(), "max_gap": gap.max()}
        return total * scale, jax.lax.stop_gradient(sums)

    return loss


class Updater:
    """The compiled pieces of an update, for one config.

    Args:
        cfg: the policy's shape. tx: the optimizer. update: the config's learn section. temperature: the sampler's.
        longest: tokens of the longest trajectory that will come.

    Attributes:
        attention: the attention that was found to run here, in words.
    """

    def __init__(
        self, cfg: TransformerConfig, tx: optax.GradientTransformation, update: Any, temperature: float, longest: int
    ):
        self.attention = flash.check(update.attention, cfg)
        self.streams = Streams(update.tokens_per_microbatch, longest, update.attention)
        self.minibatches = update.minibatches
        loss = make_loss(cfg, update, temperature)

        def accumulate(
            carry: tuple | None, params: tr.Params, batch: Batch, old: Array | None, scale: Array
        ) -> tuple[tr.Params, dict[str, Array]]:
            grads, sums = jax.grad(loss, has_aux=True)(params, batch, old, scale)
            if carry is None:
                return grads, sums
            carry_grads, carry_sums = carry
            merged = {k: (jnp.maximum if k == "max_gap" else jnp.add)(carry_sums[k], sums[k]) for k in SUMS}
            return jax.tree.map(jnp.add, carry_grads, grads), merged

        def apply(state: TrainState, grads: tr.Params) -> tuple[TrainState, Array]:
            updates, opt_state = tx.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            return TrainState(params, opt_state, state.step + 1), optax.tree.norm(grads)

        # The first micro-batch's gradient is what the others are added to: one that is the whole step needs no second.
        self._accumulate = jax.jit(accumulate, donate_argnums=0)
        self._apply = jax.jit(apply, donate_argnums=0)
        attention = flash.ATTENTION[update.attention]
        self._old = jax.jit(lambda params, batch: batch_logprobs(params, cfg, batch, temperature, attention)[0])

    def __call__(
        self, state: TrainState, groups: Sequence[Sequence[Trajectory]], advantages: Sequence[np.ndarray]
    ) -> tuple[TrainState, dict[str, float]]:
        """One update on all groups of a step: `minibatches` optimizer steps, each on an equal share of the groups.

        The denominator of an optimizer step is the trained tokens of its own share: of the whole step, with one.

        Args:
            state: donated. groups: each one's trajectories, roots first. advantages: of each group's trajectories.

        Returns:
            the new state and the `update/*` metrics. Where nothing is trained (every row masked), no optimizer step is
            taken and `update/skipped` is 1 (case L6).
        """
        families = [packing.families(group, [float(x) for x in a]) for group, a in zip(groups, advantages, strict=True)]
        edges = [i * len(groups) // self.minibatches for i in range(self.minibatches + 1)]
        parts = [range(a, b) for a, b in itertools.pairwise(edges)]
        packed = [packing.pack([f for i in part for f in families[i]], self.streams) for part in parts]
        # With one minibatch the old policy is the same forward pass; with more, all streams are passed once before the
        # first.
        old = [[self._old(state.params, b) if self.minibatches > 1 else None for b in bs] for bs in packed]
        totals, norms, skipped = dict.fromkeys(SUMS, 0.0), [], 0
        for part, batches, olds in zip(parts, packed, old, strict=True):
            denominator = packing.trained_tokens(t for i in part for t in groups[i])
            if not denominator:
                skipped += 1
                continue
            carry = None
            for batch, before in zip(batches, olds, strict=True):
                carry = self._accumulate(carry, state.params, batch, before, np.float32(1 / denominator))
            assert carry is not None
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
        """Compiles the programs of all streams, so that no step has to."""
        for length in self.streams.lengths:
            for batch in packing.empty(self.streams, length):
                old = self._old(state.params, batch) if self.minibatches > 1 else None
                if length == self.streams.tokens:  # what a step begins with
                    carry = self._accumulate(None, state.params, batch, old, np.float32(1))
                carry = self._accumulate(carry, state.params, batch, old, np.float32(1))
        jax.block_until_ready(self._apply(jax.tree.map(jnp.copy, state), carry[0]))
