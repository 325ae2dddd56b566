"""The sets that can be prepared: how their publishers spell them, how their answers are read, and where to get them.

The files of one set differ by publisher. `fields` has the spellings of each field, in the order they are looked for;
docs/data.md says which publishers that covers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import ClassVar

from hdl_jax.data.code_sets import CODE_SETS, CodeSet
from hdl_jax.data.convert import contest, hashed, olympiad, plain
from hdl_jax.data.golds import unreadable_golds
from hdl_jax.data.problem_set import ProblemSet
from hdl_jax.data.row import MathRow, digest

__all__ = ["ALL_SETS", "CODE_SETS", "SETS", "CodeSet", "MathRow", "MathSet"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MathSet(ProblemSet):
    """Questions with reference answers.

    `rule` is how the answer is found in a response, by its name in domains/math_answer.py. `samples` is the paper's for
    its six benchmarks and HMMT 2025; 4 for MATH-500 and arithmetic; 1 for GSM8K, which is large enough, and for
    training sets.
    """

    FOLDER: ClassVar[str] = "math_sets"
    REPEATED: ClassVar[str] = "repeats an earlier question and its answer"
    RUN: ClassVar[int] = 20  # 13 occur by chance in how problems begin ("let a, b and c be positive real numbers ...")
    STREAMED: ClassVar[bool] = False

    def keep(self, row: MathRow) -> MathRow:
        """All of it: 103,000 rows are 60 MB."""
        return row

    def statement(self, question: str) -> Hashable:
        """The question, whatever its spaces: signs count."""
        return " ".join(question.split())

    def contradicts(self, one: MathRow, other: MathRow) -> bool:
        """Their answers are not the same."""
        return one.reference != other.reference

    def unusable(self, kept: Sequence[MathRow], workers: int) -> dict[int, str]:
        """Reference answers that cannot be read."""
        found = unreadable_golds([row.reference for row in kept], workers)
        return {n: f"answer {' and '.join(kept[n].reference.answers)!r}: {reason}" for n, reason in found.items()}

    def digest(self, kept: Sequence[MathRow]) -> str:
        """Of the rows themselves."""
        return digest(kept)

    def beside(self, kept: Sequence[MathRow]) -> dict[str, bytes]:
        """Nothing."""
        return {}


_QUESTION = ("problem", "question", "Problem", "extra_info.raw_problem")
_ANSWER = ("answer", "Answer", "expected_answer", "reward_model.ground_truth")
_SHARD = "data/train-00000-of-00001.parquet"
_QWEN = "git clone --depth=1 https://github.com/QwenLM/Qwen2.5-Math downloads/qwen"


def _hub(repository: str, folder: str) -> str:
    return f"hf download {repository} --repo-type dataset --local-dir downloads/{folder}"


def _aime(year: int, repository: str, file: str, licence: str, note: str = "") -> MathSet:
    name = f"aime{year % 100}"
    return MathSet(
        name=name,
        title=f"AIME {year}",
        rule="boxed",
        samples=16,
        split="test",
        sizes=(30,),
        fetch=_hub(repository, name),
        source=f"downloads/{name}/{file}",
        licence=licence,
        fields={
            "id": ("id", "ID", "problem_idx"),
            "question": _QUESTION,
            "answer": _ANSWER,
            "solution": ("solution", "Solution"),
            "year": ("year", "Year", "url"),
        },
        convert=contest(year),
        note=note,
    )


def _hmmt(year: int, problems: int) -> MathSet:
    name, repository = f"hmmt{year % 100}", f"MathArena/hmmt_feb_{year}"
    return MathSet(
        name=name,
        title=f"HMMT February {year}",
        rule="boxed",
        samples=16,
        split="test",
        sizes=(problems,),
        fetch=_hub(repository, name),
        source=f"downloads/{name}/{_SHARD}",
        licence="CC BY-NC-SA 4.0",
        fields={
            "id": ("problem_idx", "id"),
            "question": _QUESTION,
            "answer": _ANSWER,
            "type": ("problem_type",),
        },
        convert=plain,
    )


def _gsm8k(split: str, problems: int) -> MathSet:
    return MathSet(
        name="gsm8k" if split == "test" else "gsm8k_train",
        title=f"GSM8K, {split} split",
        rule="hash",
        samples=1,
        split=split,
        sizes=(problems,),
        fetch=_hub("openai/gsm8k", "gsm8k"),
        source=f"downloads/gsm8k/main/{split}-00000-of-00001.parquet",
        licence="MIT",
        fields={"id": ("idx",), "question": ("question",), "answer": ("answer",)},
        convert=hashed,
    )


def _arithmetic(split: str, problems: int) -> MathSet:
    return MathSet(
        name="arithmetic" if split == "test" else "arithmetic_train",
        title=f"Arithmetic for small models, {split} split",
        rule="end",
        samples=4 if split == "test" else 1,
        split=split,
        sizes=(problems,),
        fetch="python -m hdl_jax.data.arithmetic --out=downloads/arithmetic",
        source=f"downloads/arithmetic/{split}.jsonl",
        licence="Apache-2.0 (reasoning-gym)",
        fields={"question": ("question",), "answer": ("answer",), "type": ("type",)},
        convert=hashed,
    )


_ALL = (
    MathSet(
        name="deepmath",
        title="DeepMath-103K",
        rule="boxed",
        samples=1,
        split="train",
        sizes=(103_110,),
        fetch=_hub("zwhe99/DeepMath-103K", "deepmath"),
        source="downloads/deepmath/data",
        licence="MIT",
        fields={
            "question": ("question",),
            "answer": ("final_answer",),
            "difficulty": ("difficulty",),
            "topic": ("topic",),
        },
        convert=plain,
        note="48 questions gave their answer away until the publisher's fix of 2025-05-08: use a later revision.",
    ),
    _aime(
        2024,
        "HuggingFaceH4/aime_2024",
        _SHARD,
        "none stated; the problems are the MAA's",
        note="A file of repeated rows (BytedTsinghua-SIA/AIME-2024 has 30 problems 32 times) gives its 30 problems.",
    ),
    _aime(2025, "opencompass/AIME2025", "", "MIT; the problems are the MAA's"),
    _aime(2026, "MathArena/aime_2026", _SHARD, "CC BY-NC-SA 4.0"),
    _hmmt(2025, 30),
    _hmmt(2026, 33),
    MathSet(
        name="minerva",
        title="Minerva (OCWCourses)",
        rule="boxed",
        samples=8,
        split="test",
        sizes=(272,),
        fetch=_QWEN,
        source="downloads/qwen/evaluation/data/minerva_math/test.jsonl",
        licence="none stated; the problems are from MIT OpenCourseWare",
        fields={
            "id": ("idx", "id"),
            "question": ("problem", "question"),
            "answer": ("answer",),
            "solution": ("solution",),
            "type": ("type",),
        },
        convert=plain,
    ),
    MathSet(
        name="olympiadbench",
        title="OlympiadBench, open-ended English maths",
        rule="boxed",
        samples=4,
        split="test",
        sizes=(674, 675),
        fetch=_QWEN,
        source="downloads/qwen/evaluation/data/olympiadbench/test.jsonl",
        licence="Apache-2.0",
        fields={
            "id": ("id",),
            "context": ("context",),
            "question": ("question",),
            "answer": ("final_answer",),
            "multiple": ("is_multiple_answer",),
            "unit": ("unit",),
            "error": ("error",),
            "kind": ("answer_type",),
            "answer_type": ("answer_type",),
            "subfield": ("subfield",),
            "modality": ("modality",),
            "question_type": ("question_type",),
            "language": ("language",),
            "subject": ("subject",),
        },
        convert=olympiad,
    ),
    MathSet(
        name="math500",
        title="MATH-500",
        rule="boxed",
        samples=4,
        split="test",
        sizes=(500,),
        fetch=_hub("HuggingFaceH4/MATH-500", "math500"),
        source="downloads/math500/test.jsonl",
        licence="MIT (MATH)",
        fields={
            "id": ("unique_id",),
            "question": ("problem", "question"),
            "answer": ("answer",),
            "solution": ("solution",),
            "subject": ("subject",),
            "level": ("level",),
        },
        convert=plain,
    ),
    _gsm8k("test", 1319),
    _gsm8k("train", 7473),
    _arithmetic("test", 128),
    _arithmetic("train", 384),
)
SETS: dict[str, MathSet] = {math_set.name: math_set for math_set in _ALL}
ALL_SETS: dict[str, ProblemSet] = {**SETS, **CODE_SETS}
