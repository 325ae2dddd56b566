"""One problem of a prepared set, as it is stored and hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping

from hdl_jax.domains.math_compare import Reference

Meta = dict[str, str | int | float]


@dataclasses.dataclass(frozen=True)
class MathRow:
    """A question with its reference answer.

    Attributes:
        id: unique within its set, and the same whenever it is prepared from the same file: the publisher's, or the
            row's number in the file where the publisher gives none.
        question: as it is asked, without any instruction about the form of the answer.
        reference: what an answer is compared with.
        meta: what else the publisher says of it, such as difficulty and topic.
    """

    id: str
    question: str
    reference: Reference
    meta: Meta


def to_record(row: MathRow) -> dict[str, str | list[str]]:
    """A row as the features of builder.py take it. Numbers are kept in JSON, which has them in full precision."""
    reference = dataclasses.asdict(row.reference)
    answers = list(reference.pop("answers"))
    return {
        "id": row.id,
        "question": row.question,
        "answers": answers,
        "grading": _canonical(reference),
        "meta": _canonical(row.meta),
    }


def from_record(id: str, question: str, answers: Iterable[str], grading: str, meta: str) -> MathRow:
    """The row that `to_record` was given.

    Raises:
        ValueError: the JSON is broken. TypeError: it is not that of a Reference.
    """
    return MathRow(id, question, Reference(answers=tuple(answers), **json.loads(grading)), json.loads(meta))


def digest(rows: Iterable[MathRow]) -> str:
    """SHA-256 of what the rows say, in their order; the files that hold them differ from one writing to the next."""
    total = hashlib.sha256()
    for row in rows:
        total.update(_canonical(to_record(row)).encode() + b"\n")
    return total.hexdigest()


def _canonical(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
