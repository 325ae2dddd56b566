"""What training carries from step to step: parameters, optimizer state, step number."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hdl_jax.policy.transformer import Params


@flax.struct.dataclass
class TrainState:
    """params: float32 master weights; opt_state: optax's; step: int32 scalar, optimizer updates done."""

    params: Params
    opt_state: Any
    step: Array


def optimizer(update: Any) -> optax.GradientTransformation:
    """AdamW at a constant rate behind a clip of the global gradient norm; every parameter decays, norms too.

    Args:
        update: the config's learn section.
    """
    return optax.chain(
        optax.clip_by_global_norm(update.max_grad_norm),
        optax.adamw(update.learning_rate, b1=update.beta1, b2=update.beta2, weight_decay=update.weight_decay),
    )


def create(params: Params, tx: optax.GradientTransformation) -> TrainState:
    """A fresh state around a copy of the parameters (the update donates its state)."""
    params = jax.tree.map(lambda p: jnp.array(p, jnp.float32, copy=True), params)
    return TrainState(params, tx.init(params), jnp.zeros((), jnp.int32))
