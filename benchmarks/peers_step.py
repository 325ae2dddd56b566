"""One whole GRPO step against google-tunix: sampling, rewards, advantages, gradients, AdamW; and its peak memory.

    python -m benchmarks.peers_step [--remat NONE|BLOCK|DECODER]

SmolLM2-135M's shape, the same random weights, float32, 3 prompts x 4 generations, 64 + 128 tokens, no early stop, no
reference model, gradients of all 12 trajectories in one micro-batch. Each side is a process of its own that lives
through all steps; they step in turn, each alone on the machine. Peak memory is of the whole process, compilation
included.

Figures: peers_step/vs_tunix and peers_step/memory_ratio (ours / theirs), peers_step/peak_memory and
peers_step/tunix_peak_memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import common, peers
from benchmarks.peers import agreement, weights
from hdl_jax.policy.presets import TransformerConfig

SEED = 0
OPTIMIZER = {"learning_rate": 1e-6, "beta1": 0.9, "beta2": 0.98, "weight_decay": 0.1, "max_grad_norm": 1.0}


def specification(cfg: TransformerConfig, tiny: bool) -> dict[str, Any]:
    """What both sides are told."""
    size = (
        dict(prompts=2, generations=2, prompt=8, new=4) if tiny else dict(prompts=3, generations=4, prompt=64, new=128)
    )
    return {"shape": dataclasses.asdict(cfg), "seed": SEED, "optimizer": OPTIMIZER, **size}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.arguments(__doc__, repeats=3)
    parser.add_argument("--remat", choices=("NONE", "BLOCK", "DECODER"), default="NONE", help="tunix's remat_config")
    args = parser.parse_args(argv)
    common.start("peers_step")
    cfg = common.policy(tiny=args.tiny)
    spec = specification(cfg, args.tiny)
    prompts = common.prompts(cfg, spec["prompts"], spec["prompt"]).tolist()
    answers: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    wanted = spec["prompts"] * spec["generations"] * spec["new"]

    def side(name: str, process: peers.Process):
        def run() -> float:
            answer = process.ask("step", prompts=prompts)
            if answer["new_tokens"] != wanted:
                raise peers.PeerMissing(f"{name}: {answer['new_tokens']} tokens sampled and trained, not {wanted}")
            answers[name].append(answer)
            return float(answer["seconds"])

        return run

    missing = (
        "toy sizes" if args.tiny else None if jax.default_backend() == "cpu" else "peers are measured on CPUs only"
    )
    with contextlib.ExitStack() as running:
        ours = running.enter_context(peers.Process(Path(sys.executable), "our_step", spec))
        sides = {"ours": side("ours", ours)}
        theirs = None
        if missing is None:
            try:
                params = common.random_params(cfg, SEED)
                told = spec | {"weights": str(weights.write(params, cfg, SEED)), "remat": args.remat}
                theirs = running.enter_context(peers.Process(peers.environment("tunix"), "tunix_step", told))
                agreement.check("peers_step/logprob_difference", theirs, params, cfg)
                sides["theirs"] = side("theirs", theirs)
                # Two steps to warm up: the peer compiles again for the state that its first step returns.
                times = common.interleaved(sides, repeats=args.repeats, warm=2, measure=lambda run: run())
            except peers.PeerMissing as error:
                missing = str(error)
        if missing is not None:
            times = common.interleaved({"ours": sides["ours"]}, repeats=args.repeats, warm=1, measure=lambda run: run())
    report(times, answers, missing, theirs.hello if theirs else {})
    common.finish()


def report(
    times: dict[str, common.Timing],
    answers: dict[str, list[dict[str, Any]]],
    missing: str | None,
    hello: dict[str, Any],
) -> None:
    """The figures; `missing` says why there is nothing to compare with."""
    ours = times["ours"]
    peak = answers["ours"][-1]["peak_rss_bytes"]
    sampling = [a["sample_seconds"] for a in answers["ours"][-len(ours.seconds) :]]
    common.figure("peers_step/seconds", ours.median, "s", spread=ours.spread, repeats=len(ours.seconds),
                  sample_seconds=float(np.median(sampling)))  # fmt: skip
    common.figure("peers_step/peak_memory", peak / 1e9, "GB")
    if missing is not None:
        for name in ("vs_tunix", "memory_ratio"):
            common.figure(f"peers_step/{name}", None, "ours / theirs", reason=missing)
        return
    theirs, their_peak = times["theirs"], answers["theirs"][-1]["peak_rss_bytes"]
    common.figure("peers_step/tunix_seconds", theirs.median, "s", spread=theirs.spread, repeats=len(theirs.seconds),
                  versions=hello["versions"], settings=hello["settings"])  # fmt: skip
    common.figure("peers_step/tunix_peak_memory", their_peak / 1e9, "GB")
    common.figure("peers_step/vs_tunix", unit="ours / theirs", **common.ratio(ours, theirs))
    common.figure("peers_step/memory_ratio", peak / their_peak, "ours / theirs")


if __name__ == "__main__":
    main()
