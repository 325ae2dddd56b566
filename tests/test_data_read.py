"""Files of every kind, whole and broken, and what is known of where they came from."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from hdl_jax.data.read import count_rows, downloaded_revision, find_files, fingerprint, read_files

ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "é\u2028∑"}, {"a": 3, "b": None}]
COLUMNS = {"a", "b"}


def lines(rows) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def write(path: Path, rows=ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    data = json.dumps(rows).encode() if ".json" in path.suffixes and ".jsonl" not in path.suffixes else lines(rows)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(*files: Path, columns=COLUMNS):
    return list(read_files(files, columns))


# ---- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.jsonl.gz", "x.json", "x.json.gz"])
def test_every_kind_gives_the_rows_in_order_with_their_places(tmp_path, name):
    path = write(tmp_path / name)
    places = [f"{path}:{n}" if ".jsonl" in name else f"{path}, row {n}" for n in (1, 2, 3)]
    assert read(path) == list(zip(places, ROWS, strict=True))
    assert count_rows([path]) == (3 if name == "x.parquet" else None)


def test_only_the_wanted_columns_of_a_parquet_file_are_read(tmp_path):
    path = write(tmp_path / "x.parquet")
    assert [row for _, row in read(path, columns={"b", "other"})] == [{"b": row["b"]} for row in ROWS]


def test_a_long_parquet_file_counts_its_rows_through(tmp_path):
    path = write(tmp_path / "x.parquet", [{"a": n} for n in range(2500)])
    assert [(place.rpartition(" ")[2], row["a"]) for place, row in read(path)] == [(str(n + 1), n) for n in range(2500)]


def test_blank_lines_count_but_are_no_rows_and_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a": 1}\n\n  \n{"a": 2}')
    assert read(path) == [(f"{path}:1", {"a": 1}), (f"{path}:4", {"a": 2})]


def test_a_json_file_of_lines_is_read_as_lines(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(lines(ROWS))
    assert [row for _, row in read(path)] == ROWS


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path):
    one, two = write(tmp_path / "part-I.jsonl", ROWS[:1]), write(tmp_path / "part-II.jsonl", ROWS[1:])
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden.jsonl").write_text("not data")
    assert find_files(tmp_path) == [one, two]
    assert [row for _, row in read(one, two)] == ROWS


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.jsonl: there is no such file"):
        find_files(tmp_path / "nothing.jsonl")


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"x\.csv: must be one of \.parquet, \.jsonl"):
        find_files(tmp_path / "x.csv")


def test_a_folder_without_data_names_those_below_it_that_have_some(tmp_path):
    write(tmp_path / "data" / "train.parquet")
    with pytest.raises(FileNotFoundError, match=r"the folder has no .*; there are some in .*/data$"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("x.jsonl", "x.parquet"),
        ("test-00000-of-00001.parquet", "train-00000-of-00001.parquet"),
        ("train-00000-of-00001.parquet", "more.parquet"),
        ("train-00000-of-00001.parquet", "train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
    ],
)
def test_files_that_do_not_belong_together_are_not_put_together(tmp_path, names):
    for name in names:
        write(tmp_path / name)
    with pytest.raises(ValueError, match="do not belong together .*: name the one that is meant"):
        find_files(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    for n in (0, 2):
        write(tmp_path / f"train-{n:05d}-of-00003.parquet")
    with pytest.raises(ValueError, match="shard train-00001-of-00003 is missing"):
        find_files(tmp_path)


def test_a_git_lfs_pointer_is_told_from_the_file(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(ValueError, match="a Git LFS pointer"):
        find_files(path)


def test_lines_cut_short_name_the_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(lines(ROWS)[:-8])
    with pytest.raises(ValueError, match=rf"{path}:3: not JSON: .*cut short\?"):
        read(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n[1]\n', ":2: must be an object, is list"),
        (b'{"a": 1}\n"\xff"\n', ":2: not JSON"),
        (b"[" * 100_000, ":1: not JSON"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, data, message):
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("data", "message"), [(b"[1, {}]", "row 1: must be an object, is int"), (b"3", "must be a list")]
)
def test_json_that_is_no_list_of_objects_is_refused(tmp_path, data, message):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.json.gz", "x.parquet"])
@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_compressed_files_cut_short_are_refused(tmp_path, name, keep):
    path = write(tmp_path / name, [{"a": n, "b": os.urandom(20).hex()} for n in range(500)])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(ValueError, match=rf"{path}.*not a whole"):
        read(path)


def test_a_damaged_page_of_a_parquet_file_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet", [{"a": n, "b": os.urandom(20).hex()} for n in range(500)])
    data = bytearray(path.read_bytes())
    data[100:3000] = bytes(2900)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{path}: not a whole parquet file"):
        read(path)


def test_a_parquet_file_of_something_else_names_its_fields_and_ours(tmp_path):
    path = write(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=f"{path}: has none of the fields problem, question; it has a, b"):
        read(path, columns={"question", "problem"})


# ---- where it came from ---------------------------------------------------------------------------------------------


def test_the_hash_is_the_file_s_own_and_of_several_that_of_all_in_order(tmp_path):
    one, two = write(tmp_path / "1.jsonl"), write(tmp_path / "2.jsonl", ROWS[:1])
    single, (file,) = fingerprint([one])
    assert single == file.sha256 and file.size == one.stat().st_size
    both, files = fingerprint([one, two])
    assert [f.sha256 for f in files] == [fingerprint([path])[0] for path in (one, two)]
    assert len({single, both, fingerprint([two, one])[0]}) == 3
    two.write_bytes(two.read_bytes() + b"\n")
    assert fingerprint([one, two])[0] != both


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def noted(folder: Path, file: str, commit: str, age: float) -> Path:
    """A file as `hf download --local-dir` leaves it, changed `age` seconds after that."""
    path = write(folder / file)
    note = folder / ".cache" / "huggingface" / "download" / f"{file}.metadata"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{commit}\netag\n{path.stat().st_mtime - age}\n")
    return path


def test_the_commit_that_a_download_noted_is_found(tmp_path):
    assert downloaded_revision([noted(tmp_path, "data/x.jsonl", COMMIT, 0)]) == COMMIT


def test_two_commits_are_both_told(tmp_path):
    files = [noted(tmp_path, "x.jsonl", "a" * 40, 0), noted(tmp_path, "y.jsonl", "b" * 40, 0)]
    assert downloaded_revision(files) == f"{'a' * 40}, {'b' * 40}"


def test_a_file_changed_after_the_download_has_no_commit(tmp_path):
    assert downloaded_revision([noted(tmp_path, "x.jsonl", COMMIT, 60)]) == ""


def test_the_client_s_cache_has_the_commit_in_its_path(tmp_path):
    folder = tmp_path / "datasets--x--y" / "snapshots" / COMMIT / "data"
    assert downloaded_revision([write(folder / "x.jsonl")]) == COMMIT
    assert downloaded_revision([write(tmp_path / "snapshots" / "mine" / "x.jsonl")]) == ""


def test_no_note_no_commit(tmp_path):
    assert downloaded_revision([write(tmp_path / "x.jsonl")]) == ""
