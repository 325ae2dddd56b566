"""One spelling for answers, and cuts between their brackets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains.math_text import balanced, clean, key, split, wrapped

COMMA = frozenset([","])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (r"$\left( \dfrac{1}{2},\, 3 \right)$", r"(\frac{1}{2},3)"),
        (r"\(x\)", "x"),
        (r"\[x\]", "x"),
        ("x − 1", "x-1"),
        ("x²", "x^{2}"),
        ("x₁", "x_{1}"),
        ("10{,}000", "10000"),
        (r"10\,000", "10000"),
        ("10\u2009000", "10000"),
        (r"11,\! 111,\! 100", "11111100"),
        (r"a \leqslant b", r"a\leq b"),
        ("a <= b", r"a\le b"),
        (r"\mathrm{x}", "x"),
        (r"\mathrm{km}", r"\text{km}"),
        (r"\textbf{yes}", r"\text{yes}"),
        (r"1 \text{ and } 2", "1 and 2"),
        ("1, and 2", "1 and 2"),
        (r"\{1\}", r"\lbrace 1 \rbrace"),
        ("2π", r"2\pi"),
        ("]0, 1[", "(0,1)"),
        ("[0, 1[", "[0,1)"),
        ("½", r"\frac{1}{2}"),
        ("１２", "12"),
        (r"30^{\circ}", "30°"),
        (r"\operatorname{sin} x", "sin x"),
        ("np.sqrt(2)", "sqrt(2)"),
        (r"\bigl(1\bigr)", "(1)"),
        ("\\\\frac{1}{2}", r"\frac12"),
        ("x.", "x"),
    ],
)
def test_equal_spellings(text, same):
    assert key(clean(text)) == key(clean(same))


@pytest.mark.parametrize(
    ("one", "other"),
    [("1 1/2", "11/2"), ("1 2", "12"), ("x_1", "x1"), ("x^{23}", "x^{2}3"), (r"\pi r", r"\pir"), ("(0,1)", "[0,1]"),
     ("1,000", "1000"), ("x", "X"), (r"\text{m}", "m"), ("1.5", "15")],
)  # fmt: skip
def test_different_spellings(one, other):
    assert key(clean(one)) != key(clean(other))


@given(st.text(max_size=80))
def test_cleaning_is_done_once(text):
    once = clean(text)
    assert "$" not in once.replace("\\$", "") and "  " not in once
    assert key(once) == key(once)


@pytest.mark.parametrize("text", ["", "x", "(1, 2]", "[1, 2)", r"\{(1)\}", "{x}", r"\frac{1}{2}", r"\lfloor x \rfloor"])
def test_balanced(text):
    assert balanced(text)


@pytest.mark.parametrize("text", ["(", ")", "{", "}", "(1, 2", "{1)", r"\{1}", r"\frac{1}{", ")(", r"\begin{pmatrix}"])
def test_not_balanced(text):
    assert not balanced(text)


def test_cuts_are_outside_of_brackets():
    assert split(r"(1, 2), \{3, 4\}, [5, 6), f(7,8)", COMMA)[0] == ["(1, 2)", r"\{3, 4\}", "[5, 6)", "f(7,8)"]
    assert split("1", COMMA) == (["1"], [])
    assert split("1,,", COMMA) == (["1", "", ""], [",", ","])


def test_what_brackets_are_around_all_of_a_text():
    assert wrapped("(1, 2]") == ("(", "1, 2", "]")
    assert wrapped(r"\{ 1 \}") == (r"\{", "1", r"\}")
    assert wrapped("(1)(2)") is None
    assert wrapped("(1), (2)") is None
    assert wrapped("1") is None and wrapped("(") is None and wrapped("") is None
