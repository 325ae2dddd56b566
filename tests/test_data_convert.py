"""Rows as the publishers have them, in every accepted spelling, and rows that cannot be used."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl_jax.data.convert import Dropped, Raw, RowError, split_answers
from hdl_jax.data.sets import SETS, MathRow
from hdl_jax.domains.math_answer import RULES
from hdl_jax.domains.math_compare import Reference


def convert(name: str, values: dict, number: int = 7) -> MathRow:
    math_set = SETS[name]
    return math_set.convert(Raw(values, math_set.fields, number))


def test_every_set_names_a_rule_and_how_to_get_it():
    assert set(SETS) == set(
        "deepmath aime24 aime25 aime26 hmmt25 hmmt26 minerva olympiadbench math500 gsm8k gsm8k_train "
        "arithmetic arithmetic_train".split()
    )
    for name, math_set in SETS.items():
        assert math_set.name == name and math_set.rule in RULES and math_set.samples >= 1
        assert math_set.split in ("train", "test") and math_set.sizes and math_set.licence
        assert f"hdl_jax.data.prepare {name} --source={math_set.source}" in math_set.where
        assert math_set.fetch in math_set.where


def test_the_paper_s_samples_a_problem():
    k = {name: SETS[name].samples for name in ("aime24", "aime25", "aime26", "hmmt26", "minerva", "olympiadbench")}
    assert k == {"aime24": 16, "aime25": 16, "aime26": 16, "hmmt26": 16, "minerva": 8, "olympiadbench": 4}


# ---- spellings ------------------------------------------------------------------------------------------------------

Q, S = "What is $1+1$?", "So $\\boxed{\\frac{204}{1}}$, hence \\boxed{204}."
SPELLINGS = [
    # set, row, id, answer, meta
    (
        "deepmath",  # zwhe99/DeepMath-103K
        {"question": Q, "final_answer": "\\frac12", "difficulty": 5.5, "topic": "Algebra", "r1_solution_1": "..."},
        ("7", "\\frac12", {"difficulty": 5.5, "topic": "Algebra"}),
    ),
    # HuggingFaceH4/aime_2024
    (
        "aime24",
        {"id": 60, "problem": Q, "solution": S, "answer": "025", "url": "...", "year": "2024"},
        ("60", "025", {}),
    ),
    (
        "aime24",
        {"ID": "2024-I-4", "Problem": Q, "Solution": "...", "Answer": 33},
        ("2024-I-4", "33", {}),
    ),  # Maxwell-Jia
    (
        "aime24",
        {"id": 60, "problem": Q, "solution": "\\boxed{204}", "url": "x/2024_AIME_I"},
        ("60", "204", {}),
    ),  # math-ai
    (
        "aime24",  # BytedTsinghua-SIA/AIME-2024
        {
            "prompt": [{"role": "user", "content": f"Solve this. {Q}"}],
            "reward_model": {"ground_truth": "204", "style": "rule"},
            "extra_info": {"index": "x", "raw_problem": Q},
        },
        ("7", "204", {}),
    ),
    ("aime25", {"question": Q, "answer": "336^\\circ"}, ("7", "336", {})),  # opencompass/AIME2025
    ("aime25", {"id": "0", "problem": Q, "answer": "70"}, ("0", "70", {})),  # math-ai/aime25
    ("aime25", {"id": 1, "problem": Q, "answer": 70, "solution": S, "year": 2025}, ("1", "70", {})),  # yentinglin
    (
        "aime25",
        {"problem_idx": 3, "problem": Q, "answer": 70, "problem_type": ["Algebra"]},
        ("3", "70", {}),
    ),  # MathArena
    ("aime26", {"problem_idx": 1, "answer": 277, "problem": Q}, ("1", "277", {})),  # MathArena: whole numbers
    ("aime26", {"problem_idx": 1, "answer": 277.0, "problem": Q}, ("1", "277", {})),  # as pandas writes it again
    (
        "hmmt25",
        {"problem_idx": 5, "problem": Q, "answer": "\\frac{1}{576}", "problem_type": ["Geometry", "Algebra"]},
        ("5", "\\frac{1}{576}", {"type": "Geometry, Algebra"}),
    ),
    ("hmmt26", {"problem_idx": 1, "answer": "2^{10}", "problem_type": [], "problem": Q}, ("1", "2^{10}", {})),
    (
        "minerva",
        {"problem": Q, "solution": S, "type": "Ecology I", "idx": 0},
        ("0", "204", {"type": "Ecology I"}),
    ),  # QwenLM
    ("minerva", {"question": Q, "answer": "4.5e33"}, ("7", "4.5e33", {})),  # math-ai/minervamath
    (
        "math500",  # HuggingFaceH4/MATH-500
        {
            "problem": Q,
            "solution": S,
            "answer": "2",
            "subject": "Algebra",
            "level": 2,
            "unique_id": "test/algebra/1.json",
        },
        ("test/algebra/1.json", "2", {"subject": "Algebra", "level": 2}),
    ),
    ("gsm8k", {"question": Q, "answer": "2+2 = <<2+2=4>>4\n#### 4"}, ("7", "4", {})),  # openai/gsm8k
    ("gsm8k_train", {"question": Q, "answer": "#### 2,125", "idx": 3}, ("3", "2125", {})),  # QwenLM
    ("arithmetic", {"question": Q, "answer": "#### 4", "type": "divisors"}, ("7", "4", {"type": "divisors"})),
    ("gsm8k", {"question": Q, "answer": "#### 1,450,000"}, ("7", "1450000", {})),
    ("gsm8k", {"question": Q, "answer": "a #### b\n#### -3.5"}, ("7", "-3.5", {})),
]


@pytest.mark.parametrize(("name", "values", "expected"), SPELLINGS)
def test_each_publisher_s_fields_are_read(name, values, expected):
    id, answer, meta = expected
    assert convert(name, values) == MathRow(id, Q, Reference((answer,)), meta)


def olympiad(**changes) -> dict:
    row = {
        "id": 2592,
        "context": None,
        "question": Q,
        "solution": ["..."],
        "final_answer": ["4.2"],
        "is_multiple_answer": False,
        "unit": None,
        "answer_type": "Numerical",
        "error": None,
        "subfield": "Algebra",
    }
    return row | changes


def test_olympiadbench_error_and_unit():
    row = convert("olympiadbench", olympiad(unit="%", error="1e-1"))
    assert row.reference == Reference(("4.2",), unit="%", tolerance=0.1)
    assert row.id == "2592" and row.meta == {"subfield": "Algebra", "answer_type": "Numerical"}


def test_olympiadbench_context_goes_before_the_question():
    assert convert("olympiadbench", olympiad(context="Let $x=1$.")).question == f"Let $x=1$.\n\n{Q}"


@pytest.mark.parametrize(
    ("answers", "multiple", "kind", "expected"),
    [
        (["$69$,$84$"], True, "Numerical", ("69", "84")),
        (["$(1,8,19), (2,7,13), (4,5,7)$"], True, "Tuple", ("(1,8,19)", "(2,7,13)", "(4,5,7)")),
        (["$(2,4)$"], False, "Tuple", ("$(2,4)$",)),
        (["$[-1,-\\frac{1}{2}]$"], False, "Interval", ("$[-1,-\\frac{1}{2}]$",)),
        (["1,2"], True, "Numerical", ("1", "2")),
        (["1", "2"], True, "Numerical", ("1", "2")),
        (["1,000"], False, "Numerical", ("1,000",)),
        ("3", False, "Numerical", ("3",)),
    ],
)
def test_olympiadbench_answers_and_kinds(answers, multiple, kind, expected):
    row = convert("olympiadbench", olympiad(final_answer=answers, is_multiple_answer=multiple, answer_type=kind))
    assert row.reference.answers == expected
    assert row.reference.kind == {"Tuple": "tuple", "Interval": "interval"}.get(kind, "")


def test_olympiadbench_text_only_rows_of_the_whole_benchmark_are_kept():
    whole = {"modality": "Text-only", "question_type": "Open-ended", "language": "English", "subject": "Math"}
    assert convert("olympiadbench", olympiad(**whole)).question == Q


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"modality": "Multimodal"}, "has an image"),
        ({"question": "See <image_1>."}, "has an image"),
        ({"question": "See <img_3138>."}, "has an image"),
        ({"question_type": "Theorem proof", "final_answer": None}, "a proof: has no final answer"),
        ({"final_answer": []}, "a proof: has no final answer"),
        ({"language": "Chinese"}, "not in English"),
        ({"subject": "Physics"}, "not maths"),
    ],
)
def test_olympiadbench_rows_of_another_kind_are_dropped_with_the_reason(change, reason):
    with pytest.raises(Dropped, match=f"^{reason}$"):
        convert("olympiadbench", olympiad(**change))


@pytest.mark.parametrize("year", [{"year": "2023"}, {"url": "https://x/index.php/2022_AIME_II_Problems/Problem_3"}])
def test_problems_of_another_year_are_dropped(year):
    with pytest.raises(Dropped, match="^not of 2024$"):
        convert("aime24", {"id": 1, "problem": Q, "answer": "4", **year})


# ---- several answers in one text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$-2,0,2$", ["-2", "0", "2"]),
        ("$221,$8$", ["221", "8"]),  # the dollar signs of the data do not always pair up
        ("$f(x)=x,f(x)=-x$", ["f(x)=x", "f(x)=-x"]),
        ("$\\left(\\frac{1}{2}, 1\\right)$,$(0,3]$", ["\\left(\\frac{1}{2}, 1\\right)", "(0,3]"]),
        ("$10{,}000, \\{1,2\\}$.", ["10{,}000", "\\{1,2\\}"]),
        ("1, 2,", ["1", "2"]),
        ("$(\\frac{1}{4}, \\frac{1}{27})$", ["$(\\frac{1}{4}, \\frac{1}{27})$"]),
        ("$f(x)=a x$, where $a$ is whole, and positive", ["$f(x)=a x$, where $a$ is whole, and positive"]),
        ("$\\angle B E A_{1}=90$,$\\sqrt{x}$", ["\\angle B E A_{1}=90", "\\sqrt{x}"]),
    ],
)
def test_answers_are_cut_at_the_commas_between_them(text, expected):
    assert split_answers(text) == expected


ATOM = st.one_of(
    st.integers(-999, 999).map(str),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda p: f"\\frac{{{p[0]}}}{{{p[1]}}}"),
    st.text(string.ascii_lowercase, min_size=1, max_size=1),
)
ANSWER = st.one_of(ATOM, st.lists(ATOM, min_size=2, max_size=4).map(lambda parts: f"({', '.join(parts)})"))


@given(st.lists(ANSWER, min_size=2, max_size=5), st.sampled_from([",", ", ", "$,$", "$, $"]))
def test_what_is_put_together_is_taken_apart(answers, comma):
    assert split_answers(f"${comma.join(answers)}$") == answers


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("deepmath", {"question": Q, "answer": "1"}, "has no answer: looked for final_answer; it has question, answer"),
        ("deepmath", {"question": Q, "final_answer": None}, "has no answer"),
        ("deepmath", {"question": Q, "final_answer": float("nan")}, "has no answer"),
        ("deepmath", {"question": Q, "final_answer": " "}, "final_answer is empty"),
        ("deepmath", {"question": "\n", "final_answer": "1"}, "question is empty"),
        ("deepmath", {"final_answer": "1"}, "has no question: looked for question"),
        ("deepmath", {"question": [Q], "final_answer": "1"}, "question must be text or a number, is list"),
        ("deepmath", {"question": Q, "final_answer": True}, "final_answer must be text or a number, is bool"),
        ("deepmath", {"question": "a\ud800b", "final_answer": "1"}, "question is not valid Unicode"),
        ("deepmath", {"question": Q, "final_answer": "1", "topic": "\ud800"}, "topic is not valid Unicode"),
        ("aime26", {"problem_idx": 1, "problem": Q, "answer": "\\frac12"}, "must be a whole number from 0 to 999"),
        ("aime26", {"problem_idx": 1, "problem": Q, "answer": 1000}, "must be a whole number from 0 to 999"),
        ("aime26", {"problem_idx": 1, "problem": Q, "answer": 7.5}, "must be a whole number from 0 to 999"),
        ("aime24", {"id": 1, "problem": Q, "solution": "204"}, "solution has no answer in the form 'boxed'"),
        ("aime24", {"id": 1, "problem": Q}, "has no answer: looked for answer, Answer, .*, solution"),
        ("minerva", {"problem": Q, "solution": "\\boxed{"}, "solution has no answer in the form 'boxed'"),
        ("gsm8k", {"question": Q, "answer": "4"}, "answer has no answer in the form 'hash': it ends '4'"),
        ("gsm8k", {"question": Q, "answer": "#### four"}, "its answer must be a number, is 'four'"),
        ("olympiadbench", olympiad(error="small"), "error must be a number"),
        ("olympiadbench", olympiad(error="-1"), "error must be a number"),
        ("olympiadbench", olympiad(final_answer=[["4"]]), "final_answer must be text"),
        ("aime24", {"id": 1, "question": {"text": Q}, "answer": 4}, "question must be text or a number, is dict"),
        (
            "math500",
            {"problem": {"text": Q}, "answer": "2", "unique_id": "x"},
            "problem must be text or a number, is dict",
        ),
    ],
)
def test_a_row_that_cannot_be_used_says_why(name, values, message):
    with pytest.raises(RowError, match=message):
        convert(name, values)


def test_fields_that_only_describe_may_be_missing_or_odd():
    row = {"question": Q, "final_answer": "1", "topic": "  ", "difficulty": float("inf")}
    assert convert("deepmath", row).meta == {}


def test_rows_as_json_has_them_are_read_alike():
    row = olympiad(final_answer=["$69$,$84$"], is_multiple_answer=True)
    assert convert("olympiadbench", json.loads(json.dumps(row))) == convert("olympiadbench", row)
