"""Compiles one packed gradient step for chips that are not here, and says what it takes of a device's memory.

    python -m benchmarks.aot --target=v5p:2x2x1 --attention=splash --preset=qwen3-1.7b --tokens=8192
    python -m benchmarks.aot --target=gb200:1x1x4 --attention=cudnn --preset=qwen3-8b --tokens=32768
    python -m benchmarks.aot --target=cpu --attention=xla --preset=smollm2-135m --tokens=4096
    python -m benchmarks.aot --table --target=gb200:1x4x4 --attention=cudnn     # all shapes and lengths, in Markdown

Each device has one stream of `--tokens` tokens; parameters, gradients and the optimizer's moments are sharded over all
devices (fsdp): a layer's weights are gathered when it runs and its gradients scattered. What is compiled is a
micro-batch's gradient, added to the step's. Compiling needs the chip's compiler and no chip: `pip install libtpu` for
TPUs, `pip install 'jax[cuda13]'` for NVIDIA (4.4 GB), at the installed jax's version, best in an environment apart.

Figures: aot/arguments, aot/temporaries and aot/device, bytes a device (the last with the optimizer's moments, which the
gradient does not touch), aot/predicted, what `predicted_bytes` says the temporaries are, and aot/kernels, calls of the
chip's own attention kernels in the program.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The compilers look for their chip first; they need not find one.
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import common
from hdl_jax.learn import packing
from hdl_jax.learn.objective import surrogate
from hdl_jax.mesh import FSDP, fsdp_mesh, parameter_specs
from hdl_jax.policy import flash, packed
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import PRESETS, TransformerConfig

SHAPES = {name: dataclasses.replace(cfg, dtype="bfloat16") for name, cfg in {**PRESETS, "tiny": common.TINY}.items()}
# Of the table.
MODELS = ("smollm2-135m", "qwen3-1.7b", "qwen3-8b")
LENGTHS = (4096, 8192, 32_768)
# What the kernels' calls look like in a lowered program.
KERNELS = {"splash": "custom_call @tpu_custom_call", "cudnn": "@__cudnn$fmha"}
GIB = 2**30


def devices_of(target: str) -> list[Any]:
    """The devices of a target: `cpu`, a TPU topology such as v5p:2x2x1, or gb200:1x1x4 (slices x hosts x GPUs)."""
    name, _, shape = target.partition(":")
    if name == "cpu":
        return jax.devices("cpu")[:1]
    if name != "gb200":
        return list(topologies.get_topology_desc(platform="tpu", topology_name=target).devices)
    facts = (Path(__file__).parent / "targets" / f"{name}.txtpb").read_text()
    described = topologies.get_topology_desc(
        platform="cuda", topology_name=name, topology=shape or "1x1x1", target_config=facts
    )
    return list(described.devices)


# ---- the program ----------------------------------------------------------------------------------------------------


def lower_step(cfg: TransformerConfig, attention: str, devices: list[Any], tokens: int, longest: int) -> Any:
    """Lowers the gradient of one stream of `tokens` a device, whose longest path has `longest`.

    Returns:
        a jax.stages.Lowered of (params, the step's gradients so far, streams [devices, ...]) -> gradients.
    """
    mesh, specs, abstract = fsdp_mesh(devices), parameter_specs(cfg, len(devices)), tr.abstract_params(cfg)
    stream = packing.empty(packing.Streams(tokens, longest, attention), tokens)[-1]

    def whole(params: Any, specs: Any) -> Any:
        """Gathers weights, in the dtype they are used in; backwards, gradients are summed and scattered."""

        def gather(p: jax.Array, spec: P) -> jax.Array:
            if FSDP not in spec:
                return p
            return jax.lax.all_gather(p.astype(cfg.dtype), FSDP, axis=p.ndim - 2, tiled=True)

        return jax.tree.map(gather, params, specs)

    def loss(params: tr.Params, batch: packing.Batch) -> jax.Array:
        outer = {name: whole(p, specs[name]) for name, p in params.items() if name != "blocks"}

        # tr.packed_forward, which knows of no mesh, with each layer's weights gathered.
        @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*packed.SAVED))
        def layer(x: jax.Array, block: tr.Params) -> tuple[jax.Array, None]:
            def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, None]:
                return flash.ATTENTION[attention](q, k, v, batch.layout), None

            block = whole(block, specs["blocks"])
            return tr.Block(cfg).apply({"params": block}, x, batch.layout.positions, attend)[0], None

        hidden, _ = jax.lax.scan(layer, tr.embed(outer, cfg, jnp.asarray(batch.tokens)), params["blocks"])
        log_p, _ = tr.token_logprobs(
            outer, cfg, hidden[batch.source], jnp.asarray(batch.target), count=jnp.asarray(batch.count)
        )
        trained = jnp.arange(tokens) < batch.count
        old = jax.lax.stop_gradient(log_p)
        return surrogate(log_p, old, jnp.asarray(batch.advantage), trained, clip_low=0.2, clip_high=0.28)[0]

    def step(params: tr.Params, grads: tr.Params, streams: packing.Batch) -> tr.Params:
        mine = jax.tree.map(lambda x: x[0], streams)
        return jax.tree.map(jnp.add, grads, jax.grad(loss)(params, mine))

    run = jax.shard_map(step, mesh=mesh, in_specs=(specs, specs, P(FSDP)), out_specs=specs, check_vma=False)

    def on(spec: P, x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(on, specs, abstract)
    streams = jax.tree.map(
        lambda x: on(P(FSDP), jax.ShapeDtypeStruct((len(devices), *np.shape(x)), np.asarray(x).dtype)), stream
    )
    return jax.jit(run, donate_argnums=1).lower(params, params, streams)


# ---- what it takes --------------------------------------------------------------------------------------------------


def bytes_a_token(cfg: TransformerConfig, attention: str) -> dict[str, int]:
    """Temporary bytes of the step that grow with the stream, for each of its tokens.

    `kept`: the input of every layer; with xla also the attention's output and log-sum-exp, which the backward pass does
    not compute again. `layer`: what the layer holds that is being differentiated. `edge`: hidden states before the
    first and behind the last layer, and their gradients.
    """
    size = jnp.dtype(cfg.dtype).itemsize
    q, kv = cfg.n_heads * cfg.head_dim, cfg.n_kv_heads * cfg.head_dim
    kept = cfg.d_model * size + (q * size + 4 * cfg.n_heads if attention == "xla" else 0)
    # Gate, up, their product and the gradients of the three; q, k, v and the output, which kernels have once more in
    # rows of flash.SLOTS as many slots.
    layer = 6 * cfg.d_ff * size + (1 if attention == "xla" else 1 + flash.SLOTS) * 2 * (q + kv) * size
    return {"kept": cfg.n_layers * kept, "layer": layer, "edge": 4 * cfg.d_model * size}


def predicted_bytes(cfg: TransformerConfig, attention: str, tokens: int, devices: int) -> int:
    """Temporary bytes a device: what grows with the stream, the gradients before they are added to the step's, and the
    larger of two phases: a layer with its gathered weights and their gradients, or the head with those and its logits.
    """
    size, growing = jnp.dtype(cfg.dtype).itemsize, bytes_a_token(cfg, attention)
    abstract = tr.abstract_params(cfg)
    weights = sum(p.size // p.shape[0] for p in jax.tree.leaves(abstract["blocks"]))
    layer = tokens * growing["layer"] + 2 * size * weights
    # A tied table's gradient is the sum of two, that of the lookup in float32.
    table = (2 * size + 2 * 4 if cfg.tie_embeddings else 2 * size) * cfg.vocab_size * cfg.d_model
    head = table + 3 * 4 * min(tr.HEAD_ELEMENTS, tr.HEAD_POSITIONS * cfg.vocab_size)
    gradients = 4 * tr.parameter_count(abstract) // devices
    return tokens * (growing["kept"] + growing["edge"]) + gradients + max(layer, head)


def measure(cfg: TransformerConfig, attention: str, target: str, tokens: int, longest: int) -> dict[str, int]:
    """Compiles, and returns bytes a device: arguments, temporaries, predicted, device; and kernels, the calls."""
    devices = devices_of(target)
    lowered = lower_step(cfg, attention, devices, tokens, longest)
    memory = lowered.compile().memory_analysis()
    moments = 2 * 4 * tr.parameter_count(tr.abstract_params(cfg)) // len(devices)
    return {
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "predicted": predicted_bytes(cfg, attention, tokens, len(devices)),
        "device": memory.argument_size_in_bytes + memory.temp_size_in_bytes + moments,
        "kernels": lowered.as_text().count(KERNELS[attention]) if attention in KERNELS else 0,
    }


def table(attention: str, target: str) -> None:
    """Prints all models and lengths in Markdown."""
    print(f"`{target}`, {len(devices_of(target))} devices, attention `{attention}`, jax {jax.__version__}\n")
    print("| model | tokens a device | state | temporaries | predicted | in all | kept | layer | edge |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in MODELS:
        cfg = SHAPES[name]
        for tokens in LENGTHS:
            got = measure(cfg, attention, target, tokens, tokens)
            state = got["device"] - got["temporaries"]
            sizes = (state, got["temporaries"], got["predicted"], got["device"])
            cells = [f"{b / GIB:.2f} GiB" for b in sizes] + [f"{b:,}" for b in bytes_a_token(cfg, attention).values()]
            print(f"| {name} | {tokens:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="cpu, a TPU topology, or gb200:slices x hosts x GPUs")
    parser.add_argument("--attention", default="xla", choices=flash.ATTENTION)
    parser.add_argument("--preset", default="smollm2-135m", choices=SHAPES)
    parser.add_argument("--tokens", type=int, default=8192, help="of a device's stream (default %(default)s)")
    parser.add_argument("--longest", type=int, default=0, help="longest path in it (default: all of it)")
    parser.add_argument("--table", action="store_true", help="all models and lengths")
    args = parser.parse_args()
    if args.table:
        return table(args.attention, args.target)
    got = measure(SHAPES[args.preset], args.attention, args.target, args.tokens, args.longest or args.tokens)
    settings = {k: getattr(args, k) for k in ("target", "attention", "preset", "tokens", "longest")}
    for name, value in got.items():
        common.figure(f"aot/{name}", value, "calls" if name == "kernels" else "bytes", settings=settings)


if __name__ == "__main__":
    main()
