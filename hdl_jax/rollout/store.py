"""What was sampled, kept for people: a line of JSON a trajectory, its arrays in a compressed file beside it.

    rollouts/step_000010.jsonl   text, reward, feedback, origin, points, reflection; token texts as `pieces`
    rollouts/step_000010.npz     g0/m0/tokens int32 [T], generated bool [T], log_probs float32 [T], scores float32 [T]
                                 (scores: roots of a signal only); g is the group, m the member, roots first

A reader needs no tokenizer: the text of every token is in `pieces`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdl_jax.rollout.trajectory import Group

_NAME = re.compile(r"step_(\d{6,})\.jsonl")
_ARRAYS = ("tokens", "generated", "log_probs")


@dataclasses.dataclass(frozen=True)
class StoredTrajectory:
    """One trajectory as read back.

    Attributes:
        record: the JSON line; see `write_groups` for its fields.
        tokens: int32 [T].
        generated: bool [T].
        log_probs: float32 [T].
        scores: float32 [T] of the localization signal, for a root that was scored; else None.
    """

    record: dict[str, Any]
    tokens: np.ndarray
    generated: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray | None


def write_groups(
    workdir: str | os.PathLike[str],
    step: int,
    groups: Sequence[Group],
    advantages: Sequence[np.ndarray],
    decode: Callable[[Sequence[int]], str],
    share: float = 1.0,
) -> None:
    """Writes the first `share` of a step's groups, at least one; replaces what an interrupted run wrote of the step.

    A line has step, problem, split, group, member, origin, fork, prompt_length, reward, success, feedback, subgoals
    ([name, reached] pairs), advantage, truncated, text (all of it), prompt (its text), pieces (text of every token),
    turns ({start, end, action, observation}); a root of a signal also points ({position, score, continuations}), and
    reflection ({text, outcome, truncated}) where it has one. The verdict's fields are null where the verifier failed.

    Args:
        workdir: the run's directory.
        step: the training step.
        groups: the step's groups.
        advantages: per group, float [members].
        decode: the text of some ids, leading and trailing space kept (the tokenizer's decode, not the chat's).
        share: which share of the groups is kept, from 0 (nothing is written) to 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share of rollouts kept must be between 0 and 1, got {share}")
    kept = math.ceil(share * len(groups))
    if not kept:
        return
    piece = functools.cache(lambda token: decode([token]))
    lines: list[str] = []
    arrays: dict[str, np.ndarray] = {}
    for g, (group, group_advantages) in enumerate(zip(groups[:kept], advantages[:kept], strict=True)):
        root = 0
        for m, (trajectory, advantage) in enumerate(zip(group.trajectories, group_advantages, strict=True)):
            verdict = trajectory.verdict
            record: dict[str, Any] = {
                "step": step,
                "problem": group.problem.id,
                "split": group.problem.split,
                "group": g,
                "member": m,
                "origin": trajectory.origin,
                "fork": int(trajectory.fork),
                "prompt_length": int(trajectory.prompt_length),
                "reward": None if verdict is None else float(verdict.reward),
                "success": None if verdict is None else bool(verdict.success),
                "feedback": None if verdict is None else verdict.feedback,
                "subgoals": None if verdict is None else [list(goal) for goal in verdict.subgoals],
                "advantage": float(advantage) if math.isfinite(advantage) else None,
                "truncated": bool(trajectory.truncated),
                "text": decode(trajectory.tokens.tolist()),
                "prompt": decode(trajectory.tokens[: trajectory.prompt_length].tolist()),
                "turns": [dataclasses.asdict(turn) for turn in trajectory.turns],
                "pieces": [piece(token) for token in trajectory.tokens.tolist()],
            }
            key = f"g{g}/m{m}/"
            arrays[key + "tokens"] = trajectory.tokens.astype(np.int32)
            arrays[key + "generated"] = trajectory.generated.astype(bool)
            arrays[key + "log_probs"] = trajectory.log_probs.astype(np.float32)
            if trajectory.origin is None:
                if group.scores:
                    arrays[key + "scores"] = group.scores[root].astype(np.float32)
                    record["points"] = [
                        {
                            "position": int(point.position),
                            "score": None if point.score is None else float(point.score),
                            "continuations": int(point.continuations),
                        }
                        for point in group.points
                        if point.root == root
                    ]
                if group.reflections:
                    reflection = group.reflections[root]
                    record["reflection"] = {
                        "text": reflection.text,
                        "outcome": reflection.outcome,
                        "truncated": bool(reflection.truncated),
                    }
                root += 1
            # ASCII with escapes: text a policy sampled may hold lone surrogates or line separators of its own.
            lines.append(json.dumps(record, allow_nan=False))
    text_path, array_path = _paths(workdir, step)
    text_path.parent.mkdir(parents=True, exist_ok=True)
    # The line file last: a step counts as stored when it is there, and its arrays then are too.
    partial = array_path.with_name(array_path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    partial.replace(array_path)
    partial = text_path.with_name(text_path.name + ".partial")
    partial.write_text("\n".join(lines) + "\n", encoding="ascii")
    partial.replace(text_path)


def stored_steps(workdir: str | os.PathLike[str]) -> list[int]:
    """The steps whose rollouts are stored, ascending."""
    names = (_NAME.fullmatch(path.name) for path in (Path(workdir) / "rollouts").glob("step_*.jsonl"))
    return sorted(int(name[1]) for name in names if name)


def drop_after(workdir: str | os.PathLike[str], step: int) -> None:
    """Removes what is stored of later steps: a run that goes on from `step` will write them anew."""
    for later in stored_steps(workdir):
        if later > step:
            for path in _paths(workdir, later):
                path.unlink(missing_ok=True)


def read_groups(workdir: str | os.PathLike[str], step: int) -> list[list[StoredTrajectory]]:
    """Reads one step's groups back, each a list of its members in order.

    Raises:
        FileNotFoundError: the step is not stored; the message says which are.
        ValueError: a line is not JSON, or an array is missing; the message names file and line.
    """
    text_path, array_path = _paths(workdir, step)
    if not text_path.is_file():
        there = ", ".join(map(str, stored_steps(workdir))) or "none"
        raise FileNotFoundError(f"no rollouts of step {step} at {text_path}; stored steps: {there}")
    groups: dict[int, list[StoredTrajectory]] = {}
    with np.load(array_path, allow_pickle=False) as arrays:
        for number, record in _records(text_path):
            key = f"g{record['group']}/m{record['member']}/"
            missing = [key + name for name in _ARRAYS if key + name not in arrays]
            if missing:
                raise ValueError(f"{array_path} lacks {', '.join(missing)} of {text_path}:{number}")
            tokens, generated, log_probs = (arrays[key + name] for name in _ARRAYS)
            scores = arrays[key + "scores"] if key + "scores" in arrays else None
            stored = StoredTrajectory(record, tokens, generated, log_probs, scores)
            groups.setdefault(record["group"], []).append(stored)
    return [groups[g] for g in sorted(groups)]


def _records(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number} is not a line of JSON: {error}") from error


def _paths(workdir: str | os.PathLike[str], step: int) -> tuple[Path, Path]:
    stem = Path(workdir) / "rollouts" / f"step_{step:06d}"
    return stem.with_suffix(".jsonl"), stem.with_suffix(".npz")
