"""What a publisher's row says, under whatever names and in whatever types they put it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from hdl_jax.data.row import MathRow, Meta
from hdl_jax.domains.math_answer import RULES
from hdl_jax.domains.math_compare import Reference

# Names of one field in the files of different publishers, the first that a row has is used; `a.b` is b inside a.
Spellings = tuple[str, ...]
# Fields that are kept for those who look at results, where a row has them.
META = ("difficulty", "topic", "subject", "level", "type", "subfield", "answer_type", "platform")


class RowError(ValueError):
    """A row that cannot be used as it is; the message says what about it."""


class Dropped(Exception):
    """A row that is no problem of the set; the message is the reason, the same for every row it applies to."""


@dataclasses.dataclass(frozen=True)
class Raw:
    """A row as it was read.

    Attributes:
        values: the row. fields: the spellings of each field. number: of the row in the source, from 0.
    """

    values: Mapping[str, Any]
    fields: Mapping[str, Spellings]
    number: int

    def find(self, field: str) -> tuple[str, Any]:
        """The first spelling that the row has a value under, and the value; ("", None) where it has none."""
        for name in self.fields.get(field, ()):
            value: Any = self.values
            for part in name.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                return name, value
        return "", None

    def get(self, field: str) -> Any:
        """The value of the field, None where the row has none."""
        return self.find(field)[1]

    def text(self, field: str) -> str:
        """The field as text, without space around it; a number as it is written. Raises RowError: missing or empty."""
        name, value = self.find(field)
        if value is None:
            raise self.missing(field)
        return _text(value, name)

    def missing(self, *fields: str) -> RowError:
        """What to raise where none of these fields has a value."""
        spelled = ", ".join(name for field in fields for name in self.fields[field])
        return RowError(
            f"has no {fields[0]}: looked for {spelled}; it has {', '.join(map(str, self.values)) or 'none'}"
        )

    def id(self) -> str:
        """The publisher's id, or the row's number where the set's files have none."""
        return str(self.number) if self.get("id") is None else self.text("id")

    def meta(self) -> Meta:
        """What else the row says: text, finite numbers, and lists as one text; fields without a value are left out."""
        meta: Meta = {}
        for name in META:
            value = self.get(name)
            if isinstance(value, list):
                value = ", ".join(map(str, value))
            if isinstance(value, str) and value.strip():
                meta[name] = _text(value, name)
            elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
                meta[name] = value
        return meta

    def row(self, question: str, reference: Reference) -> MathRow:
        """The row of the prepared set."""
        return MathRow(self.id(), question, reference, self.meta())


def _text(value: Any, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"{name} must be text or a number, is {type(value).__name__}: {str(value)[:80]}")
    text = str(value).strip()
    if not text:
        raise RowError(f"{name} is empty")
    return unicode(text, name)


def unicode(text: str, name: str) -> str:
    """The text. Raises RowError: it has half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{name} is not valid Unicode: half a surrogate pair at character {error.start}") from error
    return text


def plain(raw: Raw) -> MathRow:
    """A question with its answer, or with a solution whose last box holds it."""
    return raw.row(raw.text("question"), Reference((_gold(raw),)))


_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def _gold(raw: Raw) -> str:
    if raw.get("answer") is not None or "solution" not in raw.fields:
        return raw.text("answer")
    if raw.get("solution") is None:
        raise raw.missing("answer", "solution")
    return _read_by("boxed", raw, "solution")


def _read_by(rule: str, raw: Raw, field: str) -> str:
    """The answer in a field, read as it would be in a response."""
    text = raw.text(field)
    answer = RULES[rule].find(text)
    if answer is None or not answer.strip():
        raise RowError(f"{raw.find(field)[0]} has no answer in the form {rule!r}: it ends {text[-60:]!r}")
    return answer.strip()


def hashed(raw: Raw) -> MathRow:
    """GSM8K: a whole number after #### at the end of the solution, some with commas between its thousands."""
    answer = _read_by("hash", raw, "answer").replace(",", "")
    if not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", answer):
        raise RowError(f"its answer must be a number, is {answer!r}")
    return raw.row(raw.text("question"), Reference((answer,)))


def contest(year: int) -> Callable[[Raw], MathRow]:
    """A converter for the AIME of one year: whole numbers from 0 to 999, some written 033 or with a degree sign."""

    def convert(raw: Raw) -> MathRow:
        said = raw.get("year")
        if said is not None and (found := _YEAR.search(str(said))) and int(found.group()) != year:
            raise Dropped(f"not of {year}")
        answer = _gold(raw).removesuffix(r"^\circ").removesuffix(".0")
        if not re.fullmatch(r"[0-9]{1,3}", answer):
            raise RowError(f"an answer of AIME must be a whole number from 0 to 999, is {answer!r}: another file?")
        return raw.row(raw.text("question"), Reference((answer,)))

    return convert


def olympiad(raw: Raw) -> MathRow:
    """OlympiadBench: answers in a list, several of them in one text, with unit, error and kind.

    Rows of the whole benchmark that are not text-only open-ended English maths are dropped.
    """
    for field, wanted, reason in _OLYMPIAD:
        value = raw.get(field)
        if value is not None and str(value).lower() not in wanted:
            raise Dropped(reason)
    question = raw.text("question")
    if re.search(r"<im(?:age|g)_\d+>", question):
        raise Dropped("has an image")
    answers = raw.get("answer")
    if answers is None or answers == []:
        raise Dropped("a proof: has no final answer")
    given = [_text(answer, "final_answer") for answer in (answers if isinstance(answers, list) else [answers])]
    if str(raw.get("multiple")).lower() == "true":
        given = [part for answer in given for part in split_answers(answer)]
    if raw.get("context"):
        question = f"{raw.text('context')}\n\n{question}"
    kind = str(raw.get("kind") or "").lower()
    reference = Reference(
        tuple(given),
        unit=raw.text("unit") if raw.get("unit") else "",
        tolerance=_tolerance(raw.get("error")),
        kind=kind if kind in ("tuple", "interval") else "",
    )
    return raw.row(question, reference)


_OLYMPIAD = (
    ("modality", ("text-only",), "has an image"),
    ("question_type", ("open-ended",), "a proof: has no final answer"),
    ("language", ("english",), "not in English"),
    ("subject", ("math", "maths"), "not maths"),
)


def _tolerance(error: Any) -> float | None:
    if error is None or error == "":
        return None
    try:
        value = float(error)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise RowError(f"error must be a number, the absolute error allowed, is {error!r}")
    return value


_OPEN, _CLOSE = "([{", ")]}"


def split_answers(text: str) -> list[str]:
    """Several answers in one text, cut at the commas that are inside no bracket, without their dollar signs.

    A single tuple stays one answer, and so does a text with words in it, which no comma cuts well.
    """
    parts, depth, begin = [], 0, 0
    bare = text.replace("$", "").strip().removesuffix(".")
    for i, character in enumerate(bare):
        # An interval may open with one bracket and close with another.
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and depth == 0:
            parts.append(bare[begin:i])
            begin = i + 1
    parts = [part.strip() for part in (*parts, bare[begin:]) if part.strip()]
    return [text] if len(parts) < 2 or _PROSE.search(bare) else parts


_PROSE = re.compile(r"(?<![\\A-Za-z])(?:[a-z]{4,}|and|any|for|are)(?![A-Za-z])")
