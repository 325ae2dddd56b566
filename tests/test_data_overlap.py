"""Which problems a training set shares with benchmarks."""

from __future__ import annotations

import json

import pytest

from hdl_jax.data.overlap import RUN, Overlap, main, overlaps, tokens, words
from hdl_jax.data.row import MathRow
from hdl_jax.domains.math_compare import Reference

LONG = " ".join(f"w{chr(97 + n)}" for n in range(RUN + 5))  # RUN + 5 different words


def rows(*questions: str) -> list[MathRow]:
    return [MathRow(str(n), question, Reference(("1",)), {}) for n, question in enumerate(questions)]


def test_case_space_and_most_signs_do_not_count_but_every_word_and_number_does():
    for split in (words, tokens):
        assert split("Let $X_{12}\\leq y$, so\n…") == split("let x 12 \\leq (Y)  so")
    assert words("x+1") != words("x+2") and words("Größe") == words("größe") != words("gre")


def test_the_same_question_is_found_whatever_its_length():
    found = overlaps(rows("Find $x$.", "find X", "Find $y$."), {"aime24": rows("find  x"), "minerva": rows("Find y!")})
    assert found == [
        Overlap("0", "aime24", "0"),
        Overlap("1", "aime24", "0"),
        Overlap("2", "minerva", "0"),
    ]


def test_another_operation_is_another_question():
    benchmark = {"aime24": rows("Compute $3 - 4$.", "Let $x<2$.", "Find $-5$.")}
    assert overlaps(rows("Compute $3 + 4$.", "Let $x>2$.", "Find $5$."), benchmark) == []
    assert overlaps(rows("compute 3-4"), benchmark) == [Overlap("0", "aime24", "0")]


def test_a_run_of_words_is_found_wherever_it_lies_and_told_once():
    run = " ".join(LONG.split()[2 : 2 + RUN + 2])
    (found,) = overlaps(rows(f"Before: {run}? After."), {"aime24": rows("other", LONG)})
    assert found == Overlap("0", "aime24", "1", " ".join(LONG.split()[2 : 2 + RUN]))


def test_a_long_question_that_is_the_same_is_told_once():
    assert overlaps(rows(LONG.upper()), {"aime24": rows(LONG)}) == [Overlap("0", "aime24", "0")]


def test_one_word_less_is_no_overlap():
    run = " ".join(LONG.split()[: RUN - 1])
    assert overlaps(rows(f"{run} end"), {"aime24": rows(LONG)}) == []


def test_questions_without_words_are_not_all_the_same():
    assert overlaps(rows("$...$"), {"aime24": rows("$,$")}) == []


def test_the_command_lists_them_counts_them_and_says_how_to_be_rid_of_them(tmp_path, capsys):
    pytest.importorskip("tensorflow_datasets", reason="needs the extra `math`: pip install -e '.[math]'")
    from hdl_jax.data import prepare

    data = tmp_path / "data"
    train = [("Find a.", "1"), ("Find 7.", "2"), (f"Now {LONG}", "3")]
    text = [json.dumps({"question": question, "final_answer": answer}) for question, answer in train]
    (tmp_path / "train.jsonl").write_text("\n".join(text))
    text = [json.dumps({"problem": question, "answer": 5}) for question in ("find 7", LONG, "none")]
    (tmp_path / "test.jsonl").write_text("\n".join(text))
    prepare.prepare("deepmath", tmp_path / "train.jsonl", data)
    prepare.prepare("aime25", tmp_path / "test.jsonl", data)
    capsys.readouterr()
    assert main(["deepmath", "aime25", f"--data_dir={data}"]) == 0
    out = capsys.readouterr().out
    assert "deepmath/1 and aime25/0 are the same question" in out
    assert f"deepmath/2 and aime25/1 share: {' '.join(LONG.split()[:RUN])} ..." in out
    assert [line.split() for line in out.splitlines() if line.startswith("aime25")] == [["aime25", "3", "1", "1"]]
    assert out.splitlines()[-1] == "--drop=1,2"


def test_a_set_that_is_not_prepared_stops_it(tmp_path):
    pytest.importorskip("tensorflow_datasets", reason="needs the extra `math`: pip install -e '.[math]'")
    with pytest.raises(SystemExit, match="error: deepmath is not prepared"):
        main(["deepmath", "aime24", f"--data_dir={tmp_path}"])
