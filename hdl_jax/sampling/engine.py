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
from hdl_jax.sampling.pool import Pool
from hdl_jax.sampling.requests import Call, Held, Job, Release, Request, Sample, Score, Scored

T = TypeVar("T")

_sampling_layout = jax.jit(tr.sampling_layout, static_argnums=1)

# How long a dispatch waits for environments that are about to answer, in seconds, while other lanes could go on; not at
# all where they have lately taken longer.
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
    requests: list[tuple[int, Sample | Score]]


@dataclasses.dataclass
class Usage:
    """What the engine spent since it was last reset.

    Attributes:
        seconds: wall-clock by phase: those of requests (device work), `verify` (waiting for environments and
            verifiers), `schedule` (methods and bookkeeping on the host).
        sampled, fed, prefilled: by phase, tokens drawn, tokens that went through a decode step (draws and forced
            ones), and tokens of prefill chunks, padding included.
    """

    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    sampled: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    fed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    prefilled: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Engine:
    """Samples and scores with one policy.

    Args:
        cfg: the policy's shape. shape: of the cache.
        seed: of all draws.
        tile: lanes of a family that read its prefix together.
        width: lanes that go through the network together, whole tiles: all of them where weights are the cost, fewer
            where a lane is, since idle ones among them cost as much as busy ones.
        chunks: blocks of prefixes that go through the network together.
        steps: most decode steps between two looks at the host.
        forced_width: most observation tokens fed in one dispatch.
        workers: threads for environments and verifiers.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        shape: kv.CacheShape,
        *,
        seed: int,
        tile: int = 1,
        width: int = 16,
        chunks: int = 4,
        steps: int = 16,
        forced_width: int = 16,
        workers: int = 16,
    ):
        self.pool = Pool(cfg, shape, tile=tile, width=width, chunks=chunks, steps=steps, forced_width=forced_width)
        self.seed = jax.random.key(seed)
        self.workers = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="environment")
        self.usage = Usage()
        self.params: tr.Params | None = None
        self._answer_s = 0.0  # what an environment's answer takes, lately

    def load(self, params: tr.Params) -> None:
        """Takes new weights (stacked); the sampling layout is made once here. No cached prefix outlives this."""
        self.unload()
        self.params = _sampling_layout(params, self.pool.cfg)

    def unload(self) -> None:
        """Gives the weights' memory back until the next `load`; an update has better use for it."""
        assert not any(self.pool.rows), "weights change only between rollouts"
        self.params = None

    def warm_up(self) -> None:
        """Compiles everything a rollout can need, before the first step."""
        self.pool.warm_up(self._loaded(), self.seed)

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
            self.pool.clear()
            raise

    def _loop(self, jobs: int, on_done: Callable[[], None]) -> list:
        done: dict[int, Any] = {}
        while len(done) < jobs:
            begun = time.perf_counter()
            ready, self._ready = sorted(self._ready, key=lambda r: r.order), []
            for running in ready:
                try:
                    requests = running.job.send(running.results)  # type: ignore[arg-type]
                except StopIteration as stop:
                    done[running.order] = stop.value
                    for held in running.held:
                        self.pool.release(held)
                    on_done()
                else:
                    self._ask(running, requests)
            self._admit()
            self.usage.seconds["schedule"] += time.perf_counter() - begun
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
                self.pool.release(request.held)
                self._deliver(running, slot)(None)
            elif isinstance(request, Sample) and isinstance(request.prefix, Held):
                running.held.remove(request.prefix)
                self.pool.resume(request.prefix, request, running.order, self._deliver(running, slot))
            elif isinstance(request, Score) and request.hold:
                holds.append((slot, request))
            else:
                self._waiting.append(Waiting(running, [(slot, request)]))
        if holds:
            # A coroutine goes on only when it has every row it holds: two that each held some and waited for more
            # would wait for ever.
            if len(holds) > self.pool.shape.rows:
                raise ValueError(
                    f"{len(holds)} roots of one problem must be held at once, but the cache has {self.pool.shape.rows} "
                    "rows: raise engine.rows"
                )
            self._waiting.append(Waiting(running, holds))

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

    def _admit(self) -> None:
        """Gives free rows to waiting requests, problem by problem, oldest request first."""
        self._waiting.sort(key=lambda w: w.running.order)
        free = self.pool.free_rows()
        left = []
        for waiting in self._waiting:
            if len(free) < len(waiting.requests):
                free.clear()  # whoever is first in line gets the next rows
                left.append(waiting)
                continue
            for slot, request in waiting.requests:
                order, deliver = waiting.running.order, self._deliver(waiting.running, slot)
                self.pool.admit(free.pop(0), request, order, deliver)
        self._waiting = left

    def _device_work(self) -> bool:
        """All prefill that is due, then one decode burst. Returns whether there was any."""
        params, pool = self._loaded(), self.pool
        begun = time.perf_counter()
        chunks = pool.prefill(params)
        if chunks:
            self._book(chunks, time.perf_counter() - begun)
            for phase, n in chunks.items():
                self.usage.prefilled[phase] += n * pool.shape.block
        running = pool.running()
        if not running:
            return bool(chunks)
        begun = time.perf_counter()
        lanes = [
            (pool.phase(lane), lane, len(lane.tokens), lane.length)
            for lane in (pool.slots[s] for s in running)
            if lane is not None
        ]
        ended = pool.decode(params, self.seed, self._step, running)
        fed: collections.Counter[str] = collections.Counter()
        for phase, lane, tokens, length in lanes:
            self.usage.sampled[phase] += len(lane.tokens) - tokens
            fed[phase] += lane.length - length
        self.usage.fed += fed
        self._book(fed, time.perf_counter() - begun)
        begun = time.perf_counter()
        for slot, stopped in ended:
            self._turn_over(slot, stopped)
        self.usage.seconds["schedule"] += time.perf_counter() - begun
        return True

    def _book(self, shares: Mapping[str, int], seconds: float) -> None:
        """Splits a dispatch's wall-clock among the phases that shared it, by tokens fed or chunks."""
        total = sum(shares.values())
        for phase, share in shares.items():
            self.usage.seconds[phase] += seconds * share / total

    def _turn_over(self, slot: int, stopped: bool) -> None:
        lane = self.pool.slots[slot]
        assert lane is not None
        respond = lane.lane.respond
        if respond is None:
            return self.pool.finish_lane(slot, stopped)
        new = lane.tokens[len(lane.tokens) - lane.fresh :]

        def answered(answer: tuple[list[int], int] | None, failure: Exception | None) -> None:
            if answer is None:
                self.pool.finish_lane(slot, stopped, failure)
            else:
                self.pool.feed(slot, *answer)

        return self._submit(functools.partial(respond, new, stopped), answered)

    def _submit(self, function: Callable[[], Any], answered: Callable[[Any, Exception | None], None]) -> None:
        def timed() -> Any:
            begun = time.perf_counter()
            try:
                return function()
            finally:
                self._answer_s = 0.9 * self._answer_s + 0.1 * (time.perf_counter() - begun)

        self._futures[self.workers.submit(timed)] = answered

    def _collect(self, block: bool) -> None:
        """Takes in what environments and verifiers have answered."""
        if not self._futures:
            return
        begun = time.perf_counter()
        concurrent.futures.wait(
            self._futures,
            timeout=None if block else PATIENCE_S if self._answer_s < PATIENCE_S else 0,
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
