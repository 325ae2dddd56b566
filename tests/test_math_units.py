"""Units: their names, and where they end and a value begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains.math_text import clean
from hdl_jax.domains.math_units import cut, read

M, S = ("m", 1), ("second", -1)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("m", (M,)),
        (r"\text{ metres}", (M,)),
        ("cm^2", (("cm", 2),)),
        (r"$cm^2$", (("cm", 2),)),
        ("sq cm", (("cm", 2),)),
        ("square centimetres", (("cm", 2),)),
        ("cubic feet", (("foot", 3),)),
        ("feet squared", (("foot", 2),)),
        ("m/s", (M, S)),
        (r"\frac{\text{m}}{\text{s}}", (M, S)),
        ("metres per second", (M, S)),
        ("W/m K", (("kelvin", -1), ("m", -1), ("watt", 1))),  # all that follows is below the line
        ("J/kg/K", (("joule", 1), ("kelvin", -1), ("kg", -1))),
        (r"\text{m}\,\text{s}^{-1}", (M, S)),
        (r"m \cdot s^{-1}", (M, S)),
        ("km/h", (("hour", -1), ("km", 1))),
        ("kmh", (("hour", -1), ("km", 1))),
        (r"^{\circ}", (("degree", 1),)),
        ("°", (("degree", 1),)),
        ("degrees Celsius", (("celsius", 1),)),
        (r"^\circ\text{F}", (("fahrenheit", 1),)),
        ("apples", (("apple", 1),)),
        ("M", (("M", 1),)),
        ("5", None),
        ("x+1", None),
        ("squared", None),
        ("hundredths", None),
        ("", None),
    ],
)
def test_a_unit_by_itself(text, unit):
    assert read(clean(text)) == unit


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("5 km", "5", "km"),
        ("5km", "5", "km"),
        (r"5\,\mathrm{km}", "5", "km"),
        (r"x \text{ km}", "x", "km"),
        (r"\frac{41}{12} km", r"\frac{41}{12}", "km"),
        (r"2\pi cm", r"2\pi", "cm"),
        (r"\$5", "5", "dollars"),
        (r"-\$5", "-5", "dollars"),
        ("€5", "5", "euros"),
        ("18 dollars per day", "18", "dollars per day"),
        (r"\$18 per day", "18", "dollars per day"),
        (r"45^\circ", "45", "degrees"),
        (r"5 \frac{\text{km}}{\text{h}}", "5", "km/h"),
        ("5 red apples", "5", "red apples"),
    ],
)
def test_a_unit_is_cut_off(text, value, unit):
    found = cut(clean(text))
    assert (found.value, found.unit) == (value, read(unit)) and found.unit


@pytest.mark.parametrize(
    "text", ["6m", "6 m", "x km", "2RC", r"\frac{37}{4} m", r"\sin 30^\circ", "no solution", "5 or 6", "5 squared",
             "3 times", "1 half", "5 hundredths", r"1+2\text{i}", r"2\pi", "km", "5 is it"]
)  # fmt: skip
def test_what_is_no_unit_stays(text):
    found = cut(clean(text))
    assert not found.unit and found.value == clean(text)


def test_a_letter_is_a_unit_only_if_asked():
    assert cut("5 m", letters=True).unit == (M,)
    assert cut("x m", letters=True).unit == ()


@pytest.mark.parametrize(
    ("text", "scale"), [("3 million", 10**6), ("2 dozen eggs", 12), (r"5 \text{ thousand}", 1000), ("5", 1)]
)
def test_words_that_scale(text, scale):
    assert cut(clean(text)).scale == scale


@pytest.mark.parametrize("text", ["10%", r"10\%", r"10 \%", "10 percent", r"10\text{ percent}", "10 percentage points"])
def test_percent_signs(text):
    found = cut(clean(text))
    assert found.percent and found.value == "10"


@given(st.text(max_size=60))
def test_cutting_never_raises(text):
    cut(clean(text), letters=True)
    read(clean(text))
