"""Tests of programs in every form that publishers write them in, and in none."""

from __future__ import annotations

import base64
import datetime
import io
import json
import pickle
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.data import code_tests
from hdl_jax.data.code_row import CodeRow, CodeTest
from hdl_jax.data.code_tests import decode_tests, unpack
from hdl_jax.data.convert import Dropped, Raw, RowError
from hdl_jax.data.sets import CODE_SETS

ONE = (CodeTest("1\n", "2\n"),)
D1 = "eJxrYJlqwwABPRbR1UqZeQWlJUpWCkqGMXlKOgpK+aUlUAEjiEBJanFJSWVBKkiouCQlM0+pNnaKHgCVCRRG"
D2 = "eJxrYJkqwwABPRxJpZk5JZl5xVN6mHNS86ZMnqIHAHemCXc="


def convert(name: str, values: dict, number: int = 7) -> CodeRow:
    code_set = CODE_SETS[name]
    return code_set.convert(Raw(values, code_set.fields, number))


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


# ---- packed texts ---------------------------------------------------------------------------------------------------


def test_the_private_tests_of_livecodebench_are_unpacked():  # row D1
    assert unpack(D1) == [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
    assert decode_tests(D1) == (ONE, "")


def test_plain_json_gives_the_same_tests():  # row D3
    assert decode_tests('[{"input":"1\\n","output":"2\\n","testtype":"stdin"}]') == decode_tests(D1)


def test_a_pickle_that_names_a_function_is_refused_before_it_is_looked_up(tmp_path):  # row D2
    with pytest.raises(RowError):
        unpack(D2)
    with pytest.raises(RowError, match=r"names builtins\.len: refused"):
        unpack(packed(len))

    class Hostile:
        def __reduce__(self):
            return open, (str(tmp_path / "written"), "w")

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        text = base64.b64encode(zlib.compress(pickle.dumps(Hostile(), protocol=protocol))).decode()
        with pytest.raises(RowError, match="refused, only values are read"):
            unpack(text)
    assert not (tmp_path / "written").exists()


def test_a_pickle_that_refers_to_something_outside_is_refused():
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return "x" if obj == "outside" else None

    file = io.BytesIO()
    Pickler(file).dump(["outside"])
    with pytest.raises(RowError, match="refers to something outside: refused"):
        unpack(base64.b64encode(zlib.compress(file.getvalue())).decode())


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04]r\xff\xff\xff\xff.",  # remembers an empty list as number 4,294,967,295
        b"]p4294967295\n.",
    ],
)
def test_a_pickle_that_claims_room_for_billions_of_objects_is_refused(data):
    with pytest.raises(RowError, match="claims 4294967295 objects"):
        unpack(base64.b64encode(zlib.compress(data)).decode())


def test_what_unpacks_to_more_than_the_limit_is_refused_and_not_unpacked(monkeypatch):
    assert code_tests.LARGEST == 2**30
    monkeypatch.setattr(code_tests, "LARGEST", 1000)
    with pytest.raises(RowError, match="more than 1000 bytes once unpacked"):
        unpack(packed("[" + " " * 100_000 + "]"))
    assert unpack(packed("[" + " " * 900 + "]")) == []


def test_a_packed_text_cut_short_is_refused():
    whole = base64.b64decode(packed(json.dumps(list(range(1000)))))
    for end in (1, 10, len(whole) // 2, len(whole) - 1):
        with pytest.raises(RowError):
            unpack(base64.b64encode(whole[:end]).decode())


def test_texts_in_texts_are_opened_but_not_for_ever():
    text = json.dumps([1])
    assert unpack(json.dumps(text)) == [1] and unpack(packed(packed(text))) == [1]
    for _ in range(5):
        text = json.dumps(text)
    with pytest.raises(RowError, match="texts within texts"):
        unpack(text)


# ---- forms of tests -------------------------------------------------------------------------------------------------

F_12 = (CodeTest("[1, 2]", "3"),)
FORMS = [
    # TACO: one object; row D5
    ({"inputs": ["1\n"], "outputs": ["2\n"]}, ONE, ""),
    ({"inputs": [["1", "5"]], "outputs": [["2", "6"]]}, (CodeTest("1\n5", "2\n6"),), ""),
    ({"fn_name": "f", "inputs": [[1, 2]], "outputs": [3]}, F_12, "f"),
    ({"fn_name": "f", "inputs": [[1, 2]], "outputs": [[3]]}, F_12, "f"),
    ({"fn_name": "f", "inputs": [[]], "outputs": [None]}, (CodeTest("[]", "null"),), "f"),
    ({"fn_name": None, "inputs": ["1\n"], "outputs": ["2\n"]}, ONE, ""),
    # PrimeIntellect; row D6
    ([{"input": "1\n", "output": "2\n", "type": "stdin_stdout", "fn_name": None}], ONE, ""),
    ([{"input": [1, 2], "output": [3], "type": "function_call", "fn_name": "f"}], F_12, "f"),
    # LiveCodeBench, as DeepCoder has it
    ([{"input": "1\n", "output": "2\n", "testtype": "stdin", "metadata": {"func_name": None}}], ONE, ""),
    ([{"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "f"}}], F_12, "f"),
    # Codeforces
    ([{"input": "1\n", "output": "2\n"}], ONE, ""),
    # CodeContests, as SandboxFusion has it
    ([{"input": {"stdin": "1\n"}, "output": {"stdout": "2\n"}}], ONE, ""),
    # LiveCodeBench, as SandboxFusion has it
    ({"input_output": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"], "fn_name": None})}, ONE, ""),
    ({"input_output": json.dumps({"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "f"})}, F_12, "f"),
]


@pytest.mark.parametrize(("published", "tests", "entry"), FORMS)
@pytest.mark.parametrize("wrap", [lambda v: v, json.dumps, packed, lambda v: packed(json.dumps(v))])
def test_every_form_gives_the_same_record(published, tests, entry, wrap):
    assert decode_tests(wrap(published)) == (tests, entry)


def test_values_in_lists_of_one_are_taken_out_only_where_all_are():
    def outputs(*values: object) -> list[str]:
        tests, _ = decode_tests({"fn_name": "f", "inputs": [[n] for n in range(len(values))], "outputs": list(values)})
        return [test.output for test in tests]

    assert outputs([1], [2]) == ["1", "2"] and outputs([[1, 2]], [[]]) == ["[1, 2]", "[]"]
    assert outputs([1], [2, 3]) == ["[1]", "[2, 3]"] and outputs([1], []) == ["[1]", "[]"]
    assert outputs([1], 2) == ["[1]", "2"]


def test_the_texts_of_a_function_s_arguments_and_result_keep_their_digits_and_separators():
    long, text = "9" * 5000, json.dumps("a\u2028b", ensure_ascii=False)
    case = {"input": f"{long}\n{text}\n[1.10, 1e5]\n", "output": "2.50", "testtype": "functional", "fn_name": "f"}
    assert decode_tests([case]) == ((CodeTest(f"[{long}, {text}, [1.10, 1e5]]", "2.50"),), "f")


def test_a_text_of_a_list_is_one_argument_and_a_list_is_all_of_them():
    tests, _ = decode_tests({"fn_name": "f", "inputs": ["[1, 2]"], "outputs": ["[3]"]})
    assert tests == (CodeTest("[[1, 2]]", "[3]"),)


def test_no_tests_and_unequal_sides_are_reasons_to_drop_a_row():
    for published in ("[]", [], {"inputs": [], "outputs": []}, {"fn_name": "f", "inputs": [], "outputs": []}):
        with pytest.raises(Dropped, match="^has no tests$"):
            decode_tests(published)
    with pytest.raises(Dropped, match="^has not as many expected outputs as inputs$"):
        decode_tests({"inputs": ["1", "2"], "outputs": ["1"]})


@pytest.mark.parametrize(
    ("published", "message"),
    [
        ("no base64!", "neither JSON nor base64"),
        ("[1", "is not JSON"),
        ("[NaN]", "NaN is no JSON"),
        ("{}", "must have lists of inputs and of outputs"),
        ({"inputs": "1", "outputs": ["1"]}, "must have lists of inputs"),
        (7, "must be a list or an object, are 7"),
        ([7], "must have an input and an output, is 7"),
        ([{"input": "1"}], "must have an input and an output"),
        ([{"input": 1, "output": "2"}], "stdin of a test must be text or a list of lines, is 1"),
        ([{"input": "1", "output": [1]}], "stdout of a test must be text"),
        ([{"input": "1", "output": None}], "stdout of a test must be text"),
        ([{"input": "1", "output": "2", "testtype": "functional"}], "calls a function but names none"),
        ([{"input": "1", "output": "2", "type": "interactive"}], "is 'interactive'"),
        ([{"input": "1", "output": "2", "fn_name": "f(x)"}], "must be a name, is 'f\\(x\\)'"),
        ([{"input": "1", "output": "2", "fn_name": "f"}, {"input": "1", "output": "2"}], "one kind: stdin, f"),
        ([{"input": "x", "output": "2", "fn_name": "f"}], "is not JSON: .*'x'"),
        ([{"input": "1", "output": "True", "fn_name": "f"}], "is not JSON: .*'True'"),
        ([{"input": "1", "output": 2, "fn_name": "f"}], "must be JSON text where its arguments are"),
        ([{"input": 1, "output": 2, "fn_name": "f"}], "the arguments of a test must be a list, are 1"),
        ([{"input": [float("nan")], "output": 2, "fn_name": "f"}], "a value of a test is no JSON"),
        ([{"input": "\ud800", "output": "2"}], "half a surrogate pair at character 0"),
        ([{"input": ["\ud800"], "output": "2", "fn_name": "f"}], "half a surrogate pair"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_what_cannot_be_read_says_what_it_is(published, message):
    with pytest.raises(RowError, match=message):
        decode_tests(published)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
NAMES = st.sampled_from(
    "input output inputs outputs fn_name metadata func_name type testtype input_output stdin stdout".split()
)
TEXTS = st.sampled_from(["stdin", "functional", "f", "1\n", "[1]", "[", D1, '{"inputs": [], "outputs": []}'])
WILD = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(value=WILD, entry=st.sampled_from(["", "f"]))
def test_whatever_is_published_gives_tests_or_a_reason(value, entry):
    try:
        tests, called = decode_tests(value, entry)
    except (RowError, Dropped):
        return
    assert tests and all(isinstance(side, str) for test in tests for side in (test.input, test.output))
    for test in tests if called else ():
        assert isinstance(json.loads(test.input), list)
        json.loads(test.output)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60), broken=st.integers(0, 40), byte=st.integers(0, 255))
def test_whatever_bytes_are_packed_are_values_or_refused(data, broken, byte):
    good = bytearray(pickle.dumps([{"input": "1", "output": "2"}]))
    good[broken % len(good)] = byte
    for content in (data, bytes(good)):
        try:
            unpack(base64.b64encode(zlib.compress(content)).decode())
        except RowError:
            pass


# ---- rows -----------------------------------------------------------------------------------------------------------

Q = "Print twice the number."
STDIN = json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})
LCB = {
    "question_id": "abc301_a",
    "question_content": f"{Q}\n",
    "contest_date": "2024-08-01T00:00:00",
    "platform": "atcoder",
    "difficulty": "easy",
    "starter_code": "",
    "public_test_cases": '[{"input":"1\\n","output":"2\\n","testtype":"stdin"}]',
    "private_test_cases": packed('[{"input":"4\\n","output":"8\\n","testtype":"stdin"}]'),
    "metadata": "{}",
}
LCB_CALL = LCB | {
    "starter_code": "class Solution:\n    def twice(self, n: int) -> int:\n        ",
    "public_test_cases": '[{"input":"1","output":"2","testtype":"functional"}]',
    "private_test_cases": "[]",
    "metadata": '{"func_name": "twice"}',
}


def test_a_row_of_deepcoder_s_taco_has_its_number_for_an_id():
    assert convert("deepcoder", {"problem": Q, "tests": STDIN, "solutions": ["..."]}) == CodeRow(
        "7", Q, ONE, "", "", {}
    )


def test_a_row_of_deepcoder_calls_the_function_of_its_metadata_where_its_tests_name_none():
    tests = json.dumps([{"input": "1", "output": "2", "testtype": "functional"}])
    row = convert(
        "deepcoder", {"problem": Q, "tests": tests, "metadata": '{"func_name": "f"}', "starter_code": "\n  x\n"}
    )
    assert row == CodeRow("7", Q, (CodeTest("[1]", "2"),), "f", "  x", {})


RSTAR = {"question_id": "seed_9", "question": Q, "starter_code": "", "func_name": None, "class_name": None}


def test_the_columns_of_rstar_are_decoded_once_for_programs_and_twice_for_functions():  # row D7
    row = convert("rstar", RSTAR | {"inputs": '["[1, 2]"]', "outputs": '["3"]'})
    assert row == CodeRow("seed_9", Q, (CodeTest("[1, 2]", "3"),), "", "", {})
    called = {"func_name": "f", "class_name": "Solution", "inputs": '["[1, \\"2\\"]"]', "outputs": '["\\"3\\""]'}
    row = convert("rstar", RSTAR | called)
    assert (row.tests, row.entry) == ((CodeTest('[1, "2"]', '"3"'),), "f")
    again = {key: json.dumps(value) for key, value in called.items() if key in ("inputs", "outputs")}
    assert convert("rstar", RSTAR | called | again) == row


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_passed": False}, "solution does not pass"),  # row D8
        ({"is_passed": "False"}, "solution does not pass"),
        ({"func_name": "f", "class_name": "Tree"}, "another class than Solution"),
        ({"inputs": None}, "has no tests"),
        ({"inputs": "[]", "outputs": "[]"}, "has no tests"),
        ({"outputs": "[]"}, "not as many"),
    ],
)
def test_rows_of_rstar_that_are_no_problems_are_dropped_with_a_reason(change, reason):
    with pytest.raises(Dropped, match=reason):
        convert("rstar", RSTAR | {"inputs": '["1"]', "outputs": '["2"]'} | change)


def test_a_row_without_an_id_is_joined_with_nothing():  # row D8
    row = convert("rstar", {"question": Q, "inputs": '["1"]', "outputs": '["2"]', "is_passed": True}, number=3)
    assert row.id == "3" and len(row.tests) == 1


def test_a_row_of_livecodebench_has_its_public_tests_and_then_its_private_ones():
    row = convert("livecodebench_v5", LCB)
    meta = {"difficulty": "easy", "platform": "atcoder", "contest_date": "2024-08-01T00:00:00"}
    assert row == CodeRow("abc301_a", Q, (*ONE, CodeTest("4\n", "8\n")), "", "", meta)


def test_a_function_of_livecodebench_keeps_the_code_it_starts_from():
    row = convert("livecodebench_v5", LCB_CALL)
    assert (row.tests, row.entry) == ((CodeTest("[1]", "2"),), "twice")
    assert row.starter == "class Solution:\n    def twice(self, n: int) -> int:"


@pytest.mark.parametrize(
    ("name", "date", "inside"),
    [
        ("livecodebench_v5", "2024-07-31T23:59:59", False),
        ("livecodebench_v5", "2024-08-01T00:00:00", True),  # row D11
        ("livecodebench_v5", "2025-01-31T23:59:59", True),
        ("livecodebench_v5", "2025-02-01T00:00:00", False),
        ("livecodebench_v6", "2025-01-31T23:59:59", False),
        ("livecodebench_v6", "2025-02-01T00:00:00", True),
        ("livecodebench_v6", "2025-04-30", True),
        ("livecodebench_v6", "2025-05-01", False),
    ],
)
def test_the_windows_of_livecodebench_have_their_first_day_and_not_their_last(name, date, inside):
    for value in (date, datetime.datetime.fromisoformat(date)):
        if inside:
            assert convert(name, LCB | {"contest_date": value}).meta["contest_date"][:10] == date[:10]
        else:
            with pytest.raises(Dropped, match="not from 202"):
                convert(name, LCB | {"contest_date": value})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("livecodebench_v5", LCB | {"contest_date": "1 August"}, "must be a date"),
        ("livecodebench_v5", LCB | {"contest_date": None}, "has no contest_date"),
        ("livecodebench_v5", LCB | {"private_test_cases": D2}, "broken|neither|refused"),
        ("livecodebench_v5", LCB | {"private_test_cases": "{}"}, "private_test_cases must hold a list, holds dict"),
        ("livecodebench_v5", LCB | {"question_content": " "}, "question_content is empty"),
        ("livecodebench_v5", LCB | {"starter_code": 3}, "starter_code must be text, is int"),
        ("livecodebench_v5", LCB | {"metadata": "{"}, "is not JSON"),
        ("rstar", RSTAR | {"inputs": '{"a": 1}', "outputs": "[]"}, "inputs must be a list, is dict"),
        ("rstar", RSTAR | {"func_name": "f", "inputs": '["1, 2"]', "outputs": '["3"]'}, "is not JSON"),
        ("deepcoder", {"tests": STDIN}, "has no question: looked for problem, question"),
    ],
)
def test_rows_that_cannot_be_used_say_why(name, values, message):
    with pytest.raises(RowError, match=message):
        convert(name, values)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(CODE_SETS)),
    values=st.dictionaries(st.sampled_from(sorted({*LCB, *RSTAR, "inputs", "outputs", "tests", "problem"})), WILD),
)
def test_whatever_row_is_read_is_a_problem_or_has_a_reason(name, values):
    for row in (values, LCB | RSTAR | {"problem": Q} | values):
        try:
            assert convert(name, row).tests
        except (RowError, Dropped):
            pass


# ---- real rows ------------------------------------------------------------------------------------------------------


def test_real_rows_of_livecodebench_are_read(shared_data):
    rows = [json.loads(line) for line in (shared_data / "livecodebench_sample.jsonl").open(encoding="utf-8")]
    found = [decode_tests(row["test"]) for row in rows]
    assert [(len(tests), entry) for tests, entry in found] == [(5, ""), (14, "countSeniors"), (15, "")]
    assert found[0][0][1] == CodeTest("1\nabc\n", "YES\n")
    assert found[1][0][0] == CodeTest('[["7868190130M7522", "5303914400F9211", "9273338290F4010"]]', "2")


def test_real_rows_of_codecontests_are_read(shared_data):
    with (shared_data / "code_contests_sample.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line)["test"] for line in file if line.strip()]
    found = [decode_tests(row) for row in rows]
    assert len(found) == 20 and all(entry == "" for _, entry in found)
    assert found[3][0][0] == CodeTest("1\nXXXS\nXXXL\n", "1\n")
    assert [len(tests) for tests, _ in found] == [len(json.loads(row)) for row in rows]
