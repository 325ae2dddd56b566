"""HDL against GRPO on the embedded game: generated tokens and rollout time of the same steps.

    python -m benchmarks.methods           8 problems a step, the quickstart's config

methods/time_over_token_ratio is what is lost between tokens saved and time saved. The model beside it takes the two
costs measured here, of a token in a decode step and of one in a prefill, and says what the ratio becomes where a
prefilled token costs a tenth of a decoded one, as on an accelerator whose decode waits for memory.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import common
from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.methods import METHODS

SIDES = ("hdl", "grpo")
# What a prefilled token costs of a decoded one where decoding waits for weights to be read.
ACCELERATOR = 0.1


def tiny(config: Any) -> None:
    """Two problems of a step, for tests."""
    config.rollout.problems_per_step = 2
    config.engine.rows, config.engine.lanes = 4, 16


def main(argv: Sequence[str] | None = None) -> None:
    args = common.arguments(__doc__, repeats=4).parse_args(argv)
    common.start("methods")
    configs = {method: config_lib.get_run(method) for method in SIDES}
    for config in configs.values():
        if args.tiny:
            tiny(config)
    first = configs[SIDES[0]]
    domain, policy = setup_run.make_domain(first), setup_run.make_policy(first)
    engine = setup_run.make_engine(first, policy.shape)
    engine.load(policy.load(None))
    engine.warm_up()
    problems, n = domain.problems("train"), first.rollout.problems_per_step
    seconds = {method: 0.0 for method in SIDES}
    totals = {method: collections.Counter[str]() for method in SIDES}
    attributed, ratios = {method: 0.0 for method in SIDES}, []
    for step in range(args.repeats + 1):
        took = {}
        for method in SIDES:
            config = configs[method]
            ctx = Context(domain, policy.chat, config, step, config.rollout.temperature)
            engine.take_usage()
            begun = time.perf_counter()
            with common.no_garbage():
                engine.run([METHODS[method](ctx, p) for p in problems[step * n : (step + 1) * n]], step)
            took[method] = time.perf_counter() - begun
            if not step:  # a first step that only warms up
                continue
            usage = engine.take_usage()
            seconds[method] += took[method]
            attributed[method] += sum(usage.seconds.values())
            counted = {
                "tokens": usage.sampled.total(), "fed": usage.fed.total(), "prefilled": usage.prefilled.total(),
                "scored": usage.prefilled["score"],
            }  # fmt: skip
            totals[method].update(counted)
            for phase, s in usage.seconds.items():
                totals[method][f"us/{phase}"] += round(s * 1e6)
        if step:
            ratios.append(took["hdl"] / took["grpo"])
    hdl, grpo = totals["hdl"], totals["grpo"]
    tokens, taken = hdl["tokens"] / grpo["tokens"], seconds["hdl"] / seconds["grpo"]
    common.figure(
        "methods/token_ratio", tokens, "x", hdl_tokens=hdl["tokens"], grpo_tokens=grpo["tokens"], steps=args.repeats,
        problems=n,
    )  # fmt: skip
    common.figure(
        "methods/time_ratio", taken, "x", hdl_s=seconds["hdl"], grpo_s=seconds["grpo"], lowest=min(ratios),
        highest=max(ratios),
    )  # fmt: skip
    common.figure("methods/time_over_token_ratio", taken / tokens, "x")
    common.figure(
        "methods/attributed", min(attributed[m] / seconds[m] for m in SIDES), "of rollout time",
        **{f"{m}_{k[3:]}_s": v / 1e6 for m in SIDES for k, v in sorted(totals[m].items()) if k.startswith("us/")},
    )  # fmt: skip
    # What the two kinds of work cost: scoring is nothing but prefill, GRPO nearly nothing but decode.
    prefilled = hdl["us/score"] / max(1, hdl["scored"])
    decoded = grpo["us/root"] / max(1, grpo["fed"])
    for name, share in (("measured", prefilled / decoded), ("accelerator", ACCELERATOR)):
        cost = {m: totals[m]["fed"] + share * totals[m]["prefilled"] for m in SIDES}
        common.figure(
            f"methods/model_{name}", cost["hdl"] / cost["grpo"] / tokens, "x", prefill_over_decode_cost=share,
            hdl_fed=hdl["fed"], hdl_prefilled=hdl["prefilled"], grpo_fed=grpo["fed"], grpo_prefilled=grpo["prefilled"],
        )  # fmt: skip
    common.finish()


if __name__ == "__main__":
    main()
