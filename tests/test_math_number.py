"""Plain numbers are read exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains.math_number import read

NUMBERS = [
    ("0", 0),
    ("42", 42),
    ("0033", 33),
    ("+5", 5),
    ("-5", -5),
    ("- 5", -5),
    ("--5", 5),
    ("-+-5", 5),
    ("5.", 5),
    (".5", Fraction(1, 2)),
    ("-0.50", Fraction(-1, 2)),
    ("1e-5", Fraction(1, 100_000)),
    ("1.5E3", 1500),
    ("6.02e23", 602 * 10**21),
    (r"6.02\times10^{23}", 602 * 10**21),
    (r"3 \cdot 10^4", 30_000),
    ("3*10**4", 30_000),
    ("3x10^(4)", 30_000),
    ("10^{-2}", Fraction(1, 100)),
    ("3/4", Fraction(3, 4)),
    ("-1./3", Fraction(-1, 3)),
    ("1.5/0.5", 3),
    ("6 / -4", Fraction(-3, 2)),
    (r"\frac12", Fraction(1, 2)),
    (r"\frac1{23}", Fraction(1, 23)),
    (r"\frac{-1}{ 2 }", Fraction(-1, 2)),
    (r"-\frac{-1}{2}", Fraction(1, 2)),
    (r"\frac{1e3}{2}", 500),
    ("1 1/2", Fraction(3, 2)),
    ("-1 1/2", Fraction(-3, 2)),
    (r"2\frac{3}{4}", Fraction(11, 4)),
    (r"2 \frac34", Fraction(11, 4)),
    ("10 000", 10_000),
    ("1 234 567.8", Fraction(12345678, 10)),
    (r"0.\overline{3}", Fraction(1, 3)),
    (r".1\overline{6}", Fraction(1, 6)),
    (r"3.\overline{142857}", Fraction(22, 7)),
    (r"0.\dot{3}", Fraction(1, 3)),
    ("0.(3)", Fraction(1, 3)),
    (r"0.333\ldots", Fraction(1, 3)),
    (r"0.1212\ldots", Fraction(12, 99)),
]
OTHERS = [
    "", " ", "-", ".", "x", "3x", "1.2.3", "1,2", "1 2", "10 00", "1/2/3", "1/", "/2", "2^3", "1e", "e5", "1e1.5", "5!",
    r"\frac{1}{2}x", r"\frac{x}{2}", r"\frac12 3", r"3.14\ldots", r"0.33\ldots", "٣", "1_000", "0x10", "nan", "inf",
    "1/0", r"\frac{1}{0}", r"1\frac{1}{0}", "1 1/0",
    "1e99999", "10^{-99999}", "1e" + "9" * 900, "9" * 1001,
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers(text, value):
    assert read(text) == value


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_and_absurd_numbers_are_none(text):
    assert read(text) is None


@given(st.fractions())
def test_fractions_and_mixed_numbers_keep_their_value(value):
    above, below = value.numerator, value.denominator
    for text in (f"{above}/{below}", rf"\frac{{{above}}}{{{below}}}", rf"-\frac{{{-above}}}{{{below}}}"):
        assert read(text) == value
    whole, rest = divmod(abs(above), below)
    assert read(f"{'-' if value < 0 else ''}{whole} {rest}/{below}") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=8))
def test_decimals_keep_their_value(value):
    for text in (f"{value:f}", f"{value:e}", f"{value:e}".replace("e", r" \times 10^{") + "}"):
        assert read(text) == Fraction(value)


@given(st.text(alphabet="0123456789.-+eE/ \\frac{}^x()ldots", max_size=20))
def test_reading_never_raises(text):
    value = read(text)
    assert value is None or isinstance(value, Fraction)
