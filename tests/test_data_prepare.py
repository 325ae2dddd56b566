"""Preparing a set and reading it back: what is checked, recorded, dropped, replaced, and never left half done."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow_datasets", reason="needs the extra `math`: pip install -e '.[math]'")

from hdl_jax.data import builder, golds, prepared
from hdl_jax.data import prepare as prepare_lib
from hdl_jax.data.builder import MathSets, tfds
from hdl_jax.data.prepare import main, prepare, summary
from hdl_jax.data.prepared import provenance, read_rows
from hdl_jax.data.row import MathRow, digest
from hdl_jax.domains.math_compare import Reference

AIME = [{"problem_idx": n, "problem": f"What is ${n}+{n}$?", "answer": 2 * n} for n in range(1, 31)]


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def plain(path: Path, answers, **more) -> Path:
    """A file for the set deepmath."""
    rows = [{"question": f"Question {n}", "final_answer": answer, **more} for n, answer in enumerate(answers)]
    return write(path, rows)


@pytest.fixture
def data(tmp_path) -> Path:
    """Where sets are prepared."""
    return tmp_path / "data"


def everything(folder: Path) -> dict[str, str]:
    """All files below a folder but its locks, with their hashes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- there and back -------------------------------------------------------------------------------------------------


def test_rows_come_back_in_order_with_a_record_of_what_they_were_made_from(tmp_path, data):
    source = write(tmp_path / "a.jsonl", AIME)
    record = prepare("aime26", source, data, revision="2548a41")
    rows = read_rows("aime26", data)
    assert [(row.id, row.question, row.reference.answers) for row in rows] == [
        (str(n), f"What is ${n}+{n}$?", (str(2 * n),)) for n in range(1, 31)
    ]
    assert provenance("aime26", data) == json.loads(json.dumps(record))
    assert record["read"] == record["problems"] == 30 and record["dropped"] == {}
    assert record["revision"] == "2548a41" and record["source"] == str(source)
    assert record["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert record["files"] == [{"path": str(source), "sha256": record["source_sha256"], "bytes": source.stat().st_size}]
    assert record["content_sha256"] == digest(rows)
    assert re.match(r"\d{4}-\d\d-\d\dT", record["prepared"]) and record["versions"]["hdl_jax"]


def test_the_library_s_own_doors_open_a_prepared_set(tmp_path, data):
    prepare("aime26", write(tmp_path / "a.jsonl", AIME), data)
    by_name = tfds.builder("math_sets/aime26", data_dir=data)
    for opened in (by_name, tfds.builder_from_directory(by_name.data_path)):
        source = opened.as_data_source("test")
        assert len(source) == 30
        assert source[2]["question"] == b"What is $3+3$?" and list(source[2]["answers"]) == [b"6"]


def test_parquet_and_lines_of_the_same_rows_have_the_same_content(tmp_path, data):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(AIME), tmp_path / "a.parquet")
    one = prepare("aime26", write(tmp_path / "a.jsonl", AIME), data)
    two = prepare("aime26", tmp_path / "a.parquet", tmp_path / "other")
    assert one["content_sha256"] == two["content_sha256"] and one["source_sha256"] != two["source_sha256"]


TEXT = st.text(min_size=1, max_size=30)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
ROW = st.builds(
    MathRow,
    TEXT,
    TEXT,
    st.builds(
        Reference,
        st.lists(TEXT, min_size=1, max_size=4).map(tuple),
        unit=st.text(max_size=5),
        tolerance=st.none() | NUMBER,
        relative=st.none() | NUMBER,
        kind=st.sampled_from(["", "tuple", "interval"]),
    ),
    st.dictionaries(TEXT, st.text() | st.integers(-(2**70), 2**70) | NUMBER, max_size=3),
)
ODD = MathRow(
    "\0", "a\0\0\n\u2028\U0001f600\ufffd ", Reference(("", "\0", " $"), tolerance=5e-324), {"": "", "n": 2**60}
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=5))
def test_any_rows_come_back_as_they_were(tmp_path, rows):
    rows = [*rows, ODD]
    folder = tmp_path / "any"
    shutil.rmtree(folder, ignore_errors=True)
    metadata = {"content_sha256": digest(rows)}
    MathSets(
        config="minerva", data_dir=folder, file_format="array_record", rows=rows, metadata=metadata
    ).download_and_prepare()
    assert read_rows("minerva", folder) == rows


def test_the_hash_tells_any_change_of_content_or_order():
    row = MathRow("1", "q", Reference(("a", "b"), unit="m", tolerance=0.1, kind="tuple"), {"level": 1})
    others = [
        MathRow("2", row.question, row.reference, row.meta),
        MathRow("1", "p", row.reference, row.meta),
        MathRow("1", "q", row.reference, {"level": 2}),
        MathRow("1", "q", row.reference, {}),
        *(
            MathRow("1", "q", reference, row.meta)
            for reference in (
                Reference(("b", "a"), unit="m", tolerance=0.1, kind="tuple"),
                Reference(("a", "b"), unit="s", tolerance=0.1, kind="tuple"),
                Reference(("a", "b"), unit="m", tolerance=0.2, kind="tuple"),
                Reference(("a", "b"), unit="m", kind="tuple"),
                Reference(("a", "b"), unit="m", tolerance=0.1),
            )
        ),
    ]
    lists = [[], [row], [row, row], *([row, other] for other in others), *([other, row] for other in others)]
    assert len({digest(rows) for rows in lists}) == len(lists)


def test_the_hash_does_not_depend_on_the_order_of_what_has_none():
    one, two = ({"level": 1, "topic": "x"}, {"topic": "x", "level": 1})
    assert digest([MathRow("1", "q", Reference(("a",)), one)]) == digest([MathRow("1", "q", Reference(("a",)), two)])


# ---- what is left out -----------------------------------------------------------------------------------------------


def test_thirty_problems_written_32_times_are_30_problems(tmp_path, data, capsys):  # row D10
    rows = [
        {"extra_info": {"raw_problem": row["problem"]}, "reward_model": {"ground_truth": str(row["answer"])}}
        for _ in range(32)
        for row in AIME
    ]
    record = prepare("aime24", write(tmp_path / "a.jsonl", rows), data)
    assert (record["read"], record["problems"]) == (960, 30)
    assert [len(ids) for ids in record["dropped"].values()] == [930]
    assert [row.id for row in read_rows("aime24", data)] == [str(n) for n in range(30)]
    text = summary(record)
    assert re.search(r"read +960\b", text) and re.search(r"- repeats an earlier question and its answer +930\b", text)
    assert re.search(r"problems +30\b", text) and "WARNING" not in text


def test_a_question_with_two_answers_is_left_out_whichever_is_right(tmp_path, data):
    rows = [("a", "1"), ("b  c", "2"), ("a", "3"), ("b c", "2"), ("d", "4"), ("a", "1")]
    source = write(tmp_path / "a.jsonl", [{"question": q, "final_answer": a} for q, a in rows])
    record = prepare("deepmath", source, data)
    assert [row.id for row in read_rows("deepmath", data)] == ["1", "4"]
    assert record["dropped"] == {
        "its question is there with different answers": ["0", "2", "5"],
        "repeats an earlier question and its answer": ["3"],
    }


def test_what_is_no_problem_of_the_set_is_counted_by_reason(tmp_path, data, capsys):
    base = {"question": "q", "final_answer": ["1"], "is_multiple_answer": False, "answer_type": "Numerical"}
    changes = [{}, {"modality": "Multimodal"}, {"final_answer": None}, {"modality": "Multimodal"}]
    source = write(tmp_path / "a.jsonl", [base | {"id": n, "question": f"q{n}"} | c for n, c in enumerate(changes)])
    assert main(["olympiadbench", f"--source={source}", f"--data_dir={data}"]) == 0
    assert provenance("olympiadbench", data)["dropped"] == {
        "has an image": ["1", "3"],
        "a proof: has no final answer": ["2"],
    }
    out = capsys.readouterr().out
    assert re.search(r"- has an image +2 +1, 3", out) and "WARNING: 1 problems; OlympiadBench" in out


def test_rows_named_by_drop_are_left_out_even_where_they_cannot_be_used(tmp_path, data):
    source = write(tmp_path / "a.jsonl", [*AIME[:3], {"problem_idx": 99, "problem": "?", "answer": None}])
    with pytest.raises(ValueError, match=r"a\.jsonl:4 \(id 99\): has no answer"):
        prepare("aime26", source, data)
    record = prepare("aime26", source, data, drop=["99", "2"])
    assert [row.id for row in read_rows("aime26", data)] == ["1", "3"]
    assert record["dropped"] == {"named by --drop": ["2", "99"]} and record["named"] == ["2", "99"]
    with pytest.raises(ValueError, match="--drop: no row has the id 100"):
        prepare("aime26", source, data, drop=["99", "100"])


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_every_row_that_cannot_be_used_is_named_with_its_place(tmp_path, data):
    rows = [*AIME[:2], {"problem_idx": 3, "problem": "", "answer": 1}, {"problem_idx": 4, "problem": "p"}]
    with pytest.raises(ValueError) as error:
        prepare("aime26", write(tmp_path / "a.jsonl", rows), data)
    text = str(error.value)
    assert "aime26: 2 of 4 rows cannot be used" in text
    assert f"{tmp_path}/a.jsonl:3 (id 3): problem is empty" in text
    assert f"{tmp_path}/a.jsonl:4 (id 4): has no answer: looked for answer, Answer" in text
    assert everything(data) == {}


def test_a_file_of_another_set_is_told_in_20_lines(tmp_path, data):
    rows = [{"question": f"q{n}", "answer": f"#### {n}"} for n in range(50)]
    with pytest.raises(ValueError, match="aime26: 50 of 50 rows cannot be used") as error:
        prepare("aime26", write(tmp_path / "a.jsonl", rows), data)
    assert str(error.value).count("must be a whole number") == 20 and "and 30 more" in str(error.value)


def test_two_rows_with_one_id_are_refused(tmp_path, data):
    rows = [AIME[0], {**AIME[1], "problem_idx": 1}]
    with pytest.raises(ValueError, match=r"a\.jsonl:2 \(id 1\): has the id of .*a\.jsonl:1, whose question is another"):
        prepare("aime26", write(tmp_path / "a.jsonl", rows), data)


def test_a_reference_answer_that_cannot_be_read_stops_it_with_its_row(tmp_path, data):
    source = plain(tmp_path / "a.jsonl", ["1", "\\frac{1}{", "$$"])
    with pytest.raises(ValueError) as error:
        prepare("deepmath", source, data)
    assert "deepmath: 2 of 3 rows cannot be used" in str(error.value)
    assert f"{source}:2 (id 1): answer '\\\\frac{{1}}{{': " in str(error.value)
    assert f"{source}:3 (id 2): answer '$$': " in str(error.value)
    assert everything(data) == {}


READERS = """
import time
def reads(reference):
    if reference.answers == ("9^{9^{9}}",):
        while True: pass
    assert reference.answers[0] != "5 km", "asked twice" if asked else asked.append(1)
    return ""
asked = []
"""


def test_a_reference_answer_that_hangs_is_named_and_holds_nothing_up(tmp_path, data, monkeypatch):
    (tmp_path / "readers.py").write_text(READERS)
    monkeypatch.setattr(golds, "READER", f"{tmp_path}/readers.py:reads")
    monkeypatch.setattr(golds, "LIMIT_S", 0.5)
    source = plain(tmp_path / "a.jsonl", ["x", "9^{9^{9}}", "y", "9^{9^{9}}", "5"])
    with pytest.raises(ValueError) as error:
        prepare("deepmath", source, data, workers=2)
    lines = [line for line in str(error.value).splitlines() if "answer" in line]
    assert len(lines) == 2 and all("(id 1)" in line or "(id 3)" in line for line in lines)
    assert "reading it failed" in lines[0]


def test_plain_numbers_are_not_read_and_equal_answers_once(monkeypatch):
    asked = []

    class Pool:
        def __init__(self, function, *, workers, limit_s): ...

        def __enter__(self):
            return asked.append

        def __exit__(self, *error): ...

    monkeypatch.setattr(golds, "WorkerPool", Pool)
    answers = ["1", "-2.5", "Yes", "2,5", "Yes", "033", "1e5", "9" * 400]
    references = [Reference((answer,)) for answer in answers] + [Reference(("1", "2")), Reference(("1",), unit="m")]
    assert golds.unreadable_golds(references, workers=2) == {}
    assert [reference.answers for reference in asked] == [("Yes",), ("2,5",), ("1e5",), ("9" * 400,), ("1", "2")]


def test_an_empty_file_is_refused(tmp_path, data):
    with pytest.raises(ValueError, match="no problem of aime26 among its 0 rows"):
        prepare("aime26", write(tmp_path / "a.jsonl", []), data)


def test_an_unknown_set_names_the_known_ones(tmp_path):
    for call in (lambda: prepare("aime27", tmp_path, tmp_path), lambda: read_rows("aime27", tmp_path)):
        with pytest.raises(ValueError, match="there is no set 'aime27': it must be one of deepmath, aime24"):
            call()


# ---- again, and over what is there ----------------------------------------------------------------------------------


def test_the_same_source_again_changes_nothing_and_says_so(tmp_path, data, capsys, monkeypatch):
    source = write(tmp_path / "a.jsonl", AIME)
    record = prepare("aime26", source, data, revision="1")
    before = everything(data)
    monkeypatch.setattr(prepare_lib, "load", lambda *args: pytest.fail("it was read again"))
    assert prepare("aime26", source, data) == record and everything(data) == before
    assert "prepared from this source already" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["rows", "revision", "drop"])
def test_another_source_revision_or_choice_replaces_it_and_says_so(tmp_path, data, capsys, change):
    source = write(tmp_path / "a.jsonl", AIME)
    prepare("aime26", source, data)
    if change == "rows":
        write(source, AIME[:20])
    record = prepare(
        "aime26", source, data, revision="2" if change == "revision" else "", drop=["7"] if change == "drop" else ()
    )
    assert "replacing aime26, prepared on" in capsys.readouterr().out
    assert len(read_rows("aime26", data)) == record["problems"] == {"rows": 20, "drop": 29}.get(change, 30)
    assert [path.name for path in (data / "math_sets").iterdir() if path.suffix != ".lock"] == ["aime26"]


def after(calls: int, error: type[BaseException], function):
    """The function, which raises instead once it has been called so often."""
    left = iter(range(calls))

    def call(*args, **kwargs):
        if next(left, None) is None:
            raise error
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize(
    ("module", "name", "calls"),
    [
        (prepare_lib, "load", 0),
        (builder, "to_record", 5),  # in the middle of the rows
        (prepared, "read_rows", 1),  # the first is of what is there, the second of what was written
        (os, "rename", 0),  # what was there is out of the way, the new one is not in place
    ],
)
def test_stopped_in_the_middle_what_was_there_before_is_there_after(
    tmp_path, data, monkeypatch, module, name, calls, error
):
    source = write(tmp_path / "a.jsonl", AIME)
    prepare("aime26", source, data)
    before, rows = everything(data), read_rows("aime26", data)
    write(source, AIME[:20])
    with monkeypatch.context() as patch, pytest.raises(error):
        real = getattr(module, name)
        if name == "rename":  # the library renames, too
            place = data / "math_sets" / "aime26"
            stop = after(calls, error, real)
            patch.setattr(
                os, name, lambda old, new: (stop if new == place and ".partial" in str(old) else real)(old, new)
            )
        else:
            patch.setattr(module, name, after(calls, error, real))
        prepare("aime26", source, data)
    assert everything(data) == before and read_rows("aime26", data) == rows
    prepare("aime26", source, data)
    assert len(read_rows("aime26", data)) == 20


def test_a_first_preparation_that_is_stopped_leaves_nothing(tmp_path, data, monkeypatch):
    monkeypatch.setattr(builder, "to_record", after(5, OSError, builder.to_record))
    with pytest.raises(OSError):
        prepare("aime26", write(tmp_path / "a.jsonl", AIME), data)
    assert everything(data) == {}
    with pytest.raises(FileNotFoundError):
        read_rows("aime26", data)


KILLED = """
import os, signal, sys
from hdl_jax.data import prepare
if sys.argv[1] == "while writing":
    def write(name, data_dir, rows, record, write=prepare._write):
        def killed():
            yield from rows[:10]
            os.kill(os.getpid(), signal.SIGKILL)
        write(name, data_dir, killed(), record)
    prepare._write = write
else:
    rename = os.rename
    def once(old, new):
        rename(old, new)
        if ".before" in str(new):
            os.kill(os.getpid(), signal.SIGKILL)
    os.rename = once
prepare.main(sys.argv[2:])
"""


@pytest.mark.parametrize("when", ["while writing", "between two names", "after a failure"])
def test_a_killed_process_leaves_nothing_half_made_and_the_next_one_goes_on(tmp_path, data, when):
    source = write(tmp_path / "a.jsonl", AIME)
    prepare("aime26", source, data)
    rows = read_rows("aime26", data)
    write(source, AIME[:20])
    command = [sys.executable, "-c", KILLED, when, "aime26", f"--source={source}", f"--data_dir={data}"]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == -9
    left = {path.name for path in (data / "math_sets").iterdir()}
    assert left >= {".aime26.partial", "aime26" if when == "while writing" else ".aime26.before"}
    if when == "while writing":
        assert read_rows("aime26", data) == rows
    if when == "after a failure":
        with pytest.raises(ValueError, match="cannot be used"):
            prepare("aime26", write(tmp_path / "b.jsonl", [{}]), data)
        assert read_rows("aime26", data) == rows  # put back where it was
    prepare("aime26", write(source, AIME[:10]), data)
    assert len(read_rows("aime26", data)) == 10
    assert {path.name for path in (data / "math_sets").iterdir()} == {".aime26.lock", "aime26"}


def test_two_at_once_on_one_set_are_refused(tmp_path, data):
    source = write(tmp_path / "a.jsonl", AIME)
    with prepare_lib._locked(data / "math_sets" / "aime26"):
        with pytest.raises(BlockingIOError, match="another process is preparing it"):
            prepare("aime26", source, data)
        prepare("aime25", source, data)


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shard(tmp_path, data) -> Path:
    rows = [{**row, "problem": row["problem"] + os.urandom(3000).hex()} for row in AIME]
    prepare("aime26", write(tmp_path / "a.jsonl", rows), data)
    (path,) = data.rglob("*.array_record*")
    return path


@pytest.mark.parametrize("keep", [0, 100, 65_536, 100_000, -1])
def test_a_shard_cut_short_is_never_read_silently(shard, data, keep):
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(ValueError, match="aime26/1.0.0 is damaged; prepare it again"):
        read_rows("aime26", data)


def test_a_changed_byte_is_seen(shard, data):
    content = bytearray(shard.read_bytes())
    content[len(content) // 4] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged; prepare it again"):
        read_rows("aime26", data)


def test_a_shard_of_other_rows_is_seen(shard, data, tmp_path):
    prepare("aime26", write(tmp_path / "b.jsonl", AIME), tmp_path / "other")
    (other,) = (tmp_path / "other").rglob("*.array_record*")
    shutil.copy(other, shard)
    with pytest.raises(ValueError, match="its rows are not those that were recorded"):
        read_rows("aime26", data)


@pytest.mark.parametrize("name", ["metadata.json", "dataset_info.json", "features.json", "shard"])
def test_a_missing_or_broken_file_beside_it_is_told(shard, data, name):
    path = shard if name == "shard" else shard.with_name(name)
    path.unlink()
    with pytest.raises(ValueError, match="is damaged; prepare it again"):
        read_rows("aime26", data)


def test_a_damaged_set_is_prepared_again(shard, data, tmp_path, capsys):
    rows = read_rows("aime26", data)
    shard.write_bytes(b"")
    prepare("aime26", tmp_path / "a.jsonl", data)
    assert "is damaged; prepare it again" in capsys.readouterr().err
    assert read_rows("aime26", data) == rows


# ---- the command line -----------------------------------------------------------------------------------------------


def test_a_set_that_is_not_prepared_tells_how_to(data):
    for read in (read_rows, provenance):
        with pytest.raises(FileNotFoundError) as error:
            read("minerva", data)
        assert f"minerva is not prepared in {data}" in str(error.value)
        assert "github.com/QwenLM/Qwen2.5-Math" in str(error.value)
        assert "python -m hdl_jax.data.prepare minerva --source=" in str(error.value)


def test_a_missing_source_tells_where_to_get_it(tmp_path, data):
    with pytest.raises(SystemExit, match=r"(?s)error: .*x\.parquet: there is no such file.*hf download MathArena/aime"):
        main(["aime26", f"--source={tmp_path}/x.parquet", f"--data_dir={data}"])


def test_the_record_of_deepmath_has_its_revision(tmp_path, data, capsys):  # row D12
    source = plain(tmp_path / "a.jsonl", ["1", "2"])
    assert main(["deepmath", f"--source={source}", f"--data_dir={data}"]) == 0
    assert "revision not known: --revision=TEXT records it" in capsys.readouterr().out
    assert main(["deepmath", f"--source={source}", f"--data_dir={data}", "--revision=5cf055d"]) == 0
    out = capsys.readouterr().out
    assert "revision 5cf055d" in out and "gave their answer away until the publisher's fix of 2025-05-08" in out
    assert "WARNING: 2 problems; DeepMath-103K has 103,110" in out
    assert provenance("deepmath", data)["revision"] == "5cf055d"


def test_the_commit_that_the_download_noted_is_recorded(tmp_path, data):
    source = write(tmp_path / "a.jsonl", AIME)
    note = tmp_path / ".cache" / "huggingface" / "download" / "a.jsonl.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{'c0ffee12' * 5}\netag\n{source.stat().st_mtime}\n")
    assert prepare("aime26", source, data)["revision"] == "c0ffee12" * 5
    assert prepare("aime26", source, data, revision="mine")["revision"] == "mine"


def test_only_the_summary_is_printed(tmp_path, data, capsys):
    assert main(["aime26", f"--source={write(tmp_path / 'a.jsonl', AIME)}", f"--data_dir={data}"]) == 0
    assert capsys.readouterr().out == summary(provenance("aime26", data)) + "\n"


def test_the_list_shows_every_set_with_its_rule_and_samples(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^olympiadbench .*boxed +4 +674 or 675 ", out, re.M) and re.search(
        r"^gsm8k .*hash +1 ", out, re.M
    )
    assert out.count("hf download") + out.count("git clone") == 17


def test_a_name_and_a_source_are_needed(capsys):
    with pytest.raises(SystemExit):
        main(["aime26"])
    assert "NAME and --source are needed; --list shows the sets" in capsys.readouterr().err


def test_tensorflow_is_never_imported(tmp_path):
    source = write(tmp_path / "a.jsonl", AIME)
    program = f"""
import sys
from hdl_jax.data.prepare import main
from hdl_jax.data.prepared import provenance, read_rows
main(["aime26", "--source={source}", "--data_dir={tmp_path}/data"])
assert len(read_rows("aime26", "{tmp_path}/data")) == 30
assert provenance("aime26", "{tmp_path}/data")["problems"] == 30
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# ---- the real files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "problems"),
    [
        ("aime24", "aime24.jsonl", 30),
        ("minerva", "minerva_math.jsonl", 272),
        ("olympiadbench", "olympiadbench.jsonl", 675),
        ("gsm8k", "gsm8k.jsonl", 1319),
    ],
)
def test_real_files_are_prepared_whole(shared_data, data, name, file, problems):
    record = prepare(name, shared_data / file, data)
    assert record["problems"] == record["read"] == problems and record["dropped"] == {}
    assert "WARNING" not in summary(record)
    rows = read_rows(name, data)
    assert len({row.id for row in rows}) == problems
    by_id = {row.id: row for row in rows}
    if name == "olympiadbench":
        assert by_id["2592"].reference == Reference(("4.2",), unit="%", tolerance=0.1)
        assert by_id["1618"].reference == Reference(("(1,8,19)", "(2,7,13)", "(4,5,7)"), kind="tuple")
        assert by_id["2410"].reference == Reference(("$[\\frac{1}{2}, 8]$",), kind="interval")
    if name == "minerva":
        assert by_id["1"].reference == Reference(("4.5e33",))
    if name == "gsm8k":
        assert all(re.fullmatch(r"-?\d+", row.reference.answers[0]) for row in rows)
