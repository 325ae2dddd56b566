"""Reads what hdl_jax.data.prepare wrote."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from hdl_jax.data import code_row
from hdl_jax.data.code_row import CodeHead, CodeRow
from hdl_jax.data.code_sets import HEADS
from hdl_jax.data.row import MathRow, Row, WholeRow, digest, from_record
from hdl_jax.data.sets import ALL_SETS, CODE_SETS, SETS


def read_rows(name: str, data_dir: str | Path) -> list[MathRow]:
    """All problems of a prepared set of maths, in the order of its source. 103,000 take a few seconds.

    Every row is read and compared with the hash that was recorded when the set was prepared.

    Args:
        name: of the set, as SETS has it. data_dir: the folder of prepared sets.

    Raises:
        ValueError: the name is unknown, or the files are damaged or changed.
        FileNotFoundError: the set is not prepared there; tells how to.
        ImportError: tensorflow-datasets is not installed.
    """
    builder = _open(name, data_dir, SETS)
    damaged = _damaged(builder.data_path)
    try:
        source = _records(builder, name)
        rows = []
        for raw in source.__getitems__(range(len(source))):
            texts = _fields(raw)
            answers = texts.pop("answers")
            rows.append(from_record(answers=answers, **{key: value for key, (value,) in texts.items()}))
        recorded = builder.info.metadata["content_sha256"]
    except Exception as error:  # each layer of the files has its own
        raise ValueError(f"{damaged}: {error!r}") from error
    if digest(rows) != recorded:
        raise ValueError(f"{damaged}: its rows are not those that were recorded")
    return rows


class CodeRows(Sequence[CodeRow]):
    """The problems of a prepared set of code, each read from the files when it is asked for; any thread may ask.

    A row is compared with its recorded hash whenever it is read, and is not read again while it is in use.

    Attributes:
        heads: all of the rows without their tests, which are in memory.
    """

    def __init__(self, heads: Sequence[CodeHead], source: Any, damaged: str):
        self.heads, self._source, self._damaged = heads, source, damaged
        self._in_use: weakref.WeakValueDictionary[int, CodeRow] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self.heads)

    @overload
    def __getitem__(self, index: int) -> CodeRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[CodeRow]: ...
    def __getitem__(self, index: int | slice) -> CodeRow | list[CodeRow]:
        """Raises ValueError: the files are damaged or changed; IndexError: there is no such row."""
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if (row := self._in_use.get(number)) is None:
            row = self._in_use[number] = self._read(number)
        return row

    def __iter__(self) -> Iterator[CodeRow]:
        return map(self._read, range(len(self)))

    def _read(self, number: int) -> CodeRow:
        try:
            row = code_row.from_record(_fields(self._source[number]))
        except Exception as error:  # each layer of the files has its own
            raise ValueError(f"{self._damaged}: row {number}: {error!r}") from error
        if code_row.fingerprint(row) != self.heads[number].sha256:
            raise ValueError(f"{self._damaged}: row {number} is not the one that was recorded")
        return row


def read_code(name: str, data_dir: str | Path) -> CodeRows:
    """The problems of a prepared set of code, in the order of its source.

    Opening it reads no tests, but all else, and compares it with the hash that was recorded when it was prepared.

    Args:
        name: of the set, as CODE_SETS has it. data_dir: the folder of prepared sets.

    Raises:
        ValueError, FileNotFoundError, ImportError: as `read_rows`.
    """
    builder = _open(name, data_dir, CODE_SETS)
    damaged = _damaged(builder.data_path)
    try:
        text = (Path(builder.data_path) / HEADS).read_bytes()
        recorded = builder.info.metadata["content_sha256"]
        if hashlib.sha256(text).hexdigest() != recorded:
            raise ValueError(f"{HEADS} is not the one that was recorded")
        heads, source = code_row.load_heads(text), _records(builder, name)
        if len(heads) != len(source):
            raise ValueError(f"it has {len(source)} rows, {len(heads)} were recorded")
    except Exception as error:  # each layer of the files has its own
        raise ValueError(f"{damaged}: {error!r}") from error
    return CodeRows(heads, source, damaged)


def read(name: str, data_dir: str | Path) -> Sequence[WholeRow]:
    """The problems of a prepared set of any kind. Raises as `read_rows`."""
    return read_code(name, data_dir) if name in CODE_SETS else read_rows(name, data_dir)


def heads(name: str, data_dir: str | Path) -> Sequence[Row]:
    """The problems of a prepared set of any kind, without tests. Raises as `read_rows`."""
    return read_code(name, data_dir).heads if name in CODE_SETS else read_rows(name, data_dir)


def provenance(name: str, data_dir: str | Path) -> dict[str, Any]:
    """What a prepared set was made from; `prepare.prepare` has the fields. Raises as `read_rows`, but reads no rows."""
    return dict(_open(name, data_dir, ALL_SETS).info.metadata)


def folder(name: str, data_dir: str | Path) -> Path:
    """Where the files of a set are, prepared or not. Raises ValueError: the name is unknown."""
    _check_name(name, ALL_SETS)
    return Path(data_dir) / ALL_SETS[name].FOLDER / name


def _check_name(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"there is no set {name!r}: it must be one of {', '.join(known)}")


def _open(name: str, data_dir: str | Path, known: Collection[str]) -> Any:
    from hdl_jax.data.builder import VERSION, tfds

    _check_name(name, known)
    path = folder(name, data_dir) / VERSION
    try:
        return tfds.builder_from_directory(path)
    except Exception as error:
        if path.exists():
            raise ValueError(f"{_damaged(path)}: {error}") from error
    where = ALL_SETS[name].where
    raise FileNotFoundError(f"{name} is not prepared in {data_dir}: get its file, then prepare it:\n{where}")


def _damaged(path: Any) -> str:
    return f"the prepared set in {path} is damaged; prepare it again"


def _records(builder: Any, name: str) -> Any:
    # The library decodes one record at a time through numpy, 8 times slower than their protocol buffers allow.
    from tensorflow_datasets import decode

    return builder.as_data_source(ALL_SETS[name].split, deserialize_method=decode.DeserializeMethod.RAW_BYTES)


def _fields(raw: bytes) -> dict[str, list[str]]:
    from tensorflow_datasets.proto import tf_example_pb2

    features = tf_example_pb2.Example.FromString(raw).features.feature
    return {key: [value.decode() for value in feature.bytes_list.value] for key, feature in features.items()}
