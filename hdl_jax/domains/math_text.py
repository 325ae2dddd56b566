r"""Answers as text: one spelling for what LaTeX, Unicode and plain typing spell in many ways; cuts between brackets.

Only spelling is changed here, not meaning: `\left`, spaces, `$`, `\dfrac`, `\leqslant`, `10{,}000`, `−`, `²`, `]0,1[`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
_CHARACTERS = {
    **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u2061\u2062\u2063", ""),
    **dict.fromkeys("×✕✖⨯", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("÷∕⁄", "/"),
    **dict.fromkeys("°º˚", r"\degree "),
    **dict.fromkeys("≤⩽≦", r"\le "),
    **dict.fromkeys("≥⩾≧", r"\ge "),
    **dict.fromkeys("∅⌀", r"\emptyset "),
    **dict.fromkeys("’′‘", "'"),
    **{"≠": r"\ne ", "≈": r"\approx ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "±": r"\pm "},
    **{"∓": r"\mp ", "∈": r"\in ", "∉": r"\notin ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}"},
    **{"ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil "},
    **{
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "∠": r"\angle ",
        "→": r"\to ",
        "ϕ": r"\varphi ",
        "√": r"\sqrt ",
        "…": r"\ldots ",
    },
    **{"¼": r" \frac{1}{4}", "½": r" \frac{1}{2}", "¾": r" \frac{3}{4}", "⅓": r" \frac{1}{3}", "⅔": r" \frac{2}{3}"},
    **{"⅕": r" \frac{1}{5}", "⅛": r" \frac{1}{8}", "∣": "|", "‖": r"\|", "€": r"\euro ", "£": r"\pounds "},
    **{chr(0x3B1 + i): rf"\{name} " for i, name in enumerate(_GREEK)},
    **{chr(0x391 + i): rf"\{name.capitalize()} " for i, name in enumerate(_GREEK) if name != "varsigma"},
}
_TRANSLATION = str.maketrans(_CHARACTERS)

# Separators between the thousands of one number, which no list of answers is written with.
_GROUPS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:(?:\{,\}|,\\! ?|\\[,;: ]|~|[\u2009\u202f\u00a0])[0-9]{3})+(?![0-9])")
_SPACE = re.compile(
    r"(?<!\\)\\[,;:! ]|~|\\(?:quad|qquad|thinspace|medspace|thickspace|enspace|negthinspace|hfill|newline)(?![a-zA-Z])"
    r"|\\[hv]?(?:space|phantom)\*?\{[^{}]*\}|\\displaystyle(?![a-zA-Z])|\\textstyle(?![a-zA-Z])"
    r"|\\(?:no)?limits(?![a-zA-Z])"
)
_SIZE = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\s*(\.)?")
_WRAP = re.compile(r"(?<!\\)((?:\\\\)*)(?:\$|\\[()\[\]])")
_SYNONYMS = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("leq", "leqslant", "leqq"), r"\le"),
    **dict.fromkeys(("geq", "geqslant", "geqq"), r"\ge"),
    **dict.fromkeys(("lbrace", "lgroup"), r"\{"),
    **dict.fromkeys(("rbrace", "rgroup"), r"\}"),
    **dict.fromkeys(("lvert", "rvert", "vert", "mid"), "|"),
    **dict.fromkeys(("lor", "vee"), r"\or"),
    **dict.fromkeys(("land", "wedge"), r"\and"),
    **dict.fromkeys(("ldots", "dots", "cdots", "dotsc", "dotsb"), r"\ldots"),
    **dict.fromkeys(("rightarrow", "longrightarrow"), r"\to"),
    **dict.fromkeys(("ast", "star"), r"\cdot"),
    "degrees": r"\degree",
    **dict.fromkeys(("mathbf", "mathit", "mathsf", "mathtt", "mathnormal", "boldsymbol", "bm"), r"\mathrm"),
    **dict.fromkeys(
        ("textbf", "textit", "textrm", "textsf", "texttt", "textup", "textnormal", "mbox", "hbox"), r"\text"
    ),
    "lbrack": "[",
    "rbrack": "]",
    "lt": "<",
    "gt": ">",
    "neq": r"\ne",
    "varnothing": r"\emptyset",
    "setminus": r"\setminus",
    "backslash": r"\setminus",
    "dollar": r"\$",
    "lg": r"\log_{10}",
    "tg": r"\tan",
    "ctg": r"\cot",
    "arctg": r"\arctan",
    "div": "/",
    "operatorname*": r"\operatorname",
}
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_ROMAN = re.compile(r"\\mathrm\s*\{\s*([^{}]*?)\s*\}|\\mathrm\s+([a-zA-Z0-9])")
_NAMED = re.compile(r"\\operatorname\s*\{\s*([a-zA-Z]*)\s*\}")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\circ(?![a-zA-Z]))")
_ASCII = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "==": "="}
_OPERATOR = re.compile("|".join(_ASCII))
_SIGN = re.compile(r"\{\s*([-+=<>,])\s*\}")
_MODULE = re.compile(r"(?<![a-zA-Z])(?:np|numpy|math|sympy|sp)\.(?=[a-z])")
_FRENCH = re.compile(r"([\[\]])([^\[\]()]*,[^\[\]()]*)([\[\]])")
_CONJUNCTION = re.compile(r"(?:,\s*)?\\text\s*\{\s*,?\s*(and|or)\s*\}|(?:,\s*)?(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])")


@functools.lru_cache(maxsize=512)
def clean(text: str) -> str:
    r"""The same answer in one spelling: ASCII and LaTeX commands, no `$`, no `\left`, single spaces.

    Words that join answers become `\and` and `\or`; text in any upright font is `\text{...}`.
    """
    text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text) if r"\begin" not in text else text
    text = _raised(text)
    text = _GROUPS.sub(lambda match: re.sub(r"[^0-9]", "", match.group()), text)
    text = unicodedata.normalize("NFKC", text.translate(_TRANSLATION)).translate(_TRANSLATION)
    text = _WRAP.sub(r"\1 ", _SIZE.sub("", _SPACE.sub(" ", text)))
    text = _SIGN.sub(r"\1", re.sub(r"\.{3,}", r"\\ldots ", text))
    text = _COMMAND.sub(_synonym, text)
    text = _OPERATOR.sub(lambda match: _ASCII[match.group()], _MODULE.sub("", _DEGREES.sub(r"\\degree ", text)))
    text = _NAMED.sub(r" \1 ", text)
    text = _ROMAN.sub(_unwrapped, text)
    text = _CONJUNCTION.sub(lambda match: rf" \{match[1] or match[2]} ", text)
    text = _FRENCH.sub(_english, text)
    return " ".join(text.split())


def _english(match: re.Match[str]) -> str:
    """`]a, b[` as `(a, b)`."""
    return f"{'(' if match[1] == ']' else '['}{match[2]}{')' if match[3] == '[' else ']'}"


def _raised(text: str) -> str:
    for table, mark in ((_SUPERSCRIPTS, "^"), (_SUBSCRIPTS, "_")):
        run = re.compile(f"([{''.join(map(re.escape, table))}]+)")
        pieces = run.split(text)
        pieces[1::2] = [f"{mark}{{{''.join(table[c] for c in piece)}}}" for piece in pieces[1::2]]
        text = "".join(pieces)
    return text


def _synonym(match: re.Match[str]) -> str:
    found = _SYNONYMS.get(match[1])
    if found is None:
        return match[0]
    return f"{found} " if found[-1:].isalpha() else found


def _unwrapped(match: re.Match[str]) -> str:
    content = match[1] if match[1] is not None else match[2]
    return rf"\text{{{content}}}" if re.search(r"[a-zA-Z](?:[a-zA-Z]|\s*[/^])", content) else f" {content} "


def key(cleaned: str) -> str:
    """What is left of a cleaned answer without spaces that mean nothing: answers with equal keys are the same."""
    text = re.sub(r"(?<!\\text)\{([0-9a-zA-Z])\}(?![0-9])", r"\1", re.sub(r"(?<=[0-9]) (?=[0-9])", "\0", cleaned))
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])", "\\1\0", text).replace(" ", "").replace("\0", " ")
    return text.rstrip(".,;")


# ---- brackets -------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\\(?:begin|end)\s*\{[a-z]+\*?\}|\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|\\.|.", re.S)
OPEN = {
    "(": ")",
    "[": "]",
    "{": "}",
    r"\{": r"\}",
    r"\langle": r"\rangle",
    r"\lfloor": r"\rfloor",
    r"\lceil": r"\rceil",
}
_CLOSE = frozenset(OPEN.values())


def scan(text: str) -> Iterator[tuple[int, int, str, int]]:
    """`(start, end, token, depth)` of each token; a bracket has the depth of what is around it.

    Any closing bracket closes the last one open, since intervals mix them. The depth is negative after one too many.
    """
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        closes = token in _CLOSE or token.startswith(r"\end")
        depth -= closes
        yield match.start(), match.end(), token, depth
        depth += token in OPEN or token.startswith(r"\begin")


def balanced(text: str) -> bool:
    """Whether every bracket of a cleaned text is closed by one, and braces by braces."""
    stack: list[str] = []
    for _, _, token, _ in scan(text):
        if token in OPEN or token.startswith(r"\begin"):
            stack.append(token)
        elif token in _CLOSE or token.startswith(r"\end"):
            if not stack or ("{" in (opening := stack.pop())[-1:] and OPEN.get(opening) != token):
                return False
    return not stack


def split(text: str, separators: frozenset[str]) -> tuple[list[str], list[str]]:
    """The parts between separators that are inside no bracket, and those separators; parts may be empty."""
    parts, found, begin = [], [], 0
    for start, end, token, depth in scan(text):
        if depth == 0 and token in separators:
            parts.append(text[begin:start].strip())
            found.append(token)
            begin = end
    return [*parts, text[begin:].strip()], found


def wrapped(text: str) -> tuple[str, str, str] | None:
    """`(opening bracket, inside, closing bracket)` where one pair of brackets is around all of a text."""
    tokens = list(scan(text))
    if len(tokens) < 2 or tokens[0][2] not in OPEN or tokens[-1][2] not in _CLOSE:
        return None
    if any(depth <= 0 for _, _, token, depth in tokens[1:-1]) or tokens[-1][3] != 0:
        return None
    return tokens[0][2], text[tokens[0][1] : tokens[-1][0]].strip(), tokens[-1][2]
