"""The game: its rules, its points, its splits, and that the same actions always give the same texts."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains.domain import Problem
from hdl_jax.domains.errands import (
    CONTAINERS,
    FILLERS,
    KIND_OF,
    KINDS,
    OBJECTS,
    ROOM_OF,
    ROOMS,
    VERBS,
    Errand,
    Errands,
    ErrandsEpisode,
    Variation,
    parse,
    variation,
)
from hdl_jax.domains.errands_record import hint, read, reflect, retry_points
from hdl_jax.domains.errands_teacher import Noise, play

DOMAIN = Errands()
HOMES = {thing: KINDS[KIND_OF[thing]].usual for thing in OBJECTS}
HOUSE = Variation((Errand("shirt", "clean", "chest"), Errand("pen", None, "crate")), HOMES)
SHIRT = ["go bedroom", "open wardrobe", "take shirt", "go bath", "wash shirt", "go bedroom", "put shirt chest"]
PEN = ["go study", "open desk", "take pen", "go shed", "put pen crate"]


def run(actions, house=HOUSE, max_actions=24):
    """Plays actions; returns the episode and its steps."""
    episode = ErrandsEpisode(house, max_actions)
    return episode, [episode.step(action) for action in actions]


def test_both_errands_done_right_are_a_success_and_end_the_episode():
    episode, steps = run(SHIRT + PEN)
    assert [s.observation for s in steps] == [
        *("wardrobe chest trunk", "wardrobe : shirt sock scarf hat", "have shirt", "cabinet basket", "clean shirt"),
        *("wardrobe chest trunk", "shirt in chest"),
        *("desk shelf", "desk : pen book stamp map", "have pen", "toolbox crate", "pen in crate"),
    ]
    assert [s.done for s in steps] == [False] * 11 + [True]
    verdict = episode.verdict()
    assert (verdict.reward, verdict.success, verdict.feedback) == (1.0, True, "score 100 . completed")
    assert episode.step("go hall").done and episode.verdict() == verdict


def test_the_opening_tells_task_and_place():
    assert ErrandsEpisode(HOUSE, 24).opening() == "clean shirt to chest . pen to crate . hall"


@pytest.mark.parametrize(
    ("actions", "points", "last"),
    [
        ([], 0, ""),
        (["go bedroom", "open wardrobe"], 8, "wardrobe : shirt sock scarf hat"),
        (SHIRT[:3], 15, "have shirt"),
        (SHIRT[:5], 25, "clean shirt"),
        (SHIRT, 50, "shirt in chest"),
        (SHIRT[:3] + ["put shirt chest"], 15, "shirt in chest"),  # untreated: gone, and delivery does not count
        (SHIRT[:3] + ["put shirt trunk"], 15, "shirt in trunk"),
        (SHIRT[:3] + ["go kitchen", "heat shirt"], 15, "burnt shirt"),
        (PEN[:3] + ["go bath", "wash pen"], 20, "soaked pen"),
        (PEN, 50, "pen in crate"),
        (PEN[:2] + ["done"], 10, "over"),
    ],
)
def test_points_are_graded_in_order_and_mistakes_are_final(actions, points, last):
    episode, steps = run(actions)
    verdict = episode.verdict()
    assert verdict.reward == points / 100
    assert verdict.feedback == f"score {points} . not completed" and not verdict.success
    assert not steps or steps[-1].observation == last


def test_an_object_that_is_gone_cannot_be_had_again():
    episode, steps = run([*SHIRT[:3], "put shirt trunk", "open trunk", "take shirt", "open wardrobe"])
    assert [s.observation for s in steps[-3:]] == ["trunk : nothing", "cannot", "wardrobe : sock scarf hat"]


def test_both_errands_lost_end_the_episode():
    _, steps = run([*SHIRT[:3], "put shirt trunk", *PEN[:3], "put pen shelf"])
    assert steps[-1].done


def test_subgoals_are_named_and_need_the_earlier_ones():
    episode, _ = run(SHIRT[:5])
    assert episode.verdict().subgoals == (
        *(("found shirt", True), ("taken shirt", True), ("treated shirt", True), ("delivered shirt", False)),
        *(("found pen", False), ("taken pen", False), ("delivered pen", False)),
    )


@pytest.mark.parametrize(
    "action",
    [
        *(
            "",
            "   ",
            "ok",
            "dance",
            "go",
            "go attic",
            "go hall now",
            "open fridge",
            "open",
            "take pen",
            "grab",
            "done it",
        ),
        *(
            "wash shirt",
            "heat shirt",
            "put shirt chest",
            "put shirt",
            "ok now go bath",
            "Go bath",
            "look around",
            "__init__",
        ),
        *("reach pen", "settle pen", "treat shirt clean", "\x00", "go\u2581bath"),
    ],
)
def test_what_is_not_understood_or_impossible_changes_nothing(action):
    episode, steps = run([action])
    assert steps[0].observation == "cannot" and not steps[0].done
    after = [episode.step(a) for a in SHIRT + PEN]
    assert after == run(SHIRT + PEN)[1]


def test_only_what_was_opened_can_be_taken_and_only_one_thing_held():
    _, steps = run(["go bedroom", "take shirt", "open wardrobe", "take shirt", "take hat", "go study", "open wardrobe"])
    answers = [s.observation for s in steps]
    assert answers[1] == "cannot" and answers[3] == "have shirt" and answers[4] == answers[6] == "cannot"


def test_treating_twice_or_in_the_wrong_room_is_refused():
    _, steps = run([*SHIRT[:3], "wash shirt", "go bath", "wash shirt", "wash shirt"])
    assert [s.observation for s in steps[3:]] == ["cannot", "cabinet basket", "clean shirt", "cannot"]


def test_look_repeats_the_room_and_the_hall_is_empty():
    _, steps = run(["look", "go study", "hm look", "go hall"])
    assert [s.observation for s in steps] == ["nothing", "desk shelf", "desk shelf", "nothing"]


@pytest.mark.parametrize("verb", ["take", "grab", "get"])
@pytest.mark.parametrize("filler", ["", *FILLERS])
def test_fillers_and_synonyms_are_harmless(filler, verb):
    assert parse(f"{filler} {verb} pen") == parse("take pen")


def test_actions_beyond_the_limit_are_refused():
    episode, steps = run(["look"] * 3, max_actions=3)
    assert not steps[-1].done
    assert episode.step("go study") == episode.step("done") and episode.step("look").done
    assert episode.step("go study").observation == "over"


def test_token_classes_cover_filler_verb_and_arguments():
    def classes(action):
        return [(action[start:end], name) for start, end, name in DOMAIN.token_class(action)]

    assert classes("ok put pen crate") == [
        ("ok", "filler"),
        ("put", "verb"),
        ("pen", "argument"),
        ("crate", "argument"),
    ]
    assert classes("grab  pen") == [("grab", "verb"), ("pen", "argument")]
    assert classes("hm") == [("hm", "filler")]
    assert classes("dance pen") == [("pen", "argument")]
    assert classes("ok ok go") == [("ok", "filler"), ("go", "argument")]
    assert classes("") == []


def test_splits_have_their_sizes_and_share_no_task_in_the_same_house():
    sizes = {split: len(DOMAIN.problems(split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 4000, "validation": 500, "test": 1000}
    prints = set()
    for split, size in sizes.items():
        for index in range(size):
            house = variation(split, index)
            prints.add((house.errands, tuple(house.homes.items())))
    assert len(prints) == 5500


def test_problems_rebuild_from_their_index_and_unknown_ones_are_refused():
    problem = DOMAIN.problems("test")[17]
    assert problem == Problem("errands/test/17", 17, "test")
    assert DOMAIN.start(problem).opening() == DOMAIN.start(problem).opening()
    with pytest.raises(ValueError, match="it has train, validation, test"):
        DOMAIN.problems("dev")
    with pytest.raises(ValueError, match="no problem 500 in split 'validation'"):
        DOMAIN.start(Problem("errands/validation/500", 500, "validation"))


def test_things_lie_where_their_kind_usually_does():
    homes = [(thing, home) for i in range(300) for thing, home in variation("train", i).homes.items()]
    usual = sum(home == KINDS[KIND_OF[thing]].usual for thing, home in homes) / len(homes)
    room = sum(ROOM_OF[home] == ROOM_OF[KINDS[KIND_OF[thing]].usual] for thing, home in homes) / len(homes)
    assert 0.62 < usual < 0.71 and 0.84 < room < 0.92


def test_tasks_are_possible_and_ask_only_for_what_their_kind_allows():
    for index in range(300):
        house = variation("train", index)
        first, second = house.errands
        assert first.thing != second.thing
        for errand in house.errands:
            assert errand.target != house.homes[errand.thing]
            assert errand.treatment in (None, *KINDS[KIND_OF[errand.thing]].treatments)


words = st.sampled_from([*VERBS, *FILLERS, *ROOMS, *CONTAINERS, *OBJECTS])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3999), st.lists(st.lists(words, max_size=4).map(" ".join) | st.text(max_size=9), max_size=30))
def test_replaying_any_actions_gives_the_same_texts_and_a_reward_in_range(index, actions):
    problem = DOMAIN.problems("train")[index]
    first, again = DOMAIN.start(problem), DOMAIN.start(problem)
    assert [first.step(a) for a in actions] == [again.step(a) for a in actions]
    assert first.verdict() == again.verdict()
    assert 0.0 <= first.verdict().reward <= 1.0


def test_a_step_takes_microseconds():
    episode = ErrandsEpisode(HOUSE, 10**9)
    started = time.perf_counter()
    for _ in range(2000):
        episode.step("ok open desk")
        episode.step("go study")
    assert (time.perf_counter() - started) / 4000 < 2e-4


# The scripted player and the record.


def attempts(noise, count=150):
    for index in range(count):
        house = variation("train", index)
        yield house, play(house, 24, noise, random.Random(index))


def test_a_player_without_noise_nearly_always_succeeds_and_a_noisy_one_mostly_fails():
    def mean(noise):
        return sum(attempt.reward for _, attempt in attempts(noise)) / 150

    assert mean(Noise().scaled(0.0)) > 0.95
    assert 0.2 < mean(Noise()) < 0.5


def test_the_record_agrees_with_the_verifier():
    for factor in (0.0, 0.5, 1.0, 1.5):
        for house, attempt in attempts(Noise().scaled(factor), 80):
            account = read(house.errands, attempt.turns)
            assert attempt.success == all(fate.delivered for fate in account.fates)
            told = reflect(house.errands, attempt)
            assert told.startswith(f"OUTCOME: {'SUCCESS' if attempt.success else 'FAILURE'}\nSUMMARY: ")
            assert told.count("\n") == 1 and not any(character.isdigit() for character in told)


def test_reflections_name_seat_fault_and_remedy():
    episode, steps = run([*SHIRT[:3], "put shirt trunk", "done"])
    turns = list(zip([*SHIRT[:3], "put shirt trunk", "done"], [s.observation for s in steps], strict=True))
    house, attempt = HOUSE, next(attempts(Noise()))[1]
    attempt = type(attempt)(episode.opening(), tuple(turns), 0.15, False, "score 15 . not completed")
    summary = reflect(house.errands, attempt).split("SUMMARY: ")[1]
    assert "shirt was in wardrobe , wrong , not clean , wash it and put in chest" in summary
    assert "pen not found , search" in summary and summary.endswith("done too early")


def test_retry_points_are_two_different_steps_in_range():
    for factor in (0.0, 1.0):
        for house, attempt in attempts(Noise().scaled(factor), 80):
            answer = retry_points(house.errands, attempt, random.Random(0))
            if len(attempt.turns) == 1:
                assert answer == ""
                continue
            first, second = (int(line.split(": ")[1]) for line in answer.split("\n"))
            assert first != second and {first, second} <= set(range(1, len(attempt.turns) + 1))


def test_a_second_attempt_with_hindsight_does_better():
    first = second = 0.0
    for house, attempt in attempts(Noise()):
        again = play(house, 24, Noise().scaled(0.15), random.Random(1), hint(house.errands, attempt))
        first, second = first + attempt.reward, second + again.reward
    assert second > 1.5 * first
