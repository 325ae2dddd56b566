"""The domain of maths: what is asked, what is rewarded, and what is a failure of the checker."""

from __future__ import annotations

import json
import threading

import pytest

from hdl_jax.data.prepare import prepare
from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.domains.math import Math
from hdl_jax.domains.math_answer import RULES
from hdl_jax.workers import WorkerTimeout

LIMIT_S = 20.0  # of a check, on a machine that does other things too

GSM8K = [
    {"question": "Ann has 3 pens and buys 4. How many has she?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    {"question": "A train does 1,000 km a day. How far in 2 days?", "answer": "#### 2,000"},
]
OLYMPIAD = {
    "id": 7,
    "question": "Which numbers?",
    "final_answer": ["$1$,$2$"],
    "is_multiple_answer": True,
    "unit": "cm",
    "answer_type": "Numerical",
    "error": None,
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with two prepared sets."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare("gsm8k_train", write(folder / "train.jsonl", GSM8K), folder)
    prepare("olympiadbench", write(folder / "olympiad.jsonl", [OLYMPIAD]), folder)
    return str(folder)


@pytest.fixture(scope="module")
def domain(data):
    return Math(data, "gsm8k_train", "", workers=1, limit_s=LIMIT_S)


def verdict(domain, problem, *actions):
    episode = domain.start(problem)
    for action in actions:
        step = episode.step(action)
        assert step.done and step.observation == ""
    return episode.verdict()


def test_splits_are_the_training_set_and_every_benchmark_by_name(domain):
    assert domain.problems("train") == [
        Problem("gsm8k_train/0", 0, "train"),
        Problem("gsm8k_train/1", 1, "train"),
    ]
    assert domain.problems("olympiadbench") == [Problem("olympiadbench/7", 0, "olympiadbench")]
    assert domain.max_actions == 1


def test_a_question_is_followed_by_what_its_rule_reads(domain):
    (first, _), (olympiad,) = domain.problems("train"), domain.problems("olympiadbench")
    assert domain.start(first).opening() == f"{GSM8K[0]['question']}\n\n{RULES['hash'].instruction}"
    assert domain.start(olympiad).opening() == f"{OLYMPIAD['question']}\n\n{RULES['boxed'].instruction}"


def test_rewards_and_feedback_are_the_papers(domain):
    first, second = domain.problems("train")
    assert verdict(domain, first, "3 + 4 = 7\n#### 7") == Verdict(1.0, True, "Correct.")
    assert verdict(domain, second, "#### 2000") == Verdict(1.0, True, "Correct.")
    wrong = "Wrong. The answer given was 8; the reference answer is 7."
    assert verdict(domain, first, "#### 8") == Verdict(0.0, False, wrong)
    none = "Wrong. No final answer was found; the reference answer is 7."
    assert verdict(domain, first, "The answer is 7") == Verdict(0.0, False, none, unparsed=True)
    assert verdict(domain, first) == Verdict(0.0, False, none, unparsed=True)


def test_several_answers_and_a_unit_are_told_as_the_set_has_them(domain):
    (problem,) = domain.problems("olympiadbench")
    assert verdict(domain, problem, r"\boxed{2, 1}").success
    told = verdict(domain, problem, r"\boxed{1, 3}")
    assert told.feedback == "Wrong. The answer given was 1, 3; the reference answer is 1, 2 cm."


def test_only_the_first_answer_counts(domain):
    first = domain.problems("train")[0]
    assert verdict(domain, first, "#### 8", "#### 7").reward == 0
    assert verdict(domain, first, "", "#### 7").reward == 0


def test_feedback_is_one_line_of_bounded_length(domain):
    first = domain.problems("train")[0]
    feedback = verdict(domain, first, "#### 8" + "\u2028 x" * 10_000).feedback
    assert len(feedback) < 300 and "\u2028" not in feedback


def test_a_verdict_is_the_same_from_any_thread(domain):
    first = domain.problems("train")[0]
    found = []
    threads = [threading.Thread(target=lambda: found.append(verdict(domain, first, "#### 7"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Verdict(1.0, True, "Correct.")] * 4


def test_a_check_without_a_result_is_a_failure_and_no_reward(domain, monkeypatch):
    def hang(*_):
        raise WorkerTimeout("stopped at its limit of 10 s")

    monkeypatch.setattr(domain, "_check", hang)
    episode = domain.start(domain.problems("train")[0])
    episode.step("#### 7")
    with pytest.raises(EnvironmentFailure, match="gsm8k_train/0: stopped at its limit"):
        episode.verdict()


def test_an_instruction_of_ones_own_must_ask_for_what_the_rule_reads(data):
    domain = Math(data, "gsm8k_train", "Reply only with #### and the number.", workers=1, limit_s=LIMIT_S)
    assert domain.start(domain.problems("train")[0]).opening().endswith("\n\nReply only with #### and the number.")
    with pytest.raises(ValueError, match="'boxed'"):
        domain.problems("olympiadbench")


def test_unknown_and_unprepared_sets_are_refused_by_name(domain, data):
    with pytest.raises(ValueError, match=r"domain.train='gsm9k': must be one of .*gsm8k_train"):
        Math(data, "gsm9k", "", workers=1, limit_s=LIMIT_S)
    with pytest.raises(ValueError, match=r"math has no split 'dev'; it has train, .*aime24"):
        domain.problems("dev")
    with pytest.raises(FileNotFoundError, match=r"(?s)aime24 is not prepared.*hdl_jax.data.prepare aime24"):
        domain.problems("aime24")
