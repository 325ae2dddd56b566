"""Published answers, as they are and in the other typesetting of benchmarks/math_forms.py."""

from __future__ import annotations

import pytest

pytest.importorskip("math_verify", reason="comparing answers needs hdl_jax[math]")

from benchmarks import math_check
from benchmarks.math_forms import retypeset
from hdl_jax.domains.math_compare import Reference, same, unreadable


@pytest.mark.parametrize(
    ("reference", "kind", "text"),
    [
        (Reference(("2125",)), "whole number", "2{,}125"),
        (Reference(("1234567",)), "whole number", "1{,}234{,}567"),
        (Reference(("-2,125",)), "thousands", r"-2\,125"),
        (Reference(("033",)), "leading zeros", "33"),
        (Reference(("7",)), "digit", "7.0"),
        (Reference(("0.006",)), "decimal", r"6 \times 10^{-3}"),
        (Reference(("4.5e33",)), "e-notation", r"4.5 \times 10^{33}"),
        (Reference((r"$-\frac{1}{2}$",)), "fraction", "-1/2"),
        (Reference(("1/3",)), "fraction", r"\tfrac{1}{3}"),
        (Reference(("62.5%",)), "percent", "0.625"),
        (Reference(("(2,4]",)), "brackets", r"\left(2.0,\; 4.0\right]"),
        (Reference(("3", "5")), "several", r"5.0 \text{ and } 3.0"),
        (Reference(("$k=1$",)), "name = value", "1.0"),
        (Reference(("x+y=z",)), "equation", "z = x+y"),
        (Reference((r"k \geqslant 2",)), "inequality", r"2 \leq k"),
        (Reference(("$a-b+2c$",)), "several terms", r"2 \cdot c - b + a"),
        (Reference((r"\frac{n}{2}",)), "expression", r"\left(\dfrac{n}{2}\right)"),
        (Reference(("45",), unit="km"), "decimal, unit", r"4.5 \times 10^{1}\text{ km}"),
        (Reference(("4.2",), unit="%"), "decimal, percent", r"4.2 \times 10^{0}\%"),
    ],
)
def test_forms(reference, kind, text):
    assert retypeset(reference) == (kind, text)


@pytest.mark.parametrize("name", math_check.FILES)
def test_published_answers(name, shared_data):
    """Every one is itself, in another typesetting too, and not the next one."""
    references = math_check.read(name, shared_data, None)
    assert len(references) == {"aime24": 30, "minerva": 272, "olympiadbench": 675, "gsm8k": 1319}[name]
    for i, reference in enumerate(references):
        assert unreadable(reference) == ""
        assert same(reference, math_check.written(reference))
        kind, text = retypeset(reference)
        assert text not in (*reference.answers, math_check.written(reference))
        assert same(reference, text), (reference, kind, text)
        other = references[(i + 1) % len(references)]
        if math_check.written(other) != math_check.written(reference):
            assert not same(reference, math_check.written(other))
