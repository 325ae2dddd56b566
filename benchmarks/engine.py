"""What slow environments cost the rollout, and whether anything is compiled after warm-up.

    python -m benchmarks.engine            24 problems, 20 ms more for every environment step

engine/latency_cost is the rollout time that the latency adds, as a share of the time without it: lanes that wait for
their environment hold no place in a decode step, and other problems' lanes go on. engine/overlap_speedup is the same
latency with one problem at a time, where nothing can go on, against all at once. Both must give the same tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import common
from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.compilations import count_compilations
from hdl_jax.domains.domain import Domain, Problem
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.methods import METHODS

LATENCY_S = 0.02
WORKERS = 256


class Slow:
    """A domain whose environments take longer over every step; replays included."""

    def __init__(self, domain: Domain, seconds: float):
        self._domain, self._seconds = domain, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def start(self, problem: Problem) -> Any:
        episode, seconds = self._domain.start(problem), self._seconds

        class Episode:
            def __getattr__(self, name: str) -> Any:
                return getattr(episode, name)

            def step(self, action: str) -> Any:
                time.sleep(seconds)
                return episode.step(action)

        return Episode()


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.arguments(__doc__, repeats=3)
    parser.add_argument("--problems", type=int, default=24, help="problems of a step (default %(default)s)")
    args = parser.parse_args(argv)
    common.start("engine")
    config = config_lib.get_run("hdl")
    config.engine.workers = WORKERS
    n = 2 if args.tiny else args.problems
    if args.tiny:
        config.engine.rows, config.engine.lanes = 4, 16
    else:
        config.engine.rows, config.engine.lanes = 64, 256
    plain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
    engine = setup_run.make_engine(config, policy.shape)
    engine.load(policy.load(None))
    engine.warm_up()
    problems = plain.problems("train")[:n]
    tokens: dict[str, list[np.ndarray]] = {}

    def play(name: str, domain: Any, together: bool) -> None:
        ctx = Context(domain, policy.chat, config, 1, config.rollout.temperature)
        jobs = [METHODS["hdl"](ctx, p) for p in problems]
        groups = engine.run(jobs, 1) if together else [engine.run([job], 1)[0] for job in jobs]
        tokens[name] = [t.tokens for group in groups if group for t in group.trajectories]

    slow = Slow(plain, 0.001 if args.tiny else LATENCY_S)
    times = common.interleaved(
        {"no latency": lambda: play("no latency", plain, True), "latency": lambda: play("latency", slow, True)},
        repeats=args.repeats,
        measure=common.seconds_of,
    )
    begun = time.perf_counter()
    play("one at a time", slow, together=False)
    alone = time.perf_counter() - begun
    for name in ("latency", "one at a time"):
        equal = all(np.array_equal(a, b) for a, b in zip(tokens["no latency"], tokens[name], strict=True))
        if not equal:
            raise RuntimeError(f"{name}: other tokens than without latency; a result may not depend on arrival")
    without, latency = times["no latency"], times["latency"]
    common.figure(
        "engine/latency_cost", latency.median / without.median - 1, "of rollout time", latency_ms=1e3 * slow._seconds,
        problems=n, without_s=without.median, with_s=latency.median, spread=max(without.spread, latency.spread),
        workers=WORKERS, lanes=config.engine.lanes,
    )  # fmt: skip
    common.figure("engine/overlap_speedup", alone / latency.median, "x", one_at_a_time_s=alone)

    count = count_compilations()
    before = count()
    for step in range(3 if args.tiny else 20):
        ctx = Context(plain, policy.chat, config, step, config.rollout.temperature)
        method = METHODS[("hdl", "grpo")[step % 2]]
        engine.run([method(ctx, p) for p in plain.problems("train")[step : step + 1 + step % 4]], step)
    common.figure("engine/recompilations", count() - before, "programs", steps=3 if args.tiny else 20)
    common.finish()


if __name__ == "__main__":
    main()
