"""Checkpoints of a run: the latest and the best by evaluation score, over Orbax's V1 API.

    checkpoints/20/    one directory a step; Orbax writes it under a temporary name and renames it when complete
      state/           the arrays: {params, opt_state, ...}
      metrics/         {"eval score": 0.41}, where the step was evaluated
      _CHECKPOINT_METADATA    `extra`, the JSON side: the config

A kill in mid-save leaves a temporary directory, which is ignored; an old checkpoint is deleted only after a newer one
is complete. A directory that is not complete (a copy that was cut off, say) is set aside with a warning.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint import v1 as ocp

PyTree = Any
SCORE = "eval score"


@dataclasses.dataclass(frozen=True)
class Restored:
    """What came back: the step, the state in the structure that was asked for, and the JSON side."""

    step: int
    state: PyTree
    extra: dict[str, Any]


class _KeepLatestAndBest:
    """Which steps stay: the latest, and the `best` highest scores, the later step where scores tie."""

    def __init__(self, best: int) -> None:
        self.best = best

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        scored = [(c.metrics[SCORE], c.step) for c in checkpoints if c.metrics and SCORE in c.metrics]
        keep = {step for _, step in sorted(scored, reverse=True)[: self.best]}
        keep |= {max((c.step for c in checkpoints), default=-1)}
        return [c.step in keep for c in checkpoints]


class Checkpoints:
    """The checkpoints directory of one run, open for saving. Every process calls it at the same points.

    Args:
        directory: created where missing. A step in it that is not complete is set aside as `30.incomplete`: left
            where it is, it would count as the latest and as a step already saved.
        best: how many of the best-scored checkpoints stay beside the latest.
    """

    def __init__(self, directory: str | os.PathLike[str], best: int = 3) -> None:
        if best < 0:
            raise ValueError(f"best must be 0 or more, got {best}")
        self.directory = Path(directory).absolute()
        self._policy = _KeepLatestAndBest(best)
        for step in _steps(self.directory):
            if reason := _damage(self.directory / str(step)):
                _set_aside(self.directory / str(step), reason)
        self._open()

    def _open(self) -> None:
        self._orbax = ocp.training.Checkpointer(
            self.directory, preservation_policy=self._policy, cleanup_tmp_directories=True
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._orbax.close()

    def steps(self) -> list[int]:
        """Steps on disk, ascending."""
        return [c.step for c in self._orbax.checkpoints]

    def ranking(self) -> list[tuple[int, float]]:
        """(step, score) of the evaluated checkpoints on disk, best first; the later step first where scores tie."""
        scored = [(c.step, c.metrics[SCORE]) for c in self._orbax.checkpoints if c.metrics and SCORE in c.metrics]
        return sorted(scored, key=lambda pair: (pair[1], pair[0]), reverse=True)

    def save(self, step: int, state: PyTree, extra: Mapping[str, Any], score: float | None = None) -> None:
        """Saves one step, then deletes what is neither the latest nor among the best. Returns when it is on disk.

        Args:
            step: the step number; not one already saved.
            state: a pytree of arrays.
            extra: JSON-serialisable side information, such as the config.
            score: the evaluation score of this step, None where it was not evaluated.
        """
        if score is not None and not math.isfinite(score):
            raise ValueError(f"score of step {step} is {score}; checkpoints cannot be ranked by it")
        self._orbax.save(
            step,
            state,
            force=True,
            metrics=None if score is None else {SCORE: float(score)},
            custom_metadata=_plain(extra),
        )

    def restore_latest(self, like: PyTree) -> Restored | None:
        """The newest complete checkpoint, or None where there is none.

        Args:
            like: a pytree of arrays or ShapeDtypeStructs; a struct's sharding is where the array goes, the first
                device where it has none.

        Raises:
            ValueError: a complete checkpoint holds other names or shapes than `like`; all of them are named.
        """
        while (newest := self._orbax.latest) is not None:
            path = self.directory / str(newest.step)
            try:
                return _load(path, newest.step, like)
            except StructureMismatch:
                raise
            except Exception as error:  # damaged arrays show as any of Orbax's, TensorStore's or json's exceptions
                self.close()
                _set_aside(path, str(error))
                self._open()
        return None


class StructureMismatch(ValueError):
    """A complete checkpoint that does not hold the state asked for."""


def load_checkpoint(path: str | os.PathLike[str], like: PyTree) -> Restored:
    """Reads one checkpoint by its path, e.g. `runs/a/checkpoints/20`, changing nothing on disk.

    Args:
        path: the directory of one step.
        like: what to read, as for `Checkpoints.restore_latest`; top-level entries may be left out, e.g. the optimizer.

    Raises:
        FileNotFoundError: there is no checkpoint at the path; the message lists its neighbours.
        ValueError: it holds other names or shapes than `like`.
        OSError: its files are damaged.
    """
    path = Path(path).absolute()
    if not path.name.isdigit() or not (path / "_CHECKPOINT_METADATA").is_file():
        near = path if path.is_dir() else path.parent
        steps = ", ".join(map(str, _steps(near)))
        there = f"{near} has steps {steps}" if steps else f"{near} has none"
        raise FileNotFoundError(f"no checkpoint at {path}; {there}")
    return _load(path, int(path.name), like)


def config_differences(saved: Mapping[str, Any], current: Mapping[str, Any], ignore: Sequence[str] = ()) -> list[str]:
    """Dotted names of the config fields that differ, sorted; a field on one side only differs too.

    Args:
        saved, current: nested configs of JSON's types; a tuple and a list of the same are equal.
        ignore: dotted names of fields, or of whole sections, that do not change the result.
    """

    def flat(node: Any, prefix: str) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            return {prefix: node}
        return {k: v for key in node for k, v in flat(node[key], f"{prefix}.{key}" if prefix else str(key)).items()}

    old, new = flat(_plain(saved), ""), flat(_plain(current), "")
    missing = object()
    names = sorted(name for name in old.keys() | new.keys() if old.get(name, missing) != new.get(name, missing))
    return [name for name in names if not any(name == i or name.startswith(f"{i}.") for i in ignore)]


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """What comes back of `value` after a trip through JSON. Raises TypeError for what JSON has no form for."""
    return json.loads(json.dumps(value))


def saved_scores(directory: str | os.PathLike[str]) -> dict[int, float | None]:
    """The complete checkpoints of a directory and their scores, ascending; changes nothing, so a run may be writing.

    Raises FileNotFoundError where there is no such directory.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"no checkpoints at {directory}: is its parent the --workdir of a run?")
    scores: dict[int, float | None] = {}
    for step in _steps(directory):
        if not _damage(directory / str(step)):
            metrics = directory / str(step) / "metrics" / "metrics"
            scores[step] = json.loads(metrics.read_text()).get(SCORE) if metrics.is_file() else None
    return scores


def find_step(workdir: Path, which: str) -> int:
    """The step that `--step` names: a number, `best` by its score, or `latest`.

    Raises:
        ValueError: it is none of these.
        FileNotFoundError: the run has no such checkpoint.
    """
    if which.isdigit():
        return int(which)
    if which not in ("best", "latest"):
        raise ValueError(f"--step={which}: must be a step number, best or latest")
    scores = saved_scores(workdir / "checkpoints")
    ranked = [(score, step) for step, score in scores.items() if score is not None]
    if which == "best" and ranked:
        return max(ranked)[1]
    if which == "latest" and scores:
        return max(scores)
    raise FileNotFoundError(f"{workdir}/checkpoints holds no {'evaluated ' if which == 'best' else ''}checkpoint")


def _steps(directory: Path) -> list[int]:
    return sorted(int(p.name) for p in directory.glob("*") if p.name.isdigit() and p.is_dir())


def _damage(path: Path) -> str | None:
    """Why the directory of a step is plainly not complete, from its small files alone; None where it looks whole."""
    try:
        if not json.loads((path / "_CHECKPOINT_METADATA").read_text()).get("commit_timestamp_nsecs"):
            return "it was never committed"
        if (path / "metrics").exists():
            json.loads((path / "metrics" / "metrics").read_text())
    except (OSError, ValueError) as error:
        return str(error)
    return None if (path / "state").is_dir() else "it holds no arrays"


def _set_aside(path: Path, reason: str) -> None:
    aside = path.with_name(path.name + ".incomplete")
    logging.warning("checkpoint %s is not complete and is set aside as %s: %s", path, aside.name, reason[:300])
    if jax.process_index() == 0:
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(f"set aside {path}")


def _load(path: Path, step: int, like: PyTree) -> Restored:
    metadata = ocp.metadata(path)
    if metadata.metadata is None:  # Orbax logs a read error here and returns nothing
        raise OSError(f"the arrays of checkpoint {path} cannot be read")
    saved, wanted = _shapes(metadata.metadata), _shapes(like)
    sections = {name[0] for name in wanted}
    problems = [f"missing {'/'.join(name)} {wanted[name]}" for name in wanted if name not in saved]
    problems += [f"unexpected {'/'.join(n)} {saved[n]}" for n in saved if n not in wanted and n[0] in sections]
    problems += [
        f"misshapen {'/'.join(name)}: {saved[name]} saved, {shape} wanted"
        for name, shape in wanted.items()
        if name in saved and saved[name] != shape
    ]
    if problems:
        raise StructureMismatch(f"checkpoint {path} does not fit this run:\n  " + "\n  ".join(problems))
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    with context:
        state = ocp.load(path, jax.tree.map(_abstract, like))
    return Restored(step, state, dict(metadata.custom_metadata or {}))


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    # Without a sharding Orbax would use the one in the file, which names the devices of the machine that wrote it.
    sharding = getattr(leaf, "sharding", None) or SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _shapes(tree: PyTree) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Leaf shapes by path. Orbax stores a namedtuple as a dict of its fields, so only the names are compared."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {tuple(str(_key(k)) for k in path): tuple(leaf.shape) for path, leaf in leaves}


def _key(key: Any) -> Any:
    return next(getattr(key, field) for field in ("key", "name", "idx") if hasattr(key, field))
