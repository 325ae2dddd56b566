"""Finding the final answer of a response; rows M4 to M17 and M30 to M32 are inputs that broke others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.domains.math_answer import RULES, check_prompt

BOXED = [
    (r"So $\boxed{42}$.", "42"),
    (r"\boxed{ 42 }", "42"),
    (r"\boxed {42}", "42"),
    (r"\fbox{42}", "42"),  # M15
    (r"\boxed{41} wait, \boxed{42}", "42"),  # M7
    (r"\boxed{42} and also \boxed{41}", "41"),  # M8
    (r"\boxed{1} and \boxed{2}", "2"),  # M10: the last box decides
    (r"\fbox{1} \boxed{2}", "2"),
    (r"\boxed{1} \fbox{2}", "2"),
    (r"\boxed{\boxed{3}}", "3"),
    (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),  # M16
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),  # an escaped brace needs no partner
    (r"\boxed{a \\}", r"a \\"),  # the brace after a line break is not escaped
    ("\\boxed{4\n2}", "4\n2"),
    (r"\boxed{5} % \boxed is the form", "5"),
    (r"\boxed{42}\boxed 43", "42"),  # M17: without a brace it is no box
    # none
    ("The answer is 42", None),  # M4
    ("", None),
    (r"\boxed{42", None),  # M17
    (r"\boxed{41} \boxed{42", None),
    (r"\boxed{\frac{1}{2}", None),
    (r"\boxed{}", None),  # M17
    (r"\boxed{  }", None),
    (r"\boxed{1}\boxed{}", None),
    (r"\boxed 42", None),  # M17
    (r"\boxed", None),
    (r"\boxes{42}", None),
    ("#### 42", None),
    ("Answer: 42", None),
]
MARKED = [
    ("42", "42"),
    (" 1,000", "1,000"),  # M32
    (" $42", "$42"),
    (" 42.", "42."),
    (" 42.0", "42.0"),
    (" 42" + " " * 400, "42"),  # M31
    (" 42\nThat is all.", "42"),
    ("\n42", "42"),
    ("\n\n  42\n", "42"),
    (" **42**", "42"),
    ("** 42", "42"),
    (r" \boxed{42}", r"\boxed{42}"),
    (" 2**3", "2**3"),
    ("", None),
    ("  \n ", None),
]


@pytest.mark.parametrize(("response", "answer"), BOXED)
def test_the_last_box_decides(response, answer):
    assert RULES["boxed"].find(response) == answer


@pytest.mark.parametrize(("rest", "answer"), MARKED)
@pytest.mark.parametrize(("rule", "marker"), [("hash", "####"), ("answer", "Answer:")])
def test_what_follows_the_last_marker_decides(rule, marker, rest, answer):
    find = RULES[rule].find
    assert find(f"First this.\n{marker}{rest}") == answer
    assert find(f"{marker} 7\nNo.\n{marker}{rest}") == answer


@pytest.mark.parametrize(
    ("rule", "response", "answer"),
    [
        ("hash", "####42", "42"),
        ("hash", "#### Step 1\nso\n#### 42", "42"),
        ("hash", "##### 42", None),
        ("hash", "### 42", None),
        ("hash", "42", None),
        ("answer", "answer: 42", "42"),
        ("answer", "**Answer:** 42", "42"),
        ("answer", "**Answer: 42**", "42"),
        ("answer", "**Answer**: 42", "42"),
        ("answer", "Final Answer: 42", "42"),
        ("answer", "the answer is 42", None),
        ("answer", "my answers: 42", None),
    ],
)
def test_markers_by_example(rule, response, answer):
    assert RULES[rule].find(response) == answer


@pytest.mark.parametrize("rule", RULES)
def test_only_what_follows_the_last_thought_counts(rule):
    """M5."""
    forms = {"boxed": r"\boxed{%s}", "hash": "#### %s\n", "answer": "Answer: %s\n", "end": "It is %s."}
    one, two, find = forms[rule] % 1, forms[rule] % 42, RULES[rule].find
    assert find(f"<think>a</think> {one} </think> {two}") == "42"
    assert find(f"<think>{one}</think> {two}") == "42"
    assert find(f"{one}</think> {two}") == "42"  # a template that opened it in the prompt
    assert find(f"<think>a</think> {one} </think> and no more") is None
    assert find(f"<think>{two}") is None
    assert find(f"<think>{two}</think>") is None
    assert find(f"<think>a</think> {two} <think> but {one}") is None


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(
    "piece",
    ["\\boxed{", "{", "}", "\\boxed ", "####", "#", "Answer", "Answer:", "answer \t", "<think>", "\\", "x", "\n"],
)
def test_a_megabyte_of_anything_is_read(rule, piece):
    rule.find(piece * (1_000_000 // len(piece)))


@given(st.text(alphabet="{}\\abx #:\n", max_size=40))
def test_a_balanced_answer_is_found_as_it_was_written(text):
    inside = text.replace("\\", "").replace("{", "").replace("}", "").strip()
    for wrapped in (inside, f"{{{inside}}}", f"\\{{{inside}\\}}"):
        found = RULES["boxed"].find(f"so \\boxed{{{wrapped}}} and no more")
        assert found == (wrapped.strip() or None)


@given(st.text(max_size=200), st.sampled_from(list(RULES)))
def test_reading_never_raises(text, rule):
    found = RULES[rule].find(text)
    assert found is None or found == found.strip() != ""


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_asks_for_what_it_reads(rule):
    check_prompt(rule, rule.instruction)
    check_prompt(rule, f"Please. {rule.instruction.upper()}")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_another_instruction_is_refused(rule):
    """M30."""
    for other in RULES.values():
        if other is not rule:
            with pytest.raises(ValueError, match=f"'{rule.name}'.*asks for what the rule '{other.name}' reads"):
                check_prompt(rule, other.instruction)
    with pytest.raises(ValueError, match="does not ask for"):
        check_prompt(rule, "What is it?")


def test_a_boxed_answer_is_right_under_a_boxed_prompt_only():
    """M30."""
    response = r"The answer is \boxed{42}"
    assert [RULES[rule].find(response) for rule in ("boxed", "hash", "answer")] == ["42", None, None]


@pytest.mark.parametrize(
    ("response", "answer"),
    [("3 + 4 = 7", "7"), ("It is **7**.", "7"), ("7 apples", None), ("3 + 4", None), ("7 or 8", None), ("", None)],
)
def test_the_number_at_the_end(response, answer):
    assert RULES["end"].find(response) == answer
