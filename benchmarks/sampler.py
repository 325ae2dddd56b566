"""Our sampler against Hugging Face `generate` and google-tunix's, and decoding against this machine's own ceilings.

    python -m benchmarks.sampler [--only transformers|tunix|shared_prefix|ceiling]

SmolLM2-135M's shape, random weights, the same on every side (checked by log-probabilities), float32, temperature 1 over
the whole vocabulary, no early stop. Tokens/s are new tokens over the wall-clock of prefill and decode together, warm;
the sides are measured in turn, each alone on the machine.

Figures, each ours / theirs: sampler/vs_transformers and sampler/vs_tunix (16 prompts of 64, 128 new tokens each);
sampler/vs_tunix_shared_prefix (16 lanes from one prompt of 512, which tunix prefills 16 times). And, for decoding 16
and 64 lanes, sampler/ceiling_share: the least time that the measured ceilings allow over the time taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from benchmarks import ceilings as limits
from benchmarks import common, peers
from benchmarks.peers import agreement, weights
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig

PARTS = ("transformers", "tunix", "shared_prefix", "ceiling")
SEED = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """What is sampled: `lanes` from each of `families` prompts of `prompt` tokens, `new` tokens each."""

    families: int
    lanes: int
    prompt: int
    new: int

    @property
    def new_tokens(self) -> int:
        return self.families * self.lanes * self.new


def sampled(engine: common.Engine, cfg: TransformerConfig, case: Case) -> Callable[[], float]:
    """Ours: a run of the case, which returns its seconds. Every run draws with other keys."""
    prompts = list(common.prompts(cfg, case.families, case.prompt))
    steps = itertools.count()

    def run() -> float:
        time.sleep(peers.SETTLE_S)
        step, out = next(steps), []
        seconds = common.seconds_of(
            lambda: out.extend(common.sample(engine, prompts, lanes=case.lanes, new_tokens=case.new, step=step))
        )
        made = sum(len(lane.tokens) for family in out for lane in family)
        if made != case.new_tokens:
            raise RuntimeError(f"ours sampled {made} tokens, not {case.new_tokens}")
        return seconds

    return run


def asked(peer: peers.Process, cfg: TransformerConfig, case: Case) -> Callable[[], float]:
    """A peer's run of the same case; it is given every lane's prompt."""
    prompts = np.repeat(common.prompts(cfg, case.families, case.prompt), case.lanes, axis=0).tolist()
    seeds = itertools.count()

    def run() -> float:
        answer = peer.ask("sample", prompts=prompts, new_tokens=case.new, seed=next(seeds))
        if answer["new_tokens"] != case.new_tokens:
            raise peers.PeerMissing(f"it sampled {answer['new_tokens']} tokens, not {case.new_tokens}")
        return float(answer["seconds"])

    return run


@contextlib.contextmanager
def peer(name: str, params: tr.Params, cfg: TransformerConfig) -> Iterator[peers.Process]:
    """The peer's sampler with our weights, once it has been seen to compute what we compute."""
    spec = {
        "weights": str(weights.write(params, cfg, SEED)),
        "shape": dataclasses.asdict(cfg),
        "threads": common.cores(),
    }
    with peers.Process(peers.environment(name), f"{name}_sampler", spec) as process:
        agreement.check(f"sampler/logprob_difference_{name}", process, params, cfg)
        yield process


def compare(name: str, figure: str, params: tr.Params, cfg: TransformerConfig, case: Case, repeats: int) -> None:
    """Prints the figure ours / theirs in tokens/s, or why there is none."""
    engine = common.make_engine(cfg, families=case.families, lanes=case.lanes, prefix=case.prompt, suffix=case.new)
    engine.load(params)
    engine.warm_up()
    try:
        with peer(name, params, cfg) as process:
            times = common.interleaved(
                {"ours": sampled(engine, cfg, case), "theirs": asked(process, cfg, case)},
                repeats=repeats,
                measure=lambda run: run(),
            )
            extra = {"versions": process.hello["versions"], "settings": process.hello["settings"]}
    except peers.PeerMissing as missing:
        return common.figure(figure, None, "x", reason=str(missing))
    common.figure(
        figure,
        unit="x",
        **common.ratio(times["theirs"], times["ours"]),
        ours_tokens_per_s=case.new_tokens / times["ours"].median,
        theirs_tokens_per_s=case.new_tokens / times["theirs"].median,
        ours_spread=times["ours"].spread,
        theirs_spread=times["theirs"].spread,
        **extra,
    )
    return None


def ceiling_share(
    params: tr.Params, cfg: TransformerConfig, ceilings: limits.Ceilings, case: Case, repeats: int
) -> None:
    """Decode steps of a case against the ceiling. Prefill and the first step are timed apart and taken off."""
    engine = common.make_engine(cfg, families=case.families, lanes=case.lanes, prefix=case.prompt, suffix=case.new)
    engine.load(params)
    engine.warm_up()
    first = dataclasses.replace(case, new=1)
    times = common.interleaved(
        {"whole": sampled(engine, cfg, case), "first": sampled(engine, cfg, first)},
        repeats=repeats,
        measure=lambda run: run(),
    )
    steps, lanes = case.new - 1, case.families * case.lanes
    decode = times["whole"].median - times["first"].median
    contexts = range(case.prompt + 1, case.prompt + case.new)
    least = limits.decode_ceiling_seconds(cfg, ceilings, lanes, contexts)
    read = sum(limits.decode_step_bytes(cfg, lanes, n) for n in contexts) / decode
    rate = sum(limits.decode_step_operations(cfg, lanes, n) for n in contexts) / decode
    peak = limits.published(jax.devices()[0].device_kind)
    published = {"published_bandwidth_share": read / 1e9 / peak.read_gbs,
                 "published_flops_share": rate / 1e12 / peak.tflops} if peak else {}  # fmt: skip
    common.figure(
        "sampler/ceiling_share", least / decode, "of the ceiling", lanes=lanes, prompt=case.prompt, steps=steps,
        dtype=cfg.dtype, decode_tokens_per_s=lanes * steps / decode, ms_per_step=1e3 * decode / steps,
        ceiling_ms_per_step=1e3 * least / steps, achieved_gb_per_s=read / 1e9, achieved_gflop_per_s=rate / 1e9,
        repeats=repeats, spread=times["whole"].spread, **published,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.arguments(__doc__, repeats=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure these parts only")
    args = parser.parse_args(argv)
    common.start("sampler")
    cfg = common.policy(tiny=args.tiny)
    params = common.random_params(cfg, SEED)
    small = dict(prompt=8, new=4) if args.tiny else dict(prompt=64, new=128)
    batch = Case(families=16, lanes=1, **small)
    shared = dataclasses.replace(batch, families=1, lanes=16, prompt=8 * batch.prompt)
    on_cpu = jax.default_backend() == "cpu"
    for part, name, figure, case in (
        ("transformers", "transformers", "sampler/vs_transformers", batch),
        ("tunix", "tunix", "sampler/vs_tunix", batch),
        ("shared_prefix", "tunix", "sampler/vs_tunix_shared_prefix", shared),
    ):
        if part not in args.only:
            continue
        if args.tiny or not on_cpu:
            common.figure(figure, None, "x", reason="toy sizes" if args.tiny else "peers are measured on CPUs only")
        else:
            compare(name, figure, params, cfg, case, args.repeats)
    if "ceiling" in args.only:
        ceilings = limits.measure(repeats=max(5, args.repeats), tiny=args.tiny)
        limits.report(ceilings, max(5, args.repeats))
        for families in (4, 8) if args.tiny else (16, 64):
            ceiling_share(params, cfg, ceilings, dataclasses.replace(batch, families=families), args.repeats)
    common.finish()


if __name__ == "__main__":
    main()
