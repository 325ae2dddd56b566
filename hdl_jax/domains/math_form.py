r"""What an answer is made of: values, lists, tuples, intervals, sets, equations, inequalities, matrices, ratios, words.

`read` only takes a cleaned text apart; whether its smallest parts are expressions shows when they are compared.
"""

from __future__ import annotations

import dataclasses
import re

from hdl_jax.domains import math_number, math_units
from hdl_jax.domains.math_latex import ACCENTS, SYMBOLS, Unreadable
from hdl_jax.domains.math_text import key, split, wrapped
from hdl_jax.domains.math_units import Unit

_DEEPEST = 16


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A value: the text of its expression, its unit, the factor of a word such as `million`, a percent sign."""

    text: str
    unit: Unit = ()
    scale: int = 1
    percent: bool = False


@dataclasses.dataclass(frozen=True)
class Words:
    """What is only compared as text: its letters, in lower case, and all else but spaces and text commands."""

    text: str


@dataclasses.dataclass(frozen=True)
class Several:
    """Values in any order: `1, 2`, `1 and 2`, `{1, 2}`.

    Attributes:
        braces: whether braces were around it. joined: what was between them, `,` or, where that is there, the word.
    """

    items: tuple[Form, ...]
    braces: bool = False
    joined: str = ","


@dataclasses.dataclass(frozen=True)
class Ordered:
    """Values in brackets, in order: a tuple, or an interval."""

    left: str
    right: str
    items: tuple[Form, ...]


@dataclasses.dataclass(frozen=True)
class Equation:
    """Texts joined by equals signs; `x in S` is x = S."""

    terms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Inequality:
    r"""Texts joined by `<`, `>`, `\le`, `\ge`, `\ne`."""

    terms: tuple[str, ...]
    operators: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Region:
    r"""Sets joined by `\cup`, `\cap`, `\setminus`, from the left."""

    parts: tuple[Form, ...]
    operators: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The rows of a matrix."""

    rows: tuple[tuple[Form, ...], ...]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """`2:3`, or a time of day, which may say which half of it."""

    parts: tuple[str, ...]
    time: bool = False
    half: str = ""


Form = Scalar | Words | Several | Ordered | Equation | Inequality | Region | Grid | Ratio

EMPTY, REALS, INFINITY = r"\emptyset", r"\mathbb{R}", r"\infty"
_LIST = frozenset([",", ";", r"\and", r"\or"])
_INEQUALITIES = frozenset(["<", ">", r"\le", r"\ge", r"\ne"])
_EQUALITIES = frozenset(["=", r"\in", r"\approx"])
_SETS = frozenset([r"\cup", r"\cap", r"\setminus"])
_AS_TEXT = re.compile(
    r"\\(?:ldots|equiv|pmod|bmod|mod|notin|subset|subseteq|to|mapsto|iff|implies|Rightarrow|forall|exists|cong|sim)"
    r"(?![a-zA-Z])|\\begin\s*\{(?!(?:[bpB]?matrix|smallmatrix|array)\})"
)
_THOUSANDS = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_LEAD = re.compile(r"^(?:\\text\s*\{)?\s*(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is(?![a-zA-Z])|:)\s*\}?", re.I)
_MINUS = re.compile(r"^(?:minus|negative) (?=[0-9.\\])", re.I)
_DOMAIN = re.compile(r"[a-zA-Z] ?\\in ?\\mathbb ?\{? ?[CNQRZ] ?\}?(?: ?_ ?\{? ?[+>0 ]* ?\}?| ?\^ ?\{? ?\+ ?\}?)?")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_HALF_OPEN = re.compile(r"^[a-zA-Z] ?(?=\([^()\[\]]*\]$|\[[^()\[\]]*\)$)")  # a variable that has lost its \in
_MATRIX = re.compile(r"\\begin\s*\{([bpB]?matrix|smallmatrix|array)\}(?:\s*\{[clr|]*\})?(.*)\\end\s*\{\1\}", re.S)
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(?:\\text\s*\{\s*)?(?:([ap])\.?\s*m\.?)?\s*\}?", re.I)
_CHOICE = re.compile(r"\(? ?([A-H]) ?\)")
_LABEL = re.compile(r"\\text\s*\{\s*\(?([A-H])\)?[.:]?\s*\}\s*(?=\S)")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_SUBSCRIPT = re.compile(r"_\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\\text\s*\{[^{}]*\})")
_PROSE = re.compile(
    r"\\text\s*\{[^{}]*[a-zA-Z]{2}|(?<![\\a-zA-Z])[a-zA-Z]{2,}[ .]+(?:[a-zA-Z] )?[a-zA-Z]{2,}|^[a-zA-Z]{4,}$"
)
_LABELS = re.compile(r"(?:[a-zA-Z .]|\\text\s*\{[^{}]*\})+")  # as in Total cost = 18
_FUNCTION = re.compile(r"(?<![\\a-zA-Z])(?:sqrt|sin|cos|tan|log|ln|exp|pi|arcsin|arccos|arctan|max|min)(?![a-zA-Z])")

# Phrases, by their letters, and what they mean.
_PHRASES: dict[str, Form] = {
    **dict.fromkeys(
        ("nosolution", "nosolutions", "norealsolution", "norealsolutions", "emptyset", "theemptyset"), Scalar(EMPTY)
    ),
    **dict.fromkeys(("thereisnosolution", "therearenosolutions"), Scalar(EMPTY)),
    **dict.fromkeys(("allrealnumbers", "allreals", "realnumbers", "therealnumbers"), Scalar(REALS)),
    **dict.fromkeys(("infinity", "inf", "positiveinfinity", "plusinfinity"), Scalar(INFINITY)),
    **dict.fromkeys(("negativeinfinity", "minusinfinity"), Scalar(f"-{INFINITY}")),
    **dict.fromkeys(("dne", "doesnotexist", "thelimitdoesnotexist", "limitdoesnotexist"), Words("doesnotexist")),
    **{word: Words(word) for word in ("yes", "no", "odd")},
    **{word: Scalar(str(n)) for n, word in enumerate("zero one two three four five six seven eight nine ten".split())},
}


def bare(text: str) -> str:
    """Without what is around an answer and no part of it: full stops, boxes, braces, bold, a lead such as `Answer:`."""
    while True:
        before = text
        text = _LEAD.sub("", text.strip()).strip().rstrip(".,;:").lstrip("=:").rstrip("\\ ")
        text = text.removeprefix("**").removesuffix("**").strip('`"')
        text = _MINUS.sub("-", _BOXED.sub("", text)).removeprefix(r"\approx").lstrip()
        if (inside := wrapped(text)) and inside[0] == "{" and inside[2] == "}":
            text = inside[1]
        if whole := re.fullmatch(r"\\text\s*\{([^{}]*)\}", text):
            text = whole[1]
        if text == before:
            return text


def readings(text: str) -> list[Form]:
    r"""The forms that a cleaned answer can have: two where `1,234` is a number or a list, or `\text{(B) } 12` a choice.

    Raises:
        Unreadable: its brackets are nested too deeply.
    """
    text = bare(text)
    found = [read(_THOUSANDS.sub(lambda match: match.group().replace(",", ""), text))]
    if _THOUSANDS.search(text):
        found.append(read(text))
    if label := _LABEL.match(text):
        found += [Scalar(label[1]), *readings(text[label.end() :])]
    return found


def read(text: str, depth: int = 0) -> Form:
    """The form of a cleaned text. Raises Unreadable where its brackets are nested too deeply."""
    if depth > _DEEPEST:
        raise Unreadable("nested too deeply")
    text = bare(text)
    if re.fullmatch(r"[a-zA-Z .]+", text) and (phrase := _PHRASES.get(re.sub(r"[ .]", "", text).casefold())):
        return phrase
    if math_number.read(text) is not None:
        return Scalar(text)
    if choice := _CHOICE.fullmatch(text):
        return Scalar(choice[1])
    if time := _TIME.fullmatch(text):
        return Ratio(tuple(part for part in time.groups()[:3] if part), True, (time[4] or "").lower())
    if _AS_TEXT.search(text):
        return _words(text)
    parts, separators = split(text, _LIST)
    if len(parts) > 1:  # of x = k \pi, k \in \mathbb{Z}, the last says nothing of its own
        parts = [part for part in parts if not _DOMAIN.fullmatch(part)]
    items = [sign for part in parts if part for sign in _signs(part)]
    if len(items) > 1:
        return Several(tuple(read(item, depth + 1) for item in items), joined=_joined(separators))
    text = items[0] if items else text
    for form in (_relation, _sets, _bracketed, _matrix):
        if found := form(text, depth):
            return found
    return _leaf(text)


def _joined(separators: list[str]) -> str:
    return next((word for word in ("or", "and") if f"\\{word}" in separators), ",")


def _words(text: str) -> Words:
    return Words(re.sub(r"\\text\{|[{} ]", "", key(text)).casefold())


def _signs(text: str) -> list[str]:
    r"""Both values of a text with `\pm`, or the text."""
    if not _PLUS_MINUS.search(text) or r"\{" in text:  # a set's are the business of its elements
        return [text]
    pieces = _PLUS_MINUS.split(text)
    both = []
    for signs in ({"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"}):
        both.append("".join(signs[piece] if i % 2 else piece for i, piece in enumerate(pieces)))
    return both


def _relation(text: str, depth: int) -> Form | None:
    terms, operators = split(text, _INEQUALITIES | _EQUALITIES)
    if not operators:
        return None
    if not all(terms) or any(_is_prose(term) and not _LABELS.fullmatch(term) for term in terms[:-1]):
        return _words(text)
    if r"\approx" in operators:  # x = 1/3 ~ 0.33 says 1/3, and x ~ 0.33 says 0.33
        last = operators.index(r"\approx") + (1 if is_name(terms[operators.index(r"\approx")]) else 0)
        terms, operators = terms[: last + 1], operators[:last]
        if not operators:
            return read(terms[0], depth + 1)
    if set(operators) <= _EQUALITIES:
        return Equation(tuple(terms))
    return Inequality(tuple(terms), tuple(operators)) if set(operators) <= _INEQUALITIES else _words(text)


def _sets(text: str, depth: int) -> Form | None:
    parts, operators = split(text, _SETS)
    if not operators or not all(parts):
        return None
    return Region(tuple(read(part, depth + 1) for part in parts), tuple(operators))


def _bracketed(text: str, depth: int) -> Form | None:
    found = wrapped(_HALF_OPEN.sub("", text))
    if found is None or found[0] in (r"\lfloor", r"\lceil"):
        return None
    left, inside, right = found
    items = [part for part in split(inside, frozenset([",", ";"]))[0] if part]
    if left == r"\{":
        condition = split(inside, frozenset(["|", ":"]))[0]
        if len(condition) == 2 and all(condition):  # {x | x > 2} is x > 2
            return read(condition[1], depth + 1)
        items = [sign for item in items for sign in _signs(item)]
        return Several(tuple(read(item, depth + 1) for item in items), braces=True) if items else Scalar(EMPTY)
    if len(items) < 2:
        return read(inside, depth + 1) if items and (left, right) in (("(", ")"), ("[", "]")) else None
    left, right = ("(" if left == r"\langle" else left), (")" if right == r"\rangle" else right)
    return Ordered(left, right, tuple(read(item, depth + 1) for item in items))


def _matrix(text: str, depth: int) -> Form | None:
    found = _MATRIX.fullmatch(text)
    if found is None or r"\begin" in found[2]:
        return None
    rows = [row for row in split(found[2], frozenset([r"\\"]))[0] if row]
    return Grid(tuple(tuple(read(cell, depth + 1) for cell in split(row, frozenset(["&"]))[0]) for row in rows))


def _leaf(text: str) -> Form:
    quantity = math_units.cut(text)
    if _is_prose(quantity.value):
        return _words(text)
    parts = split(quantity.value, frozenset([":"]))[0]
    if len(parts) > 1 and all(parts):
        return Ratio(tuple(parts))
    return Scalar(quantity.value, quantity.unit, quantity.scale, quantity.percent)


def _is_prose(text: str) -> bool:
    return bool(_PROSE.search(_SUBSCRIPT.sub("", _FUNCTION.sub("", text))))


# ---- names ----------------------------------------------------------------------------------------------------------

_SUB = r"_(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\\[a-zA-Z]++|[a-zA-Z0-9])"
_ATOM = (
    rf"(?:\\text\{{[^{{}}]*\}}|\\(?:{'|'.join(sorted(ACCENTS))})(?![a-zA-Z])(?:\{{[^{{}}]*\}}|[ \0]?[a-zA-Z0-9])"
    rf"|\\(?:{'|'.join(sorted(SYMBOLS))})(?![a-zA-Z])|[a-zA-Z])(?:{_SUB}|'|\^\{{?(?:\\prime)+\}}?|\^\{{?-1\}}?(?=\())*+"
)
_DERIVATIVE = r"\\frac(?:\{(?:d|\\partial).*\}|d)\{(?:d|\\partial).*\}"
_NAME = re.compile(rf"\|?(?:{_ATOM}[ \0]?)++\|?(?:\([^=<>]*\))?|{_DERIVATIVE}")
_NO_COEFFICIENT = re.compile(rf"{_SUB}|\^(?:\{{-?[0-9]+\}}|[0-9])|(?<=[a-zA-Z}}'])\([^()]*\)|\\pi(?![a-zA-Z])")


def is_name(text: str) -> bool:
    r"""Whether a cleaned text names something: `x`, `f(x)`, `\angle ABC`, `m_{\max}`, `\frac{dx}{dt}`, `(x, y)`."""
    inside = wrapped(text)
    if inside and inside[0] == "(":
        return all(is_name(part) for part in split(inside[1], frozenset([","]))[0])
    return bool(_NAME.fullmatch(key(text)))


def is_asked_for(text: str) -> bool:
    r"""Whether a cleaned text is what a question may ask the value of: `x`, `m + n`, `\sin A`, `x^2 + y^2`, `f(3)`.

    That is anything with letters but without numbers, other than exponents, indices and arguments.
    """
    rest = _NO_COEFFICIENT.sub("", key(text))
    return bool(re.search(r"[a-zA-Z]", rest)) and not re.search(r"[0-9]", rest)


def head_and_argument(name: str) -> tuple[str, str]:
    """`f(x)` as (`f`, `x`); the argument is empty where there is none that is a single letter."""
    found = re.fullmatch(r"(.*)\(([a-zA-Z])\)", key(name))
    return (found[1], found[2]) if found else (key(name), "")


def rename(text: str, old: str, new: str) -> str:
    """A cleaned text with one letter for another as a variable."""

    def renamed(match: re.Match[str]) -> str:
        token = match.group()
        return token if token.startswith("\\") or _FUNCTION.fullmatch(token) else token.replace(old, new)

    return re.sub(r"\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]+", renamed, text)
