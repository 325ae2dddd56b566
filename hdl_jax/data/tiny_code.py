"""Writes tiny programming problems with hidden tests: python -m hdl_jax.data.tiny_code --out=DIR.

DIR/train.jsonl and DIR/test.jsonl, for the sets `tiny_code_train` and `tiny_code`: problems that a model of 135M
parameters sometimes solves, so that the whole code pipeline can be run on a CPU. Half read stdin, half are a function.
What a test expects is what the family's own program gives. The same files every time; no problem is in both.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hdl_jax.data.made import command, write_files

SEED, TESTS = 20_250, 10
WORDS = "apple banana cherry orange lemon melon tomato potato carrot onion pepper garlic butter cheese honey".split()


@dataclasses.dataclass(frozen=True)
class Family:
    """Problems that differ in one value.

    Attributes:
        name: of the family.
        question, program: with `{k}` for the value.
        values: of k, a problem each.
        draw: what a program is given, given the value: the lines of stdin, or the arguments of the function.
        entry: the function's name, with `{k}`; empty: the program reads stdin.
    """

    name: str
    question: str
    program: str
    values: Sequence[Any]
    draw: Callable[[random.Random, Any], Sequence[Any]]
    entry: str = ""


def _number(draw: random.Random, k: Any) -> list[Any]:
    return [draw.randint(-50, 99)]


def _multiples(draw: random.Random, k: int) -> list[Any]:
    return [k * draw.randint(1, 20) + draw.choice((0, 0, draw.randint(1, k - 1)))]


def _word(draw: random.Random, k: Any) -> list[Any]:
    return [draw.choice(WORDS)]


def _numbers(draw: random.Random, k: Any) -> list[Any]:
    return [[draw.randint(0, 30) for _ in range(draw.randint(3, 6))]]


def _line(draw: random.Random, k: Any) -> list[Any]:
    return [" ".join(map(str, _numbers(draw, k)[0]))]


_K, _FACTORS, _LETTERS = range(2, 14), range(2, 14), "aeornltpcmhb"
_LIST = "numbers = list(map(int, input().split()))\n"
FAMILIES = (
    Family("add", "Read an integer and print it plus {k}.", "print(int(input()) + {k})", _K, _number),
    Family("times", "Read an integer and print it times {k}.", "print(int(input()) * {k})", _FACTORS, _number),
    Family(
        "divides",
        "Read an integer and print yes if {k} divides it, else no.",
        'print("yes" if int(input()) % {k} == 0 else "no")',
        _FACTORS,
        _multiples,
    ),
    Family(
        "letter",
        "Read a word and print how often it has the letter {k}.",
        'print(input().count("{k}"))',
        _LETTERS,
        _word,
    ),
    Family(
        "repeat",
        "Read a word and print it {k} times, each on its own line.",
        "print((input() + '\\n') * {k})",
        _K,
        _word,
    ),
    Family(
        "prefix", "Read a word and print it with the letter {k} before it.", 'print("{k}" + input())', _LETTERS, _word
    ),
    Family(
        "sum_plus",
        "Read integers from one line and print their sum plus {k}.",
        _LIST + "print(sum(numbers) + {k})",
        _K,
        _line,
    ),
    Family(
        "above",
        "Read integers from one line and print how many are greater than {k}.",
        _LIST + "print(sum(number > {k} for number in numbers))",
        _K,
        _line,
    ),
    Family(
        "add_function",
        "Write a function add_{k}(x) that returns x plus {k}.",
        "def add_{k}(x):\n    return x + {k}",
        _K,
        _number,
        "add_{k}",
    ),
    Family(
        "power_function",
        "Write a function power_{k}(x) that returns x to the power of {k}.",
        "def power_{k}(x):\n    return x ** {k}",
        _K,
        _number,
        "power_{k}",
    ),
    Family(
        "divides_function",
        "Write a function divides_{k}(x) that returns True if {k} divides x, else False.",
        "def divides_{k}(x):\n    return x % {k} == 0",
        _FACTORS,
        _multiples,
        "divides_{k}",
    ),
    Family(
        "letter_function",
        "Write a function count_{k}(word) that returns how often the word has the letter {k}.",
        'def count_{k}(word):\n    return word.count("{k}")',
        _LETTERS,
        _word,
        "count_{k}",
    ),
    Family(
        "scale_function",
        "Write a function times_{k}(numbers) that returns a list of every number times {k}.",
        "def times_{k}(numbers):\n    return [number * {k} for number in numbers]",
        _FACTORS,
        _numbers,
        "times_{k}",
    ),
    Family(
        "above_function",
        "Write a function above_{k}(numbers) that returns a list of the numbers greater than {k}.",
        "def above_{k}(numbers):\n    return [number for number in numbers if number > {k}]",
        _K,
        _numbers,
        "above_{k}",
    ),
    Family(
        "sum_function",
        "Write a function sum_plus_{k}(numbers) that returns the sum of the numbers plus {k}.",
        "def sum_plus_{k}(numbers):\n    return sum(numbers) + {k}",
        _K,
        _numbers,
        "sum_plus_{k}",
    ),
    Family(
        "letters_function",
        "Write a function without_{k}(word) that returns the word without the letter {k}.",
        'def without_{k}(word):\n    return word.replace("{k}", "")',
        _LETTERS,
        _word,
        "without_{k}",
    ),
)
# A file's name -> which values of every family it has: 8 and 4 of 12.
FILES = {"train.jsonl": slice(0, 8), "test.jsonl": slice(8, 12)}


def problems(values: slice) -> Iterator[dict[str, Any]]:
    """Rows of a file, by family: question, tests as LiveCodeBench writes them, type."""
    for family in FAMILIES:
        every = random.Random(f"{SEED} {family.name}").sample(list(family.values), len(family.values))
        for k in every[values]:
            yield {"question": family.question.format(k=k), "tests": _tests(family, k), "type": family.name}


def _tests(family: Family, k: Any) -> list[dict[str, Any]]:
    """Tests that the programs of all other values fail, one at least, and that no one output passes."""
    for attempt in itertools.count():
        draw = random.Random(f"{SEED} {family.name} {k} {attempt}")
        cases = [list(family.draw(draw, k)) for _ in range(TESTS)]
        outputs = _outputs(family, k, cases)
        others = (_outputs(family, other, cases) for other in family.values if other != k)
        if len(set(outputs)) > 1 and all(other != outputs for other in others):
            break
    if not family.entry:
        inputs = ["".join(f"{line}\n" for line in case) for case in cases]
        return [{"input": i, "output": o, "testtype": "stdin"} for i, o in zip(inputs, outputs, strict=True)]
    called = {"testtype": "functional", "metadata": {"func_name": family.entry.format(k=k)}}
    inputs = ["\n".join(map(json.dumps, case)) for case in cases]
    return [{"input": i, "output": o, **called} for i, o in zip(inputs, outputs, strict=True)]


def _outputs(family: Family, k: Any, cases: Sequence[Sequence[Any]]) -> list[str]:
    """What the program of a value gives: it is run here, and reads and prints through functions that are put in."""
    program = compile(family.program.replace("{k}", str(k)), family.name, "exec")
    outputs = []
    for case in cases:
        lines, printed = map(str, case), list[str]()
        space: dict[str, Any] = {"input": functools.partial(next, lines), "print": _printer(printed)}
        exec(program, space)
        outputs.append(json.dumps(space[family.entry.format(k=k)](*case)) if family.entry else "".join(printed))
    return outputs


def _printer(printed: list[str]) -> Callable[[Any], None]:
    return lambda value: printed.append(f"{value}\n")


def write(folder: Path) -> dict[Path, int]:
    """Writes both files. Returns how many problems each has."""

    def rows(values: slice) -> list[dict[str, Any]]:
        made = list(problems(values))
        random.Random(SEED).shuffle(made)
        return made

    return write_files(folder, {name: rows(values) for name, values in FILES.items()})


def main(argv: Sequence[str]) -> int:
    return command(argv, "hdl_jax.data.tiny_code", "Writes tiny programming problems.", write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
