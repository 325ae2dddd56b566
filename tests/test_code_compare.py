"""When what a program prints or returns is what was expected."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains.code_compare import TOLERANCE, same_output, same_value

THIRD = "0." + "3" * 50
SAME = [
    ("7\n", "7"),
    ("7", "7\n\n\n"),
    ("1 2\n3", "1 2 \t\n3\n"),
    ("1\r\n2\r\n", "1\n2\n"),
    ("", "\n \n"),
    ("   1842\n", "1842\n"),
    ("1  2\t3", "1 2 3"),
    ("0.333333333333", str(1 / 3)),
    ("0.333333", "0.3333339"),
    ("1", "1.0"),
    ("1.0", "1"),
    ("1", "0.9999991"),
    ("0", "-0.0000001"),
    ("1e6", "1000000"),
    ("1E+2", "100."),
    (".5", "+0.50"),
    ("123456.7", "123456.75"),
    ("1.5e300", "1.5000001e300"),
    ("100000000000000000000", "1e20"),
    ("nan", "nan"),
    ("Infinity", "Infinity"),
    ("x = 0.1", "x = 0.10000001"),
    (THIRD, THIRD[:-1]),
]
OTHER = [
    ("7", "8"),
    ("7", ""),
    ("", "7"),
    ("7", "77"),
    ("1 2", "1\n2"),
    ("1\n2", "1 2"),
    ("1\n\n2", "1\n2"),
    ("1", "\n1"),
    ("1 2", "1 2 3"),
    ("1 2", "2 1"),
    ("YES", "Yes"),
    ("ab", "a b"),
    (str(10**20), str(10**20 + 1)),
    (str(10**20 + 1), "1e20"),
    ("499999999999999999", "5e+17"),
    ("12345678", "12345678.5"),
    ("12345678.5", "12345678"),
    ("7", "07"),
    ("007", "7"),
    ("0", "-0"),
    ("7", "+7"),
    ("0.333333", "0.3333351"),
    ("0.333", str(1 / 3)),
    ("123456.7", "123456.9"),
    ("1.5e300", "1.51e300"),
    ("1e-3", "1.1e-3"),
    ("1.0", "nan"),
    ("nan", "1.0"),
    ("nan", "NaN"),
    ("1.0", "inf"),
    ("inf", "1e9999"),
    ("1000.0", "1_000.0"),
    ("1.0", "1,0"),
    ("1.0", "0x1.0"),
    ("1.0", "\u0661.0"),
    ("1.0", "1.0.0"),
    ("1.0", "1.0e"),
    ("1.0", "."),
    ("1e99999", "1.0e99999"),
    ("1\n2", "1\u20282"),
    ("a", "a\x00"),
    ("\ud800", "?"),
]


@pytest.mark.parametrize("expected, output", SAME)
def test_outputs_that_are_the_same(expected, output):
    assert same_output(expected, output)


@pytest.mark.parametrize("expected, output", OTHER)
def test_outputs_that_are_not(expected, output):
    assert not same_output(expected, output)


def test_numbers_of_many_digits_are_compared_exactly():
    assert same_output("1" + "0" * 5000, "1" + "0" * 5000)
    assert not same_output("1" + "0" * 5000, "1" + "0" * 4999 + "1")
    assert not same_output("1" + "0" * 4999 + "1", "1" + "0" * 5000 + ".0")
    assert same_output("1" + "0" * 5000, "1" + "0" * 5000 + ".0")
    assert not same_output("1" + "0" * 1_100_000, "2" + "0" * 1_100_000 + ".0")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(NUMBERS, st.floats(-0.9, 0.9))
def test_reals_within_the_tolerance_are_the_same_and_others_are_not(number, part):
    step = float(TOLERANCE) * max(1.0, abs(number))
    near, far = number + part * step, number + math.copysign(abs(part) + 1.1, part) * step
    if math.isfinite(far):
        assert same_output(repr(number), repr(near))
        assert not same_output(repr(number), repr(far))


@settings(deadline=None)
@given(st.integers(), st.integers())
def test_whole_numbers_are_the_same_when_they_are_equal(one, other):
    assert same_output(str(one), str(other)) == (one == other)
    assert same_value(str(one), str(other)) == (one == other)


@settings(deadline=None)
@given(st.lists(st.text()), st.text())
def test_an_output_is_itself_and_not_another_with_a_word_more(lines, line):
    text = "\n".join(lines)
    assert same_output(text, text) and same_output(text, text + " \n\n")
    assert not same_output(text, text + "x") and not same_output(f"{text}\nx", text)


SAME_VALUES = [
    ("1", " 1 "),
    ("1", "1.0"),
    ("0.1", "0.10000001"),
    ("[1, 2.0]", "[1.0, 2]"),
    ('{"a": 1, "b": [null]}', '{"b": [null], "a": 1}'),
    ('"\\u00e9"', '"é"'),
    ("true", "true"),
    ("[]", "[]"),
    ("Infinity", "Infinity"),
    ("1e400", "1.0e400"),
    ("-0.0", "0"),
]
OTHER_VALUES = [
    ("1", "2"),
    ("1", "true"),
    ("true", "1"),
    ("0", "false"),
    ("false", "null"),
    ("1", '"1"'),
    ('"1"', '"1.0"'),
    ('""', "null"),
    ("[1, 2]", "[2, 1]"),
    ("[1, 2]", "[1, 2, 3]"),
    ("[1]", "1"),
    ("[]", "{}"),
    ('{"a": 1}', '{"a": 2}'),
    ('{"a": 1}', '{"b": 1}'),
    ('{"a": 1}', '{"a": 1, "b": 1}'),
    ('{"a": 1}', '{"a": 2, "a": 1}'),
    ("NaN", "NaN"),
    ("[NaN]", "[NaN]"),
    ("1.0", "NaN"),
    ("Infinity", "-Infinity"),
    ("Infinity", "1e400"),
    (str(10**20), str(10**20 + 1)),
    (str(10**20), "1.00000000000000001e20"),
    ("1", ""),
    ("1", "1 1"),
    ("1", "[1"),
    ("'a'", "'a'"),
    ('"A"', '"a"'),
    ('"a "', '"a"'),
]


@pytest.mark.parametrize("expected, output", SAME_VALUES)
def test_values_that_are_the_same(expected, output):
    assert same_value(expected, output)


@pytest.mark.parametrize("expected, output", OTHER_VALUES)
def test_values_that_are_not(expected, output):
    assert not same_value(expected, output)


def test_whole_numbers_have_any_number_of_digits():
    number = "9" * 100_000
    assert same_value(f"[{number}]", f"[{number}]")
    assert not same_value(number, "8" + number[1:])
    assert same_value(number, number + ".0")


@pytest.mark.parametrize("open_, close", ["[]", ('{"a":', "}")])
def test_values_may_be_nested_as_deep_as_the_parser_goes_and_deeper_ones_are_wrong(open_, close):
    assert same_value(f"{open_ * 200}1{close * 200}", f"{open_ * 200}1.0{close * 200}")
    deep = f"{open_ * 100_000}1{close * 100_000}"
    assert not same_value(deep, deep)
    assert not same_value("1", deep)


def test_a_text_that_is_far_longer_than_the_expected_one_is_wrong():
    assert same_value("1", " " * 1000 + "1") and same_value("[1]" + " " * 100, " " * 4000 + "[1]")
    assert not same_value("1", " " * 1100 + "1")
    begin = time.process_time()
    assert not same_value("[1]", f"[{'1,' * (1 << 24)}1]")
    assert time.process_time() - begin < 2  # nothing of it is parsed, which would take a minute
    assert same_value('["' + "\U0001fbff" * 1000 + '"]', json.dumps(["\U0001fbff" * 1000]))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES)
def test_a_value_is_itself_however_it_is_written(value):
    text = json.dumps(value)
    assert same_value(text, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True))
    assert not same_value(text, json.dumps([value]))
    assert not same_value(json.dumps({"a": value}), json.dumps({"a": [value]}))


WHOLE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "0", "1", "true"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=4,
)


@settings(deadline=None)
@given(WHOLE, WHOLE)
def test_values_without_reals_are_the_same_when_their_texts_are(one, other):
    first, second = (json.dumps(value, sort_keys=True) for value in (one, other))
    assert same_value(first, second) == (first == second)


MEBIBYTES = 4 << 20
LARGE = [
    ("1\n", "1.0\n"),
    (" \n", " \n"),
    ("1 ", "1.00 "),
    ("1", "1"),
    ("1.", "1."),
    ("e1", "1e"),
    ("\n", "\n"),
    ("1,", "1.0,"),
    ("[", "["),
]


@pytest.mark.parametrize("one, other", LARGE)
def test_comparing_is_linear(one, other):
    count = MEBIBYTES // len(other)
    expected, output = one * count + "1", other * count + "1.0"
    begin = time.process_time()
    same_output(expected, output)
    same_value(f"[{expected}]", f"[{output}]")
    assert time.process_time() - begin < 60  # a few seconds; days where it is quadratic
