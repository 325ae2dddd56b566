"""One pool of the engine: a donated cache, its rows and lanes, and the host's record of what each is doing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling import cache as kv
from hdl_jax.sampling import decode as device
from hdl_jax.sampling.draw import PATH_LENGTH
from hdl_jax.sampling.requests import Held, Lane, LaneResult, Sample, Score, Scored

MAX_STOPS = 8


@dataclasses.dataclass
class LaneState:
    """A lane in flight. `pending` are ids to feed before the next draw, at first the token before the fork."""

    lane: Lane
    index: int
    pending: list[int]
    budget: int
    length: int = 0
    fresh: int = 0
    waiting: bool = False
    tokens: list[int] = dataclasses.field(default_factory=list)
    generated: list[bool] = dataclasses.field(default_factory=list)
    log_probs: list[float] = dataclasses.field(default_factory=list)

    def result(self, stopped: bool, failure: Exception | None = None) -> LaneResult:
        return LaneResult(
            np.asarray(self.tokens, np.int32),
            np.asarray(self.generated, bool),
            np.asarray(self.log_probs, np.float32),
            stopped,
            failure,
        )


@dataclasses.dataclass
class RowState:
    """A family in flight: its request, prefill progress, lanes still waiting for a free slot, and finished ones."""

    request: Sample | Score
    tokens: np.ndarray
    deliver: Callable[[Any], None]
    prefilled: int = 0
    log_probs: np.ndarray | None = None
    entropies: np.ndarray | None = None
    queue: list[tuple[int, Lane]] = dataclasses.field(default_factory=list)
    slots: list[LaneState | None] = dataclasses.field(default_factory=list)
    results: dict[int, LaneResult] = dataclasses.field(default_factory=dict)
    held: bool = False


class Pool:
    """Rows x lanes of one static shape.

    Attributes:
        steps: most decode steps of one dispatch. forced_width: most ids a lane is fed in one dispatch.
        prefill_rows: chunks of one prefill dispatch, each one attention block wide.
    """

    def __init__(
        self,
        index: int,
        cfg: TransformerConfig,
        shape: kv.PoolShape,
        *,
        block: int,
        steps: int,
        forced_width: int,
        prefill_rows: int,
    ):
        self.index, self.cfg, self.shape, self.block, self.steps = index, cfg, shape, block, steps
        self.forced_width, self.prefill_rows = forced_width, min(prefill_rows, shape.rows)
        self.cache = kv.empty(cfg, shape, block)
        self.rows: list[RowState | None] = [None] * shape.rows

    def clear(self) -> None:
        """Forgets every family in flight; the cache's numbers are never looked at again."""
        self.rows = [None] * self.shape.rows

    # ---- rows -------------------------------------------------------------------------------------------------------

    def free_rows(self) -> list[int]:
        return [i for i, row in enumerate(self.rows) if row is None]

    def admit(self, row: int, request: Sample | Score, deliver: Callable[[Any], None]) -> None:
        """Gives a free row to a request that brings its own prefix; it is prefilled by the next `prefill`."""
        tokens = request.tokens if isinstance(request, Score) else request.prefix
        assert isinstance(tokens, np.ndarray) and self.rows[row] is None
        if len(tokens) > self.shape.prefix:
            raise ValueError(
                f"a prefix of {len(tokens)} tokens does not fit pool {self.index}, whose rows hold "
                f"{self.shape.prefix}: raise the engine's prefix capacity or shorten the problem"
            )
        state = RowState(request, np.asarray(tokens, np.int32), deliver)
        if isinstance(request, Score):
            state.log_probs = np.zeros(len(tokens), np.float32)
            state.entropies = np.zeros(len(tokens), np.float32)
        self.rows[row] = state

    def resume(self, held: Held, request: Sample, deliver: Callable[[Any], None]) -> None:
        """Starts lanes on a held row: its KV is there already."""
        row = self.rows[held.row]
        assert row is not None and row.held, "a held row is used once"
        self.rows[held.row] = RowState(request, row.tokens, deliver, prefilled=len(row.tokens))
        self._start(held.row)

    def release(self, held: Held) -> None:
        row = self.rows[held.row]
        if row is not None and row.held and row.tokens is held.tokens:
            self.rows[held.row] = None

    def _start(self, r: int) -> None:
        row = self.rows[r]
        assert row is not None and isinstance(row.request, Sample)
        for lane in row.request.lanes:
            if not 1 <= lane.fork <= len(row.tokens):
                raise ValueError(f"fork {lane.fork} is outside 1..{len(row.tokens)} (prefix length)")
            if lane.budget < 1 or len(lane.stop) > MAX_STOPS or not lane.stop:
                raise ValueError(f"a lane needs a budget of at least 1 and 1 to {MAX_STOPS} stop ids, got {lane}")
        row.queue = list(enumerate(row.request.lanes))
        row.slots = [None] * self.shape.lanes
        self._fill_slots(row)

    def _fill_slots(self, row: RowState) -> None:
        for c, slot in enumerate(row.slots):
            if slot is None and row.queue:
                index, lane = row.queue.pop(0)
                # The last token of a budget is never fed, the one before the fork is: as many slots as tokens.
                budget = min(lane.budget, self.shape.suffix)
                row.slots[c] = LaneState(lane, index, [int(row.tokens[lane.fork - 1])], budget)

    def finish_lane(self, r: int, c: int, stopped: bool, failure: Exception | None = None) -> None:
        """Ends a lane, starts the next of its family in its place, and delivers the family when all are done."""
        row = self.rows[r]
        assert row is not None and isinstance(row.request, Sample)
        lane = row.slots[c]
        assert lane is not None
        row.results[lane.index] = lane.result(stopped, failure)
        row.slots[c] = None
        self._fill_slots(row)
        if len(row.results) == len(row.request.lanes):
            self.rows[r] = None
            row.deliver([row.results[i] for i in range(len(row.request.lanes))])

    def feed(self, r: int, c: int, ids: list[int], budget: int) -> None:
        """Answers a waiting lane with an observation; ends it as truncated where the suffix has no room left."""
        row = self.rows[r]
        assert row is not None
        lane = row.slots[c]
        assert lane is not None and lane.waiting
        room = self.shape.suffix - lane.length - len(lane.pending) - len(ids) + 1
        if budget < 1 or room < 1:
            return self.finish_lane(r, c, stopped=False)
        lane.pending += ids
        lane.tokens += ids
        lane.generated += [False] * len(ids)
        lane.log_probs += [0.0] * len(ids)
        lane.budget, lane.fresh, lane.waiting = min(budget, room), 0, False
        return None

    # ---- device work ------------------------------------------------------------------------------------------------

    def prefill(self, params: tr.Params) -> dict[str, int]:
        """Prefills one chunk of up to prefill_rows rows. Returns chunks by phase; empty when there was nothing."""
        waiting = [
            r for r, row in enumerate(self.rows) if row is not None and not row.held and row.prefilled < len(row.tokens)
        ]
        if not waiting:
            return {}
        # One dispatch scores at one temperature, or not at all.
        temperatures = {r: self._scored_at(r) for r in waiting}
        temperature = temperatures[waiting[0]]
        score = temperature is not None
        chosen = [r for r in waiting if temperatures[r] == temperature][: self.prefill_rows]
        n, w = self.prefill_rows, self.block
        rows = np.full(n, self.shape.rows, np.int32)
        tokens, targets = np.zeros((n, w), np.int32), np.zeros((n, w), np.int32)
        start = np.zeros(n, np.int32)
        for i, r in enumerate(chosen):
            row = self._row(r)
            chunk = row.tokens[row.prefilled : row.prefilled + w]
            following = row.tokens[row.prefilled + 1 : row.prefilled + 1 + w]
            rows[i], start[i] = r, row.prefilled
            tokens[i, : len(chunk)], targets[i, : len(following)] = chunk, following
        self.cache, log_p, entropy = device.prefill(
            params, self.cache, rows, tokens, start, targets, np.float32(1 if temperature is None else temperature),
            cfg=self.cfg, block=self.block, score=score,
        )  # fmt: skip
        if score:
            log_p, entropy = jax.device_get((log_p, entropy))
        phases: dict[str, int] = {}
        for i, r in enumerate(chosen):
            row = self._row(r)
            phases[row.request.phase] = phases.get(row.request.phase, 0) + 1
            if row.log_probs is not None and row.entropies is not None:
                count = len(row.tokens[row.prefilled + 1 : row.prefilled + 1 + w])
                at = slice(row.prefilled + 1, row.prefilled + 1 + count)
                row.log_probs[at], row.entropies[at] = log_p[i, :count], entropy[i, :count]
            row.prefilled += w
            if row.prefilled >= len(row.tokens):
                self._prefilled(r)
        return phases

    def phase(self, r: int) -> str:
        """What the row's work is booked under."""
        return self._row(r).request.phase

    def _scored_at(self, r: int) -> float | None:
        """The temperature a row is scored at; None for one that is only prefilled."""
        request = self._row(r).request
        return request.temperature if isinstance(request, Score) else None

    def _row(self, r: int) -> RowState:
        row = self.rows[r]
        assert row is not None
        return row

    def _prefilled(self, r: int) -> None:
        row = self._row(r)
        if isinstance(row.request, Sample):
            return self._start(r)
        assert row.log_probs is not None and row.entropies is not None
        held = Held(self.index, r, row.tokens) if row.request.hold else None
        row.held = held is not None
        if held is None:
            self.rows[r] = None
        row.deliver(Scored(row.log_probs, row.entropies, held))
        return None

    def running(self) -> list[tuple[int, int, LaneState]]:
        return [
            (r, c, lane)
            for r, row in enumerate(self.rows)
            if row is not None
            for c, lane in enumerate(row.slots)
            if lane is not None and not lane.waiting
        ]

    def lanes(self, running: list[tuple[int, int, LaneState]], step: int) -> device.Lanes:
        """The host's view of the lanes as arrays for the device."""
        shape, f = (self.shape.rows, self.shape.lanes), self.forced_width
        active, temperature = np.zeros(shape, bool), np.ones(shape, np.float32)
        fork, length, n_forced, budget = (np.zeros(shape, np.int32) for _ in range(4))
        forced = np.zeros((*shape, f), np.int32)
        stop, path = np.zeros((*shape, MAX_STOPS), np.int32), np.zeros((*shape, PATH_LENGTH), np.int32)
        for r, c, lane in running:
            ids = lane.pending[:f]
            active[r, c], temperature[r, c] = True, lane.lane.temperature
            fork[r, c], length[r, c] = lane.lane.fork - 1, lane.length
            forced[r, c, : len(ids)], n_forced[r, c] = ids, len(ids)
            budget[r, c] = lane.budget - lane.fresh if len(lane.pending) <= f else 0
            stop[r, c] = [lane.lane.stop[min(i, len(lane.lane.stop) - 1)] for i in range(MAX_STOPS)]
            path[r, c] = (step, *lane.lane.path)
        arrays: Any = (active, fork, length, forced, n_forced, budget, stop, temperature, path)
        return device.Lanes(*arrays)  # as NumPy has them: the dispatch moves them

    def decode(self, params: tr.Params, seed: Any, step: int) -> list[tuple[int, int, LaneState, bool]]:
        """One burst. Returns (row, slot, lane, drew a stop token) of the lanes whose turn ended."""
        running = self.running()
        self.cache, burst = device.decode(
            params, self.cache, seed, self.lanes(running, step), cfg=self.cfg, block=self.block, steps=self.steps
        )
        burst = jax.device_get(burst)
        if not np.isfinite(burst.log_probs).all():
            raise FloatingPointError(
                "the policy's logits are not finite: a token was drawn with a log-probability of "
                f"{burst.log_probs[~np.isfinite(burst.log_probs)][0]}"
            )
        ended = []
        for r, c, lane in running:
            count, fed = int(burst.count[r, c]), int(burst.fed[r, c])
            new = burst.tokens[r, c, :count].tolist()
            lane.length = int(burst.length[r, c])
            lane.pending = lane.pending[fed:]
            lane.tokens += new
            lane.generated += [True] * count
            lane.log_probs += burst.log_probs[r, c, :count].tolist()
            lane.fresh += count
            if new:
                lane.pending = [new[-1]]
            if burst.stopped[r, c]:
                lane.waiting = True
                ended.append((r, c, lane, new[-1] in lane.lane.stop))
        return ended

    def warm_up(self, params: tr.Params, seed: Any) -> None:
        """Compiles the pool's programs by running each once on nothing."""
        n, w = self.prefill_rows, self.block
        zeros = np.zeros((n, w), np.int32)
        for score in (False, True):
            self.cache, _, _ = device.prefill(
                params, self.cache, np.full(n, self.shape.rows, np.int32), zeros, np.zeros(n, np.int32), zeros,
                np.float32(1), cfg=self.cfg, block=self.block, score=score,
            )  # fmt: skip
        self.cache, burst = device.decode(
            params, self.cache, seed, self.lanes([], 0), cfg=self.cfg, block=self.block, steps=self.steps
        )
        jnp.asarray(burst.count).block_until_ready()
