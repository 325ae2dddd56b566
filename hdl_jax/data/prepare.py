"""Prepares a set from a publisher's file: python -m hdl_jax.data.prepare NAME --source=PATH [--data_dir=data].

PATH is a parquet, JSON lines or JSON file, gzipped or not, or a folder of its parts. Every row is checked first; rows
that cannot be used stop it with their places, and nothing is written. A set that has several parts is prepared from the
folder that they are in. docs/data.md has the sets, `--list` too.

The result is put in place in one piece: a run that is killed leaves what was there before. The same source again is
left as it is; another replaces it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import importlib.metadata
import io
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

import hdl_jax
from hdl_jax.data import prepared
from hdl_jax.data.load import Again, load
from hdl_jax.data.read import downloaded_revision, find_parts, fingerprint
from hdl_jax.data.sets import ALL_SETS
from hdl_jax.metrics import table


def prepare(
    name: str, source: Path, data_dir: Path, *, revision: str = "", drop: Collection[str] = (), workers: int = 2
) -> dict[str, Any]:
    """Prepares a set, unless it is already.

    Args:
        revision: of the publisher's repository; empty: what the Hugging Face client noted when it fetched the file.
        drop: ids of rows to leave out. workers: processes that check rows.

    Returns:
        What is recorded of it: `set`, `source` and `files` (path, SHA-256, bytes), `source_sha256`, `revision`, `read`
        (rows), `problems`, `dropped` (reason -> ids), `named` (ids to drop), `content_sha256` (of the rows in their
        order), `prepared` (date), `versions`.

    Raises:
        ValueError: the name is unknown, or the source cannot be used; names file, row and field.
        FileNotFoundError: there is no such source; tells where to get one.
        BlockingIOError: another process is preparing the set.
        ImportError: an optional package is missing; names the extra.
    """
    from hdl_jax.data.builder import VERSION  # refuses a missing package before any work

    place = prepared.folder(name, data_dir)
    problem_set = ALL_SETS[name]
    try:
        files = find_parts(source, problem_set.parts)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; to get one:\n{problem_set.where}") from error
    source_sha256, parts = fingerprint(files)
    wanted = {
        "source_sha256": source_sha256,
        "revision": revision or downloaded_revision(files),
        "named": sorted(drop),
        "versions": _versions(),
    }
    with _locked(place):
        before = _before(name, data_dir)
        if before is not None and _is_same(before, wanted):
            print(f"{name} is prepared from this source already, on {before['prepared']}: nothing to do")
            return before
        loaded = load(problem_set, files, drop, workers)
        record = {
            "set": name,
            "source": str(source.absolute()),
            "files": [{"path": str(p.path), "sha256": p.sha256, "bytes": p.size} for p in parts],
            "read": loaded.read,
            "problems": len(loaded.kept),
            "dropped": loaded.dropped,
            "content_sha256": problem_set.digest(loaded.kept),
            "prepared": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **wanted,
        }
        _write(name, _partial(place), loaded.rows, record)
        for path, content in problem_set.beside(loaded.kept).items():
            (prepared.folder(name, _partial(place)) / VERSION / path).write_bytes(content)
        # Each is compared with what was recorded as it is read.
        if sum(1 for _ in prepared.read(name, _partial(place))) != len(loaded.kept):
            raise RuntimeError(f"{_partial(place)}: what was written is not what is read")
        if before is not None:
            print(f"replacing {name}, prepared on {before['prepared']} from {before['source']}")
        _put(prepared.folder(name, _partial(place)), place)
    return record


def _before(name: str, data_dir: Path) -> dict[str, Any] | None:
    """The record of the set as it is prepared; None where it is not, or is damaged, which is then said."""
    try:
        prepared.read(name, data_dir)
        return prepared.provenance(name, data_dir)
    except FileNotFoundError:
        return None
    except ValueError as error:
        print(f"note: {error}", file=sys.stderr)
        return None


def _is_same(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether preparing again would change nothing; a revision that is not known now is not one that has changed."""
    return (
        before["source_sha256"] == wanted["source_sha256"]
        and before["named"] == wanted["named"]
        and before["versions"]["hdl_jax"] == wanted["versions"]["hdl_jax"]
        and wanted["revision"] in ("", before["revision"])
    )


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("tensorflow-datasets", "array-record")}
    return {"hdl_jax": hdl_jax.__version__, "python": platform.python_version(), **packages}


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Holds the lock of a set; before and after, sets right what a run that was stopped left of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f".{place.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(f"{place}: another process is preparing it") from error
        _set_right(place)
        try:
            yield
        finally:
            _set_right(place)


def _partial(place: Path) -> Path:
    return place.with_name(f".{place.name}.partial")


def _aside(place: Path) -> Path:
    return place.with_name(f".{place.name}.before")


def _set_right(place: Path) -> None:
    if _aside(place).exists() and not place.exists():
        os.rename(_aside(place), place)
    for left in (_aside(place), _partial(place)):
        if left.exists():
            shutil.rmtree(left)


def _put(new: Path, place: Path) -> None:
    """Puts a folder where another may be. Stopped between the two renames, `_set_right` puts that one back."""
    if place.exists():
        os.rename(place, _aside(place))
    os.rename(new, place)


def _write(name: str, data_dir: Path, rows: Sequence[Any] | Again, record: Mapping[str, Any]) -> None:
    from hdl_jax.data.builder import BUILDERS, tfds

    tfds.disable_progress_bar()  # the library's bars are five, each of a second
    with tqdm(rows, desc=f"writing {name}", unit="row") as bar, contextlib.redirect_stdout(io.StringIO()):
        make = BUILDERS[ALL_SETS[name].FOLDER]
        builder = make(config=name, data_dir=data_dir, file_format="array_record", rows=bar, metadata=record)
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))


def summary(record: Mapping[str, Any]) -> str:
    """What was prepared and what was dropped, as text."""
    problem_set = ALL_SETS[record["set"]]
    dropped = record["dropped"]
    rows = [["read", str(record["read"]), ""]]
    rows += [
        [f"- {why}", str(len(ids)), ", ".join(ids[:4]) + ("..." if len(ids) > 4 else "")]
        for why, ids in dropped.items()
    ]
    rows.append(["problems", str(record["problems"]), ""])
    lines = [table(["rows", "number", "ids"], rows), ""]
    lines.append(f"{problem_set.title}; revision {record['revision'] or 'not known: --revision=TEXT records it'}")
    lines.append(f"source  SHA-256 {record['source_sha256']}")
    lines.append(f"content SHA-256 {record['content_sha256']}")
    if problem_set.sizes and record["problems"] not in problem_set.sizes:
        sizes = " or ".join(f"{size:,}" for size in problem_set.sizes)
        lines.append(f"WARNING: {record['problems']:,} problems; {problem_set.title} has {sizes}")
    if problem_set.note:
        lines.append(f"note: {problem_set.note}")
    return "\n".join(lines)


def sets_table() -> str:
    """All sets: how they are judged, samples a problem, problems, licence, and how to get each."""
    rows = [
        [s.name, s.title, s.rule, str(s.samples), " or ".join(map(str, s.sizes)) or "not known", s.licence]
        for s in ALL_SETS.values()
    ]
    listed = table(["set", "title", "rule", "k", "problems", "licence"], rows)
    return listed + "\n\n" + "\n\n".join(f"{s.title}\n{s.where}" for s in ALL_SETS.values())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.data.prepare", description="Prepares a set of problems.")
    parser.add_argument("name", nargs="?", help=f"one of {', '.join(ALL_SETS)}")
    parser.add_argument("--source", type=Path, help="the publisher's file, or a folder of its parts")
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="the folder of prepared sets (data)")
    parser.add_argument("--revision", default="", help="of the publisher's repository, to be recorded")
    parser.add_argument("--drop", default="", metavar="ID,ID", help="rows to leave out, by id")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that read the answers")
    parser.add_argument("--list", action="store_true", help="shows the sets and where to get each")
    args = parser.parse_args(argv)
    if args.list:
        print(sets_table())
        return 0
    if not args.name or args.source is None:
        parser.error("NAME and --source are needed; --list shows the sets")
    try:
        record = prepare(
            args.name,
            args.source,
            args.data_dir,
            revision=args.revision,
            drop=[id for id in args.drop.split(",") if id],
            workers=args.workers,
        )
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; nothing was changed")
    print(summary(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
