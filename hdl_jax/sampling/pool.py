"""The engine's store: a donated cache, its rows and lanes, and the host's record of what each is doing."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.chat import MAX_STOPS
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.sampling import cache as kv
from hdl_jax.sampling import decode as device
from hdl_jax.sampling.draw import PATH_LENGTH
from hdl_jax.sampling.prefill import prefill
from hdl_jax.sampling.requests import Held, Lane, LaneResult, Sample, Score, Scored


@dataclasses.dataclass
class LaneState:
    """A lane in flight. `pending` are ids to feed before the next draw, at first the token before the fork."""

    lane: Lane
    row: int
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
    """A family in flight: its request, lanes still waiting for a slot, and finished ones.

    Attributes:
        order: of the problem that asked; earlier ones are served first.
        prefilled: whether its prefix is in the cache.
    """

    request: Sample | Score
    tokens: np.ndarray
    deliver: Callable[[Any], None]
    order: int
    prefilled: bool = False
    log_probs: np.ndarray | None = None
    entropies: np.ndarray | None = None
    queue: collections.deque[tuple[int, Lane]] = dataclasses.field(default_factory=collections.deque)
    results: dict[int, LaneResult] = dataclasses.field(default_factory=dict)
    held: bool = False

    @property
    def scored_at(self) -> float | None:
        """The temperature the row is scored at; None for one that is only prefilled."""
        return self.request.temperature if isinstance(self.request, Score) else None


class Pool:
    """Rows and lanes of one static shape.

    Attributes:
        tile: lanes of one family that meet its prefix in one product.
        width: lanes that go through the network together.
        chunks: blocks of prefixes that do.
        steps: most decode steps of one dispatch. forced_width: most ids a lane is fed in one dispatch.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        shape: kv.CacheShape,
        *,
        tile: int,
        width: int,
        chunks: int,
        steps: int,
        forced_width: int,
    ):
        if width % tile:
            raise ValueError(f"width={width} must be a multiple of tile={tile}: groups are whole tiles")
        self.cfg, self.shape, self.tile, self.width, self.chunks = cfg, shape, tile, width, chunks
        self.steps, self.forced_width = steps, forced_width
        # Every row may leave a tile part full.
        tiles = min(shape.lanes, shape.lanes // tile + shape.rows)
        self.places = -(-tiles * tile // width) * width
        self.cache = kv.empty(cfg, shape)
        self.rows: list[RowState | None] = [None] * shape.rows
        self.slots: list[LaneState | None] = [None] * shape.lanes

    def clear(self) -> None:
        """Forgets every family in flight; the cache's numbers are never looked at again."""
        self.rows = [None] * self.shape.rows
        self.slots = [None] * self.shape.lanes

    # ---- rows and slots ---------------------------------------------------------------------------------------------

    def free_rows(self) -> list[int]:
        return [i for i, row in enumerate(self.rows) if row is None]

    def admit(self, row: int, request: Sample | Score, order: int, deliver: Callable[[Any], None]) -> None:
        """Gives a free row to a request that brings its own prefix; it is prefilled by the next `prefill`."""
        tokens = request.tokens if isinstance(request, Score) else request.prefix
        assert isinstance(tokens, np.ndarray) and self.rows[row] is None
        if not len(tokens) or (isinstance(request, Sample) and not request.lanes):
            raise ValueError("a prefix needs at least one token, and a Sample at least one lane")
        if len(tokens) > self.shape.prefix:
            raise ValueError(
                f"a prefix of {len(tokens)} tokens does not fit a cache row of {self.shape.prefix}: raise "
                "engine.context_tokens or shorten the problem"
            )
        state = RowState(request, np.asarray(tokens, np.int32), deliver, order)
        if isinstance(request, Score):
            state.log_probs = np.zeros(len(tokens), np.float32)
            state.entropies = np.zeros(len(tokens), np.float32)
        self.rows[row] = state

    def resume(self, held: Held, request: Sample, order: int, deliver: Callable[[Any], None]) -> None:
        """Starts lanes on a held row: its KV is there already."""
        row = self._row(held.row)
        assert row.held, "a held row is used once"
        self.rows[held.row] = RowState(request, row.tokens, deliver, order, prefilled=True)
        self._start(held.row)

    def release(self, held: Held) -> None:
        row = self.rows[held.row]
        if row is not None and row.held and row.tokens is held.tokens:
            self.rows[held.row] = None

    def _row(self, r: int) -> RowState:
        row = self.rows[r]
        assert row is not None
        return row

    def _start(self, r: int) -> None:
        row = self._row(r)
        assert isinstance(row.request, Sample)
        for lane in row.request.lanes:
            if not 1 <= lane.fork <= len(row.tokens):
                raise ValueError(f"fork {lane.fork} is outside 1..{len(row.tokens)} (prefix length)")
            if lane.budget < 1 or len(lane.stop) > MAX_STOPS or not lane.stop:
                raise ValueError(f"a lane needs a budget of at least 1 and 1 to {MAX_STOPS} stop ids, got {lane}")
        row.queue.extend(enumerate(row.request.lanes))
        self.fill_slots()

    def fill_slots(self) -> None:
        """Gives free slots to lanes that wait for one, earlier problems first."""
        free = [s for s, lane in enumerate(self.slots) if lane is None]
        waiting = sorted((row.order, r) for r, row in enumerate(self.rows) if row is not None and row.queue)
        for _, r in waiting:
            row = self._row(r)
            while row.queue and free:
                index, lane = row.queue.popleft()
                # The last token of a budget is never fed, the one before the fork is: as many places as tokens.
                budget = min(lane.budget, self.shape.suffix)
                self.slots[free.pop(0)] = LaneState(lane, r, index, [int(row.tokens[lane.fork - 1])], budget)

    def finish_lane(self, slot: int, stopped: bool, failure: Exception | None = None) -> None:
        """Ends a lane, gives its slot to the next, and delivers its family when all are done."""
        lane = self.slots[slot]
        assert lane is not None
        row = self._row(lane.row)
        assert isinstance(row.request, Sample)
        row.results[lane.index] = lane.result(stopped, failure)
        self.slots[slot] = None
        if len(row.results) == len(row.request.lanes):
            self.rows[lane.row] = None
            row.deliver([row.results[i] for i in range(len(row.request.lanes))])
        self.fill_slots()

    def feed(self, slot: int, ids: list[int], budget: int) -> None:
        """Answers a waiting lane with an observation; ends it as truncated where the suffix has no room left."""
        lane = self.slots[slot]
        assert lane is not None and lane.waiting
        room = self.shape.suffix - lane.length - len(lane.pending) - len(ids) + 1
        if budget < 1 or room < 1:
            return self.finish_lane(slot, stopped=False)
        lane.pending += ids
        lane.tokens += ids
        lane.generated += [False] * len(ids)
        lane.log_probs += [0.0] * len(ids)
        lane.budget, lane.fresh, lane.waiting = min(budget, room), 0, False
        return None

    def phase(self, lane: LaneState) -> str:
        """What the lane's work is booked under."""
        return self._row(lane.row).request.phase

    # ---- device work ------------------------------------------------------------------------------------------------

    def prefill(self, params: tr.Params) -> collections.Counter[str]:
        """Prefills all that waits for it. Returns chunks by phase; empty when there was nothing."""
        done: collections.Counter[str] = collections.Counter()
        waiting = sorted((row.order, r) for r, row in enumerate(self.rows) if row is not None and not row.prefilled)
        # One dispatch scores at one temperature, or not at all.
        by_temperature: dict[float | None, list[int]] = {}
        for _, r in waiting:
            by_temperature.setdefault(self._row(r).scored_at, []).append(r)
        for temperature, rows in by_temperature.items():
            chunks = [(r, b) for r in rows for b in range(-(-len(self._row(r).tokens) // self.shape.block))]
            scores = [
                self._prefill(params, chunks[i : i + self.chunks], temperature)
                for i in range(0, len(chunks), self.chunks)
            ]
            # All are dispatched before any is waited for.
            values = np.concatenate(jax.device_get(scores), axis=1)
            for i, (r, b) in enumerate(chunks):
                row = self._row(r)
                done[row.request.phase] += 1
                if row.log_probs is not None and row.entropies is not None:
                    at = slice(b * self.shape.block + 1, (b + 1) * self.shape.block + 1)
                    n = len(row.log_probs[at])
                    row.log_probs[at], row.entropies[at] = values[0, i, :n], values[1, i, :n]
            for r in rows:
                self._prefilled(r)
        return done

    def _prefill(self, params: tr.Params, chunks: list[tuple[int, int]], temperature: float | None) -> Any:
        """Dispatches some chunks. Returns log-probabilities and entropies, [2, chunks, block], on the device."""
        n, w = self.chunks, self.shape.block
        rows, blocks = np.full(n, self.shape.rows, np.int32), np.zeros(n, np.int32)
        tokens, targets = np.zeros((n, w), np.int32), np.zeros((n, w), np.int32)
        for i, (r, b) in enumerate(chunks):
            ids = self._row(r).tokens
            rows[i], blocks[i] = r, b
            chunk, following = ids[b * w : (b + 1) * w], ids[b * w + 1 : (b + 1) * w + 1]
            tokens[i, : len(chunk)], targets[i, : len(following)] = chunk, following
        self.cache, scores = prefill(
            params, self.cache, rows, blocks, tokens, targets, np.float32(1 if temperature is None else temperature),
            cfg=self.cfg, score=temperature is not None,
        )  # fmt: skip
        return scores

    def _prefilled(self, r: int) -> None:
        row = self._row(r)
        row.prefilled = True
        if isinstance(row.request, Sample):
            return self._start(r)
        assert row.log_probs is not None and row.entropies is not None
        row.held = row.request.hold
        if not row.held:
            self.rows[r] = None
        row.deliver(Scored(row.log_probs, row.entropies, Held(r, row.tokens) if row.held else None))
        return None

    def running(self) -> list[int]:
        """The slots whose lanes can go on."""
        return [s for s, lane in enumerate(self.slots) if lane is not None and not lane.waiting]

    def _places(self, running: list[int]) -> list[tuple[int, int]]:
        """(place, slot) of each running lane: families side by side, whole tiles each."""
        families: dict[int, list[int]] = {}
        for slot in running:
            lane = self.slots[slot]
            assert lane is not None
            families.setdefault(lane.row, []).append(slot)
        places, at = [], 0
        for slots in families.values():
            places += [(at + i, slot) for i, slot in enumerate(slots)]
            at += -(-len(slots) // self.tile) * self.tile
        return places

    def lanes(self, places: list[tuple[int, int]], step: int) -> device.Lanes:
        """The host's view of the lanes as arrays for the device."""
        n, f = self.places, self.forced_width
        row, slot = np.full(n // self.tile, self.shape.rows, np.int32), np.full(n, self.shape.lanes, np.int32)
        active, temperature = np.zeros(n, bool), np.ones(n, np.float32)
        fork, length, n_forced, budget = (np.zeros(n, np.int32) for _ in range(4))
        forced = np.zeros((n, f), np.int32)
        stop, path = np.zeros((n, MAX_STOPS), np.int32), np.zeros((n, PATH_LENGTH), np.int32)
        for p, s in places:
            lane = self.slots[s]
            assert lane is not None
            ids = lane.pending[:f]
            row[p // self.tile], slot[p] = lane.row, s
            active[p], temperature[p] = True, lane.lane.temperature
            fork[p], length[p] = lane.lane.fork - 1, lane.length
            forced[p, : len(ids)], n_forced[p] = ids, len(ids)
            budget[p] = lane.budget - lane.fresh if len(lane.pending) <= f else 0
            stop[p] = [lane.lane.stop[min(i, len(lane.lane.stop) - 1)] for i in range(MAX_STOPS)]
            path[p] = (step, *lane.lane.path)
        arrays: Any = (row, slot, active, fork, length, forced, n_forced, budget, stop, temperature, path)
        return device.Lanes(*arrays)  # as NumPy has them: the dispatch moves them

    def decode(self, params: tr.Params, seed: Any, step: int, running: list[int]) -> list[tuple[int, bool]]:
        """One burst of the lanes in those slots. Returns (slot, drew a stop token) of those whose turn ended."""
        places = self._places(running)
        burst = jax.device_get(self._decode(params, seed, self.lanes(places, step)))
        if not np.isfinite(burst.log_probs).all():
            raise FloatingPointError(
                "the policy's logits are not finite: a token was drawn with a log-probability of "
                f"{burst.log_probs[~np.isfinite(burst.log_probs)][0]}"
            )
        ended = []
        for p, s in places:
            lane = self.slots[s]
            assert lane is not None
            count, fed = int(burst.count[p]), int(burst.fed[p])
            new = burst.tokens[p, :count].tolist()
            lane.length = int(burst.length[p])
            lane.pending = lane.pending[fed:]
            lane.tokens += new
            lane.generated += [True] * count
            lane.log_probs += burst.log_probs[p, :count].tolist()
            lane.fresh += count
            if new:
                lane.pending = [new[-1]]
            if burst.stopped[p]:
                lane.waiting = True
                ended.append((s, new[-1] in lane.lane.stop))
        return ended

    def _decode(self, params: tr.Params, seed: Any, lanes: device.Lanes) -> device.Burst:
        self.cache, burst = device.decode(
            params, self.cache, seed, lanes, cfg=self.cfg, tile=self.tile, width=self.width, steps=self.steps
        )
        return burst

    def warm_up(self, params: tr.Params, seed: Any) -> None:
        """Compiles the three programs by running each once on nothing."""
        for temperature in (None, 1.0):
            jax.block_until_ready(self._prefill(params, [], temperature))
        jax.block_until_ready(self._decode(params, seed, self.lanes([], 0)))
