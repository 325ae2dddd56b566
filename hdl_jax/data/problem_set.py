"""What a set of problems is to the tools that prepare and read it, whatever its problems are."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hdl_jax.data.convert import Raw, Spellings
from hdl_jax.data.row import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemSet(abc.ABC):
    """A set of problems, and where its kind differs from others.

    Attributes:
        name: in configs and on the command line.
        title: what its publisher calls it.
        rule: how a response is judged, in a word.
        samples: k of avg@k.
        split: of the prepared data set: `train` or `test`.
        sizes: how many problems its publications have; another number is worth a warning. Empty: not known.
        fetch: the command that fetches a file of it. source: what to prepare it from then.
        parts: files or folders in `source` that make the set together, in this order; empty: `source` itself.
        licence: as the publisher of that file states it.
        fields: the spellings of each field.
        convert: a row as it was read to one of ours. Raises RowError or Dropped.
        note: what a user of the set should know.
    """

    FOLDER: ClassVar[str]  # of the prepared sets of this kind
    REPEATED: ClassVar[str]  # the reason for which a row that is there already is dropped
    RUN: ClassVar[int]  # words in a row that are worth a report where a benchmark has them too: data/overlap.py
    STREAMED: ClassVar[bool]  # whether rows are too large to hold all of them: the source is then read twice

    name: str
    title: str
    rule: str
    samples: int
    split: str
    sizes: tuple[int, ...]
    fetch: str
    source: str
    parts: tuple[str, ...] = ()
    licence: str
    fields: Mapping[str, Spellings]
    convert: Callable[[Raw], Any]
    note: str = ""

    @property
    def where(self) -> str:
        """How to get and prepare it, in two commands."""
        return f"{self.fetch}\npython -m hdl_jax.data.prepare {self.name} --source={self.source}"

    def columns(self) -> set[str]:
        """Top-level fields of the source that are looked at."""
        return {name.split(".")[0] for names in self.fields.values() for name in names}

    @abc.abstractmethod
    def keep(self, row: Any) -> Row:
        """What is held in memory of a converted row while the others are read."""

    @abc.abstractmethod
    def statement(self, question: str) -> Hashable:
        """What two questions have in common where they are the same problem."""

    @abc.abstractmethod
    def contradicts(self, one: Any, other: Any) -> bool:
        """Whether two kept rows of the same statement cannot both be right."""

    @abc.abstractmethod
    def unusable(self, kept: Sequence[Any], workers: int) -> dict[int, str]:
        """What is wrong with rows once all are read, by their place in the sequence. workers: processes to ask."""

    @abc.abstractmethod
    def digest(self, kept: Sequence[Any]) -> str:
        """SHA-256 of what the rows say, in their order."""

    @abc.abstractmethod
    def beside(self, kept: Sequence[Any]) -> dict[str, bytes]:
        """Files that are written beside the shards, by name."""
