"""Samples of an evaluation, kept for people and for scoring them again: JSON lines, WORKDIR/eval/step_NNNNNN/SET.jsonl.

The first line has the settings, {"settings": {...}}; every other line is a sample. The samples of a problem are written
together, as soon as all are there, so that an evaluation that was killed goes on with the problems it lacks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_STEP = re.compile(r"step_(\d{6,})")


@dataclasses.dataclass(frozen=True)
class EvalSample:
    """One episode.

    Attributes:
        problem: its id. sample: its number among the problem's, from 0.
        actions: what the policy said, turn by turn.
        reward, success, feedback: the verdict; None where the environment or verifier failed.
        unparsed: whether no answer could be read. truncated: whether a budget ended the episode.
        tokens: that the policy sampled.
    """

    problem: str
    sample: int
    actions: tuple[str, ...]
    reward: float | None
    success: bool | None
    feedback: str | None
    unparsed: bool
    truncated: bool
    tokens: int


def samples_path(workdir: Path, step: int, name: str) -> Path:
    """Where the samples of a set are."""
    return workdir / "eval" / f"step_{step:06d}" / f"{name}.jsonl"


def read_samples(path: Path) -> tuple[dict[str, Any], dict[str, list[EvalSample]]]:
    """The settings, and the samples by problem, in the order they were written. A line cut short by a kill is left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not one of ours; names file and line.
    """
    settings: dict[str, Any] = {}
    problems: dict[str, list[EvalSample]] = {}
    for _, record in _records(path):
        if isinstance(record, EvalSample):
            problems.setdefault(record.problem, []).append(record)
        else:
            settings = record
    return settings, problems


def without_texts(sample: EvalSample) -> EvalSample:
    """What figures are made of; the texts of a long evaluation are more than memory holds."""
    return dataclasses.replace(sample, actions=("",) * len(sample.actions), feedback=None)


def check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Refuses to go on with a file of other settings. Raises OtherSettings naming those that differ."""
    _, before = next(_records(path), (0, None)) if path.is_file() else (0, None)
    wanted = _as_read(settings)
    if isinstance(before, dict) and before != wanted:
        differ = sorted(name for name in {*before, *wanted} if before.get(name) != wanted.get(name))
        raise OtherSettings(
            f"{path} holds samples of other settings ({', '.join(differ)}): remove it, or write elsewhere"
        )


class OtherSettings(ValueError):
    """A file of samples that is not to be gone on with."""


class SampleFile:
    """Writes samples; goes on with what is there, or starts anew.

    Args:
        path: of the file. settings: everything that its samples depend on, plain data.
        resume: keep the complete problems of a file with the same settings; otherwise the file starts anew.
        whole: samples that make a problem complete.

    Attributes:
        done: the samples of every complete problem, without their texts.

    Raises:
        OtherSettings: to be resumed, but the file is of other settings; names those that differ.
        ValueError: to be resumed, but it is no file of samples.
    """

    def __init__(self, path: Path, settings: dict[str, Any], *, whole: int, resume: bool):
        self.done: dict[str, list[EvalSample]] = {}
        kept = 0
        if resume and path.is_file():
            check_settings(path, settings)
            kept = self._read(path, whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a kill left of the last problem is cut off.
        self._file = path.open("r+b" if kept else "wb")
        self._file.truncate(kept)
        self._file.seek(kept)
        if not kept:
            self._write([{"settings": _as_read(settings)}])

    def _read(self, path: Path, whole: int) -> int:
        """Takes the complete problems; returns where the last of them ends. A problem's lines are beside each other."""
        kept, of_problem = 0, list[EvalSample]()
        for end, record in _records(path):
            if not isinstance(record, EvalSample):
                kept = end
                continue
            if of_problem and of_problem[0].problem != record.problem:
                of_problem = []
            of_problem.append(without_texts(record))
            if len(of_problem) == whole:
                self.done[record.problem], kept = of_problem, end
        return kept

    def add(self, problem: str, samples: Sequence[EvalSample]) -> None:
        """Appends all samples of a problem."""
        self._write([dataclasses.asdict(sample) for sample in samples])
        self.done[problem] = [without_texts(sample) for sample in samples]

    def _write(self, records: Sequence[dict[str, Any]]) -> None:
        # ASCII with escapes: text a policy sampled may hold lone surrogates or line separators of its own.
        self._file.write("".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode("ascii"))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def drop_samples_after(workdir: Path, step: int) -> None:
    """Removes the samples of later steps: a run that goes on from `step` will sample anew."""
    for folder in (workdir / "eval").glob("step_*"):
        name = _STEP.fullmatch(folder.name)
        if name and int(name[1]) > step:
            shutil.rmtree(folder)


def _as_read(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | EvalSample]]:
    """The settings, then every sample, each with where in the file its line ends. Raises as `read_samples` does."""
    if not path.is_file():
        raise FileNotFoundError(f"no samples at {path}")
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # cut short by a kill
            end += len(line)
            try:
                record = json.loads(line)
                made = (
                    dict(record["settings"])
                    if number == 1
                    else EvalSample(**record | {"actions": tuple(record["actions"])})
                )
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number} is not a line of samples: {error!r}") from error
            yield end, made
