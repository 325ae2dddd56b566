"""Rows of a publisher's file, each with the place it was read from: parquet, JSON lines, JSON, gzipped or in shards."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
_SHARD = re.compile(r"(?P<name>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.\w+")
_LFS = b"version https://git-lfs.github.com/spec/"
_BATCH, _BATCH_BYTES = 1024, 64 << 20  # rows of a parquet file in memory at once: at most this many, and about so large


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that a set is made from: SHA-256 of its bytes, and how many they are."""

    path: Path
    sha256: str
    size: int


def find_files(source: Path) -> list[Path]:
    """The file, or the data files in the folder itself, by name.

    Raises:
        FileNotFoundError: there is no such file or folder, or the folder has no data files; names subfolders that do.
        ValueError: the file is of another kind, or the files of the folder do not belong together, or a shard is
            missing.
    """
    if source.is_file():
        files = [source]
        if not source.name.endswith(SUFFIXES):
            raise ValueError(f"{source}: must be one of {', '.join(SUFFIXES)}, or a folder of them")
    elif source.is_dir():
        files = _data_files(source)
        if not files:
            inside = sorted({str(path.parent) for path in source.rglob("*") if path.name.endswith(SUFFIXES)})
            hint = f"; there are some in {', '.join(inside[:5])}" if inside else ""
            raise FileNotFoundError(f"{source}: the folder has no {', '.join(SUFFIXES)}{hint}")
        _check_shards(source, files)
    else:
        raise FileNotFoundError(f"{source}: there is no such file or folder")
    for path in files:
        with path.open("rb") as file:
            if file.read(len(_LFS)) == _LFS:
                raise ValueError(f"{path}: a Git LFS pointer, not the file itself; `git lfs pull` fetches it")
    return files


def find_parts(source: Path, parts: Sequence[str]) -> list[Path]:
    """The files of a source that has several parts, each a file or a folder in it, in the order of the parts.

    A source without any of them is taken as `find_files` takes it. Raises as it does, and where a part is missing.
    """
    there = [part for part in parts if (source / part).exists()]
    if not there:
        return find_files(source)
    if missing := [part for part in parts if part not in there]:
        raise FileNotFoundError(f"{source}: has {', '.join(there)}, but not {', '.join(missing)}")
    return [file for part in parts for file in find_files(source / part)]


def _data_files(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.iterdir() if p.name.endswith(SUFFIXES) and not p.name.startswith(".") and p.is_file()
    )


def _check_shards(folder: Path, files: Sequence[Path]) -> None:
    """Refuses a folder whose files are not one set: of several kinds, of several splits, or with a shard missing."""
    kinds = {path.name.removesuffix(".gz").rpartition(".")[2] for path in files}
    shards = [match for path in files if (match := _SHARD.fullmatch(path.name))]
    splits = {(match["name"], match["count"]) for match in shards}
    if len(kinds) > 1 or len(splits) > 1 or (shards and len(shards) < len(files)):
        names = ", ".join(path.name for path in files[:6])
        raise ValueError(f"{folder}: holds files that do not belong together ({names}): name the one that is meant")
    for name, count in splits:
        missing = set(range(int(count))) - {int(match["index"]) for match in shards}
        if missing:
            raise ValueError(
                f"{folder}: shard {name}-{min(missing):05d}-of-{count} is missing: the download is not whole"
            )


def fingerprint(files: Sequence[Path]) -> tuple[str, list[SourceFile]]:
    """SHA-256 of the source, from those of its files in their order, and the files. A single file's is its own."""
    found = []
    for path in files:
        with path.open("rb") as file:
            found.append(SourceFile(path, hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size))
    if len(found) == 1:
        return found[0].sha256, found
    return hashlib.sha256("".join(file.sha256 for file in found).encode()).hexdigest(), found


def downloaded_revision(files: Sequence[Path]) -> str:
    """The commit that the Hugging Face client fetched the files at, where it left a note of it; else empty."""
    found = {commit for path in files if (commit := _commit(path.absolute()))}
    return ", ".join(sorted(found))


def _commit(path: Path) -> str:
    # The client's own cache has a folder for every commit; `hf download --local-dir` puts a note beside the files:
    # commit, entity tag, and the time at which both were true, a line each.
    parts = path.parts
    if "snapshots" in parts[:-2]:
        commit = parts[parts.index("snapshots") + 1]
        return commit if re.fullmatch(r"[0-9a-f]{40}", commit) else ""
    for root in path.parents:
        note = root / ".cache" / "huggingface" / "download" / f"{path.relative_to(root)}.metadata"
        if note.is_file():
            commit, _, time = note.read_text(encoding="utf-8").split()[:3]
            return commit if path.stat().st_mtime - 1 <= float(time) else ""
    return ""


def count_rows(files: Sequence[Path]) -> int | None:
    """How many rows the files have, where they say so: parquet."""
    if not all(path.suffix == ".parquet" for path in files):
        return None
    return sum(_parquet(path).metadata.num_rows for path in files)


def read_files(files: Sequence[Path], columns: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows in order, as `(place, row)`; the place is `FILE:LINE` or `FILE, row N`, both counted from 1.

    Args:
        columns: top-level fields that are wanted. Others of a parquet file are not read; it may lack some.

    Raises:
        ValueError: a file is not what its name says, or is cut short; names it and the line.
        ImportError: a parquet file, and pyarrow is not installed.
    """
    for path in files:
        if path.suffix == ".parquet":
            yield from _read_parquet(path, columns)
        elif path.name.removesuffix(".gz").endswith(".jsonl"):
            yield from _read_lines(path)
        else:
            yield from _read_json(path)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("parquet files need the pyarrow package: pip install 'hdl_jax[math]'") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a whole parquet file: {error}") from error


def _read_parquet(path: Path, columns: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    file = _parquet(path)
    there = file.schema_arrow.names
    names = [name for name in there if name in columns]
    if not names:
        raise ValueError(f"{path}: has none of the fields {', '.join(sorted(columns))}; it has {', '.join(there)}")
    batches = file.iter_batches(_batch(file.metadata, names), columns=names)
    rows = (row for batch in batches for row in batch.to_pylist())
    try:
        for number, row in enumerate(rows, 1):
            yield f"{path}, row {number}", row
    except OSError as error:  # what pyarrow raises for pages that cannot be decoded
        raise ValueError(f"{path}: not a whole parquet file: {error}") from error


def _batch(metadata: Any, names: Collection[str]) -> int:
    """How many rows to read at once: the tests of one programming problem may be megabytes."""
    size = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        columns = map(group.column, range(group.num_columns))
        size += sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] in names)
    return min(_BATCH, max(1, _BATCH_BYTES * metadata.num_rows // max(size, 1)))


def _open(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


_GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    with _open(path) as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"{path}:{number}", _parse(line, f"{path}:{number}")
        except _GZIP_ERRORS as error:
            raise ValueError(f"{path}: not a whole gzip file, after line {number}: {error}") from error


def _read_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open(path) as file:
        try:
            text = file.read()
        except _GZIP_ERRORS as error:
            raise ValueError(f"{path}: not a whole gzip file: {error}") from error
    if text.lstrip()[:1] == b"{":  # many publishers' .json has an object a line
        yield from _read_lines(path)
        return
    rows = _parse(text, str(path), kind=list)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"{path}, row {number}: must be an object, is {type(row).__name__}")
        yield f"{path}, row {number}", row


def _parse(text: bytes, place: str, kind: type = dict) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}; is the file cut short?") from error
    if not isinstance(value, kind):
        wanted = "an object" if kind is dict else "a list of objects, or an object a line"
        raise ValueError(f"{place}: must be {wanted}, is {type(value).__name__}")
    return value
