"""The rows of a source, every one of them converted and checked before any is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hdl_jax.data.convert import Dropped, Raw, RowError
from hdl_jax.data.problem_set import ProblemSet
from hdl_jax.data.read import count_rows, read_files
from hdl_jax.data.row import Row

CONTRADICTED = "its question is there with different answers"
NAMED = "named by --drop"
_SHOWN = 20  # rows that an error lists


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a source holds.

    Attributes:
        kept: what is held of the problems of the set, in the order of the source; see `ProblemSet.keep`.
        rows: the problems, whole, once more in this order.
        read: rows of the source.
        dropped: reason -> ids of the rows left out.
    """

    kept: list[Any]
    rows: Sequence[Any] | Again
    read: int
    dropped: dict[str, list[str]]


@dataclasses.dataclass(frozen=True)
class Again:
    """Rows that are too large to hold: those of the source with these numbers, read and converted when asked for."""

    problem_set: ProblemSet
    files: Sequence[Path]
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Any]:
        wanted = set(self.numbers)
        for number, (_, values) in enumerate(read_files(self.files, self.problem_set.columns())):
            if number in wanted:
                yield self.problem_set.convert(Raw(values, self.problem_set.fields, number))


@dataclasses.dataclass(frozen=True)
class _Placed:
    row: Row
    place: str
    number: int


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


def load(problem_set: ProblemSet, files: Sequence[Path], drop: Collection[str], workers: int) -> Loaded:
    """Reads a source.

    Args:
        drop: ids of rows to leave out. workers: processes that check rows.

    Raises:
        ValueError: a file is broken, rows cannot be used (names each with its place), an id is there twice, nothing
            is left, or `drop` has an id that no row has.
    """
    complaints = _Complaints()
    placed, dropped, read = _convert(problem_set, files, drop, complaints)
    complaints.raise_if_any(problem_set.name, read)
    if not placed:
        reasons = "".join(f", {len(ids)} {reason}" for reason, ids in dropped.items())
        raise ValueError(
            f"{', '.join(map(str, files))}: no problem of {problem_set.name} among its {read} rows{reasons}"
        )

    placed = _unrepeated(problem_set, placed, dropped)
    seen: dict[str, str] = {}
    for item in placed:
        first = seen.setdefault(item.row.id, item.place)
        if first != item.place:
            complaints.add(item.place, item.row.id, f"has the id of {first}, whose question is another")
    kept = [item.row for item in placed]
    for number, reason in problem_set.unusable(kept, workers).items():
        complaints.add(placed[number].place, kept[number].id, reason)
    complaints.raise_if_any(problem_set.name, read)
    again = Again(problem_set, files, [item.number for item in placed])
    return Loaded(kept, again if problem_set.STREAMED else kept, read, dropped)


def _convert(
    problem_set: ProblemSet, files: Sequence[Path], drop: Collection[str], complaints: _Complaints
) -> tuple[list[_Placed], dict[str, list[str]], int]:
    placed: list[_Placed] = []
    dropped: dict[str, list[str]] = {}
    read, unused = 0, set(drop)
    rows = read_files(files, problem_set.columns())
    for place, values in tqdm(rows, desc=f"reading {problem_set.name}", unit="row", total=count_rows(files)):
        raw = Raw(values, problem_set.fields, number=read)
        read += 1
        id = str(raw.number)
        try:
            id = raw.id()
            if id in drop:
                unused.discard(id)
                raise Dropped(NAMED)
            placed.append(_Placed(problem_set.keep(problem_set.convert(raw)), place, raw.number))
        except Dropped as reason:
            dropped.setdefault(str(reason), []).append(id)
        except RowError as error:
            complaints.add(place, id, str(error))
    if unused:
        raise ValueError(f"--drop: no row has the id {', '.join(sorted(unused))}")
    return placed, dropped, read


def _unrepeated(problem_set: ProblemSet, placed: Sequence[_Placed], dropped: dict[str, list[str]]) -> list[_Placed]:
    """One row a question: the first, or none where the answers are not the same. Adds to `dropped`."""
    groups: dict[Hashable, list[_Placed]] = {}
    for item in placed:
        groups.setdefault(problem_set.statement(item.row.question), []).append(item)
    kept = []
    for group in groups.values():
        agree = not any(problem_set.contradicts(group[0].row, item.row) for item in group)
        kept += group[:1] if agree else []
        reason, rest = (problem_set.REPEATED, group[1:]) if agree else (CONTRADICTED, group)
        if rest:
            dropped.setdefault(reason, []).extend(item.row.id for item in rest)
    return kept
