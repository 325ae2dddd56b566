"""Published problems with their published tests, judged with programs that are right and with changes of them."""

from __future__ import annotations

import json
import sys

import code_programs
import pytest

from hdl_jax.data.code_row import CodeRow
from hdl_jax.data.code_tests import decode_tests
from hdl_jax.domains.code_judge import judge
from hdl_jax.domains.sandbox import Limits, open_sandbox

SOLVED = code_programs.CODE_CONTESTS | code_programs.LIVECODEBENCH
# The last test of this one has every answer on a line of its own, the others a line for each group of them.
OTHERWISE_BROKEN = "1342_C. Yet Another Counting Problem"


@pytest.fixture(scope="module")
def problems(shared_data) -> dict[str, CodeRow]:
    """The rows by their names."""
    found = {}
    for file, name in (("code_contests_sample", "name"), ("livecodebench_sample", "task_id")):
        for line in (shared_data / f"{file}.jsonl").read_text(encoding="utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                id = json.loads(row["labels"])[name]
                found[id] = CodeRow(id, row["content"], *decode_tests(row["test"]), "", {})
    return found


@pytest.fixture(scope="module")
def sandbox():
    if sys.platform != "linux":
        pytest.skip("programs are run on Linux only")
    with open_sandbox("rlimits", Limits(wall_s=20, budget_s=200, memory_mb=512), workers=2) as opened:
        yield opened


def judged(sandbox, row, program):
    return judge(sandbox, row, f"```python\n{program}\n```")


def test_ten_problems_of_one_kind_and_all_three_of_the_other_are_solved(problems):
    assert len(code_programs.CODE_CONTESTS) == 10 and len(code_programs.LIVECODEBENCH) == 3
    assert set(SOLVED) <= set(problems) and len(problems) == 23


@pytest.mark.parametrize("name", sorted(set(SOLVED) - {OTHERWISE_BROKEN}))
def test_a_right_program_passes_every_test(sandbox, problems, name):
    found = judged(sandbox, problems[name], SOLVED[name].program)
    assert found.reward == 1, found.feedback


def test_a_right_program_fails_a_test_whose_lines_are_broken_otherwise(sandbox, problems):
    found = judged(sandbox, problems[OTHERWISE_BROKEN], SOLVED[OTHERWISE_BROKEN].program)
    assert [n for n, outcome in enumerate(found.outcomes) if outcome != "passed"] == [len(found.outcomes) - 1]
    assert r'expected output: "0\n0\n0\n2\n4\n0\n91\n"' in found.feedback
    assert r'output: "0 0 0 2 4\n0 91\n"' in found.feedback


@pytest.mark.parametrize(
    "name, number", [(name, number) for name in sorted(SOLVED) for number in range(len(SOLVED[name].changes))]
)
def test_a_changed_program_fails_a_test(sandbox, problems, name, number):
    full = judged(sandbox, problems[name], SOLVED[name].program).reward if name == OTHERWISE_BROKEN else 1
    assert judged(sandbox, problems[name], SOLVED[name].mutants()[number]).reward < full
