"""One problem of a prepared set, as it is stored and hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from hdl_jax.domains.math_compare import Reference

Meta = dict[str, str | int | float]
Record = dict[str, str | list[str]]


class Row(Protocol):
    """A problem of any kind.

    Attributes:
        id: unique within its set, and the same whenever it is prepared from the same file: the publisher's, or the
            row's number in the file where the publisher gives none.
        question: as it is asked, without any instruction about the form of the answer.
        meta: what else the publisher says of it, such as difficulty and topic.
    """

    @property
    def id(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def meta(self) -> Meta: ...


class WholeRow(Row, Protocol):
    """A problem with all that it is judged by."""

    def record(self) -> Record:
        """What it has beside the attributes of `Row`, as the features of builder.py take it."""
        ...


@dataclasses.dataclass(frozen=True)
class MathRow:
    """A question with its reference answer: what an answer is compared with."""

    id: str
    question: str
    reference: Reference
    meta: Meta

    def record(self) -> Record:
        """See `WholeRow.record`. Numbers are kept in JSON, which has them in full precision."""
        reference = dataclasses.asdict(self.reference)
        answers = list(reference.pop("answers"))
        return {"answers": answers, "grading": canonical(reference)}


def to_record(row: WholeRow) -> Record:
    """A row as the features of builder.py take it."""
    return {"id": row.id, "question": row.question, "meta": canonical(row.meta), **row.record()}


def from_record(id: str, question: str, answers: Iterable[str], grading: str, meta: str) -> MathRow:
    """The row of maths that `to_record` was given.

    Raises:
        ValueError: the JSON is broken. TypeError: it is not that of a Reference.
    """
    return MathRow(id, question, Reference(answers=tuple(answers), **json.loads(grading)), json.loads(meta))


def digest(rows: Iterable[WholeRow]) -> str:
    """SHA-256 of what the rows say, in their order; the files that hold them differ from one writing to the next."""
    total = hashlib.sha256()
    for row in rows:
        total.update(canonical(to_record(row)).encode() + b"\n")
    return total.hexdigest()


def canonical(value: Mapping[str, object]) -> str:
    """One text for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
