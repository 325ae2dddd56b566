"""Where a response gives its program: the last closed Python block of it.

The rule looks at what follows the last `</think>`; where a `<think>` is still open there, the response is unfinished
and has no program. There it finds the fenced blocks, as Markdown has them:

* A block opens with a line of three or more ``` ` ``` or `~`, with any indentation; what follows them on the line is
  its label. It is closed by a line of at least as many of the same and nothing else, indented by at most three blanks
  more than the opening. What looks like a fence inside a block is text of it.
* A block that is never closed means that the response is cut off: it has no program, whatever came before.
* The program is the last block whose label begins with the word `python`, `python3` or `py`, in any case. Where no
  block has such a label, it is the last block without any. Blocks with other labels are never the program.
* As many blanks as the opening is indented by are taken from the beginning of each line, where it has them.
* A program of blanks only is none.

So what a program prints can follow it in a block that has no label, or another one. Reading is linear in the length of
a response.
"""

from __future__ import annotations

import re

LANGUAGES = frozenset({"python", "python3", "py"})
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})([^\n]*)$", re.M)
_DEEPER = 3  # blanks that a closing fence may be indented by more than its opening


def find(response: str) -> str | None:
    """The program that a response gives, its lines ending in `\\n`; None where there is none."""
    text = response.rpartition("</think>")[2].replace("\r\n", "\n")
    if "<think>" in text:
        return None
    labelled: tuple[int, int, str] | None = None  # begin, end and indentation of the last block of its kind
    unlabelled: tuple[int, int, str] | None = None
    opened: tuple[int, str, str, str] | None = None  # where its text begins; indentation, fence, label
    for match in _FENCE.finditer(text):
        indentation, fence, rest = match.groups()
        if opened is None:
            if fence[0] == "~" or "`" not in rest:  # else it is code within a line
                opened = match.end() + 1, indentation, fence, rest.strip()
        elif fence.startswith(opened[2]) and not rest.strip() and len(indentation) <= len(opened[1]) + _DEEPER:
            begin, before, _, label = opened
            if not label:
                unlabelled = begin, match.start(), before
            elif label.split(maxsplit=1)[0].lower() in LANGUAGES:
                labelled = begin, match.start(), before
            opened = None
    found = labelled or unlabelled
    if opened is not None or found is None:
        return None
    begin, end, indentation = found
    program = text[begin:end]
    if indentation:
        program = re.sub(rf"^[ \t]{{1,{len(indentation)}}}", "", program, flags=re.M)
    return program if program.strip() else None
