"""Values of expressions: exact, to many digits, at points."""

from __future__ import annotations

from fractions import Fraction

import pytest

pytest.importorskip("math_verify", reason="reading expressions needs hdl_jax[math]")

from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains import math_tree
from hdl_jax.domains.math_evaluate import TooLarge, Undefined, exactly
from hdl_jax.domains.math_value import equal, line, number, proportion, same_roots, within


def parse(text):
    return math_tree.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2^{10}-1", 1023),
        ("(1/3)^{-2}", 9),
        ("0^0", 1),
        ("(-1)^{10^9+1}", -1),
        ("1^{10^{100}}", 1),
        ("0^{10^{100}}", 0),
        ("10!/8!", 90),
        (r"\lfloor -7/2 \rfloor", -4),
        (r"\lceil -7/2 \rceil", -3),
        ("|1/2-1|", Fraction(1, 2)),
        (r"\sum_{k=1}^{100} k", 5050),
        (r"\sum_{k=1}^{10}\sum_{j=1}^{k} j", 220),
        (r"\prod_{k=1}^{9} \frac{k}{k+1}", Fraction(1, 10)),
        (r"\sum_{k=3}^{2} k", 0),
        (r"\sqrt{2}", None),
        ("2^{1/2}", None),
        (r"\pi", None),
        ("x-x", None),
        ("i^2", None),
    ],
)
def test_exact_values(text, value):
    assert exactly(parse(text)) == value


@pytest.mark.parametrize(
    "text", ["2^{200000}", "2^{-200000}", "10001!", "2^{100000}*2^{100000}", r"\sum_{k=1}^{10^6} 1"]
)
def test_large_ones_are_refused(text):
    with pytest.raises(TooLarge):
        exactly(parse(text))
    assert not equal(parse(text), parse(text))  # equal spellings are for others to see
    assert number(parse(text)) is None


@pytest.mark.parametrize("text", ["1/(1-1)", "0^{-1}", "(-1)!"])
def test_there_is_no_such_number(text):
    with pytest.raises(Undefined):
        exactly(parse(text))
    assert not equal(parse(text), parse(text))


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**30), st.integers(-3, 3))
def test_arithmetic_is_exact(a, b, n):
    if a or n >= 0:
        assert exactly(
            parse(rf"\left(\frac{{{a}}}{{{b}}}\right)^{{{n}}}+1".replace(r"\left", "").replace(r"\right", ""))
        ) == (Fraction(a, b) ** n + 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
        (r"\sqrt{2+\sqrt{3}}", r"\frac{\sqrt{6}+\sqrt{2}}{2}"),
        (r"\sin(\pi)", "0"),
        (r"\sqrt{10^{40}+1}-10^{20}", r"\frac{1}{\sqrt{10^{40}+1}+10^{20}}"),
        (r"(-8)^{1/3}", "-2"),
        (r"\arctan(1)", r"\pi/4"),
        (r"e^{i\pi}+1", "0"),
        (r"\lfloor\ln(1000)/\ln(10)\rfloor", "3"),
        (r"\lceil\ln(125)/\ln(5)\rceil", "3"),
        ("(1/2)!", r"\sqrt{\pi}/2"),
    ],
)
def test_equal_constants(one, other):
    assert equal(parse(one), parse(other)) and equal(parse(other), parse(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{\pi}{2^{300}}", "0"),
        (r"\frac{\pi}{2^{300}}", r"\frac{\pi}{2^{301}}"),
        (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        (r"\sqrt{2}", "1.41421356237309504880168872420969807856967187537694"),
        (r"\sqrt{2}+10^{-60}", r"\sqrt{2}"),
        (r"10^{-400}\pi", "0"),
        ("i", "-i"),
    ],
)
def test_near_constants_are_not_equal(one, other):
    assert not equal(parse(one), parse(other)) and not equal(parse(other), parse(one))


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("(x+1)^2", "x^2+2x+1", True),
        ("|x|", "x", False),
        (r"\sqrt{x^2}", "|x|", True),
        (r"\sqrt{1/n}", r"1/\sqrt{n}", True),
        (r"\ln(x^2)", r"2\ln(x)", True),
        (r"\lfloor x\rfloor", "x", False),
        (r"\lfloor\frac{n}{2}\rfloor+\lceil\frac{n}{2}\rceil", "n", True),
        ("(-1)^n", r"\cos(n\pi)", True),
        ("n!", "n(n-1)!", True),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}", True),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n-1)}{2}", False),
        ("x+10^{-30}", "x", False),
        ("x-x", "0", True),
        ("x/x", "1", True),
        ("1/(x-x)", "1", False),
        ("x", "y", False),
        ("3x i", "3ix", True),
        (r"\arcsin(x+5)", r"\arcsin(5+x)", True),
    ],
)
def test_expressions_with_names(one, other, verdict):
    assert equal(parse(one), parse(other)) is equal(parse(other), parse(one)) is verdict


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=4), st.integers(0, 3), st.integers(-9, 9))
def test_polynomials_are_the_same_if_their_coefficients_are(coefficients, at, change):
    def written(numbers):
        return "0" + "".join(f"+({c})x^{{{i}}}" for i, c in enumerate(numbers))

    other = list(coefficients)
    other[at % len(other)] += change
    assert equal(parse(written(coefficients)), parse(written(other))) is (change == 0)


def test_errors_are_the_decimals_that_are_written():
    assert within(Fraction(42, 10), Fraction(43, 10), 0.1, None)  # in floats 4.3 - 4.2 > 0.1
    assert not within(Fraction(42, 10), Fraction(43001, 10000), 0.1, None)
    assert within(Fraction(-100), Fraction(-101), None, 0.01) and not within(Fraction(-100), Fraction(-102), None, 0.01)
    assert within(parse(r"\pi"), Fraction(314, 100), 0.01, None)
    assert within(parse(r"\pi"), Fraction(3), 0.01, 0.1)
    assert not within(parse("x"), parse("x"), 1.0, None) and not within(parse("i"), Fraction(1), 9.0, None)


def test_multiples_of_each_other():
    assert proportion(parse("2x+4y-3"), parse("y+x/2-3/4")) == 1
    assert proportion(parse("x-y"), parse("2y-2x")) == -1
    for other in ("x+y", "x-y+1", "(x-y)^2", "x(x-y)", "0"):
        assert proportion(parse("x-y"), parse(other)) is None


def test_equations_with_the_same_roots():
    assert same_roots(parse("x y-1"), parse("y-1/x"))
    assert same_roots(parse("x/y-2"), parse("x-2y"))
    assert not same_roots(parse("x^2-y^2"), parse("x-y"))
    assert not same_roots(parse("x-y"), parse("x-z"))
    assert not same_roots(parse("x^2+y^2+1"), parse("x^2+y^2+2"))  # neither has any


def test_lines():
    assert line(parse("2x-6")) == (3, 1)
    assert line(parse("6-2x")) == (3, -1)
    assert line(parse("x^2-4")) is None and line(parse("x+y")) is None and line(parse("3")) is None
    root, sign = line(parse(r"\sqrt{2}x-2"))
    assert root == number(parse(r"\sqrt{2}")) and sign == 1
