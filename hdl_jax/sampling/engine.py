"""The host side of sampling: steps the coroutines of all problems and batches whatever they ask for.

One synchronous loop. Requests wait in (job, order of asking) order and take rows as these come free, so one problem's
reflections decode beside another's roots. Placement changes no result: a lane's arithmetic and key are its own.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax

from hdl_jax.domains.domain import EnvironmentFailure
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling import cache as kv
from hdl_jax.sampling.pool import LaneState, Pool
from hdl_jax.sampling.requests import Call, Held, Job, Release, Request, Sample, Score, Scored

T = TypeVar("T")

_unstack = jax.jit(tr.unstack)

# How long a dispatch waits for environments that are about to answer, in seconds, while other lanes could go on.
PATIENCE_S = 0.002


@dataclasses.dataclass(eq=False)
class Running:
    """A coroutine in progress: what its current list of requests has brought so far."""

    order: int
    job: Job
    missing: int = 0
    results: list[Any] | None = None
    held: list[Held] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Waiting:
    """Requests of one coroutine that take rows together or not at all, as (slot among its results, request)."""

    running: Running
    pool: Pool
    requests: list[tuple[int, Sample | Score]]


@dataclasses.dataclass
class Usage:
    """What the engine spent since it was last reset: wall-clock and sampled tokens by phase, seconds and counts."""

    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    sampled: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Engine:
    """Samples and scores with one policy.

    Args:
        cfg: the policy's shape.
        shapes: the pools; a family goes to the smallest that runs all its lanes at once, else to the widest.
        seed: of all draws.
        block: attention block and prefill chunk, tokens.
        steps: most decode steps between two looks at the host.
        forced_width: most observation tokens fed in one dispatch.
        prefill_rows: prefixes prefilled side by side.
        workers: threads for environments and verifiers.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        shapes: Sequence[kv.PoolShape],
        *,
        seed: int,
        block: int = 64,
        steps: int = 16,
        forced_width: int = 16,
        prefill_rows: int = 8,
        workers: int = 2,
    ):
        ordered = sorted(shapes, key=lambda s: s.lanes)
        self.pools = [
            Pool(i, cfg, s, block=block, steps=steps, forced_width=forced_width, prefill_rows=prefill_rows)
            for i, s in enumerate(ordered)
        ]
        self.seed = jax.random.key(seed)
        self.workers = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="environment")
        self.usage = Usage()
        self.params: tr.Params | None = None

    def load(self, params: tr.Params) -> None:
        """Takes new weights (stacked); the sampling layout is made once here. No cached prefix outlives this."""
        assert not any(row for pool in self.pools for row in pool.rows), "weights change only between rollouts"
        self.params = _unstack(params)

    def warm_up(self) -> None:
        """Compiles everything a rollout can need, before the first step."""
        params = self._loaded()
        for pool in self.pools:
            pool.warm_up(params, self.seed)

    def _loaded(self) -> tr.Params:
        if self.params is None:
            raise RuntimeError("engine.load(params) comes before engine.run")
        return self.params

    def take_usage(self) -> Usage:
        """What was spent since this was last asked."""
        taken, self.usage = self.usage, Usage()
        return taken

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self, jobs: Sequence[Job[T]], step: int, on_done: Callable[[], None] = lambda: None) -> list[T]:
        """Runs all coroutines to their end and returns what they returned, in order.

        Args:
            jobs: one a problem.
            step: the training step, part of every random key.
            on_done: called as each job ends (for a progress bar).
        """
        self._loaded()
        self._step = step
        self._waiting: list[Waiting] = []
        self._futures: dict[concurrent.futures.Future, Callable[[Any, Exception | None], None]] = {}
        self._ready = [Running(i, job) for i, job in enumerate(jobs)]
        try:
            return self._loop(len(jobs), on_done)
        except BaseException:
            for pool in self.pools:
                pool.clear()
            raise

    def _loop(self, jobs: int, on_done: Callable[[], None]) -> list:
        done: dict[int, Any] = {}
        while len(done) < jobs:
            ready, self._ready = sorted(self._ready, key=lambda r: r.order), []
            for running in ready:
                try:
                    requests = running.job.send(running.results)  # type: ignore[arg-type]
                except StopIteration as stop:
                    done[running.order] = stop.value
                    for held in running.held:
                        self.pools[held.pool].release(held)
                    on_done()
                else:
                    self._ask(running, requests)
            self._admit()
            worked = self._device_work()
            if self._waiting and not (worked or self._ready or self._futures):
                raise RuntimeError(
                    "requests wait for rows that are all held by coroutines which wait themselves: a coroutine must "
                    "continue or release what it holds before it asks for more"
                )
            self._collect(block=not worked and not self._ready)
        return [done[i] for i in range(jobs)]

    def _ask(self, running: Running, requests: list[Request]) -> None:
        running.missing, running.results = len(requests), [None] * len(requests)
        if not requests:
            self._ready.append(running)
        holds: list[tuple[int, Sample | Score]] = []
        for slot, request in enumerate(requests):
            if isinstance(request, Call):
                self._submit(request.function, self._answer(running, slot))
            elif isinstance(request, Release):
                running.held.remove(request.held)
                self.pools[request.held.pool].release(request.held)
                self._deliver(running, slot)(None)
            elif isinstance(request, Sample) and isinstance(request.prefix, Held):
                running.held.remove(request.prefix)
                self.pools[request.prefix.pool].resume(request.prefix, request, self._deliver(running, slot))
            elif isinstance(request, Score) and request.hold:
                holds.append((slot, request))
            else:
                self._waiting.append(Waiting(running, self._pool_of(request), [(slot, request)]))
        if holds:
            # A coroutine goes on only when it has every row it holds: two that each held some and waited for more
            # would wait for ever.
            pool = self._pool_of(holds[0][1])
            if len(holds) > pool.shape.rows:
                raise ValueError(
                    f"{len(holds)} roots of one problem must be held at once, but the widest pool has "
                    f"{pool.shape.rows} rows: raise its rows in engine.pools"
                )
            self._waiting.append(Waiting(running, pool, holds))

    def _deliver(self, running: Running, slot: int) -> Callable[[Any], None]:
        def deliver(result: Any) -> None:
            assert running.results is not None
            if isinstance(result, Scored) and result.held is not None:
                running.held.append(result.held)
            running.results[slot] = result
            running.missing -= 1
            if not running.missing:
                self._ready.append(running)

        return deliver

    def _answer(self, running: Running, slot: int) -> Callable[[Any, Exception | None], None]:
        return lambda answer, failure: self._deliver(running, slot)(answer if failure is None else failure)

    def _pool_of(self, request: Sample | Score) -> Pool:
        """Scores go where continuations run, since a held row is continued in place."""
        if isinstance(request, Score):
            return self.pools[-1]
        return next((p for p in self.pools if p.shape.lanes >= len(request.lanes)), self.pools[-1])

    def _admit(self) -> None:
        """Gives free rows to waiting requests, problem by problem, oldest request first."""
        self._waiting.sort(key=lambda w: w.running.order)
        free = {pool.index: pool.free_rows() for pool in self.pools}
        left = []
        for waiting in self._waiting:
            rows = free[waiting.pool.index]
            if len(rows) < len(waiting.requests):
                rows.clear()  # whoever is first in line gets the next rows
                left.append(waiting)
                continue
            for slot, request in waiting.requests:
                waiting.pool.admit(rows.pop(0), request, self._deliver(waiting.running, slot))
        self._waiting = left

    def _device_work(self) -> bool:
        """All prefill chunks that are due, then one decode burst a pool. Returns whether there was any."""
        params, worked = self._loaded(), False
        for pool in self.pools:
            while True:
                begun = time.perf_counter()
                chunks = pool.prefill(params)
                if not chunks:
                    break
                self._book(chunks, time.perf_counter() - begun)
                worked = True
        for pool in self.pools:
            lanes = pool.running()
            if not lanes:
                continue
            begun = time.perf_counter()
            phases = [pool.phase(r) for r, _, _ in lanes]
            before = [len(lane.tokens) for _, _, lane in lanes]
            ended = pool.decode(params, self.seed, self._step)
            for phase, n, (_, _, lane) in zip(phases, before, lanes, strict=True):
                self.usage.sampled[phase] += len(lane.tokens) - n
            self._book(collections.Counter(phases), time.perf_counter() - begun)
            for r, c, lane, stopped in ended:
                self._turn_over(pool, r, c, lane, stopped)
            worked = True
        return worked

    def _book(self, shares: Mapping[str, int], seconds: float) -> None:
        """Splits a dispatch's wall-clock among the phases that shared it, by lanes or chunks.

        Nothing waits for a prefill that returns no scores, so its device time may show in the dispatch after it.
        """
        total = sum(shares.values())
        for phase, share in shares.items():
            self.usage.seconds[phase] += seconds * share / total

    def _turn_over(self, pool: Pool, r: int, c: int, lane: LaneState, stopped: bool) -> None:
        respond = lane.lane.respond
        if respond is None:
            return pool.finish_lane(r, c, stopped)
        new = lane.tokens[len(lane.tokens) - lane.fresh :]

        def answered(answer: tuple[list[int], int] | None, failure: Exception | None) -> None:
            if answer is None:
                pool.finish_lane(r, c, stopped, failure)
            else:
                pool.feed(r, c, *answer)

        return self._submit(functools.partial(respond, new, stopped), answered)

    def _submit(self, function: Callable[[], Any], answered: Callable[[Any, Exception | None], None]) -> None:
        self._futures[self.workers.submit(function)] = answered

    def _collect(self, block: bool) -> None:
        """Takes in what environments and verifiers have answered."""
        if not self._futures:
            return
        begun = time.perf_counter()
        concurrent.futures.wait(
            self._futures,
            timeout=None if block else PATIENCE_S,
            return_when=concurrent.futures.FIRST_COMPLETED if block else concurrent.futures.ALL_COMPLETED,
        )
        for future in [f for f in self._futures if f.done()]:
            answered = self._futures.pop(future)
            try:
                answer, failure = future.result(), None
            except EnvironmentFailure as error:
                answer, failure = None, error
            answered(answer, failure)
        self.usage.seconds["verify"] += time.perf_counter() - begun
