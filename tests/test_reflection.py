"""The two answer lines of the Reflection baseline (case H13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.localize.reflection import StepAnswer, parse_steps


@pytest.mark.parametrize(
    "text, expected",
    [
        ("STEP: 3\nSTEP2: 5", StepAnswer((3, 5), 0, 0, 0)),
        ("STEP: 3\nSTEP2: 3", StepAnswer((3,), 0, 0, 1)),
        ("STEP: 0\nSTEP2: 9", StepAnswer((), 0, 2, 0)),
        ("STEP: three", StepAnswer((), 2, 0, 0)),
        ("Step 3 was where it went wrong", StepAnswer((), 2, 0, 0)),
        ("", StepAnswer((), 2, 0, 0)),
        ("step: 2\nstep2: 4", StepAnswer((2, 4), 0, 0, 0)),
        ("**STEP:** 2\n**STEP2:** 4.", StepAnswer((2, 4), 0, 0, 0)),
        ("STEP2: 4\nSTEP: 2", StepAnswer((2, 4), 0, 0, 0)),
        ("STEP: 2\nSTEP: 3\nSTEP2: 5", StepAnswer((5,), 1, 0, 0)),
        ("STEP: 2\nSTEP: 2", StepAnswer((2,), 1, 0, 0)),
        ("STEP: 2 or 3\nSTEP2: 5", StepAnswer((5,), 1, 0, 0)),
        ("STEP: -2\nSTEP2: 2", StepAnswer((2,), 1, 0, 0)),
        ("STEP: ²\nSTEP2: ٣", StepAnswer((), 2, 0, 0)),
        ("STEP: 99999999999999999999", StepAnswer((), 2, 0, 0)),
        ("my STEP: 2\nSTEP2: 6", StepAnswer((6,), 1, 0, 0)),
    ],
)
def test_parse_steps(text, expected):
    assert parse_steps(text, 1, 6) == expected


def test_steps_keep_their_distance():
    assert parse_steps("STEP: 3\nSTEP2: 4", 1, 6, spacing=2) == StepAnswer((3,), 0, 0, 1)
    assert parse_steps("STEP: 3\nSTEP2: 1", 1, 6, spacing=2) == StepAnswer((3, 1), 0, 0, 0)


@given(st.text(), st.integers(1, 5), st.integers(5, 9))
def test_every_field_is_used_or_counted_once(text, lo, hi):
    answer = parse_steps(text, lo, hi)
    assert len(answer.steps) + answer.unparsed + answer.out_of_range + answer.too_close == 2
    assert all(lo <= step <= hi for step in answer.steps)
