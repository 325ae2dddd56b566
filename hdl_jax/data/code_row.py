"""One programming problem of a prepared set, whole, and without its tests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping

from hdl_jax.data.row import Meta, Record, canonical, to_record


@dataclasses.dataclass(frozen=True)
class CodeTest:
    """One test of a program.

    Attributes:
        input: what is on stdin; for a function, JSON text of the list of its arguments.
        output: what is expected on stdout; for a function, JSON text of what it should return.
    """

    input: str
    output: str


@dataclasses.dataclass(frozen=True)
class CodeRow:
    """A problem with its tests; see `data.row.Row`.

    Attributes:
        tests: at least one, all of one kind, in the publisher's order.
        entry: the function to call, a method of class `Solution` where `starter` has that class; empty: the program
            reads stdin and prints.
        starter: code that the answer starts from; empty: none.
    """

    id: str
    question: str
    tests: tuple[CodeTest, ...]
    entry: str
    starter: str
    meta: Meta

    def record(self) -> Record:
        """See `WholeRow.record`."""
        return {
            "inputs": [test.input for test in self.tests],
            "outputs": [test.output for test in self.tests],
            "entry": self.entry,
            "starter": self.starter,
        }


def from_record(fields: Mapping[str, list[str]]) -> CodeRow:
    """The row that `data.row.to_record` was given, from its features as lists of texts.

    Raises:
        KeyError, ValueError: they are not those of a row.
    """
    single = {key: value for key, value in fields.items() if key not in ("inputs", "outputs")}
    texts = {key: value for key, (value,) in single.items()}
    tests = tuple(CodeTest(*pair) for pair in zip(fields["inputs"], fields["outputs"], strict=True))
    meta = json.loads(texts["meta"])
    return CodeRow(texts["id"], texts["question"], tests, texts["entry"], texts["starter"], meta)


def fingerprint(row: CodeRow) -> str:
    """SHA-256 of all that a row says."""
    return hashlib.sha256(canonical(to_record(row)).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class CodeHead:
    """A problem without its tests, which may be megabytes.

    Attributes:
        tests: how many it has. sha256: `fingerprint` of the whole row. The others are the row's.
    """

    id: str
    question: str
    entry: str
    starter: str
    meta: Meta
    tests: int
    sha256: str


def head(row: CodeRow) -> CodeHead:
    """The row without its tests."""
    return CodeHead(row.id, row.question, row.entry, row.starter, row.meta, len(row.tests), fingerprint(row))


def dump_heads(heads: Iterable[CodeHead]) -> bytes:
    """JSON lines, the same for equal heads."""
    return "".join(canonical(dataclasses.asdict(head)) + "\n" for head in heads).encode()


def load_heads(text: bytes) -> list[CodeHead]:
    """What `dump_heads` was given. Raises TypeError, ValueError: it is something else."""
    return [CodeHead(**json.loads(line)) for line in text.decode().split("\n") if line]
