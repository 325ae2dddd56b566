"""Expressions are rewritten so that math-verify's grammar reads them in one way only."""

from __future__ import annotations

import pytest

pytest.importorskip("math_verify", reason="reading expressions needs hdl_jax[math]")

from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains import math_tree
from hdl_jax.domains.math_latex import Foreign, Unreadable, name_of, rewrite
from hdl_jax.domains.math_text import clean
from hdl_jax.domains.math_value import equal


def parse(text):
    return math_tree.parse(clean(text))


# What the grammar alone reads otherwise, or cannot read.
SAME = [
    ("2(3)", "6"),
    ("(2)(3)", "6"),
    ("2{3}", "6"),
    (r"2\frac{1}{2}", "5/2"),
    (r"x^2\frac{1}{2}", r"\frac{x^2}{2}"),
    (r"2\cdot\frac{1}{2}", "1"),
    (r"\sin x \cdot y", r"y \sin(x)"),
    (r"\sin x y", r"\sin(xy)"),
    (r"\sin x \cos y", r"\cos(y)\sin(x)"),
    (r"\sin x (1+y)", r"(1+y)\sin(x)"),
    (r"\sin^2 x", r"(\sin x)^2"),
    (r"\sin^{-1} x", r"\arcsin x"),
    (r"\sin(x)^2", r"(\sin x)^2"),
    (r"\ln 2x", r"\ln(2x)"),
    (r"\exp{2t}", "e^{2t}"),
    (r"\log_2 8", "3"),
    (r"\log_{10} 250", r"\log 250"),
    (r"\sqrt 2", r"\sqrt{2}"),
    ("sqrt(2)", r"\sqrt{2}"),
    (r"\sqrt[3]{8}", "2"),
    ("2^10", "1024"),
    ("2^-1", "1/2"),
    ("2^{-1}", "1/2"),
    ("2**3", "8"),
    ("-2^2", "-4"),
    ("2^3!", r"8!"),
    (r"\frac12", "0.5"),
    (r"\frac123", "1.5"),
    (r"\frac ab", r"\frac{a}{b}"),
    (r"3 \over 4", r"\frac{3}{4}"),
    (r"\binom52", "10"),
    (r"5 \choose 2", "10"),
    (r"\Gamma(5)", "24"),
    ("|-3|", "3"),
    ("||x|-1|", "|1-|x||"),
    (r"\sin 30^\circ", "1/2"),
    (r"\max(2, 3, 1)", "3"),
    (r"\min\{2, 3\}", "2"),
    ("1.5e3 x", "1500x"),
    (r"\sum_{i=1}^{3} i^2", "14"),
    (r"\sum_{k=1}^{3} k + 1", "7"),
    (r"\prod_{k=1}^{4} k", "24"),
    (r"i^2", "-1"),
    ("ab", r"b \cdot a"),
    ("2pi", r"2\pi"),
    ("x'", r"x^{\prime}"),
    (r"\mathrm{e}^x", "e^x"),
    (r"\lfloor -1/2 \rfloor", "-1"),
    ("n(n+1)", "n^2+n"),
]
DIFFERENT = [
    ("x", "X"), ("I", "i"), (r"\gamma", "0.5772156649015329"), (r"\gamma", r"\Gamma"), ("d x", "dy"), ("x_1", "x_2"),
    ("f(x)", "f(y)"), ("x'", "x"), (r"\dot x", "x"), ("2(3)", "5"), (r"\sin x y", r"y\sin x"), ("E", "e"),
    (r"\frac{dx}{dt}", r"\frac{x}{t}"), ("I(0)", "0"), (r"\vec{a}", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_readings(one, other):
    assert equal(parse(one), parse(other))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_is_kept_apart(one, other):
    assert not equal(parse(one), parse(other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1+",
        "*2",
        "1 2",
        "()",
        "(1",
        "1)",
        r"\frac{1}",
        r"\sqrt",
        "x^",
        "x_",
        "|x",
        "1..2",
        r"\ln",
        "=",
        "x=1",
        "a,b",
    ],
)
def test_what_is_no_expression(text):
    with pytest.raises(Unreadable):
        parse(text)


@pytest.mark.parametrize(
    "text", [r"\int x", "5!!", "12_8", r"\oplus", "x@y", r"\lim_{x\to0} x", r"\text{no way}", "a | b"]
)
def test_what_may_make_sense_otherwise(text):
    with pytest.raises(Foreign):
        parse(text)


@pytest.mark.parametrize(
    "text", ["(" * 30 + "1" + ")" * 30, r"\sqrt" * 500 + "2", "x" + "!" * 1 + "^2" * 30, "+".join("x" * 400)]
)
def test_nesting_and_length_are_bounded(text):
    with pytest.raises(Unreadable):
        rewrite(text)


def test_names_come_back():
    tree = math_tree.parse(r"x_{1} + \alpha + e + \sum_{k=1}^{n} k")
    assert tree.names == {"x_1", r"\alpha", "n"}
    assert {name_of(s.name) for s in tree.tree.free_symbols} == {"x_1", r"\alpha", "n", "e"}


@given(st.text(alphabet=r"\{}()[]^_|+-*/!.,'=&%0123456789abdefinxsqrt ", max_size=30))
def test_any_text_is_an_expression_or_unreadable(text):
    try:
        rewrite(clean(text))
    except Unreadable:
        pass
