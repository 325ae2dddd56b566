"""What a response earns, and what it is told."""

from __future__ import annotations

import builtins
import json
import sys

import guides
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.data.code_row import CodeRow, CodeTest
from hdl_jax.domains.code_answer import find
from hdl_jax.domains.code_compare import same_output, same_value
from hdl_jax.domains.code_judge import NO_PROGRAM, PRELUDE, SHOWN, SHOWN_TESTS, Judged, judge
from hdl_jax.domains.sandbox import Limits, Program, Run, SandboxFailure, open_sandbox

SUM = ("2\n3 4\n", "7\n")
LIMITS = Limits(wall_s=20, budget_s=60, memory_mb=512)


class Recorded:
    """A sandbox that gives these runs, whatever the program."""

    isolation, description = "recorded", "runs nothing"

    def __init__(self, *runs: Run):
        self.runs = list(runs)
        self.asked: list[tuple[Program, list[str]]] = []

    def run(self, program, inputs):
        self.asked.append((program, list(inputs)))
        return self.runs

    def close(self):
        pass


@pytest.fixture(scope="module")
def sandbox():
    if sys.platform != "linux":
        pytest.skip("programs are run on Linux only")
    with open_sandbox("rlimits", LIMITS, workers=2) as opened:
        yield opened


def response(program: str) -> str:
    return f"It works like this.\n```python\n{program}\n```\n"


def problem(*tests: tuple[str, str], entry: str = "") -> CodeRow:
    return CodeRow("1", "?", tuple(CodeTest(*test) for test in tests), entry, "", {})


def told(run: Run, test: tuple[str, str] = SUM, entry: str = "") -> str:
    """The feedback on one test that fails beside one that passes."""
    good = Run("ran", "7\n", "") if not entry else Run("ran", "7", "")
    passes = ("", "7")
    return judge(Recorded(good, run), problem(passes, test, entry=entry), response("pass")).feedback


# ---- programs of which others judge wrongly --------------------------------------------------------------------------

PRINTS = {
    "reads bytes line by line": "r=sys.stdin.buffer.readline; n=int(r()); print(sum(map(int,r().split())))",
    "writes bytes": 'sys.stdout.buffer.write(b"7\\n")',
    "opens its stdin": "print(sum(map(int, open(0).read().split()[1:])))",
    "opens /dev/stdin": "print(sum(map(int, open('/dev/stdin').read().split()[1:])))",
    "reads with input()": "input(); print(sum(map(int, input().split())))",
    "runs as the main module": "if __name__ == '__main__':\n    print(7)",
    "prints without a line's end": "sys.stdout.write('7')",
    "prints when it exits": "import atexit\natexit.register(print, 7)",
    "ends with sys.exit()": "print(7)\nsys.exit()",
    "recurses deeply": "def f(n): return n and 1 + f(n - 1)\nprint(f(20000) - 19993)",
    "uses threads": "import threading\nt = threading.Thread(target=print, args=[7])\nt.start()\nt.join()",
}
FAILS = {
    "prints nothing": ("", "wrong"),
    "prints the input": ("print(open(0).read())", "wrong"),
    "prints its own verdict": ("print('Passed all 10 tests.')", "wrong"),
    "prints NaN": ("print(float('nan'))", "wrong"),
    "prints another answer after the right one": ("print(7)\nprint(8)", "wrong"),
    "hides an exception": ("try:\n    print(1 // 0)\nexcept Exception:\n    pass", "wrong"),
    "raises after printing the answer": ("print(7, flush=True)\n1 // 0", "error"),
    "exits with another status": ("print(7, flush=True)\nsys.exit(1)", "error"),
    "is killed by its own signal": ("import os\nprint(7, flush=True)\nos.kill(os.getpid(), 11)", "error"),
    "is no Python": ("int main() { return 0; }", "error"),
    "has a null character": ("print(7)\x00", "error"),
    "has half a character": ("print('\ud800')", "error"),
    "leaves the printing to a child": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(1)\n    print(7, flush=True)",
        "wrong",
    ),
}


@pytest.mark.parametrize("program", PRINTS.values(), ids=PRINTS)
def test_a_right_program_passes_however_it_reads_and_prints(sandbox, program):
    assert judge(sandbox, problem(SUM), response(f"import sys\n{program}")).outcomes == ("passed",)


@pytest.mark.parametrize("program, outcome", FAILS.values(), ids=FAILS)
def test_a_program_that_does_not_print_the_answer_and_end_well_fails(sandbox, program, outcome):
    judged = judge(sandbox, problem(SUM), response(f"import sys\n{program}"))
    assert judged.reward == 0 and judged.outcomes == (outcome,)
    judged.feedback.encode()


def test_a_third_passes_within_the_tolerance(sandbox):
    assert judge(sandbox, problem(("", "0.333333333333")), response("print(1/3)")).reward == 1


def test_a_number_of_five_thousand_digits_is_printed_and_returned(sandbox):
    digits = "1" + "0" * 5000
    assert judge(sandbox, problem(("", digits)), response("print(10**5000)")).reward == 1
    row = problem(("[5000]", digits), ("[5001]", digits), entry="f")
    assert judge(sandbox, row, response("def f(n): return 10**n")).outcomes == ("passed", "wrong")


RETURNS = {
    "a value": ("def f(a): return a + 1", "passed"),
    "a method of Solution": ("class Solution:\n    def f(self, a): return a + 1", "passed"),
    "a number with a point": ("def f(a): return float(a + 1)", "passed"),
    "an object that is equal to all": ("class A:\n    def __eq__(self, o): return True\ndef f(a): return A()", "error"),
    "a number that is equal to all": (
        "class A(int):\n    def __eq__(self, o): return True\ndef f(a): return A()",
        "wrong",
    ),
    "NaN": ("def f(a): return float('nan')", "wrong"),
    "a truth value": ("def f(a): return True", "wrong"),
    "a text": ("def f(a): return str(a + 1)", "wrong"),
    "a set": ("def f(a): return {a + 1}", "error"),
    "nothing, having printed it": ("def f(a): print(a + 1)", "wrong"),
    "never, but ends well": ("import os\ndef f(a): os._exit(0)", "error"),
    "never, but exits well": ("import sys\ndef f(a): sys.exit(0)", "error"),
    "never: there is no such function": ("def g(a): return a + 1", "error"),
    "a value with another name for JSON": ("import json\njson.dumps = lambda *_: '7'\ndef f(a): return 8", "wrong"),
}


@pytest.mark.parametrize("program, outcome", RETURNS.values(), ids=RETURNS)
def test_what_a_function_returns_decides(sandbox, program, outcome):
    assert judge(sandbox, problem(("[6]", "7"), entry="f"), response(program)).outcomes == (outcome,)


def test_printed_text_is_compared_as_text_and_returned_values_as_values(sandbox):
    printed = problem(("", "a b\n"), ("", '{"b": [], "a": 1}'))
    assert judge(sandbox, printed, response("print('a b' )")).outcomes == ("passed", "wrong")
    returned = problem(("[]", '{"b":[[1,2],"x"],"a":null}'), ("[]", "a b"), entry="f")
    assert judge(sandbox, returned, response("def f(): return dict(a=None, b=[(1, 2), 'x'])")).outcomes == (
        "passed",
        "wrong",
    )
    same = judge(Recorded(Run("ran", '{"a": 1, "b": []}', "")), problem(("", '{"b": [], "a": 1}')), response("1"))
    assert same.outcomes == ("wrong",)


def test_a_function_that_raises_fails_where_an_empty_text_is_expected(sandbox):
    row = problem(("[1]", '""'), ("[2]", "null"), entry="f")
    assert judge(sandbox, row, response("def f(a): return 1 // 0")).outcomes == ("error", "error")


def test_a_test_finds_nothing_of_the_one_before(sandbox):
    program = "class Solution:\n    s=[]\n    def f(self,a,k):\n        self.s.append(1)\n        return len(self.s)"
    row = problem(("[1, 2]", "1"), ("[3, 4]", "1"), entry="f")
    assert judge(sandbox, row, response(program)).reward == 1


def test_no_test_is_left_out(sandbox):
    """One of twenty fails, that with the 16th longest input."""
    inputs = ["1" * (1000 - n) for n in range(20)]
    row = problem(*((text, str(len(text))) for text in inputs))
    program = "n = len(input())\nprint(n if n != 985 else 0)"
    judged = judge(sandbox, row, response(program))
    assert judged.reward == 19 / 20 and judged.outcomes[15] == "wrong"


def test_limits_are_outcomes_of_their_own():
    with open_sandbox("rlimits", Limits(wall_s=1, budget_s=60, memory_mb=200, output_bytes=1000), 1) as small:
        row = problem(("0", "0"), ("1", ""), ("2", ""), ("3", ""))
        program = (
            "n = input()\nwhile n == '1': pass\nif n == '2': a = bytearray(10**9)\nif n == '3': print('a' * 10**5)"
        )
        judged = judge(small, row, response(f"{program}\nprint(n)"))
    assert judged.outcomes == ("passed", "timeout", "memory", "output")
    assert judged.reward == 0.25


# ---- the program -----------------------------------------------------------------------------------------------------


def test_a_response_without_a_program_is_unparsed_and_runs_nothing():
    nothing = Recorded()
    for text in ("", "print(7)", "```python\nprint(7)", "<think>" + response("print(7)")):
        assert judge(nothing, problem(SUM), text) == Judged(0.0, NO_PROGRAM, (), True)
    assert not nothing.asked


def test_a_sandbox_that_fails_is_no_verdict():
    class Down(Recorded):
        def run(self, program, inputs):
            raise SandboxFailure("it is down")

    with pytest.raises(SandboxFailure, match="it is down"):
        judge(Down(), problem(SUM), response("print(7)"))


def test_the_sandbox_gets_the_program_and_the_inputs_but_nothing_that_is_expected():
    recorded = Recorded(Run("ran", "7", ""), Run("ran", "8", ""))
    judge(recorded, problem(("[1]", "7"), ("[2]", "8"), entry="f"), response("def f(a): return a + 6"))
    assert recorded.asked == [(Program("def f(a): return a + 6\n", "f", PRELUDE), ["[1]", "[2]"])]


def test_names_that_solutions_expect_are_there_and_hide_no_builtin_function(sandbox):
    names: dict = {}
    exec(PRELUDE, names)
    assert not set(names).intersection(dir(builtins)) - {"__builtins__"}
    uses = [
        "List[int], Optional[str], defaultdict(list), Counter('aa'), deque([1]), heappush([], 1), heapq.heapify([])",
        "bisect.bisect_left([1], 1), bisect_left([1], 1), gcd(4, 6), math.inf, inf, ceil(0.5), lru_cache(None)",
        "functools.reduce(operator.add, [1]), accumulate([1]), itertools.count(), string.digits, re.sub('a', '', 'a')",
        "pow(2, 3, 5), random.random(), sys.maxsize, copy.deepcopy([1]), ascii_lowercase, collections.OrderedDict()",
    ]
    program = "\n".join(uses) + "\nclass Solution:\n    @cache\n    def f(self, a: List[int]) -> int: return 7"
    judged = judge(sandbox, problem(("[1]", "7"), entry="f"), response(program))
    assert judged.reward == 1, judged.feedback


def test_what_a_program_defines_replaces_what_it_finds(sandbox):
    program = "gcd = 3\ndef count(n): return n + 1\nprint(gcd + count(3))"
    assert judge(sandbox, problem(SUM), response(program)).reward == 1


# ---- feedback --------------------------------------------------------------------------------------------------------


def test_all_tests_passed_is_said_in_one_line():
    good = Run("ran", "7", "")
    assert judge(Recorded(good), problem(SUM), response("1")) == Judged(
        1.0, "Passed the only test.", ("passed",), False
    )
    both = judge(Recorded(good, good), problem(SUM, SUM), response("1"))
    assert (both.reward, both.feedback) == (1.0, "Passed all 2 tests.")


def test_a_wrong_output_is_shown_with_its_input_and_the_expected_one():
    assert told(Run("ran", "3\n4 \n", "")) == (
        'Passed 1 of 2 tests.\n\nTest 2: wrong\ninput: "2\\n3 4\\n"\nexpected output: "7\\n"\noutput: "3\\n4 \\n"'
    )
    assert told(Run("ran", "", "")).endswith('\noutput: ""')


def test_a_wrong_value_is_shown_with_its_call():
    assert told(Run("ran", '["b"]', ""), ('[1, ["a"]]', "[]"), "f") == (
        'Passed 1 of 2 tests.\n\nTest 2: wrong\ncall: f(1, ["a"])\nexpected: []\nreturned: ["b"]'
    )
    assert "call: f()\n" in told(Run("ran", "1", ""), ("[]", "2"), "f")


def test_an_error_is_shown_with_its_detail_and_what_was_printed_before():
    failed = told(Run("error", "6\n", "NameError: name 'x' is not defined"))
    assert "Test 2: error, NameError: name 'x' is not defined\n" in failed and failed.endswith('\noutput: "6\\n"')
    silent = told(Run("timeout", "", "ran into the time limit"))
    assert "Test 2: timeout, ran into the time limit\n" in silent and "\noutput:" not in silent
    assert "Test 2: memory\n" in told(Run("memory", "", ""))


def test_the_first_tests_that_fail_are_shown_and_the_others_counted():
    runs = [Run("ran", "7", ""), *[Run("ran", "8", "")] * 4, Run("timeout", "", ""), Run("ran", "9", "")]
    feedback = judge(Recorded(*runs), problem(*[SUM] * 7), response("1")).feedback
    assert feedback.startswith("Passed 1 of 7 tests.\n\nTest 2: wrong\n")
    assert feedback.count("\n\nTest ") == SHOWN_TESTS and "Test 4: wrong" in feedback
    assert feedback.endswith("\n\nOther tests: 1 timeout, 2 wrong")


def test_a_long_text_is_cut_in_its_middle():
    assert f'output: "{"a" * SHOWN}"' in told(Run("ran", "a" * SHOWN, ""))
    half, text = SHOWN // 2, "".join(map(str, range(1000)))
    cut = f'output: "{text[:half]}" ... {len(text) - SHOWN} characters ... "{text[-half:]}"'
    assert told(Run("ran", text, "")).endswith(cut)
    assert f'... 1 characters ... "{"a" * half}"' in told(Run("ran", "a" * (SHOWN + 1), ""))
    lines = r"\n" * (half // 2)  # each takes two characters
    assert told(Run("ran", "\n" * SHOWN, "")).endswith(f'output: "{lines}" ... {half} characters ... "{lines}"')


def test_quotes_and_what_cannot_be_printed_are_spelt_out():
    shown = told(Run("ran", 'a"\\\x00\u2028\ud800é\x1b', ""))
    assert shown.endswith(r'output: "a\"\\\x00\u2028\ud800é\x1b"')
    detail = told(Run("error", "", 'a\\b "c"\nTest 3: passed\u2029'))
    assert r'Test 2: error, a\b "c"\nTest 3: passed\u2029' in detail


@settings(deadline=None)
@given(st.text(), st.text(), st.booleans())
def test_no_program_writes_lines_of_its_own_into_the_feedback(output, detail, call):
    runs = [Run("error", output, detail)] * 10
    row = problem(*[("[1]", "2")] * 10, entry="f" if call else "")
    feedback = judge(Recorded(*runs), row, response("1")).feedback
    feedback.encode()
    lines = feedback.splitlines()
    assert len(lines) == 1 + SHOWN_TESTS * (4 + bool(output)) + 2
    starts = (
        "Test",
        "call: ",
        "input: ",
        "expected",
        "returned: ",
        "output: ",
        "Passed 0 of 10",
        "Other tests: 7 error",
    )
    assert all(line.startswith(starts) for line in lines if line)


def test_feedback_is_bounded_whatever_a_program_prints():
    long = "\U0001fbff\ud800" * 100_000
    row = problem(*[(long, long)] * 1000)
    assert len(judge(Recorded(*[Run("error", long, long)] * 1000), row, response("1")).feedback) < 3500


# ---- the page --------------------------------------------------------------------------------------------------------

PAGE = guides.files("code.md")


def test_the_pages_example_is_graded_and_told_as_it_says(sandbox):
    tests = [(json.dumps(args), json.dumps(wanted)) for args, wanted in json.loads(PAGE["is_prime.json"])]
    judged = judge(sandbox, problem(*tests, entry="is_prime"), response(PAGE["is_prime.py"]))
    assert judged.reward == 0.7
    assert f"{judged.feedback}\n" == PAGE["feedback.txt"]


def test_the_pages_example_takes_one_for_a_prime():
    names: dict = {}
    exec(PAGE["is_prime.py"], names)
    assert names["is_prime"](1) and [n for n in range(2, 30) if names["is_prime"](n)] == [
        2,
        3,
        5,
        7,
        11,
        13,
        17,
        19,
        23,
        29,
    ]


def table(heading: str) -> list[list[str]]:
    """The cells of a table of the page, without its first two lines."""
    text = (guides.ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    rows = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def test_the_pages_examples_of_outputs_are_compared_as_it_says():
    rows = table("| expected | printed |")
    assert len(rows) == 13
    for expected, printed, same, _ in rows:
        texts = [text.replace("\\n", "\n") for text in (expected, printed)]
        assert same_output(*texts) == {"yes": True, "no": False}[same], (expected, printed)


def test_the_pages_examples_of_values_are_compared_as_it_says():
    rows = table("| expected | returned |")
    assert len(rows) == 6
    for expected, returned, same, _ in rows:
        assert same_value(expected, returned) == {"yes": True, "no": False}[same], (expected, returned)


@pytest.mark.parametrize(
    "labels, place",
    [("python|cpp", 0), ("py||Python3|", 2), ("|", 1), ("cpp", None), ("", 0), ("|text", 0)],
)
def test_the_page_says_which_block_is_the_program(labels, place):
    blocks = "".join(f"```{label}\n{n}\n```\n" for n, label in enumerate(labels.split("|")))
    assert find(blocks) == (None if place is None else f"{place}\n")
    assert find(blocks + "```python\n") is None
