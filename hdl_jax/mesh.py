"""Meshes of devices and how the training state lies on them.

    fsdp            all devices in one line; every matrix is cut along its rows where the devices divide them:

    blocks/q/kernel [L, D, H * d]    device i has rows i * D/n .. (i + 1) * D/n of every layer
    embed           [V, D]           device i has V/n tokens of the table
    norm            [D]              vectors are whole on every device

A layer's matrices are gathered when it runs and its gradients scattered; nothing else of a layer is ever whole.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig

FSDP = "fsdp"


def fsdp_mesh(devices: Sequence[Any]) -> Mesh:
    """All devices in one line, the axis FSDP."""
    # Built by hand: jax.make_mesh makes axes explicit, and refuses devices of several slices.
    return Mesh(np.array(devices), (FSDP,), axis_types=(AxisType.Auto,))


def parameter_specs(cfg: TransformerConfig, devices: int) -> tr.Params:
    """The rule: a tree like the parameters, of PartitionSpecs over so many devices."""

    def spec(path: tuple[jax.tree_util.DictKey, ...], p: jax.ShapeDtypeStruct) -> P:
        stacked = path[0].key == "blocks"
        cut = p.ndim == (3 if stacked else 2) and p.shape[-2] % devices == 0
        return P(*(None,) * (p.ndim - 2), FSDP) if cut else P()

    return jax.tree_util.tree_map_with_path(spec, tr.abstract_params(cfg))


def parameter_shardings(cfg: TransformerConfig, mesh: Mesh) -> tr.Params:
    """A tree like the parameters, of NamedShardings on a mesh of `fsdp_mesh`."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), parameter_specs(cfg, mesh.shape[FSDP]))


def bytes_a_device(cfg: TransformerConfig, devices: int) -> dict[str, int]:
    """What one of so many devices holds of the policy and its training state; none of them needs to be here.

    Returns:
        bytes of `parameters`, `gradients` and the optimizer's two `moments`, float32 and sharded, and of `sampling`:
        the sampling layout in cfg.dtype, which every device has whole.
    """
    abstract = tr.abstract_params(cfg)
    held = jax.tree.map(
        lambda p, spec: p.size // (devices if FSDP in spec else 1), abstract, parameter_specs(cfg, devices)
    )
    parameters = 4 * sum(jax.tree.leaves(held))
    sampling = jax.eval_shape(functools.partial(tr.sampling_layout, cfg=cfg), abstract)
    return {
        "parameters": parameters,
        "gradients": parameters,
        "moments": 2 * parameters,
        "sampling": sum(p.size * jnp.dtype(p.dtype).itemsize for p in jax.tree.leaves(sampling)),
    }
