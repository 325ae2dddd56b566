"""Where a response gives its program."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains.code_answer import find

PROGRAM = "for _ in range(2):\n    print('a')\n"


def block(program: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{program}{fence}\n"


@pytest.mark.parametrize("label", ["python", "Python", "PYTHON3", "py", " python ", "python title=a.py", ""])
@pytest.mark.parametrize("fence", ["```", "````", "~~~", "~~~~~"])
def test_a_block_of_python_or_without_a_label_is_the_program(label, fence):
    assert find(f"Here it is:\n{block(PROGRAM, label, fence)}Done.") == PROGRAM


def test_text_without_a_block_has_no_program():
    assert find("") is None
    assert find(PROGRAM) is None
    assert find("It prints `a`: ```print('a')``` does so.") is None


def test_the_last_of_two_blocks_is_the_program():
    assert find(block("wrong\n") + "No:\n" + block(PROGRAM)) == PROGRAM
    assert find(block("wrong\n", "") + "No:\n" + block(PROGRAM, "")) == PROGRAM


def test_blocks_in_another_language_are_not_the_program():
    assert find(block("int main() {}\n", "cpp")) is None
    assert find(block(PROGRAM) + block("int main() {}\n", "cpp")) == PROGRAM
    assert find(block(PROGRAM, "") + block('{"a": 1}\n', "json")) == PROGRAM
    assert find(block(PROGRAM, "pythonic")) is None


def test_what_the_program_prints_can_follow_it_in_a_block_without_a_label():
    assert find(block(PROGRAM) + "It prints:\n" + block("a\na\n", "")) == PROGRAM
    assert find(block("7\n", "") + block(PROGRAM) + block("7\n", "text")) == PROGRAM


def test_a_last_fence_that_is_not_closed_is_no_program():
    assert find(f"```python\n{PROGRAM}") is None
    assert find(block(PROGRAM) + "```python\nprint(") is None
    assert find(block(PROGRAM) + "```\n7") is None
    assert find(f"```python\n{PROGRAM}~~~\n") is None
    assert find(f"````python\n{PROGRAM}```\n") is None
    assert find(f"```python\n{PROGRAM}``` done\n") is None
    assert find(f"Here: ```python\n{PROGRAM}```\n") is None  # opens no block but closes one


def test_a_closing_fence_may_be_longer_and_may_end_the_response():
    assert find(f"```python\n{PROGRAM}`````") == PROGRAM
    assert find(f"```python\n{PROGRAM}```  \t") == PROGRAM


@pytest.mark.parametrize("before, after", [("", "   "), ("  ", "     "), ("    ", "")])
def test_a_closing_fence_may_be_indented_by_three_blanks_more_than_the_opening(before, after):
    assert find(f"{before}```python\n{PROGRAM}{after}```\n") is not None
    assert find(f"{before}```python\n{PROGRAM}{before}    ```\n") is None


def test_fences_inside_a_block_are_its_text():
    inner = 'print("""\n~~~\n``\n```a\n""")\n'
    assert find(block(inner)) == inner
    longer = f"'''\n{block('1')}'''\n"
    assert find(block(longer, fence="````")) == longer


def test_a_fence_in_an_indented_docstring_closes_nothing():
    program = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n'
    assert find(block(program)) == program


def test_backticks_in_a_line_open_nothing():
    assert find(block(PROGRAM) + "``` is ` three `` times ```\n") == PROGRAM


@pytest.mark.parametrize("blanks", [" ", "   ", "      ", "\t"])
def test_a_block_in_a_list_is_dedented(blanks):
    indented = "".join(f"{blanks}{line}" for line in block(PROGRAM).splitlines(keepends=True))
    assert find(f"1. The program:\n{indented}") == PROGRAM


def test_only_the_fences_own_indentation_is_taken_from_a_line():
    assert find("  ```python\n    if x:\n a = '''\n  b\n\n'''\n  ```") == "  if x:\na = '''\nb\n\n'''\n"
    assert find("```python\n    indented\n```") == "    indented\n"


def test_lines_may_end_as_on_windows():
    assert find(block(PROGRAM).replace("\n", "\r\n")) == PROGRAM
    assert find("```python\r\nprint('a\\r\\n')\r\n```") == "print('a\\r\\n')\n"


def test_other_line_separators_are_text():
    program = "a = '\u2028\x0b\x0c\x85'\n"
    assert find(block(program)) == program


def test_only_what_follows_the_last_thought_counts():
    assert find(f"<think>\n{block('wrong')}</think>\n{block(PROGRAM)}") == PROGRAM
    assert find(f"{block('wrong')}</think></think>\n{block(PROGRAM)}") == PROGRAM
    assert find(f"<think>\n{block(PROGRAM)}</think>I do not know.") is None
    assert find(f"<think>\n```python\nx\n</think>\n{block(PROGRAM)}") == PROGRAM


def test_a_thought_that_never_ends_has_no_program():
    assert find(f"<think>\n{block(PROGRAM)}") is None
    assert find(f"<think></think><think>\n{block(PROGRAM)}") is None


@pytest.mark.parametrize("empty", ["", "\n", "  \n\t\n"])
def test_a_program_of_blanks_is_none(empty):
    assert find(block(PROGRAM) + block(empty)) is None


LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
FENCES = st.sampled_from(
    ["```", "````", "~~~", "  ```", "```python", "~~~py", "```cpp", "``` `", "    ````", "x```", ""]
)


@settings(deadline=None)
@given(st.lists(LINES, min_size=1).map(lambda lines: "".join(f"{line}\n" for line in lines)))
def test_any_program_comes_out_as_it_went_in(program):
    if program.strip():
        fence = "`" * max(3, program.count("`") + 1)
        assert find(f"Text\n\n{fence}python\n{program}{fence}\nText") == program


@settings(deadline=None)
@given(st.lists(FENCES | LINES).map("\n".join))
def test_a_program_is_text_of_its_response_and_stays_the_same_at_its_end(response):
    found = find(response)
    if found is not None:
        assert found.strip()
        lines = [line.strip() for line in response.split("\n")]
        assert all(line.strip() in lines for line in found.split("\n")[:-1])
        assert find(response + "\n```python\nprint(1)\n```") == "print(1)\n"
        assert find(response + "\n\nThat is it.") == found
        assert find(response + "\n```python\nprint(1)") is None


HOSTILE = [
    "`",
    "```\n",
    "```\n\n",
    " ",
    " \n",
    "\n",
    "``` `\n",
    "~~~`",
    "```py\n```\n",
    "    ```\n",
    "\t",
    "<think>",
    "\r",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_reading_is_linear(part):
    response = "   ```py\n" + part * ((1 << 22) // len(part)) + "\n"
    begin = time.process_time()
    find(response)
    find(response + "```")
    assert time.process_time() - begin < 10  # 1 s for 8 MB; hours where it is quadratic
