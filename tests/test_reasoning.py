"""Reading answers, rewarding them, and classing their words; what needs the package is in test_parity_reasoning.py."""

from __future__ import annotations

import sys
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains import reasoning
from hdl_jax.domains.domain import Verdict
from hdl_jax.domains.reasoning import Item, Reasoning, ReasoningEpisode
from hdl_jax.domains.reasoning_answer import Found, find, read

# (answer, its value; None where it gives none)
TEXT = [
    # the number that a text ends with
    ("7", 7),
    ("7.", 7),
    ("The answer is 7.", 7),
    ("3 + 4 = 7", 7),
    ("3 + 4 is 7!", 7),
    ("First 5 + 3 = 8, then 8 - 1 = 7.\n", 7),
    ("The sum of 3 and 4 is **7**", 7),
    ("5 + 9 = 14; 14 - 7 = 7", 7),
    ("x = 7", 7),
    ("x=-7", -7),
    ("The result is \u22127", -7),
    ("It is negative 7.", -7),
    ("It is minus 7.", -7),
    ("Result - 7", 7),
    ("- 7", 7),
    ("+7", 7),
    ("007", 7),
    ("7.0", 7),
    ("7.50", Fraction(15, 2)),
    (".5", Fraction(1, 2)),
    ("6e3", 6000),
    ("1.5E-2", Fraction(3, 200)),
    ("10,000", 10000),
    ("1,234,567.80", Fraction(123456780, 100)),
    ("#### 1,000", 1000),
    ("####42", 42),
    ("#### $42", 42),
    ("it costs \\$42.", 42),
    ("$42$", 42),
    ("3/4", Fraction(3, 4)),
    ("-6 / 8", Fraction(-3, 4)),
    ("12 / 4 = 3", 3),
    ("so \\tfrac34.", Fraction(3, 4)),
    ("$-\\frac{1}{2}$", Fraction(-1, 2)),
    ("7, 7", 7),
    ("7 or 7.0", 7),
    ("We have 12b and 3x, so 7", 7),
    # ... and texts that end with something else
    ("", None),
    ("seven", None),
    ("7 apples", None),
    ("7. But I am not sure", None),
    ("7 or 8", None),
    ("7, or maybe it is 8.", None),
    ("either 7 or 8", None),
    ("7 and 8", None),
    ("4, 8, 12", None),
    ("7 8", None),
    ("x = 7 or x = 8", None),
    ("The greatest common divisor of 4 and 8", None),
    ("3 + 4", None),
    ("3+4", None),
    ("Compute 10 - 5.", None),
    ("3 plus 4", None),
    ("3 times (4)", None),
    ("3 \\times 4", None),
    ("2^3", None),
    ("2**3", None),
    ("3**3", None),
    ("2 * (3)", None),
    ("\\sqrt{9}", None),
    ("3 * x", None),
    ("12b", None),
    ("1.2.3", None),
    ("12_8", None),
    ("3\u00b2", None),
    ("10%", None),
    ("10 \\%", None),
    ("1/0", None),
    ("1 1/2", None),
    ("1\\frac12", None),
    ("1e999999", None),
    ("9" * 65, None),
    ("1/" + "9" * 80, None),
    # a line for the answer
    ("Answer: 7", 7),
    ("3 and 4 make 7.\nANSWER : 7.", 7),
    ("**Answer:** 7\nThat was 3 + 4.", 7),
    ("Final answer:\n\n7", 7),
    ("Answer: 5\nNo, wait.\nAnswer: 7", 7),
    ("Answer: x = 7", 7),
    ("Answer: 3 + 4 = 7", 7),
    ("Answer: 7, because 3 + 4 = 7", 7),
    ("Answer: \\(7\\)", 7),
    ("Answer: 7 legs", 7),
    ("Answer: 42" + " " * 400, 42),
    ("7\nAnswer: 8", 8),
    ("7\nAnswer: unknown", None),
    ("Answer: 7 or 8", None),
    ("Answer: 7. Or maybe 8.", None),
    ("Answer: x = 7 or x = 8", None),
    ("Answer: 7; 8", None),
    ("Answer: 7 8", None),
    ("Answer: 7 (not 8)", None),
    ("Answer: 3 + 4", None),
    ("Answer: 4 * x", None),
    ("Answer: 2^3 ", None),
    # a box
    ("\\boxed{7}", 7),
    ("\\fbox{7}", 7),
    ("\\boxed {7} is what I get, not 8", 7),
    ("\\boxed{x = 7}", 7),
    ("\\boxed{3 + 4 = 7.}", 7),
    ("\\boxed{$7$}", 7),
    ("\\boxed{\\text{7}}", 7),
    ("\\boxed{\\frac{-1}{2}}", Fraction(-1, 2)),
    ("\\boxed{10{,}000}", 10000),
    ("\\boxed{10\\,000}", 10000),
    ("\\boxed{10\u2009000}", 10000),
    ("\\boxed{41} wait, \\boxed{42}", 42),
    ("\\boxed{42} and also \\boxed{41}", 41),
    ("Answer: 8 \\boxed{7}", 7),
    ("\\boxed{7}\nAnswer: 8", 7),
    ("\\boxed 7", None),
    ("\\boxed{7", None),
    ("7 \\boxed{}", None),
    ("\\boxed{7 or 8}", None),
    ("\\boxed{7 or x = 8}", None),
    ("\\boxed{x = 7 or x = 8}", None),
    ("\\boxed{7, 8}", None),
    ("\\boxed{3 + 4}", None),
    ("\\boxed{5!}", None),
    ("\\boxed{9^{9^9}}", None),
    ("\\boxed{(10^9)!}", None),
    ("\\boxed{\\text{answer in room 12b of 3}}", None),
    ("\\boxed{10\\%}", None),
    # thinking
    ("<think>a</think> \\boxed{1} </think> \\boxed{42}", 42),
    ("<think>\\boxed{1}</think> 42", 42),
    ("<think>so it is 7", None),
    ("</think><think>7", None),
]


@pytest.mark.parametrize(("answer", "value"), TEXT, ids=[repr(answer[:40]) for answer, _ in TEXT])
def test_the_number_an_answer_gives(answer, value):
    assert find(answer).value == value


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("it is 8.", "8"),
        ("1,000", "1000"),
        ("7 or 8", "7 or 8"),
        ("5 + 3", "5 + 3"),
        ("", ""),
        ("8 or so", ""),
        ("\\boxed{}", ""),
        ("\\boxed{one\n two}", "one two"),
        ("9" * 99, "9" * 32 + "..."),
        ("x" * 99 + " 1 + 2", "..." + "x" * 26 + " 1 + 2"),
    ],
)
def test_what_is_shown_of_an_answer_is_short(answer, shown):
    assert find(answer).text == shown


def test_what_is_too_long_to_compute_has_no_value():
    assert read("1" * 64) == int("1" * 64) and read("1" * 65) is None
    assert read("1e999") == 10**999 and read("1e1000") is None and read("1e-1000") is None
    assert read("4/0") is None and read("-4 / 6") == Fraction(-2, 3)


ITEM = Item("arithmetic", "Compute 3 + 4.", "End with the result.", "7")


def verdict(*actions):
    episode = ReasoningEpisode(ITEM)
    assert episode.opening() == ITEM.question
    for action in actions:
        step = episode.step(action)
        assert step.done and step.observation == ""
    return episode.verdict()


@pytest.mark.parametrize(
    ("answer", "feedback", "unparsed"),
    [
        ("3 + 4 = 8", "Wrong. The answer given was 8; the right answer is 7.", False),
        ("3 + 4 = 7.5", "Wrong. The answer given was 7.5; the right answer is 7.", False),
        ("7 or 8", "Wrong. The answer given, 7 or 8, is not one number; the right answer is 7.", True),
        ("I cannot tell.", "Wrong. No answer was found; the right answer is 7.", True),
    ],
)
def test_a_wrong_answer_is_told_with_the_right_one(answer, feedback, unparsed):
    assert verdict(answer) == Verdict(0.0, False, feedback, unparsed=unparsed)


def test_a_right_answer_is_told_so_and_no_more():
    assert verdict("3 + 4 = 7") == Verdict(1.0, True, "Correct.")


def test_only_the_first_answer_counts_and_an_episode_without_one_fails():
    assert verdict("8", "7").reward == 0.0 and verdict("7", "8").reward == 1.0
    assert verdict() == Verdict(0.0, False, "Wrong. No answer was found; the right answer is 7.", unparsed=True)
    assert verdict("", "7").reward == 0.0


def test_other_threads_read_the_same():
    found: list[Found] = []
    thread = threading.Thread(target=lambda: found.append(find("\\boxed{0.5}")))
    thread.start()
    thread.join()
    assert found == [Found("0.5", Fraction(1, 2))]


PIECES = [
    *("7", "-8", "1e999999", "9" * 70, "1,000", "3/0", "12b", "x", "minus ", "\u2212", "\u0663", "\ud800"),
    *("\\frac", "{", "}", "\\boxed{", "\\fbox{", "\\(", "\\", "$", "Answer:", "answer", "<think>", "</think>"),
    *("=", "or", "and", " ", "\n", ",", ";", ".", "+", "*", "**", "^", "%"),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=60))
def test_any_answer_gets_a_verdict(answer):
    found = find(answer)
    assert len(found.text) <= 40 and "\n" not in found.text
    assert found.text or found.value is None
    seen = verdict(answer)
    assert (seen.reward, seen.success) == ((1.0, True) if found.value == 7 else (0.0, False))


@settings(max_examples=100, deadline=None)
@given(
    st.fractions(max_denominator=1) | st.fractions(),
    st.sampled_from(["{}", "\\boxed{{{}}}", "Answer: {}", "so x = {}."]),
)
def test_a_number_written_out_is_read_back(value, frame):
    assert find(frame.format(value)).value == value


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**30), 10**30), st.integers(0, 5))
def test_thousands_separators_and_trailing_zeros_change_nothing(number, zeros):
    written = f"{number:,}" + ("." + "0" * zeros if zeros else "")
    assert find(written).value == find(f"Answer: {written}").value == find(f"\\boxed{{{written}}}").value == number


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from([" or ", ", ", " and ", " ", " or maybe "]))
def test_two_different_numbers_are_no_answer(first, second, joint):
    hedged = f"{first}{joint}{second}"
    expected = first if first == second else None
    assert find(hedged).value == expected == find(f"I think {hedged}.").value
    assert find(f"\\boxed{{{hedged}}}").value is None


@pytest.mark.parametrize(
    "piece",
    [
        *("9", "9 ", "1,000", "1.", "1 / ", "-", "7 or ", "7 and ", "=", " ", "{", "}", "**", "<think>"),
        *("\\boxed{", "\\boxed{1}", "Answer: 7\n", "answer", "\\frac{1}", "\\text{", "minus "),
    ],
)
def test_a_long_answer_costs_time_in_proportion(piece):
    text = piece * (200_000 // len(piece))
    started = time.perf_counter()
    find(text)
    assert time.perf_counter() - started < 2.0


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    reasoning.tasks.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'hdl_jax\[reasoning\]'"):
        Reasoning()
