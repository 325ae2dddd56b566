"""The tasks that the package draws: the same everywhere, right, in disjoint splits; and their words classed."""

from __future__ import annotations

import hashlib
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter

import pytest

from hdl_jax.domains.domain import Problem
from hdl_jax.domains.reasoning import FAMILIES, SPLITS, Reasoning, tasks

pytest.importorskip("reasoning_gym")

DOMAIN = Reasoning()
DIGEST = """
import hashlib
from hdl_jax.domains.reasoning import Reasoning
domain = Reasoning()
lines = [domain.start(p).opening() for split in ("test", "train", "validation") for p in domain.problems(split)]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def openings(split):
    return [DOMAIN.start(problem).opening() for problem in DOMAIN.problems(split)]


def test_tasks_are_the_same_in_every_process_whatever_the_hash_seed():
    lines = [opening for split in ("test", "train", "validation") for opening in openings(split)]
    here = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        there = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here
    # Runs of different days compare only if nobody's tasks moved.
    assert here.startswith("e981e806b93fff85")


def test_splits_have_their_sizes_and_share_no_question():
    assert {split: len(DOMAIN.problems(split)) for split in SPLITS} == {"train": 384, "validation": 64, "test": 64}
    questions = [question for split in SPLITS for question in openings(split)]
    assert len(set(questions)) == len(questions) == 512


def test_families_are_mixed_and_have_their_shares():
    for split in SPLITS:
        items = tasks()[split]
        assert Counter(item.family for item in items) == {name: f.sizes[split] for name, f in FAMILIES.items()}
        assert len({item.family for item in items[:16]}) >= 3


def right(family, question):
    """The answer worked out from the question alone."""
    if family == "equations":
        letter, total = re.findall(r"\b([a-z]) \+ \d+ = (\d+),", question)[0]
        assert question.startswith(f"If {letter} + ") and f"what is {letter}?" in question
        return int(total) - int(re.findall(r"\+ (\d+) =", question)[0])
    numbers = [int(n) for n in re.findall(r"\d+", question)]
    assert len(numbers) == 2
    if family == "arithmetic":
        operator = re.findall(r"\d ([-+*]) \d", question)[0]
        return {"+": sum(numbers), "-": numbers[0] - numbers[1], "*": math.prod(numbers)}[operator]
    return {"divisors": math.gcd, "multiples": math.lcm}[family](*numbers)


def test_references_are_right_and_reward_their_own_text():
    for split in SPLITS:
        for problem, item in zip(DOMAIN.problems(split), tasks()[split], strict=True):
            assert int(item.reference) == right(item.family, item.question) >= 0
            for answer, reward in ((f"It is {item.reference}.", 1.0), (f"It is {item.reference}1.", 0.0)):
                episode = DOMAIN.start(problem)
                episode.step(answer)
                assert episode.verdict().reward == reward


def test_prompts_ask_for_what_the_verifier_reads():
    assert all(question.endswith("end with the result.") for split in SPLITS for question in openings(split))


def test_levels_are_those_of_a_small_model():
    for split in SPLITS:
        for item in tasks()[split]:
            assert max(int(n) for n in re.findall(r"\d+", item.question)) <= 15
            assert int(item.reference) <= 100


def test_problems_rebuild_from_their_index_and_unknown_ones_are_refused():
    assert DOMAIN.problems("test")[17] == Problem("reasoning/test/17", 17, "test")
    assert DOMAIN.start(Problem("reasoning/test/17", 17, "test")).opening() == tasks()["test"][17].question
    with pytest.raises(ValueError, match="no split 'dev'; it has train, validation, test"):
        DOMAIN.problems("dev")
    for index, split in ((384, "train"), (-1, "train"), (0, "dev")):
        with pytest.raises(ValueError, match=f"no problem {index} in split '{split}'"):
            DOMAIN.start(Problem(f"reasoning/{split}/{index}", index, split))


def test_tasks_are_drawn_in_a_moment():
    tasks.cache_clear()
    started = time.perf_counter()
    domain = Reasoning()
    assert all(domain.start(problem).opening() for split in SPLITS for problem in domain.problems(split))
    assert time.perf_counter() - started < 1.0


def test_the_packages_own_scorers_are_never_called(monkeypatch):
    import reasoning_gym

    def refuse(*_):
        raise AssertionError("a scorer was called")

    monkeypatch.setattr(reasoning_gym.dataset.ProceduralDataset, "score_answer", refuse)
    for dataset, _ in reasoning_gym.factory.DATASETS.values():
        monkeypatch.setattr(dataset, "score_answer", refuse)
    tasks.cache_clear()
    episode = Reasoning().start(DOMAIN.problems("train")[0])
    episode.step("__import__('os')")
    assert episode.verdict().reward == 0.0


@pytest.mark.parametrize(
    ("action", "classes"),
    [
        ("3 + 4 = 7", "3:argument +:verb 4:argument =:verb 7:argument"),
        ("So 5*6 equals -1,000.5.", "So:filler 5:argument *:verb 6:argument equals:verb -:verb 1,000.5:argument"),
        ("Adding them, the sum is 7", "Adding:verb them:filler the:filler sum:verb is:filler 7:argument"),
        ("Multiples \u00d7 GCD \u2212 na\u00efve", "Multiples:verb \u00d7:verb GCD:verb \u2212:verb na\u00efve:filler"),
        ("x2, summer! (address)", "x:filler 2:argument summer:filler address:filler"),
        (" \n", ""),
    ],
)
def test_numbers_are_arguments_operations_verbs_and_other_words_fillers(action, classes):
    assert " ".join(f"{action[start:end]}:{kind}" for start, end, kind in DOMAIN.token_class(action)) == classes
