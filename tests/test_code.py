"""The domain of code: what is asked, what is rewarded, and what is a failure of the sandbox."""

from __future__ import annotations

import json
import threading

import guides
import pytest

from hdl_jax.data.prepare import prepare
from hdl_jax.domains.code import INSTRUCTION, Code
from hdl_jax.domains.code_answer import find
from hdl_jax.domains.code_judge import NO_PROGRAM
from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.domains.sandbox import Run, SandboxFailure

STARTER = "class Solution:\n    def double(self, n: int) -> int:\n        "
ROWS = [
    {
        "problem": "Add the two numbers.",
        "tests": json.dumps({"inputs": ["3 4\n", "5 6\n"], "outputs": ["7\n", "11\n"]}),
    },
    {"problem": "Negate it.", "tests": json.dumps({"fn_name": "negate", "inputs": [[1]], "outputs": [-1]})},
    {
        "problem": "Double it.",
        "starter_code": STARTER,
        "tests": json.dumps({"fn_name": "double", "inputs": [[1]], "outputs": [2]}),
    },
]


class Echo:
    """A sandbox whose programs print, or return, their own text."""

    isolation, description = "echo", "runs nothing"

    def __init__(self):
        self.threads: set[int] = set()

    def run(self, program, inputs):
        self.threads.add(threading.get_ident())
        return [Run("ran", program.source, "") for _ in inputs]

    def close(self):
        pass


class Down(Echo):
    def run(self, program, inputs):
        raise SandboxFailure("http://judge:1: connection refused")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with one prepared set."""
    folder = tmp_path_factory.mktemp("prepared")
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    prepare("deepcoder", path, folder)
    return str(folder)


@pytest.fixture(scope="module")
def domain(data):
    return Code(data, "deepcoder", "", Echo())


def response(output: str) -> str:
    return f"```python\n{output}\n```"


def verdict(domain, problem, *actions):
    episode = domain.start(problem)
    for action in actions:
        step = episode.step(action)
        assert step.done and step.observation == ""
    return episode.verdict()


def test_splits_are_the_training_set_and_every_set_by_name(domain):
    problems = domain.problems("train")
    assert [(problem.index, problem.split) for problem in problems] == [(0, "train"), (1, "train"), (2, "train")]
    assert len({problem.id for problem in problems}) == 3
    assert all(problem.id.startswith("deepcoder/") for problem in problems)
    named = domain.problems("deepcoder")
    assert named == [Problem(problem.id, problem.index, "deepcoder") for problem in problems]
    assert domain.max_actions == 1 and domain.name == "code"


def test_a_question_is_followed_by_its_kind_of_program_and_the_form_of_the_answer(domain):
    add, negate, double = (domain.start(problem).opening() for problem in domain.problems("train"))
    reads = "The program reads from standard input and prints the answer to standard output."
    assert add == f"Add the two numbers.\n\n{reads}\n\n{INSTRUCTION}"
    assert negate == (
        f"Negate it.\n\nThe program defines the function `negate`, which returns the answer.\n\n{INSTRUCTION}"
    )
    starter = f"The program starts from this code, and defines `double`:\n\n```python\n{STARTER.rstrip()}\n```"
    assert double == f"Double it.\n\n{starter}\n\n{INSTRUCTION}"


def test_the_instruction_asks_for_what_is_read():
    assert "one ```python block" in INSTRUCTION and find(response("print(7)")) == "print(7)\n"
    page = (guides.ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    assert f"> {INSTRUCTION}\n" in page.replace("\\`", "`")


def test_an_own_instruction_takes_the_place_of_the_usual_one(data):
    domain = Code(data, "deepcoder", "Answer in a ```python block.", Echo())
    opening = domain.start(domain.problems("train")[0]).opening()
    assert opening.endswith("\n\nAnswer in a ```python block.") and INSTRUCTION not in opening


def test_an_instruction_that_asks_for_no_block_is_refused(data):
    with pytest.raises(ValueError, match="domain.instruction='Answer with a program.'.*```python"):
        Code(data, "deepcoder", "Answer with a program.", Echo())


def test_the_reward_is_the_share_of_tests_passed(domain):
    add, negate, _ = domain.problems("train")
    half = verdict(domain, add, response("7"))
    assert (half.reward, half.success, half.unparsed) == (0.5, False, False)
    assert half.feedback.startswith("Passed 1 of 2 tests.\n\nTest 2: wrong\n")
    assert verdict(domain, negate, response("-1")) == Verdict(1.0, True, "Passed the only test.")
    assert verdict(domain, negate, response("1")).reward == 0


def test_a_response_without_a_program_is_unparsed(domain):
    add = domain.problems("train")[0]
    none = Verdict(0.0, False, NO_PROGRAM, unparsed=True)
    assert verdict(domain, add, "7") == verdict(domain, add, "```python\n7") == verdict(domain, add) == none


def test_only_the_first_response_counts(domain):
    negate = domain.problems("train")[1]
    assert verdict(domain, negate, response("1"), response("-1")).reward == 0
    assert verdict(domain, negate, "", response("-1")).reward == 0


def test_a_sandbox_that_fails_is_a_failure_and_no_reward(data):
    domain = Code(data, "deepcoder", "", Down())
    problem = domain.problems("train")[1]
    with pytest.raises(EnvironmentFailure, match=f"{problem.id}: http://judge:1: connection refused"):
        verdict(domain, problem, response("-1"))
    assert verdict(domain, problem, "no program").reward == 0  # needs no sandbox


def test_a_verdict_is_the_same_from_any_thread(data):
    echo = Echo()
    domain = Code(data, "deepcoder", "", echo)
    problem = domain.problems("train")[0]
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(verdict(domain, problem, response("7")).reward)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0.5] * 4 and threading.get_ident() not in echo.threads


def test_unknown_sets_are_named_with_those_there_are(domain, data):
    with pytest.raises(ValueError, match="code has no split 'validation'; it has train, deepcoder"):
        domain.problems("validation")
    with pytest.raises(ValueError, match="domain.train='gsm8k_train': must be one of deepcoder"):
        Code(data, "gsm8k_train", "", Echo())


def test_a_set_that_is_not_prepared_says_how_to(domain):
    with pytest.raises(FileNotFoundError, match="livecodebench_v5 is not prepared"):
        domain.problems("livecodebench_v5")


def test_words_of_a_response_have_classes(domain):
    classes = {"sum": "verb", "3": "argument", "the": "filler", "=": "verb"}
    text = "the sum = 3"
    assert {text[begin:end]: kind for begin, end, kind in domain.token_class(text)} == classes
