"""Classes of words in a worked answer, for the analyses of where a signal branches."""

from __future__ import annotations

import re

_WORD = re.compile(r"(?P<argument>[0-9]+(?:[.,][0-9]+)*)|(?P<operator>[-\u2212+*/×÷=^<>≡])|(?P<word>[^\W\d_]+)")
_OPERATION = re.compile(
    r"add(?:s|ed|ing|ition)?|sum(?:s|med|ming)?|plus|subtract\w*|minus|differences?|multipl\w+|products?|times"
    r"|divi[ds]\w+|remainders?|equals?|factors?|gcd|lcm|solv(?:e|es|ed|ing)|comput\w+|calculat\w+|simplif\w+",
    re.I,
)


def classify(action: str) -> list[tuple[int, int, str]]:
    """`(start, end, class)` spans: numbers are `argument`, operators and words for operations `verb`, others `filler`.

    See `Domain.token_class`.
    """
    spans = []
    for match in _WORD.finditer(action):
        kind = match.lastgroup
        if kind != "argument":
            kind = "verb" if kind == "operator" or _OPERATION.fullmatch(match.group()) else "filler"
        spans.append((match.start(), match.end(), kind))
    return spans
