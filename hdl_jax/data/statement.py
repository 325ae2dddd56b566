"""What counts in the text of a problem where texts are compared."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[-+*/=<>^\u2212\u00d7\u00f7\u00b7\u2264\u2265]")


def words(question: str) -> tuple[str, ...]:
    """The words and numbers of a question, of which many in a row are looked for."""
    return tuple(_WORD.findall(question.casefold()))


def tokens(question: str) -> tuple[str, ...]:
    """Its words, numbers and signs of operation, which are compared as a whole."""
    return tuple(_TOKEN.findall(question.casefold()))
