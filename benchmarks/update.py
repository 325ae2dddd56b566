"""The update: a shared prefix forwarded once, against rows that each carry their own. python -m benchmarks.update

Families of a 64-token prompt, a root of 256 tokens and seven continuations that leave it uniformly, every trajectory of
320 tokens; then everything four times as long (1,280). A side is the gradient of one micro-batch, compiled and warm:

* shared: a packed stream of whole families;
* rows: whole padded rows through dense causal attention;
* alone: the packed program with every trajectory as a family of its own.

`update/speedup` is against the faster of the last two, `update/peak_memory_ratio` against the smaller temporaries of
the two by `compiled.memory_analysis()`. About 3 minutes on 2 CPU cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from hdl_jax import config as config_lib
from hdl_jax.domains.domain import Verdict
from hdl_jax.learn import packing
from hdl_jax.learn.update import make_loss
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.rollout.trajectory import Trajectory

SKETCH = TransformerConfig(vocab_size=2048, d_model=192, n_layers=4, n_heads=6, n_kv_heads=2, head_dim=32, d_ff=512)
PROMPT, ROOT, CONTINUATIONS = 64, 256, 7


def family(rng: np.random.Generator, vocabulary: int, times: int) -> list[Trajectory]:
    """A root and its continuations, all of one length, forks uniform over the root's generated tokens."""
    prompt, length = PROMPT * times, (PROMPT + ROOT) * times
    root = rng.integers(0, vocabulary, length)
    out = []
    for fork in [0, *np.sort(rng.integers(prompt, length, CONTINUATIONS)).tolist()]:
        tokens = np.where(np.arange(length) < fork, root, rng.integers(0, vocabulary, length)) if fork else root
        out.append(
            Trajectory(
                tokens=tokens.astype(np.int32),
                generated=np.arange(length) >= prompt,
                log_probs=rng.normal(-2, 1, length).astype(np.float32),
                prompt_length=prompt,
                fork=fork or prompt,
                turns=(),
                verdict=Verdict(0.5, False, ""),
                truncated=False,
                origin=0 if fork else None,
            )
        )
    return out


def packed_side(cfg: TransformerConfig, found: list[packing.Family], length: int) -> tuple[Callable, tuple]:
    """The gradient program of a stream that holds these families, and its batch."""
    streams = packing.Streams(length, length)
    (batch,) = packing.pack(found, streams)
    loss = make_loss(cfg, config_lib.default().learn, 1.0)

    def gradient(params: tr.Params, batch: packing.Batch) -> tr.Params:
        return jax.grad(loss, has_aux=True)(params, batch, None, 1 / jnp.float32(batch.count))[0]

    return gradient, (batch,)


def row_side(cfg: TransformerConfig, rows: list[Trajectory], advantages: list[float]) -> tuple[Callable, tuple]:
    """The same gradient over whole rows: dense causal attention, the head at every position."""
    tokens = np.stack([t.tokens for t in rows])
    mask = np.stack([t.trained for t in rows])
    scale = np.asarray(advantages, np.float32)[:, None] / mask.sum()

    def gradient(params: tr.Params, tokens: jax.Array, weight: jax.Array) -> tr.Params:
        def loss(params: tr.Params) -> jax.Array:
            hidden = tr.forward(params, cfg, tokens)
            log_p, _ = tr.token_logprobs(params, cfg, hidden[:, :-1], tokens[:, 1:])
            return -(log_p * weight[:, 1:]).sum()

        return jax.grad(loss)(params)

    return gradient, (tokens, (mask * scale).astype(np.float32))


def measure(cfg: TransformerConfig, times: int, count: int, repeats: int) -> None:
    """Measures and prints the figures of `count` families at `times` the length."""
    rng = np.random.default_rng(times)
    groups = [family(rng, cfg.vocab_size, times) for _ in range(count)]
    advantages = [rng.normal(size=len(group)).tolist() for group in groups]
    shared = [f for group in zip(groups, advantages, strict=True) for f in packing.families(*group)]
    rows, row_advantages = [t for group in groups for t in group], [a for each in advantages for a in each]
    alone = [
        packing.Family(t.tokens, (packing.Member(t, a, 0, True),)) for t, a in zip(rows, row_advantages, strict=True)
    ]
    sizes = {"shared": sum(f.size for f in shared), "alone": sum(len(t.tokens) for t in rows)}
    sides = {
        "shared": packed_side(cfg, shared, sizes["shared"]),
        "alone": packed_side(cfg, alone, sizes["alone"]),
        "rows": row_side(cfg, rows, row_advantages),
    }
    params = common.random_params(cfg)
    compiled = {name: jax.jit(f).lower(params, *args).compile() for name, (f, args) in sides.items()}
    runs = {name: (lambda name=name: compiled[name](params, *sides[name][1])) for name in sides}
    reference = runs["rows"]()
    norm = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(reference))
    for name in ("shared", "alone"):
        gaps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), runs[name](), reference)
        worst = max(jax.tree.leaves(gaps))
        if worst > 1e-5 * max(norm, 1.0) and cfg.dtype == "float32":
            raise RuntimeError(f"{name} gives another gradient than whole rows: {worst:.1e} of {norm:.1e}")
    timings = common.interleaved(runs, repeats=repeats)
    memory = {name: c.memory_analysis() for name, c in compiled.items()}
    temp = {name: m.temp_size_in_bytes for name, m in memory.items() if m is not None}
    faster = min(("alone", "rows"), key=lambda name: timings[name].median)
    setting = {
        "families": count,
        "trajectory_tokens": len(rows[0].tokens),
        "tokens": sizes,
        "token_ratio": sizes["alone"] / sizes["shared"],
    }
    ratio = common.ratio(timings[faster], timings["shared"])
    common.figure(
        "update/speedup",
        ratio.pop("value"),
        "x",
        **setting,
        **ratio,
        against=faster,
        seconds={name: common.sensible(t.median) for name, t in timings.items()},
    )
    common.figure(
        "update/peak_memory_ratio",
        temp["shared"] / min(temp["alone"], temp["rows"]),
        "of unpacked",
        **setting,
        temporaries_mib={name: round(n / 2**20, 1) for name, n in temp.items()},
    )


def main(argv: Sequence[str] | None = None) -> None:
    args = common.arguments(__doc__, repeats=5).parse_args(argv)
    common.start("update")
    cfg = common.TINY if args.tiny else SKETCH
    if jax.default_backend() != "cpu":
        cfg = dataclasses.replace(cfg, dtype="bfloat16")
    for times, count in ((1, 1),) if args.tiny else ((1, 2), (4, 1)):
        measure(cfg, times, count, args.repeats)
    common.finish()


if __name__ == "__main__":
    main()
