"""The rows of a source, every one of them converted and checked before any is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

from tqdm import tqdm

from hdl_jax.data.convert import Dropped, Raw, RowError
from hdl_jax.data.golds import unreadable_golds
from hdl_jax.data.read import count_rows, read_files
from hdl_jax.data.row import MathRow
from hdl_jax.data.sets import MathSet

REPEATED = "repeats an earlier question and its answer"
CONTRADICTED = "its question is there with different answers"
NAMED = "named by --drop"
_SHOWN = 20  # rows that an error lists


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a source holds.

    Attributes:
        rows: the problems of the set, in the order of the source.
        read: rows of the source.
        dropped: reason -> ids of the rows left out.
    """

    rows: list[MathRow]
    read: int
    dropped: dict[str, list[str]]


@dataclasses.dataclass(frozen=True)
class _Placed:
    row: MathRow
    place: str


class _Complaints:
    """Rows that cannot be used, gathered so that one run names them all."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, place: str, id: str, message: str) -> None:
        self._lines.append(f"  {place} (id {id}): {message}")

    def raise_if_any(self, name: str, read: int) -> None:
        if not self._lines:
            return
        shown = self._lines[:_SHOWN]
        if len(self._lines) > len(shown):
            shown.append(f"  and {len(self._lines) - len(shown)} more")
        raise ValueError(
            f"{name}: {len(self._lines)} of {read} rows cannot be used:\n" + "\n".join(shown) + "\n"
            "Is it the right file? Nothing was written. --drop=ID,ID leaves rows out, and the record says so."
        )


def load(math_set: MathSet, files: Sequence[Path], drop: Collection[str], workers: int) -> Loaded:
    """Reads a source.

    Args:
        drop: ids of rows to leave out. workers: processes that read reference answers.

    Raises:
        ValueError: a file is broken, rows cannot be used (names each with its place), an id is there twice, nothing
            is left, or `drop` has an id that no row has.
    """
    complaints = _Complaints()
    placed, dropped, read = _convert(math_set, files, drop, complaints)
    complaints.raise_if_any(math_set.name, read)
    if not placed:
        reasons = "".join(f", {len(ids)} {reason}" for reason, ids in dropped.items())
        raise ValueError(f"{', '.join(map(str, files))}: no problem of {math_set.name} among its {read} rows{reasons}")

    placed = _unrepeated(placed, dropped)
    seen: dict[str, str] = {}
    for item in placed:
        first = seen.setdefault(item.row.id, item.place)
        if first != item.place:
            complaints.add(item.place, item.row.id, f"has the id of {first}, whose question is another")
    for number, reason in unreadable_golds([item.row.reference for item in placed], workers).items():
        item = placed[number]
        complaints.add(item.place, item.row.id, f"answer {' and '.join(item.row.reference.answers)!r}: {reason}")
    complaints.raise_if_any(math_set.name, read)
    return Loaded([item.row for item in placed], read, dropped)


def _convert(
    math_set: MathSet, files: Sequence[Path], drop: Collection[str], complaints: _Complaints
) -> tuple[list[_Placed], dict[str, list[str]], int]:
    placed: list[_Placed] = []
    dropped: dict[str, list[str]] = {}
    read, unused = 0, set(drop)
    rows = read_files(files, math_set.columns())
    for place, values in tqdm(rows, desc=f"reading {math_set.name}", unit="row", total=count_rows(files)):
        raw = Raw(values, math_set.fields, number=read)
        read += 1
        id = str(raw.number)
        try:
            id = raw.id()
            if id in drop:
                unused.discard(id)
                raise Dropped(NAMED)
            placed.append(_Placed(math_set.convert(raw), place))
        except Dropped as reason:
            dropped.setdefault(str(reason), []).append(id)
        except RowError as error:
            complaints.add(place, id, str(error))
    if unused:
        raise ValueError(f"--drop: no row has the id {', '.join(sorted(unused))}")
    return placed, dropped, read


def _unrepeated(placed: Sequence[_Placed], dropped: dict[str, list[str]]) -> list[_Placed]:
    """One row a question: the first, or none where the answers are not the same. Adds to `dropped`."""
    groups: dict[str, list[_Placed]] = {}
    for item in placed:
        groups.setdefault(" ".join(item.row.question.split()), []).append(item)
    kept = []
    for group in groups.values():
        agree = all(item.row.reference == group[0].row.reference for item in group)
        kept += group[:1] if agree else []
        reason, rest = (REPEATED, group[1:]) if agree else (CONTRADICTED, group)
        if rest:
            dropped.setdefault(reason, []).extend(item.row.id for item in rest)
    return kept
