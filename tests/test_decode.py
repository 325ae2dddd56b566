"""What a lane samples: the same as an unshared prompt, as a slow loop, and whatever goes on beside it."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import support
from support import FORCED_WIDTH, assert_lane, lane, random_ids, run, same_bits

from hdl_jax.sampling.requests import Lane, Sample, Score

# The first token, around borders of attention blocks (16), in the middle, and both ends of a prefix of 50.
FORKS = (1, 2, 16, 17, 31, 33, 49, 50)


def _talk(observations, budget=5):
    """A deterministic partner: observation n after turn n, then silence. What it says depends on what it heard."""
    turn = iter(observations)

    def respond(sampled, stopped):
        n = next(turn, None)
        if n is None:
            return None
        return [6 + (7 * i + sum(sampled) + stopped) % 50 for i in range(n)], budget

    return respond


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_forked_lanes_are_unshared_prompts(engine, oracle, temperature):
    """Eight lanes of a family, two a tile and four at once; the reference has neither cache, blocks nor neighbours."""
    prefix = random_ids(1, 50)
    lanes = [lane(fork, i, temperature=temperature) for i, fork in enumerate(FORKS)]
    family = run(engine, Sample(prefix, tuple(lanes), "root"))[0]
    unshared = run(engine, *(Sample(prefix[: one.fork], (one,), "root") for one in lanes))
    for one, result, (alone,) in zip(lanes, family, unshared, strict=True):
        assert_lane(result, oracle.sample(prefix, one))
        assert same_bits(result, alone)


def test_forks_of_one_place_differ_by_their_keys_alone(engine):
    prefix = random_ids(2, 20)
    results = run(engine, Sample(prefix, tuple(lane(10, i) for i in range(4)), "root"))[0]
    assert len({tuple(r.tokens.tolist()) for r in results}) == 4
    again = run(engine, Sample(prefix, (lane(10, 0), lane(10, 0)), "root"))[0]
    assert same_bits(again[0], again[1]) and same_bits(again[0], results[0])


def test_the_step_is_part_of_the_key(engine, oracle):
    prefix, one = random_ids(3, 20), lane(20)
    results = [run(engine, Sample(prefix, (one,), "root"), step=step)[0][0] for step in (0, 1)]
    assert results[0].tokens.tolist() != results[1].tokens.tolist()
    assert_lane(results[1], oracle.sample(prefix, one, step=1))


@pytest.mark.parametrize("seed", range(3))
def test_observations_are_fed_between_turns(engine, oracle, seed):
    """Shorter and longer than one dispatch can feed, in all lanes of a family at once."""
    rng = np.random.default_rng(seed)
    prefix = random_ids(seed, 24)
    talks = [rng.choice([1, 3, FORCED_WIDTH - 1, FORCED_WIDTH, FORCED_WIDTH + 1, 11], 3).tolist() for _ in range(4)]

    def lanes() -> list[Lane]:
        stop = tuple(range(6, 12))
        return [lane(20 + i, i, budget=5, stop=stop, respond=_talk(talk)) for i, talk in enumerate(talks)]

    results = run(engine, Sample(prefix, tuple(lanes()), "root"))[0]
    for one, result in zip(lanes(), results, strict=True):
        slow = oracle.sample(prefix, one)
        assert slow.generated.count(False) > 0
        assert_lane(result, slow)


@pytest.mark.parametrize("seed", range(6))
def test_families_of_any_shape_are_what_the_slow_sampler_plays(shared, oracle, seed):
    """Random prefixes, forks, budgets, temperatures, stop ids and observations, in flight together."""
    rng = np.random.default_rng(100 + seed)

    def family(r: int) -> tuple[np.ndarray, list]:
        prefix = random_ids(1000 * seed + r, int(rng.integers(1, support.PREFIX + 1)))
        return prefix, [
            dict(
                fork=int(rng.integers(1, len(prefix) + 1)),
                number=i,
                budget=int(rng.integers(1, 9)),
                temperature=float(rng.choice([0.5, 1.0, 1.4])),
                stop=tuple(rng.integers(0, 64, rng.integers(1, 9)).tolist()),
                talk=rng.integers(0, 8, rng.integers(0, 3)).tolist(),
            )
            for i in range(int(rng.integers(1, 8)))
        ]

    def lanes(specs: list) -> tuple[Lane, ...]:
        """Anew for each use: a partner hears a lane only once."""
        return tuple(
            lane(**{k: v for k, v in spec.items() if k != "talk"}, respond=_talk(spec["talk"])) for spec in specs
        )

    families = [family(r) for r in range(int(rng.integers(2, 10)))]
    results = run(shared, *(Sample(prefix, lanes(specs), "root") for prefix, specs in families))
    for (prefix, specs), of_family in zip(families, results, strict=True):
        for one, result in zip(lanes(specs), of_family, strict=True):
            assert_lane(result, oracle.sample(prefix, one))


@pytest.mark.parametrize(
    ("tile", "width", "chunks"), [(1, 1, 1), (1, 5, 2), (2, 2, 4), (3, 3, 1), (3, 6, 7), (4, 16, 2), (8, 8, 3)]
)
def test_whatever_runs_together_lanes_are_unshared_prompts(params, oracle, tile, width, chunks):
    """Tiles part full, groups part full, more groups than lanes; a family's lane and the same one by itself."""
    engine = support.engine(tile=tile, width=width, chunks=chunks)
    engine.load(params)
    prefix = random_ids(8, 50)
    lanes = [lane(fork, i, budget=7, respond=_talk([3, 9][i % 2 :])) for i, fork in enumerate(FORKS[1:])]
    again = [lane(fork, i, budget=7, respond=_talk([3, 9][i % 2 :])) for i, fork in enumerate(FORKS[1:])]
    slow = [lane(fork, i, budget=7, respond=_talk([3, 9][i % 2 :])) for i, fork in enumerate(FORKS[1:])]
    beside = Sample(random_ids(9, 70), tuple(_neighbour(50 + i, 70 - 20 * i) for i in range(3)), "root")
    family, _ = run(engine, Sample(prefix, tuple(lanes), "root"), beside)
    for one, by_itself, result in zip(slow, again, family, strict=True):
        assert_lane(result, oracle.sample(prefix, one))
        (alone,) = run(engine, Sample(prefix[: one.fork], (by_itself,), "root"))[0]
        assert same_bits(result, alone)


# ---- neighbours -----------------------------------------------------------------------------------------------------

PREFIX = random_ids(5, 40)


def _subject():
    return lane(37, 99, budget=6, stop=(3, 6, 7), respond=_talk([3, 9]))


def _alone(engine):
    return run(engine, Sample(PREFIX, (_subject(),), "root"))[0][0]


def _neighbour(i: int, fork: int) -> Lane:
    return lane(fork, i, budget=40, stop=(3,))


@pytest.mark.parametrize("slot", [0, 1])
def test_neighbours_in_its_family_change_no_bit(engine, params, slot):
    subject = _alone(engine)
    lanes = [_neighbour(0, 40)]
    lanes.insert(slot, _subject())
    assert same_bits(subject, run(engine, Sample(PREFIX, tuple(lanes), "root"))[0][slot])


def test_the_row_and_full_rows_change_no_bit(engine):
    """The same lane as the first to the last of more families than there are rows, among longer prefixes and lanes."""
    subject = _alone(engine)
    for place in range(6):
        requests = [
            Sample(random_ids(30 + i, 96), (_neighbour(i, 96), _neighbour(10 + i, 1)), "root") for i in range(6)
        ]
        requests.insert(place, Sample(PREFIX, (_subject(),), "root"))
        assert same_bits(subject, run(engine, *requests)[place][0])


def test_other_problems_change_no_bit(engine):
    subject = _alone(engine)
    jobs = [
        support.ask(Sample(random_ids(40 + i, 10 + 20 * i), tuple(_neighbour(j, 5) for j in range(2)), "root"))
        for i in range(4)
    ]
    jobs.insert(2, support.ask(Sample(PREFIX, (_subject(),), "root")))
    assert same_bits(subject, engine.run(jobs, 0)[2][0][0])


@pytest.mark.parametrize("place", range(7))
def test_a_slot_that_others_used_before_changes_no_bit(engine, place):
    """Seven lanes on four slots: stale keys and values of earlier lanes lie in the suffix."""
    subject = run(engine, Sample(PREFIX, (_subject(), *(_neighbour(i, 30) for i in range(2))), "root"))[0][0]
    lanes = [lane(38 - i, i, budget=3 + 5 * i) for i in range(6)]
    lanes.insert(place, _subject())
    assert same_bits(subject, run(engine, Sample(PREFIX, tuple(lanes), "root"))[0][place])


@pytest.mark.parametrize(("steps", "workers"), [(1, 1), (7, 4)])
def test_burst_length_and_workers_change_no_bit(engine, params, steps, workers):
    other = support.engine(steps=steps, workers=workers)
    other.load(params)
    expected, got = (run(e, Sample(PREFIX, (_subject(), _neighbour(0, 40)), "root"))[0] for e in (engine, other))
    assert all(map(same_bits, expected, got))


# ---- what is not theirs ---------------------------------------------------------------------------------------------


def _fill(engine, value: float, scratch: float) -> None:
    """Overwrites the whole cache: rows and slots with one number, the scratch row and slot with another."""

    def filled(store):
        return tuple(jnp.full_like(x, value).at[-1].set(scratch) for x in store)

    cache = engine.pool.cache
    engine.pool.cache = type(cache)(**{f.name: filled(getattr(cache, f.name)) for f in dataclasses.fields(cache)})


def test_stale_numbers_and_scratch_change_no_bit(engine):
    """Whatever rows and slots held before; and what idle chunks and places read, were it not even a number."""

    def everything() -> list:
        family = Sample(PREFIX, (_subject(), _neighbour(0, 3), _neighbour(1, 40)), "root")
        (scored, *_), (lanes,) = (
            run(engine, *(Score(random_ids(i, 25 + 30 * i), "score") for i in range(2))),
            run(engine, family),
        )
        return [scored.log_probs.tobytes(), scored.entropies.tobytes(), *lanes]

    first = everything()
    for value, scratch in [(1e4, 0.0), (-1e4, 1e4), (0.0, np.nan)]:
        _fill(engine, value, scratch)
        again = everything()
        assert first[:2] == again[:2]
        assert all(map(same_bits, first[2:], again[2:]))


def test_nothing_writes_where_it_has_no_place(engine):
    """A held row, and rows and slots of nobody, while lanes run, end early, wait for answers, and places idle."""

    def stores() -> list[np.ndarray]:
        cache = engine.pool.cache
        return [np.asarray(x) for x in (*cache.prefix_k, *cache.prefix_v, *cache.suffix_k, *cache.suffix_v)]

    def job():
        yield [Score(random_ids(1, 40), "score", hold=True)]
        before = stores()
        lanes = tuple(lane(20 - i, i, budget=3 + 4 * i, respond=_talk([2])) for i in range(3))
        yield [Sample(random_ids(2, 20), lanes, "root"), Score(random_ids(3, 20), "score")]
        pairs = zip(before, stores(), strict=True)
        # Of all but the scratch at the end.
        return [np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1)[:-1]).tolist() for a, b in pairs]

    _fill(engine, 1.0, 1.0)
    (changed,) = engine.run([job()], 0)
    half = len(changed) // 2
    assert changed[:half] == [[1, 2]] * half, "two prefixes, in the rows after the held one"
    assert changed[half:] == [[0, 1, 2]] * half, "three lanes"


# ---- the end of a turn ----------------------------------------------------------------------------------------------


def _turn(engine, fork=20, **kwargs):
    return run(engine, Sample(random_ids(6, 20), (lane(fork, 3, **kwargs),), "root"))[0][0]


def test_masks_and_lengths_come_from_the_engine_not_from_token_values(engine):
    """Cases T1 and T3: any of several stop ids ends a lane, and nothing after it is returned, whatever the padding."""
    free = _turn(engine, budget=12, stop=(3,)).tokens.tolist()
    assert len(set(free[:3])) == 3, "another seed: the first tokens should differ"
    for stop in [(free[2],), (3, free[2]), (free[2], 4, 5, 0), tuple(range(6)) + (free[2],)]:
        result = _turn(engine, budget=12, stop=stop)
        assert result.tokens.tolist() == free[:3]
        assert result.generated.tolist() == [True] * 3
        assert len(result.log_probs) == 3
        assert result.stopped
    # Token 0, which pads the arrays of a burst, as one of the stop ids: no lane ends because of padding.
    assert _turn(engine, budget=12, stop=(0, 63)).tokens.tolist()[:3] == free[:3]


def test_the_budget_ends_a_lane_without_a_stop(engine):
    free = _turn(engine, budget=12, stop=(3,)).tokens.tolist()
    result = _turn(engine, budget=2, stop=(free[2],))
    assert result.tokens.tolist() == free[:2] and not result.stopped


def test_a_stop_token_that_is_the_last_of_the_budget_is_a_stop(engine):
    free = _turn(engine, budget=12, stop=(3,)).tokens.tolist()
    result = _turn(engine, budget=3, stop=(free[2],))
    assert result.tokens.tolist() == free[:3] and result.stopped


@pytest.mark.parametrize("budget", [1, support.STEPS, support.STEPS + 1, support.SUFFIX])
def test_budgets_around_the_length_of_a_burst(engine, oracle, budget):
    one = lane(20, 4, budget=budget, stop=(3,))
    prefix = random_ids(7, 20)
    assert_lane(run(engine, Sample(prefix, (one,), "root"))[0][0], oracle.sample(prefix, one))
