"""The engine's loop: scoring, held rows, limits, host work, failures."""

from __future__ import annotations

import functools
import itertools
import threading
import time

import numpy as np
import pytest
import support
from support import BLOCK, PREFIX, SUFFIX, assert_lane, lane, random_ids, run, same_bits

from hdl_jax.domains.domain import EnvironmentFailure
from hdl_jax.sampling import pool as device
from hdl_jax.sampling.requests import Call, Held, Lane, Release, Sample, Score, Scored


def _free(engine) -> bool:
    return not any(engine.pool.rows) and not any(engine.pool.slots)


# ---- scores ---------------------------------------------------------------------------------------------------------


def _assert_scored(scored: Scored, oracle, tokens, temperature=1.0):
    log_p = oracle.log_softmax(tokens, temperature)[:-1]
    expected = np.zeros(len(tokens))
    expected[1:] = np.take_along_axis(log_p, tokens[1:, None], -1)[:, 0]
    np.testing.assert_allclose(scored.log_probs, expected, atol=2e-5)
    expected[1:] = -(np.exp(log_p) * log_p).sum(-1)
    np.testing.assert_allclose(scored.entropies, expected, atol=2e-5)


def test_scores_equal_a_plain_forward(engine, oracle):
    """Lengths at and around chunk borders, more of them than rows; each score read at its own index."""
    rows = [random_ids(n, n) for n in (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 50, PREFIX)]
    for tokens, scored in zip(rows, run(engine, *(Score(t, "score") for t in rows)), strict=True):
        assert scored.held is None
        _assert_scored(scored, oracle, tokens)
    assert _free(engine)


def test_each_score_has_its_own_temperature(engine, oracle):
    """H16: a temperature is that of its request, whatever is scored beside it."""
    rows = [random_ids(i, 20 + 9 * i) for i in range(4)]
    temperatures = [1.0, 0.6, 1.0, 1.7]
    requests = [Score(t, "score", temperature=x) for t, x in zip(rows, temperatures, strict=True)]
    for tokens, temperature, scored in zip(rows, temperatures, run(engine, *requests), strict=True):
        _assert_scored(scored, oracle, tokens, temperature)


def test_what_was_sampled_scores_as_it_was_sampled(engine):
    """P1 end to end: recorded log-probs are those of the sampler's temperature."""
    prefix = random_ids(9, 30)
    one = lane(30, budget=20, temperature=0.6)
    (result,) = run(engine, Sample(prefix, (one,), "root"))[0]
    path = np.concatenate([prefix, result.tokens])
    tempered, plain = run(engine, Score(path, "score", temperature=0.6), Score(path, "score"))
    np.testing.assert_allclose(result.log_probs, tempered.log_probs[30:], atol=1e-5)
    assert np.abs(result.log_probs - plain.log_probs[30:]).max() > 0.01


def test_a_score_does_not_depend_on_what_is_scored_beside_it(engine):
    tokens = random_ids(10, 40)
    (alone,) = run(engine, Score(tokens, "score"))
    for place in range(4):
        requests = [Score(random_ids(20 + i, 30 * i + 5), "score") for i in range(3)]
        requests.insert(place, Score(tokens, "score"))
        beside = run(engine, *requests, Sample(random_ids(3, 70), (lane(70, budget=30),), "root"))[place]
        assert alone.log_probs.tobytes() == beside.log_probs.tobytes()
        assert alone.entropies.tobytes() == beside.entropies.tobytes()


@pytest.mark.parametrize("chunks", [1, 8])
def test_chunks_of_one_dispatch_see_each_other(params, oracle, monkeypatch, chunks):
    """Six blocks of one prefix, and two of another, in one dispatch or one at a time: all a token sees is before it."""
    dispatches = []
    prefill = device.prefill

    def counted(*args, **kwargs):
        dispatches.append(kwargs["score"])
        return prefill(*args, **kwargs)

    monkeypatch.setattr(device, "prefill", counted)
    engine = support.engine(chunks=chunks)
    engine.load(params)
    rows = [random_ids(51, PREFIX), random_ids(52, 2 * BLOCK)]
    for tokens, scored in zip(rows, run(engine, *(Score(t, "score") for t in rows)), strict=True):
        _assert_scored(scored, oracle, tokens)
    assert len(dispatches) == 8 // chunks


# ---- held rows ------------------------------------------------------------------------------------------------------


def _continue(tokens, forks, meanwhile=lambda: None):
    """Score and hold several rows, wait for the host, then continue each at its forks."""
    scored = yield [Score(t, "score", hold=True) for t in tokens]
    yield [Call(meanwhile, "verify")]
    families = yield [
        Sample(s.held, tuple(lane(f, 10 * r + i) for i, f in enumerate(forks)), "continue")
        for r, s in enumerate(scored)
    ]
    return scored, families


def test_continuations_of_a_held_row_need_no_prefill(engine, oracle, monkeypatch):
    prefills = []
    prefill = device.prefill

    def counted(*args, **kwargs):
        prefills.append(kwargs["score"])
        return prefill(*args, **kwargs)

    monkeypatch.setattr(device, "prefill", counted)
    tokens = [random_ids(1, 60), random_ids(2, 33)]
    forks = (1, 17, 32, 33)

    def job():
        scored, families = yield from _continue(tokens, forks)
        return scored, families

    ((scored, families),) = engine.run([job()], 0)
    assert prefills == [True] * 3, "four chunks and three, three at a time, and nothing for eight lanes"
    for r, row in enumerate(tokens):
        _assert_scored(scored[r], oracle, row)
        for i, result in enumerate(families[r]):
            assert_lane(result, oracle.sample(row, lane(forks[i], 10 * r + i)))
    assert _free(engine)


def test_jobs_that_hold_rows_do_not_wait_for_each_other_for_ever(scarce):
    """Three rows. The second job holds two of them; the third wants three, and would get one; the first, which goes
    before the others but asks last, wants three, and would get the other two as they come free."""
    tokens = [[random_ids(10 * j + r, 20 + 5 * r) for r in range(n)] for j, n in enumerate((3, 2, 3))]
    asked = threading.Event()

    def first():
        yield [Call(asked.wait, "verify")]
        return (yield from _continue(tokens[0], (5, 20)))

    def pause():
        asked.set()
        time.sleep(0.1)

    jobs = [first(), _continue(tokens[1], (5, 20), pause), _continue(tokens[2], (5, 20))]
    for t, (_, families) in zip(tokens, scarce.run(jobs, 0), strict=True):
        ((_, alone),) = scarce.run([_continue(t, (5, 20))], 0)
        assert all(same_bits(a, b) for x, y in zip(families, alone, strict=True) for a, b in zip(x, y, strict=True))
    assert _free(scarce)


def test_held_rows_are_freed_when_their_job_ends_without_them(scarce):
    def job():
        scored = yield [Score(random_ids(r, 20), "score", hold=True) for r in range(3)]
        assert all(isinstance(s.held, Held) for s in scored)
        return len(scored)

    assert scarce.run([job(), job(), job()], 0) == [3, 3, 3]
    assert _free(scarce)


def test_a_released_row_serves_the_next(scarce):
    """Held and given back over and over, by more jobs than there are rows."""

    def job(i):
        for _ in range(3):
            scored = yield [Score(random_ids(i, 20), "score", hold=True) for _ in range(2)]
            assert (yield [Release(s.held) for s in scored]) == [None, None]
        return i

    assert scarce.run([job(i) for i in range(4)], 0) == [0, 1, 2, 3]
    assert _free(scarce)


def test_more_held_rows_than_there_are_is_refused(scarce):
    with pytest.raises(ValueError, match="4 roots of one problem must be held at once.*3 rows.*engine.rows"):
        run(scarce, *(Score(random_ids(r, 20), "score", hold=True) for r in range(4)))


def test_asking_for_more_while_holding_all_rows_is_an_error_and_no_hang(scarce):
    def job():
        yield [Score(random_ids(r, 20), "score", hold=True) for r in range(3)]
        yield [Score(random_ids(9, 20), "score")]

    with pytest.raises(RuntimeError, match="rows that are all held"):
        scarce.run([job()], 0)


def test_a_held_row_is_continued_once(engine):
    def job():
        (scored,) = yield [Score(random_ids(0, 20), "score", hold=True)]
        for _ in range(2):
            yield [Sample(scored.held, (lane(5),), "continue")]

    with pytest.raises((AssertionError, ValueError)):
        engine.run([job()], 0)


# ---- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_of", [lambda t: Score(t, "score"), lambda t: Sample(t, (lane(5),), "root")])
def test_a_prefix_longer_than_its_row_is_refused(engine, request_of):
    assert run(engine, request_of(random_ids(0, PREFIX)))
    with pytest.raises(
        ValueError, match=f"prefix of {PREFIX + 1} tokens does not fit.*row of {PREFIX}.*engine.context_tokens"
    ):
        run(engine, request_of(random_ids(0, PREFIX + 1)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lane(0), "fork 0 is outside 1..20"),
        (lane(21), "fork 21 is outside 1..20"),
        (lane(5, budget=0), "budget of at least 1"),
        (lane(5, stop=()), "1 to 8 stop ids"),
        (lane(5, stop=tuple(range(9))), "1 to 8 stop ids"),
    ],
)
def test_impossible_lanes_are_refused(engine, bad, message):
    with pytest.raises(ValueError, match=message):
        run(engine, Sample(random_ids(0, 20), (lane(20), bad), "root"))


def test_a_full_suffix_truncates_the_first_turn(engine, oracle):
    one = lane(20, budget=SUFFIX + 30, stop=(3,))
    slow = oracle.sample(random_ids(12, 20), lane(20, budget=SUFFIX, stop=(3,)))
    assert len(slow.tokens) == SUFFIX and not slow.stopped
    assert_lane(run(engine, Sample(random_ids(12, 20), (one,), "root"))[0][0], slow)


@pytest.mark.parametrize("n", [3, 10, 25])
def test_a_full_suffix_truncates_a_later_turn(engine, oracle, n):
    """T10: what is fed and sampled after the fork never exceeds the suffix; what fits is as if it were endless."""

    def respond(sampled, _):
        return [6 + (i + sum(sampled)) % 50 for i in range(n)], 10

    prefix = random_ids(13, 40)
    one = lane(33, budget=10, stop=(3,), respond=respond)
    result = run(engine, Sample(prefix, (one,), "root"))[0][0]
    assert not result.stopped
    # Every slot is used unless the next observation would leave no room to act on it.
    assert SUFFIX - n <= len(result.tokens) <= SUFFIX
    turns = itertools.count(1)

    def while_it_fits(sampled, stopped):
        return respond(sampled, stopped) if 10 * next(turns) < len(result.tokens) else None

    slow = oracle.sample(prefix, lane(33, budget=10, stop=(3,), respond=while_it_fits))
    n = len(result.tokens)
    assert result.tokens.tolist() == slow.tokens[:n] and result.generated.tolist() == slow.generated[:n]
    np.testing.assert_allclose(result.log_probs, slow.log_probs[:n], atol=1e-5)


def test_a_width_of_part_tiles_is_refused():
    with pytest.raises(ValueError, match="width=4 must be a multiple of tile=3"):
        support.engine(tile=3, width=4)


def test_an_engine_without_weights_says_so(params):
    fresh = support.engine()
    with pytest.raises(RuntimeError, match="engine.load"):
        run(fresh, Score(random_ids(0, 5), "score"))
    fresh.load(params)
    (before,) = run(fresh, Score(random_ids(0, 5), "score"))
    fresh.unload()
    with pytest.raises(RuntimeError, match="engine.load"):
        run(fresh, Score(random_ids(0, 5), "score"))
    fresh.load(params)
    (after,) = run(fresh, Score(random_ids(0, 5), "score"))
    assert before.log_probs.tobytes() == after.log_probs.tobytes()


# ---- host work ------------------------------------------------------------------------------------------------------


def test_calls_run_in_the_worker_pool_and_come_back_in_order(engine):
    def slow(i):
        time.sleep(0.02 * (3 - i))
        return i, threading.current_thread() is threading.main_thread()

    assert run(engine, *(Call(functools.partial(slow, i), "verify") for i in range(4))) == [
        (i, False) for i in range(4)
    ]


def test_an_environment_failure_is_the_calls_result_and_a_bug_is_not(engine):
    def fail(error):
        raise error

    down, fine = run(engine, Call(lambda: fail(EnvironmentFailure("down")), "verify"), Call(lambda: 1, "verify"))
    assert isinstance(down, EnvironmentFailure) and fine == 1
    with pytest.raises(ZeroDivisionError):
        run(engine, Call(lambda: 1 // 0, "verify"))


def test_a_failing_environment_ends_its_own_lane_only(engine):
    prefix = random_ids(14, 20)

    def respond(sampled, stopped):
        raise EnvironmentFailure("down")

    lanes = (lane(20, 0, budget=5, respond=respond), lane(20, 1, budget=30))
    failed, fine = run(engine, Sample(prefix, lanes, "root"))[0]
    assert isinstance(failed.failure, EnvironmentFailure) and len(failed.tokens) == 5
    assert fine.failure is None and same_bits(fine, run(engine, Sample(prefix, lanes[1:], "root"))[0][0])


def test_slow_and_fast_environments_sample_the_same(engine):
    def lanes(sleep) -> tuple[Lane, ...]:
        def respond(number):
            turns = itertools.count()

            def answer(sampled, stopped):
                time.sleep(sleep * (number % 3))
                return ([10 + number, 11, 12], 6) if next(turns) < 2 else None

            return answer

        return tuple(lane(20, i, budget=6, respond=respond(i)) for i in range(6))

    prefix = random_ids(15, 20)
    fast, slow = (run(engine, Sample(prefix, lanes(sleep), "root"))[0] for sleep in (0, 0.01))
    assert all(map(same_bits, fast, slow))


def test_results_are_in_order_and_progress_is_told(engine):
    def job(i):
        yield [Call(lambda: time.sleep(0.01 * (4 - i)), "verify")]
        return i

    told = []
    assert engine.run([job(i) for i in range(4)], 0, on_done=lambda: told.append(1)) == [0, 1, 2, 3]
    assert len(told) == 4
    assert engine.run([], 0) == []


def test_a_job_that_asks_for_nothing_goes_on(engine):
    def job():
        return (yield [])

    assert engine.run([job()], 0) == [[]]


def test_an_engine_serves_on_after_an_error(engine):
    """Whatever was in flight is forgotten; nothing of it leaks into the next run."""
    tokens = random_ids(41, 40)
    (before,) = run(engine, Score(tokens, "score"))

    def breaks():
        yield [Score(random_ids(42, 50), "score", hold=True)]
        raise KeyError("a bug in a method")

    busy = Sample(random_ids(43, 30), (lane(30, budget=40),), "root")
    with pytest.raises(KeyError):
        engine.run([breaks(), support.ask(busy, busy, busy)], 0)
    assert _free(engine)
    (after,) = run(engine, Score(tokens, "score"))
    assert before.log_probs.tobytes() == after.log_probs.tobytes()


def test_logits_that_are_not_finite_are_an_error(engine, params):
    engine.load({**params, "norm": params["norm"] * np.nan})
    with pytest.raises(FloatingPointError, match="logits are not finite"):
        run(engine, Sample(random_ids(44, 20), (lane(20),), "root"))
