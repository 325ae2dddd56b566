"""Samples of an evaluation, kept for people and for scoring them again: JSON lines, WORKDIR/eval/step_NNNNNN/SET.jsonl.

The first line has the settings, {"settings": {...}}; every other line is a sample. The samples of a problem are written
together, as soon as all are there, so that an evaluation that was killed goes on with the problems it lacks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Sequence
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
    if not path.is_file():
        raise FileNotFoundError(f"no samples at {path}")
    *lines, _cut = path.read_text(encoding="ascii").split("\n")
    settings: dict[str, Any] = {}
    problems: dict[str, list[EvalSample]] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if number == 1:
                settings = dict(record["settings"])
                continue
            sample = EvalSample(**{**record, "actions": tuple(record["actions"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is not a line of samples: {error!r}") from error
        problems.setdefault(sample.problem, []).append(sample)
    return settings, problems


class SampleFile:
    """Writes samples; goes on with what is there, or starts anew.

    Args:
        path: of the file. settings: everything that its samples depend on, plain data.
        resume: keep the complete problems of a file with the same settings; otherwise the file starts anew.
        whole: samples that make a problem complete.

    Raises:
        ValueError: to be resumed, but the file is of other settings; names those that differ.
    """

    def __init__(self, path: Path, settings: dict[str, Any], *, whole: int, resume: bool):
        self.done: dict[str, list[EvalSample]] = {}
        settings = json.loads(json.dumps(settings))  # as they will be read back
        if resume and path.is_file():
            before, problems = read_samples(path)
            differ = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            if before and differ:
                raise ValueError(
                    f"{path} holds samples of other settings ({', '.join(differ)}): remove it, or write elsewhere"
                )
            self.done = {id: samples for id, samples in problems.items() if len(samples) == whole}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"settings": settings}), *(_line(s) for samples in self.done.values() for s in samples)]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(line + "\n" for line in lines), encoding="ascii")
        partial.replace(path)
        self._file = path.open("a", encoding="ascii")

    def add(self, problem: str, samples: Sequence[EvalSample]) -> None:
        """Appends all samples of a problem."""
        self._file.write("".join(_line(sample) + "\n" for sample in samples))
        self._file.flush()
        self.done[problem] = list(samples)

    def close(self) -> None:
        self._file.close()


def drop_samples_after(workdir: Path, step: int) -> None:
    """Removes the samples of later steps: a run that goes on from `step` will sample anew."""
    for folder in (workdir / "eval").glob("step_*"):
        name = _STEP.fullmatch(folder.name)
        if name and int(name[1]) > step:
            shutil.rmtree(folder)


def _line(sample: EvalSample) -> str:
    # ASCII with escapes: text a policy sampled may hold lone surrogates or line separators of its own.
    return json.dumps(dataclasses.asdict(sample), allow_nan=False)
