"""Sets of programming problems from a publisher's file to rows on demand: one record, nothing silently wrong."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow_datasets", reason="needs the extra `code`: pip install -e '.[code]'")

from test_data_code import LCB, LCB_CALL, RSTAR, packed

from hdl_jax.data import builder, load, overlap, prepared, read
from hdl_jax.data.builder import tfds
from hdl_jax.data.code_row import CodeRow, CodeTest, dump_heads, fingerprint, from_record, head, load_heads
from hdl_jax.data.prepare import main, prepare, summary
from hdl_jax.data.prepared import heads, provenance, read_code, read_rows
from hdl_jax.data.read import find_parts, read_files
from hdl_jax.data.row import to_record
from hdl_jax.data.sets import ALL_SETS, CODE_SETS, SETS
from hdl_jax.domains.domain import Problem
from hdl_jax.domains.kept import Kept


def write(path: Path, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def taco(question: str, tests: int = 2, **more) -> dict:
    sides = [f"{n}\n" for n in range(tests)]
    return {"problem": question, "tests": json.dumps({"inputs": sides, "outputs": sides}), **more}


ROWS = [taco(f"Print the number {n}.", tests=n + 1, difficulty=n) for n in range(12)]


@pytest.fixture
def data(tmp_path) -> Path:
    """Where sets are prepared."""
    return tmp_path / "data"


# ---- the sets -------------------------------------------------------------------------------------------------------


def test_every_set_of_code_says_how_to_get_and_prepare_it():
    names = "deepcoder rstar deepcoder_rstar livecodebench_v5 livecodebench_v6 tiny_code tiny_code_train"
    assert set(CODE_SETS) == set(names.split()) and {**SETS, **CODE_SETS} == ALL_SETS
    for name, code_set in CODE_SETS.items():
        assert code_set.name == name and code_set.licence and code_set.split in ("train", "test")
        assert code_set.where == f"{code_set.fetch}\npython -m hdl_jax.data.prepare {name} --source={code_set.source}"
        assert all(code_set.fields["question"]) and code_set.FOLDER == "code_sets"
    assert CODE_SETS["livecodebench_v5"].samples == CODE_SETS["livecodebench_v6"].samples == 8  # the paper's
    assert "--include test6.jsonl" in CODE_SETS["livecodebench_v6"].fetch
    assert "test6.jsonl" not in CODE_SETS["livecodebench_v5"].fetch  # release_v5 has five files


def test_the_list_shows_sets_of_both_kinds(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^livecodebench_v5 .*tests +8 +279 ", out, re.M) and re.search(r"^aime24 .*boxed +16 ", out, re.M)
    assert re.search(r"^rstar .*tests +1 +not known ", out, re.M) and "agentica-org/DeepCoder-Preview-Dataset" in out


# ---- there and back -------------------------------------------------------------------------------------------------


def test_rows_come_back_in_order_with_one_record(tmp_path, data):
    source = write(tmp_path / "a.jsonl", ROWS)
    record = prepare("deepcoder", source, data, revision="177913a")
    rows = read_code("deepcoder", data)
    assert len(rows) == record["problems"] == record["read"] == 12
    for n, row in enumerate(rows):
        tests = tuple(CodeTest(f"{i}\n", f"{i}\n") for i in range(n + 1))
        assert row == rows[n] == CodeRow(str(n), f"Print the number {n}.", tests, "", "", {"difficulty": n})
    assert rows[-1] == rows[11] and rows[2:4] == [rows[2], rows[3]]
    with pytest.raises(IndexError):
        rows[12]
    assert provenance("deepcoder", data) == json.loads(json.dumps(record))
    assert record["revision"] == "177913a" and record["dropped"] == {}
    assert record["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert "WARNING" not in summary(record)


def test_the_library_s_own_doors_open_a_prepared_set(tmp_path, data):
    prepare("deepcoder", write(tmp_path / "a.jsonl", ROWS), data)
    source = tfds.builder("code_sets/deepcoder", data_dir=data).as_data_source("train")
    assert len(source) == 12 and list(source[2]["inputs"]) == [b"0\n", b"1\n", b"2\n"]


TEXT = st.text(min_size=1, max_size=20)
ROW = st.builds(
    CodeRow,
    TEXT,
    TEXT,
    st.lists(st.builds(CodeTest, st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=4).map(tuple),
    st.sampled_from(["", "f"]),
    st.text(max_size=9),
    st.dictionaries(TEXT, st.text() | st.integers(-(2**70), 2**70), max_size=3),
)
ODD = CodeRow("\0", "a\u2028\U0001f600", (CodeTest("", ""), CodeTest("\0\r\n", " ")), "", "\t", {"": ""})


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=4))
def test_any_rows_come_back_as_they_were(tmp_path, rows):
    rows = [*rows, ODD]
    shutil.rmtree(folder := tmp_path / "any", ignore_errors=True)
    kept = [head(row) for row in rows]
    metadata = {"content_sha256": CODE_SETS["tiny_code"].digest(kept)}
    made = builder.CodeSets(
        config="tiny_code", data_dir=folder, file_format="array_record", rows=rows, metadata=metadata
    )
    made.download_and_prepare()
    (Path(made.data_path) / "problems.jsonl").write_bytes(dump_heads(kept))
    assert list(read_code("tiny_code", folder)) == rows and heads("tiny_code", folder) == kept


def test_the_hash_of_a_row_tells_any_change():
    row = CodeRow("1", "q", (CodeTest("1", "2"), CodeTest("3", "4")), "", "", {"level": 1})
    changes = [
        {"id": "2"},
        {"question": "p"},
        {"tests": row.tests[:1]},
        {"tests": row.tests[::-1]},
        {"tests": (CodeTest("1", "2"), CodeTest("3", "5"))},
        {"tests": (CodeTest("2", "1"), CodeTest("4", "3"))},
        {"entry": "f"},
        {"starter": "f"},
        {"meta": {"level": 2}},
    ]
    others = [CodeRow(**{**row.__dict__, **change}) for change in changes]
    assert len({fingerprint(one) for one in (row, *others)}) == len(others) + 1
    digest = CODE_SETS["deepcoder"].digest
    lists = [[], [row], [row, row], *([row, other] for other in others), *([other, row] for other in others)]
    assert len({digest([head(one) for one in rows]) for rows in lists}) == len(lists)


def test_heads_and_records_are_read_as_they_were_written():
    assert load_heads(dump_heads([head(ODD), head(ODD)])) == [head(ODD)] * 2 and load_heads(b"") == []
    record = to_record(ODD)
    fields = {key: value if isinstance(value, list) else [value] for key, value in record.items()}
    assert from_record(fields) == ODD


# ---- what is read when ----------------------------------------------------------------------------------------------


def test_opening_a_set_reads_no_tests_and_a_row_in_use_is_read_once(tmp_path, data, monkeypatch):
    prepare("deepcoder", write(tmp_path / "a.jsonl", ROWS), data)
    asked: list[bytes] = []
    fields = prepared._fields
    monkeypatch.setattr(prepared, "_fields", lambda raw: asked.append(raw) or fields(raw))
    rows = read_code("deepcoder", data)
    assert [row.id for row in rows.heads] == [str(n) for n in range(12)] and [row.tests for row in rows.heads][3] == 4
    assert len(rows) == 12 and asked == []
    one = rows[3]
    assert rows[3] is one and rows[-9] is one and len(asked) == 1
    del one
    assert len(rows[3].tests) == 4 and len(asked) == 2


def test_preparing_holds_no_tests_in_memory(tmp_path, data, monkeypatch):
    held: list = []
    real = load.load
    monkeypatch.setattr("hdl_jax.data.prepare.load", lambda *args: held.append(real(*args)) or held[0])
    prepare("deepcoder", write(tmp_path / "a.jsonl", ROWS), data)
    assert all(not hasattr(one.tests, "__len__") for one in held[0].kept)
    assert len(held[0].rows) == 12 and [len(row.tests) for row in held[0].rows] == list(range(1, 13))


def test_many_threads_read_the_same_rows(tmp_path, data):
    prepare("deepcoder", write(tmp_path / "a.jsonl", ROWS), data)
    rows, found = read_code("deepcoder", data), []

    def work():
        found.extend(len(rows[n % 12].tests) == n % 12 + 1 for n in range(240))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8 * 240


# ---- sources --------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_set_are_read_in_order_and_their_files_recorded(tmp_path, data):
    for n, part in enumerate(("taco", "primeintellect")):
        write(tmp_path / "x" / part / "train-00000-of-00001.parquet", [taco(f"Problem {part}"), taco(f"Again {n}")])
    record = prepare("deepcoder", tmp_path / "x", data)
    questions = [row.question for row in read_code("deepcoder", data)]
    assert questions == ["Problem taco", "Again 0", "Problem primeintellect", "Again 1"]
    assert [Path(file["path"]).parent.name for file in record["files"]] == ["taco", "primeintellect"]


def test_a_missing_part_is_named_and_a_source_without_parts_is_taken_whole(tmp_path):
    write(tmp_path / "x" / "taco" / "a.jsonl", ROWS)
    with pytest.raises(FileNotFoundError, match=r"x: has taco, but not primeintellect"):
        find_parts(tmp_path / "x", ("taco", "primeintellect"))
    with pytest.raises(SystemExit, match="(?s)not primeintellect; to get one:.*hf download agentica-org"):
        main(["deepcoder", f"--source={tmp_path / 'x'}", f"--data_dir={tmp_path}"])
    assert find_parts(tmp_path / "x" / "taco", ("taco",)) == [tmp_path / "x" / "taco" / "a.jsonl"]
    assert find_parts(tmp_path / "x" / "taco" / "a.jsonl", ("taco",)) == [tmp_path / "x" / "taco" / "a.jsonl"]


def test_long_rows_of_a_parquet_file_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    rows = [{"a": "x" * 10_000 + str(n), "b": "y" * 100_000, "c": n} for n in range(40)]
    path = write(tmp_path / "x.parquet", rows)
    import pyarrow.parquet

    asked, real = [], pyarrow.parquet.ParquetFile.iter_batches

    def iter_batches(self, size, **kwargs):
        asked.append(size)
        return real(self, size, **kwargs)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", iter_batches)
    assert [row["a"] for _, row in read_files([path], {"a", "c"})] == [row["a"] for row in rows]
    monkeypatch.setattr(read, "_BATCH_BYTES", 100_000)
    assert [row["a"] for _, row in read_files([path], {"a", "c"})] == [row["a"] for row in rows]
    assert asked[0] == 1024 and 1 <= asked[1] <= 10  # of 10,000 bytes each; the column b is not read
    monkeypatch.setattr(read, "_BATCH_BYTES", 1)
    assert len(list(read_files([path], {"a"}))) == 40 and asked[2] == 1


def test_the_window_and_the_release_of_livecodebench_make_the_set(tmp_path, data):
    dates = ("2024-07-31", "2024-08-01", "2025-01-31", "2025-02-01", "2025-04-06")
    rows = [
        LCB | {"question_id": f"p{n}", "question_content": f"{n} ?", "contest_date": d} for n, d in enumerate(dates)
    ]
    for file in ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"):
        write(tmp_path / "x" / file, rows if file == "test5.jsonl" else [])
    january = LCB_CALL | {"question_id": "late", "question_content": "?", "contest_date": "2025-01-20T00:00:00"}
    write(tmp_path / "x" / "test6.jsonl", [january, rows[4]])
    record = prepare("livecodebench_v5", tmp_path / "x", data)
    assert [row.id for row in read_code("livecodebench_v5", data)] == ["p1", "p2"]
    assert record["dropped"] == {"not from 2024-08-01 on and before 2025-02-01": ["p0", "p3", "p4"]}
    assert len(record["files"]) == 5 and "WARNING: 2 problems; LiveCodeBench v5" in summary(record)
    prepare("livecodebench_v6", tmp_path / "x", data)
    assert [row.id for row in read_code("livecodebench_v6", data)] == ["p4"]


def test_deepcoder_and_rstar_are_prepared_together_without_what_both_have(tmp_path, data):
    write(tmp_path / "deepcoder" / "taco" / "a.jsonl", [taco("Print $n$.", tests=1)])
    write(tmp_path / "deepcoder" / "primeintellect" / "a.jsonl", [taco("Print $m$.")])
    sides = {"inputs": '["1"]', "outputs": '["2"]'}
    theirs = [
        RSTAR | sides | {"question_id": f"seed_{n}", "question": q} for n, q in enumerate(("print N", "Print k."))
    ]
    write(tmp_path / "rstar" / "seed_testcase" / "a.jsonl", theirs)
    record = prepare("deepcoder_rstar", tmp_path, data)
    assert [(row.id, len(row.tests)) for row in read_code("deepcoder_rstar", data)] == [
        ("0", 1),
        ("1", 2),
        ("seed_1", 1),
    ]
    assert record["dropped"] == {"repeats an earlier statement": ["seed_0"]}


# ---- what is left out and refused -----------------------------------------------------------------------------------


def test_a_statement_that_occurs_again_is_kept_once_whatever_its_tests(tmp_path, data):
    rows = [
        taco("Print  $n$ times 2", tests=1),
        taco("print n TIMES 2!", tests=3),
        taco("Print n + 2"),
        taco("Print n - 2"),
        taco("...", tests=1),
        taco(",,,", tests=1),
    ]
    record = prepare("deepcoder", write(tmp_path / "a.jsonl", rows), data)
    assert [row.id for row in read_code("deepcoder", data)] == ["0", "2", "3", "4", "5"]
    assert record["dropped"] == {"repeats an earlier statement": ["1"]}


def test_rows_without_tests_are_dropped_by_reason_and_bad_ones_stop_it(tmp_path, data):
    rows = [taco("a"), {"problem": "b", "tests": "[]"}, {"problem": "c"}, {"problem": "d", "tests": "!"}]
    source = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=r"(?s)1 of 4 rows cannot be used.*a\.jsonl:4 \(id 3\): its tests are neither"):
        prepare("deepcoder", source, data)
    assert not data.exists() or not list(data.rglob("*.jsonl"))
    record = prepare("deepcoder", source, data, drop=["3"])
    assert record["dropped"] == {"has no tests": ["1", "2"], "named by --drop": ["3"]}
    with pytest.raises(ValueError, match=r"no problem of rstar among its 1 rows, 1 has no tests"):
        prepare("rstar", write(tmp_path / "b.jsonl", [{"problem": "b", "tests": "[]"}]), data)


def test_two_problems_with_one_id_are_refused(tmp_path, data):
    rows = [RSTAR | {"inputs": '["1"]', "outputs": '["2"]', "question": q} for q in ("a", "b")]
    with pytest.raises(ValueError, match=r"\(id seed_9\): has the id of .*a\.jsonl:1, whose question is another"):
        prepare("rstar", write(tmp_path / "a.jsonl", rows), data)


def test_names_of_the_other_kind_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no set 'aime24': it must be one of deepcoder, rstar"):
        read_code("aime24", tmp_path)
    with pytest.raises(ValueError, match="there is no set 'rstar': it must be one of deepmath, aime24"):
        read_rows("rstar", tmp_path)
    with pytest.raises(FileNotFoundError, match="(?s)rstar is not prepared.*hf download microsoft/rStar-Coder"):
        read_code("rstar", tmp_path)


# ---- again, and damage ----------------------------------------------------------------------------------------------


def test_the_same_source_again_changes_nothing_and_another_replaces_it(tmp_path, data, capsys):
    source = write(tmp_path / "a.jsonl", ROWS)
    record = prepare("deepcoder", source, data)
    assert prepare("deepcoder", source, data) == record
    assert "prepared from this source already" in capsys.readouterr().out
    prepare("deepcoder", write(source, ROWS[:3]), data)
    assert "replacing deepcoder, prepared on" in capsys.readouterr().out and len(read_code("deepcoder", data)) == 3


@pytest.fixture
def made(tmp_path, data) -> Path:
    """The folder of a prepared set."""
    rows = [taco(f"Print {n} {hashlib.sha512(str(n).encode()).hexdigest()}.", tests=400 + n) for n in range(12)]
    prepare("deepcoder", write(tmp_path / "a.jsonl", rows), data)
    return data / "code_sets" / "deepcoder" / "1.0.0"


@pytest.mark.parametrize("change", ["missing", "cut", "other order", "a word"])
def test_damage_to_what_is_beside_the_shards_is_seen_when_it_is_opened(made, data, change):
    path = made / "problems.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    if change != "missing":
        changed = {
            "cut": lines[:-1],
            "other order": lines[::-1],
            "a word": [lines[0].replace(b"Print", b"print"), *lines[1:]],
        }
        path.write_bytes(b"".join(changed[change]))
    with pytest.raises(ValueError, match="deepcoder/1.0.0 is damaged; prepare it again"):
        read_code("deepcoder", data)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_shard_cut_short_is_never_read_silently(made, data, keep):
    (shard,) = made.glob("*.array_record*")
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(ValueError, match="is damaged; prepare it again"):
        list(read_code("deepcoder", data))


def test_rows_of_another_set_are_seen_when_they_are_read(made, data, tmp_path):
    rows = [taco(f"Print {n}", tests=400 + n) for n in range(12)]
    prepare("deepcoder", write(tmp_path / "b.jsonl", rows), tmp_path / "other")
    (shard,), (other,) = made.glob("*.array_record*"), (tmp_path / "other").rglob("*.array_record*")
    shutil.copy(other, shard)
    opened = read_code("deepcoder", data)
    for ask in (lambda: opened[5], lambda: list(opened)):
        with pytest.raises(ValueError, match=r"row \d is not the one that was recorded"):
            ask()


def test_what_was_written_wrongly_is_never_put_in_place(tmp_path, data, monkeypatch):
    source = write(tmp_path / "a.jsonl", ROWS)
    prepare("deepcoder", source, data)
    write(source, ROWS[:5])
    monkeypatch.setattr(builder, "to_record", lambda row: {**to_record(row), "outputs": ["0"] * len(row.tests)})
    with pytest.raises(ValueError, match="is not the one that was recorded"):
        prepare("deepcoder", source, data)
    assert len(read_code("deepcoder", data)) == 12


# ---- the other tools ------------------------------------------------------------------------------------------------


def test_problems_that_an_evaluation_set_has_too_are_found(tmp_path, data, capsys):
    long = " ".join(f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(60))
    train = [taco("Print n."), taco("Find the Largest number!"), taco(f"Now {long}"), taco(" ".join(long.split()[:49]))]
    prepare("deepcoder", write(tmp_path / "a.jsonl", train), data)
    tests = [
        LCB | {"question_id": f"p{n}", "question_content": q} for n, q in enumerate(("find the largest number", long))
    ]
    for file in ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"):
        write(tmp_path / "x" / file, tests if file == "test.jsonl" else [])
    prepare("livecodebench_v5", tmp_path / "x", data)
    capsys.readouterr()
    assert overlap.main(["deepcoder", "livecodebench_v5", f"--data_dir={data}"]) == 0
    out = capsys.readouterr().out
    assert "deepcoder/1 and livecodebench_v5/p0 are the same question" in out
    assert f"deepcoder/2 and livecodebench_v5/p1 share: {' '.join(long.split()[:50])} ..." in out
    assert out.splitlines()[-1] == "--drop=1,2" and "50 words of them" in out
    record = prepare("deepcoder", tmp_path / "a.jsonl", data, drop=["1", "2"])
    assert record["problems"] == 2
    assert overlap.main(["deepcoder", "livecodebench_v5", f"--data_dir={data}"]) == 0
    assert "--drop" not in capsys.readouterr().out


def test_what_a_filter_kept_is_found_among_the_problems_of_a_set(tmp_path, data):
    prepare("deepcoder", write(tmp_path / "a.jsonl", ROWS), data)

    class Domain:
        name, max_actions = "code", 1

        def problems(self, split):
            return [
                Problem(f"deepcoder/{row.id}", n, split) for n, row in enumerate(read_code("deepcoder", data).heads)
            ]

    (tmp_path / "kept.json").write_text(json.dumps({"ids": ["deepcoder/2", "deepcoder/11"]}))
    assert [problem.index for problem in Kept(Domain(), tmp_path / "kept.json").problems("train")] == [2, 11]


def test_code_needs_neither_the_packages_of_maths_nor_tensorflow_nor_jax(tmp_path):
    source = write(tmp_path / "a.jsonl", ROWS)
    program = f"""
import sys
for name in ("math_verify", "sympy", "latex2sympy2_extended", "mpmath"):
    sys.modules[name] = None
from hdl_jax.data.prepare import main
from hdl_jax.data.prepared import read_code
main(["deepcoder", "--source={source}", "--data_dir={tmp_path}/data"])
assert len(list(read_code("deepcoder", "{tmp_path}/data"))) == 12
assert "jax" not in sys.modules and "tensorflow" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_real_rows_are_prepared_whole(shared_data, tmp_path, data):
    """The published rows of LiveCodeBench and CodeContests, under the names that DeepCoder has for their fields."""
    rows = []
    for file in ("livecodebench_sample.jsonl", "code_contests_sample.jsonl"):
        for line in (shared_data / file).read_text(encoding="utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                rows.append({"problem": row["content"], "tests": row["test"]})
    record = prepare("deepcoder", write(tmp_path / "a.jsonl", rows), data)
    assert record["read"] == record["problems"] == 23 and record["dropped"] == {}
    assert [row.entry for row in read_code("deepcoder", data)] == ["", "countSeniors", *[""] * 21]


def test_a_packed_row_of_many_megabytes_is_read(tmp_path, data):
    case = {"input": "1 2 3 4 5 6 7 8 9\n" * 1_000_000, "output": "1\n", "testtype": "stdin"}
    row = LCB | {"private_test_cases": packed(json.dumps([case])), "contest_date": "2025-03-01"}
    prepare("livecodebench_v6", write(tmp_path / "test6.jsonl", [row]), data)
    assert [len(test.input) for test in read_code("livecodebench_v6", data)[0].tests] == [2, 18_000_000]
