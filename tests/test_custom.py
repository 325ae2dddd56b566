"""The user's own prompts and reward function: what is asked of both, and that a failure is never a reward of 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains.custom import LONGEST_FEEDBACK, Custom, read_rows
from hdl_jax.domains.domain import EnvironmentFailure, Verdict

ROWS = [
    {"prompt": "What is 6 * 7?", "answer": 42, "id": "six"},
    {"prompt": "What is 2 + 2?\nOne word.", "answer": 4, "hints": ["four", None]},
    {"prompt": "¿Qué es 1 + 1?", "answer": 2, "id": 17},
]
HELD_OUT = [{"prompt": "What is 3 * 3?", "answer": 9}]
# Each row of a test says what the function does with a response, unless it is empty.
REWARD = '''
import os, time
import numpy as np

def right(row, response):
    return str(row["answer"]) in response.split()

def say(row, response):
    return eval(row["say"]) if response else 0.0

def spoil(row, response):
    """Changes the row, which must not be seen by another call."""
    row["seen"] = row.get("seen", 0) + 1
    return 1 if row["seen"] == 1 else 0

def broken(row, response):
    return len(response) / len(row["answers"])

def slow(row, response):
    time.sleep(600)

def none(row, response):
    pass

async def later(row, response):
    return 1.0
'''


def write(path: Path, rows: list) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def reward(tmp_path) -> str:
    path = tmp_path / "my_reward.py"
    path.write_text(REWARD)
    return str(path)


@pytest.fixture
def make(tmp_path, reward):
    """(function, training rows) -> the domain, whose function may take a second; its processes end with the test."""
    domains = []

    def make(function: str, rows: list = ROWS, limit_s: float = 20) -> Custom:
        data, held_out = write(tmp_path / "train.jsonl", rows), write(tmp_path / "heldout.jsonl", HELD_OUT)
        domains.append(Custom(data, held_out, f"{reward}:{function}", workers=1, limit_s=limit_s))
        return domains[-1]

    yield make
    for domain in domains:
        domain._pool.close()


def verdict(domain: Custom, response: str, index: int = 0, split: str = "train") -> Verdict:
    episode = domain.start(domain.problems(split)[index])
    assert episode.step(response).done
    return episode.verdict()


# ---- the domain -----------------------------------------------------------------------------------------------------


def test_splits_and_prompts_are_the_files(make):
    domain = make("right")
    train = domain.problems("train")
    assert [p.id for p in train] == ["custom/train/six", "custom/train/2", "custom/train/17"]
    assert [p.index for p in train] == [0, 1, 2] and {p.split for p in train} == {"train"}
    assert [domain.start(p).opening() for p in train] == [row["prompt"] for row in ROWS]
    (held_out,) = domain.problems("validation")
    assert held_out.id == "custom/validation/1" and domain.start(held_out).opening() == "What is 3 * 3?"
    with pytest.raises(ValueError, match="no split 'test'; it has train, validation"):
        domain.problems("test")


def test_the_function_judges_the_row_of_the_episode(make):
    domain = make("right")
    assert verdict(domain, "It is 42") == Verdict(1.0, True, "Correct.")
    assert verdict(domain, "It is 4").reward == 0.0 and verdict(domain, "It is 4", index=1).reward == 1.0
    assert verdict(domain, "9", split="validation").success


def test_an_episode_is_its_first_response(make):
    domain = make("right")
    episode = domain.start(domain.problems("train")[0])
    assert not episode.verdict().success, "no response is an empty one"
    assert episode.step("42") == episode.step("43")
    assert episode.verdict().success


@settings(max_examples=50, deadline=None)
@given(response=st.text(max_size=80))
def test_the_function_gets_the_response_as_it_is(echo, response):
    assert verdict(echo, response).feedback == ascii(response)


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    (folder / "echo.py").write_text("def echo(row, response):\n    return 0.5, ascii(response)\n")
    data = write(folder / "rows.jsonl", HELD_OUT)
    domain = Custom(data, data, f"{folder / 'echo.py'}:echo", workers=1, limit_s=20)
    yield domain
    domain._pool.close()


def test_a_call_does_not_see_what_another_did_to_the_row(make):
    domain = make("spoil")
    assert [verdict(domain, "x").reward for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize(
    "said, number, success, feedback",
    [
        ("1", 1.0, True, "Correct."),
        ("True", 1.0, True, "Correct."),
        ("0", 0.0, False, "Not right: the reward is 0; 1 is the best."),
        ("1 / 3", 1 / 3, False, "Not right: the reward is 0.333; 1 is the best."),
        ("np.float32(0.5)", 0.5, False, "Not right: the reward is 0.5; 1 is the best."),
        ("np.array([1, 1]).all()", 1.0, True, "Correct."),
        ("(0.25, 'Two of eight.')", 0.25, False, "Two of eight."),
        ("(1, '')", 1.0, True, ""),
        ("(0, chr(0xd800))", 0.0, False, "?"),
        ("(0, 'x' * 9999)", 0.0, False, "x" * LONGEST_FEEDBACK + "..."),
    ],
)
def test_rewards_and_feedback(make, said, number, success, feedback):
    verdict_ = verdict(make("say", [{"prompt": "x", "say": said}]), "x")
    assert verdict_ == Verdict(number, success, feedback)
    assert type(verdict_.reward) is float and type(verdict_.success) is bool


@pytest.mark.parametrize(
    "said",
    ["1.01", "-0.1", "np.nan", "10**400", "None", "'1'", "[1]", "(1, 2)", "(1, 'a', 'b')", "1j", "{}"],
)
def test_what_is_no_reward_is_refused_with_function_and_row(make, said):
    domain = make("say", [{"prompt": "y", "say": "0"}, {"prompt": "x", "say": said}])
    with pytest.raises(ValueError) as error:
        verdict(domain, "x", index=1)
    text = str(error.value)
    assert "my_reward.py:say returned" in text and "train.jsonl, line 2" in text and "from 0 to 1" in text


@pytest.mark.parametrize(
    "said, message",
    [
        ("1 / 0", "ZeroDivisionError"),
        ("row['nothing']", "KeyError: 'nothing'"),
        ("time.sleep(600)", "stopped at its limit of 0.5 s"),
        ("9**9**9", "stopped at its limit of 0.5 s"),
        ("os._exit(1)", "ended by itself with status 1"),
        ("lambda: 1", "pickle"),
    ],
)
def test_a_function_that_fails_gives_no_reward_and_the_next_call_does(make, said, message):
    domain = make("say", [{"prompt": "x", "say": said}, {"prompt": "y", "say": "1"}], limit_s=0.5)
    with pytest.raises(EnvironmentFailure) as error:
        verdict(domain, "x")
    assert message in str(error.value) and "train.jsonl, line 1" in str(error.value)
    assert verdict(domain, "y", index=1).success


def test_token_classes_are_those_of_words(make):
    assert make("right").token_class("so 6 apples") == [(0, 2, "filler"), (3, 4, "argument"), (5, 11, "filler")]


# ---- the files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, message",
    [
        pytest.param('{"prompt": "x"', "not JSON", id="cut off"),
        pytest.param('["x"]', "a row is a JSON object, not ['x']", id="list"),
        pytest.param('{"question": "x"}', "no field `prompt` in {'question': 'x'}", id="no prompt"),
        pytest.param('{"prompt": ["x"]}', "prompt=['x']: must be a text", id="prompt of another type"),
        pytest.param('{"prompt": " "}', "prompt=' ': must be a text", id="empty prompt"),
        pytest.param('{"prompt": "x", "id": 1.5}', "id=1.5: must be a text or a whole number", id="id of another type"),
        pytest.param('{"prompt": "x", "id": true}', "id=True: must be", id="true"),
        pytest.param('{"prompt": "x", "id": null}', "id=None: must be", id="null"),
        pytest.param('{"prompt": "x", "id": ""}', "id='': must be", id="empty id"),
        pytest.param('{"prompt": "x", "id": "first"}', "its id 'first' is also that of", id="same id"),
        pytest.param('{"prompt": "x", "id": 2}', None, id="the id of its own line"),
        pytest.param('{"prompt": "\\ud800"}', "half a character", id="half a character"),
        pytest.param('{"prompt": "x", "id": "\\ud800"}', "half a character", id="half a character in the id"),
        pytest.param("[" * 100_000, "not JSON", id="nested too deeply"),
        pytest.param(b'{"prompt": "\xff"}', "not JSON", id="not UTF-8"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    line = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b'{"prompt": "x", "id": "first"}\n' + line + b"\n")
    if message is None:
        assert [row.id for row in read_rows(path)] == ["first", "2"]
        return
    with pytest.raises(ValueError) as error:
        read_rows(path)
    assert str(error.value).startswith(f"{path}, line 2: ") and message in str(error.value)
    assert len(str(error.value)) < 1000


def test_the_number_of_a_line_is_an_id_like_any_other(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "x", "id": "3"}\n\n{"prompt": "y"}\n')
    with pytest.raises(ValueError, match=r"line 3: its id '3' is also that of .*line 1"):
        read_rows(path)


def test_line_ends_and_marks_of_other_systems_do_no_harm(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "one"}\r\n\r\n{"prompt": "t\xe2\x80\xa8wo"}')
    rows = read_rows(path)
    assert [(row.id, row.prompt) for row in rows] == [("1", "one"), ("3", "t\u2028wo")]


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none(), max_size=3), min_size=1))
@settings(max_examples=50, deadline=None)
def test_rows_reach_the_function_as_the_file_has_them(tmp_path_factory, extras):
    rows = [{**extra, "prompt": "x", "id": i} for i, extra in enumerate(extras)]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row.fields for row in read_rows(path)] == rows


# ---- bad input at the start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_rows(tmp_path, content):
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match="empty.jsonl: no row in it"):
        read_rows(path)


def test_what_is_missing_is_named(tmp_path, reward):
    data = write(tmp_path / "train.jsonl", ROWS)
    for arguments, error, message in (
        (("", data, f"{reward}:right"), ValueError, "needs domain.data="),
        ((data, "", f"{reward}:right"), ValueError, "needs domain.eval_data="),
        ((data, data, ""), ValueError, r"needs domain.reward=FILE.py:FUNCTION"),
        ((str(tmp_path / "no.jsonl"), data, f"{reward}:right"), FileNotFoundError, "no.jsonl: there is no such file"),
        ((data, data, f"{tmp_path}/no.py:right"), FileNotFoundError, "no.py:right: there is no file"),
        ((data, data, reward), ValueError, "expected package.module:function or path/to/file.py:function"),
        ((data, data, f"{reward}:no_such_function"), ImportError, "no 'no_such_function'"),
    ):
        with pytest.raises(error, match=message):
            Custom(*arguments, workers=1, limit_s=5)


@pytest.mark.parametrize(
    "function, message",
    [
        ("broken", r"does not work for an empty response(.|\n)*line 1(.|\n)*KeyError: 'answers'"),
        ("slow", "stopped at its limit"),
        ("none", r"returned None for .*train\.jsonl, line 1"),
        ("later", "coroutine"),
    ],
)
def test_a_function_that_does_not_work_is_refused_before_any_work(make, function, message):
    with pytest.raises(ValueError, match=message):
        make(function, limit_s=0.5)
