"""Where and when requests run: whatever the engine's size, the order and the clock, the same tokens and log-probs."""

from __future__ import annotations

import collections
import time

import numpy as np
import pytest
import support
from support import BLOCK, PREFIX, lane, random_ids, run, same_bits, same_log_probs

from hdl_jax.compilations import count_compilations
from hdl_jax.sampling import decode as device
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Call, Lane, LaneResult, Sample, Score, Scored

# ---- a step of several problems -------------------------------------------------------------------------------------


def _problem(problem: int, clock: np.random.Generator | None = None):
    """A job as a method is one: lanes that talk, a score of each root, and its continuations. Returns all it saw."""

    def wait():
        if clock is not None:
            time.sleep(clock.choice([0, 0.001, 0.01]))

    def respond(number):
        def answer(sampled, stopped):
            wait()
            heard.append(number)
            if heard.count(number) > 2:
                return None
            return [6 + (i + sum(sampled)) % 50 for i in range(1 + sum(sampled) % 7)], 4

        heard: list[int] = []
        return answer

    def name(stream, fork, number):
        return (stream, problem, 0, fork, 0, number)

    rng = np.random.default_rng(problem)
    prompt = random_ids(problem, int(rng.integers(5, 40)))
    stop = tuple(range(6, 10))
    lanes = [
        Lane(name(Stream.ROOT, len(prompt), i), len(prompt), 5, 1.0, stop, respond(i))
        for i in range(rng.integers(2, 6))
    ]
    (roots,) = yield [Sample(prompt, tuple(lanes), "root")]
    yield [Call(wait, "verify")]
    paths = [np.concatenate([prompt, root.tokens]) for root in roots[:2]]
    scored = yield [Score(path, "score", hold=True) for path in paths]
    families = []
    for r, s in enumerate(scored):
        forks = rng.integers(1, len(paths[r]) + 1, 3).tolist()
        lanes = [Lane(name(Stream.CONTINUATION + r, f, i), f, 6, 0.8, (3,)) for i, f in enumerate(forks)]
        families.append(Sample(s.held, tuple(lanes), "continue"))
    return roots, scored, (yield families)


def _same(a, b) -> bool:
    """Whether what two jobs saw is equal, bit for bit where the compiler lets it be."""
    if isinstance(a, LaneResult):
        return same_bits(a, b)
    if isinstance(a, Scored):
        return same_log_probs(a.log_probs, b.log_probs) and same_log_probs(a.entropies, b.entropies)
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _step(engine, order=range(5), clock=None) -> dict[int, list]:
    """What each of five problems saw, started in some order."""
    return dict(zip(order, engine.run([_problem(p, clock) for p in order], 3), strict=True))


@pytest.fixture(scope="module")
def alone(shared):
    """What each problem sees when it has the engine for itself."""
    return {p: shared.run([_problem(p)], 3)[0] for p in range(5)}


def test_problems_share_an_engine_as_if_alone(shared, alone):
    seen = _step(shared)
    assert all(_same(alone[p], seen[p]) for p in alone)
    lanes = [root for p in alone for root in alone[p][0]]
    assert len({tuple(root.tokens.tolist()) for root in lanes}) == len(lanes), "a comparison that compares nothing"


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_problems_and_the_clock_change_no_bit(shared, alone, seed):
    """Every answer of an environment takes a random time, and problems arrive in a random order."""
    rng = np.random.default_rng(seed)
    seen = _step(shared, rng.permutation(5).tolist(), clock=rng)
    assert all(_same(alone[p], seen[p]) for p in alone)


@pytest.mark.parametrize("workers", [1, 16])
def test_the_number_of_workers_changes_no_bit(params, alone, workers):
    engine = support.engine(workers=workers)
    engine.load(params)
    seen = _step(engine, clock=np.random.default_rng(7))
    assert all(_same(alone[p], seen[p]) for p in alone)


@pytest.mark.parametrize(("rows", "lanes"), [(2, 1), (2, 5), (3, 40), (16, 3), (20, 33)])
def test_the_engines_size_changes_no_bit(params, alone, rows, lanes):
    """From one lane at a time to more places than there are lanes, with and without rows to spare."""
    engine = support.engine(rows=rows, lanes=lanes)
    engine.load(params)
    seen = _step(engine)
    assert all(_same(alone[p], seen[p]) for p in alone)


@pytest.mark.parametrize("steps", [1, 9])
def test_the_length_of_a_burst_changes_no_bit(params, alone, steps):
    engine = support.engine(steps=steps)
    engine.load(params)
    seen = _step(engine)
    assert all(_same(alone[p], seen[p]) for p in alone)


# ---- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_families_lie_in_whole_tiles_and_always_fit(seed):
    """Any split of all slots among the rows: no tile has two families, none is between a family's own, all are in."""
    rng = np.random.default_rng(seed)
    rows, lanes, tile = (int(n) for n in rng.integers(1, [6, 12, 5]))
    pool = support.engine(rows=rows, lanes=lanes, tile=tile, width=tile * int(rng.integers(1, 4))).pool
    for slot, row in enumerate(rng.integers(0, rows, lanes)):
        pool.slots[slot] = support.lane_state(int(row))
    running = [s for s in range(lanes) if rng.random() < 0.8]
    places = pool._places(running)
    assert sorted(s for _, s in places) == running
    assert len({p for p, _ in places}) == len(running) and all(0 <= p < pool.places for p, _ in places)
    tiles = collections.defaultdict(set)
    for place, slot in places:
        tiles[place // tile].add(pool.slots[slot].row)
    assert all(len(families) == 1 for families in tiles.values())
    assert pool.places % pool.width == 0
    # As few tiles as there can be, in front.
    of_row = collections.Counter(pool.slots[s].row for s in running)
    assert len(tiles) == sum(-(-n // tile) for n in of_row.values()) == max(tiles, default=-1) + 1


@pytest.fixture
def bursts(monkeypatch):
    """Fills with the number of steps of every decode burst from here on."""
    steps: list[int] = []

    def decode(params, cache, seed, lanes, **kwargs):
        cache, burst = real(params, cache, seed, lanes, **kwargs)
        steps.append(int((burst.length - lanes.length).max()))
        return cache, burst

    real = device.decode
    monkeypatch.setattr(device, "decode", decode)
    return steps


def test_a_group_that_is_done_holds_up_no_other(params, bursts):
    """Of five groups the first has only lanes of one token: the last still gets all its tokens in the same burst."""
    engine = support.engine(lanes=20, steps=12)
    engine.load(params)
    lanes = tuple(lane(20, i, budget=1 if i < support.WIDTH else 12, stop=(2,)) for i in range(20))
    results = run(engine, Sample(random_ids(19, 20), lanes, "root"))[0]
    assert [len(r.tokens) for r in results] == [one.budget for one in lanes], "another seed: one drew its stop token"
    assert bursts == [12]


def test_a_burst_ends_when_a_quarter_waits(params, bursts):
    engine = support.engine(lanes=20, steps=12)
    engine.load(params)
    lanes = tuple(lane(20, i, budget=2 if i < 5 else 9, stop=(2,)) for i in range(20))
    results = run(engine, Sample(random_ids(19, 20), lanes, "root"))[0]
    assert [len(r.tokens) for r in results] == [one.budget for one in lanes], "another seed: one drew its stop token"
    assert bursts == [2, 7]


def test_more_lanes_than_slots_wait_and_finish(scarce, oracle):
    """Thirty lanes of three families on four slots, in one row each; results in the order of asking."""
    prefixes = [random_ids(60 + r, 20 + 9 * r) for r in range(3)]
    families = [
        tuple(lane(1 + (5 * i + r) % len(prefixes[r]), 10 * r + i, budget=1 + (3 * i + r) % 7) for i in range(10))
        for r in range(3)
    ]
    results = run(scarce, *(Sample(p, f, "root") for p, f in zip(prefixes, families, strict=True)))
    for prefix, family, of_family in zip(prefixes, families, results, strict=True):
        for one, result in zip(family, of_family, strict=True):
            support.assert_lane(result, oracle.sample(prefix, one))
    assert not any(scarce.pool.slots) and not any(scarce.pool.rows)


def test_more_families_than_rows_wait_and_finish(scarce, oracle):
    prefixes = [random_ids(70 + r, 3 + 10 * r) for r in range(9)]
    results = run(scarce, *(Sample(p, (lane(len(p), 0), lane(1, 1)), "root") for p in prefixes))
    for prefix, of_family in zip(prefixes, results, strict=True):
        for one, result in zip((lane(len(prefix), 0), lane(1, 1)), of_family, strict=True):
            support.assert_lane(result, oracle.sample(prefix, one))


# ---- what it cost ---------------------------------------------------------------------------------------------------


def test_every_token_is_counted_under_its_phase(shared):
    """Sampled ones, fed ones (each draw feeds the token before it, and observations come on top), whole chunks."""
    shared.take_usage()
    prefix = random_ids(16, 2 * BLOCK + 1)

    def respond(sampled, _):
        return None if len(sampled) < 6 else ([9, 9, 9], 3)

    lanes = tuple(lane(20, i, budget=6, stop=(3,), respond=respond) for i in range(3))
    roots, reflections, *_ = run(
        shared,
        Sample(prefix, lanes, "root"),
        Sample(prefix[:BLOCK], (lane(BLOCK, 7, budget=9),), "reflect"),
        Score(random_ids(17, 1), "score"),
        Score(random_ids(18, PREFIX), "score"),
        Call(lambda: None, "verify"),
    )
    usage = shared.take_usage()
    assert usage.sampled == {
        "root": sum(int(r.generated.sum()) for r in roots),
        "reflect": sum(int(r.generated.sum()) for r in reflections),
    }
    assert usage.fed == {
        phase: sum(len(r.tokens) for r in of) for phase, of in (("root", roots), ("reflect", reflections))
    }
    assert usage.fed["root"] > usage.sampled["root"]
    assert usage.prefilled == {"root": 3 * BLOCK, "reflect": BLOCK, "score": BLOCK + PREFIX}
    assert usage.seconds.keys() == {"root", "reflect", "score", "verify", "schedule"}
    assert all(seconds > 0 for seconds in usage.seconds.values())
    empty = shared.take_usage()
    assert not (empty.sampled or empty.fed or empty.prefilled or empty.seconds)


def test_continuations_of_a_held_row_prefill_nothing(shared):
    shared.take_usage()

    def job():
        (scored,) = yield [Score(random_ids(0, BLOCK + 1), "score", hold=True)]
        yield [Sample(scored.held, (lane(5),), "continue")]

    shared.run([job()], 0)
    usage = shared.take_usage()
    assert usage.prefilled == {"score": 2 * BLOCK} and usage.fed.keys() == {"continue"}


# ---- compilations ---------------------------------------------------------------------------------------------------


def test_twenty_steps_compile_nothing_after_the_warm_up(params):
    """B4. Weights, lengths, forks, budgets, turns, temperatures, stop ids, numbers of lanes and problems all vary."""
    engine = support.engine(rows=6, lanes=11, tile=3, width=6, chunks=2, steps=5)  # a shape of its own
    count = count_compilations()
    engine.load(params)
    engine.warm_up()
    warm = count()
    assert warm >= 3, "prefill with scores and without, decode: the programs of another test have served this one"
    rng = np.random.default_rng(17)

    def respond(sampled, _):
        return (random_ids(len(sampled), 1 + sum(sampled) % 9).tolist(), 4) if sum(sampled) % 3 else None

    def one(n: int) -> Lane:
        stop = tuple(rng.integers(0, 64, rng.integers(1, 9)).tolist())
        return lane(
            int(rng.integers(1, n + 1)),
            int(rng.integers(99)),
            budget=int(rng.integers(1, 20)),
            temperature=float(rng.uniform(0.5, 1.5)),
            stop=stop,
            respond=respond,
        )

    def job():
        length = int(rng.integers(1, PREFIX))
        yield [
            Score(random_ids(1, length), "score", temperature=float(rng.uniform(0.5, 1.5))),
            Sample(random_ids(2, length), tuple(one(length) for _ in range(rng.integers(1, 16))), "root"),
        ]
        (scored,) = yield [Score(random_ids(3, length), "score", hold=True)]
        yield [Sample(scored.held, (one(length),), "continue")]

    for step in range(20):
        engine.load({**params, "norm": params["norm"] * np.float32(1 + step / 100)})
        engine.run([job() for _ in range(rng.integers(1, 6))], step)
    assert count() == warm
