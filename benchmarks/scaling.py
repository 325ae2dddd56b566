"""Tokens a second against lanes and length, 135M shape, decode and prefill.

python -m benchmarks.scaling
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from benchmarks import common

SEED = 0
NEW = 32
LANES = (1, 4, 16, 64)
PREFIXES = (64, 512, 2048)


def main(argv: Sequence[str] | None = None) -> None:
    args = common.arguments(__doc__, repeats=2).parse_args(argv)
    common.start("scaling")
    cfg = common.policy(tiny=args.tiny)
    params = common.random_params(cfg, SEED)
    new = 4 if args.tiny else NEW
    cases = [(2, 8)] if args.tiny else [*((n, 64) for n in LANES), *((16, n) for n in PREFIXES[1:])]
    for lanes, prefix in cases:
        engine = common.make_engine(cfg, families=1, lanes=lanes, prefix=prefix, suffix=new)
        engine.load(params)
        engine.warm_up()
        rows = list(common.prompts(cfg, 1, prefix, SEED))
        times = common.interleaved(
            {
                "whole": functools.partial(common.sample, engine, rows, lanes=lanes, new_tokens=new),
                "first": functools.partial(common.sample, engine, rows, lanes=lanes, new_tokens=1),
            },
            repeats=args.repeats,
            measure=common.seconds_of,
        )
        decode = times["whole"].median - times["first"].median
        common.figure(
            "scaling/decode", lanes * (new - 1) / decode, "tokens/s", lanes=lanes, prefix=prefix,
            ms_per_step=1e3 * decode / (new - 1), spread=times["whole"].spread,
        )  # fmt: skip
        common.figure("scaling/prefill", prefix / times["first"].median, "tokens/s", lanes=lanes, prefix=prefix)
    common.finish()


if __name__ == "__main__":
    main()
