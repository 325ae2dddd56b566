"""Sampling many lanes from one prefix: the prefix stored and read once, against as many separate prompts.

    python -m benchmarks.prefix            16 lanes, 1,024-token prefix, 128 new tokens, 135M shape

Both sides are this engine; they sample the same tokens from the same keys. prefix/speedup is prefill + decode time;
prefix/max_logprob_difference compares the log-probs that both recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from benchmarks import common
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Lane, LaneResult, Sample

SEED = 0


def job(families: Sequence[tuple[np.ndarray, tuple[Lane, ...]]]):
    """Samples all families at once."""
    return (yield [Sample(prefix, lanes, "root") for prefix, lanes in families])


def main(argv: Sequence[str] | None = None) -> None:
    args = common.arguments(__doc__, repeats=3).parse_args(argv)
    common.start("prefix")
    cfg = common.policy(tiny=args.tiny)
    params = common.random_params(cfg, SEED)
    lanes, length, new = (4, 24, 4) if args.tiny else (16, 1024, 128)
    prefix = common.prompts(cfg, 1, length, SEED)[0]
    paths = [Lane((Stream.ROOT, 0, 0, length, 0, i), length, new, 1.0, common.NEVER) for i in range(lanes)]
    families: dict[str, list[tuple[np.ndarray, tuple[Lane, ...]]]] = {
        "shared": [(prefix, tuple(paths))],
        "separate": [(prefix, (path,)) for path in paths],
    }
    engines = {
        name: common.make_engine(cfg, families=len(f), lanes=lanes // len(f), prefix=length, suffix=new)
        for name, f in families.items()
    }
    results: dict[str, list[LaneResult]] = {}

    def run(name: str) -> None:
        answers = engines[name].run([job(families[name])], 0)[0]
        results[name] = [lane for family in answers for lane in family]

    for engine in engines.values():
        engine.load(params)
        engine.warm_up()
    times = common.interleaved(
        {name: functools.partial(run, name) for name in families}, repeats=args.repeats, measure=common.seconds_of
    )
    pairs = list(zip(results["shared"], results["separate"], strict=True))
    same = sum(np.array_equal(a.tokens, b.tokens) for a, b in pairs)
    # A token drawn differently by a rounded sum would end the comparison of that lane there.
    ends = [
        len(a.tokens) if np.array_equal(a.tokens, b.tokens) else int(np.argmin(a.tokens == b.tokens)) for a, b in pairs
    ]
    gap = max(
        float(np.abs(a.log_probs[:n] - b.log_probs[:n]).max(initial=0)) for (a, b), n in zip(pairs, ends, strict=True)
    )
    common.figure(
        "prefix/speedup", unit="x", **common.ratio(times["separate"], times["shared"]),
        shared_s=times["shared"].median, separate_s=times["separate"].median,
        lanes=lanes, prefix=length, new_tokens=new,
    )  # fmt: skip
    common.figure("prefix/max_logprob_difference", gap, "nats", lanes_with_equal_tokens=f"{same} of {lanes}")
    common.finish()


if __name__ == "__main__":
    main()
