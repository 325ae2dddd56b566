"""The sets of programming problems that can be prepared. docs/data.md has the forms of their tests."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

from hdl_jax.data.code_convert import livecodebench, published
from hdl_jax.data.code_row import CodeHead, CodeRow, dump_heads, head
from hdl_jax.data.convert import Spellings
from hdl_jax.data.problem_set import ProblemSet
from hdl_jax.data.statement import tokens

HEADS = "problems.jsonl"  # beside the shards: all that a row says but its tests, with the hash of the row


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSet(ProblemSet):
    """Programming problems with their tests. `samples` is the paper's for LiveCodeBench, 1 for training sets."""

    FOLDER: ClassVar[str] = "code_sets"
    REPEATED: ClassVar[str] = "repeats an earlier statement"
    RUN: ClassVar[int] = 50  # shorter ones are how contests word their input ("the first line of each test case ...")
    STREAMED: ClassVar[bool] = True  # the tests of a training set are gigabytes

    rule: str = "tests"

    def keep(self, row: CodeRow) -> CodeHead:
        """All but the tests."""
        return head(row)

    def statement(self, question: str) -> Hashable:
        """Its words, numbers and signs of operation: the same problem is set differently by those who collect it."""
        text = " ".join(tokens(question)) or question
        return hashlib.sha256(text.encode()).digest()

    def contradicts(self, one: CodeHead, other: CodeHead) -> bool:
        """Never: collections have different tests of a problem, all of them right."""
        return False

    def unusable(self, kept: Sequence[CodeHead], workers: int) -> dict[int, str]:
        """None: all that can be said of tests without a program is said when a row is converted."""
        return {}

    def digest(self, kept: Sequence[CodeHead]) -> str:
        """Of the rows without tests and the hashes of the whole ones."""
        return hashlib.sha256(dump_heads(kept)).hexdigest()

    def beside(self, kept: Sequence[CodeHead]) -> dict[str, bytes]:
        """The rows without their tests, so that a set can be opened without reading gigabytes."""
        return {HEADS: dump_heads(kept)}


_DEEPCODER = "hf download agentica-org/DeepCoder-Preview-Dataset --repo-type dataset --local-dir downloads/deepcoder"
_RSTAR = "hf download microsoft/rStar-Coder --repo-type dataset --include 'seed_testcase/*' --local-dir downloads/rstar"
_PUBLISHED: Mapping[str, Spellings] = {
    "id": ("question_id", "id"),
    "question": ("problem", "question"),
    "tests": ("tests",),
    "inputs": ("inputs",),
    "outputs": ("outputs",),
    "entry": ("func_name",),
    "class": ("class_name",),
    "metadata": ("metadata",),
    "starter": ("starter_code",),
    "passed": ("is_passed",),
    "difficulty": ("difficulty",),
    "type": ("type",),
}


def _train(name: str, title: str, fetch: str, source: str, parts: tuple[str, ...], licence: str, note: str) -> CodeSet:
    return CodeSet(
        name=name,
        title=title,
        samples=1,
        split="train",
        sizes=(),
        fetch=fetch,
        source=source,
        parts=parts,
        licence=licence,
        fields=_PUBLISHED,
        convert=published,
        note=note,
    )


def _livecodebench(
    version: int, files: tuple[str, ...], start: datetime.date, end: datetime.date, problems: int, note: str
) -> CodeSet:
    include = " ".join(f"--include {file}" for file in files)
    return CodeSet(
        name=f"livecodebench_v{version}",
        title=f"LiveCodeBench v{version}, contests from {start} on and before {end}",
        samples=8,
        split="test",
        sizes=(problems,),
        fetch=f"hf download livecodebench/code_generation_lite --repo-type dataset {include} "
        "--local-dir downloads/livecodebench",
        source="downloads/livecodebench",
        parts=files,
        licence="CC, no version stated; the problems are the contests'",
        fields={
            "id": ("question_id",),
            "question": ("question_content",),
            "public": ("public_test_cases",),
            "private": ("private_test_cases",),
            "metadata": ("metadata",),
            "starter": ("starter_code",),
            "contest_date": ("contest_date",),
            "difficulty": ("difficulty",),
            "platform": ("platform",),
        },
        convert=livecodebench(start, end),
        note=note,
    )


def _tiny(split: str, problems: int) -> CodeSet:
    return CodeSet(
        name="tiny_code" if split == "test" else "tiny_code_train",
        title=f"Tiny programs for small models, {split} split",
        samples=8 if split == "test" else 1,
        split=split,
        sizes=(problems,),
        fetch="python -m hdl_jax.data.tiny_code --out=downloads/tiny_code",
        source=f"downloads/tiny_code/{split}.jsonl",
        licence="Apache-2.0 (hdl_jax)",
        fields=_PUBLISHED,
        convert=published,
    )


_ALL = (
    _train(
        "deepcoder",
        "DeepCoder-Preview, TACO and PrimeIntellect",
        _DEEPCODER,
        "downloads/deepcoder",
        ("taco", "primeintellect"),
        "MIT",
        "The file has no ids: a row's number is its id, TACO's first.",
    ),
    _train(
        "rstar",
        "rStar-Coder, seed_testcase",
        _RSTAR,
        "downloads/rstar/seed_testcase",
        (),
        "CC BY 4.0",
        "Most of its tests are the publisher's own, with the outputs of solutions that agreed.",
    ),
    _train(
        "deepcoder_rstar",
        "DeepCoder-Preview and rStar-Coder seed_testcase, as the paper trains",
        f"{_DEEPCODER}\n{_RSTAR}",
        "downloads",
        ("deepcoder/taco", "deepcoder/primeintellect", "rstar/seed_testcase"),
        "MIT; CC BY 4.0",
        "A statement that both have is kept once, with DeepCoder's tests.",
    ),
    _livecodebench(
        5,
        ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"),
        datetime.date(2024, 8, 1),
        datetime.date(2025, 2, 1),
        279,
        "Of release_v5: test6.jsonl has 44 more problems of January 2025, which belong to release_v6.",
    ),
    _livecodebench(
        6,
        ("test6.jsonl",),
        datetime.date(2025, 2, 1),
        datetime.date(2025, 5, 1),
        131,
        "Others report on all 175 problems of test6.jsonl, from January 2025 on, or on 454, from August 2024 on.",
    ),
    _tiny("test", 64),
    _tiny("train", 128),
)
CODE_SETS: dict[str, CodeSet] = {code_set.name: code_set for code_set in _ALL}
