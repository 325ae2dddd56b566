"""Two policies over the same problems: stored samples, paired problem by problem (statistics.paired_bootstrap)."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdl_jax.compare_runs import BASELINE, Run
from hdl_jax.eval_store import EvalSample, read_samples
from hdl_jax.report import flat_config
from hdl_jax.statistics import paired_bootstrap

Record = dict[str, Any]


class NotPaired(ValueError):
    """Two files of samples that are not of the same problems."""


@dataclasses.dataclass(frozen=True)
class Side:
    """A file of samples: whose it is, what it was sampled with, and its samples by problem."""

    label: str
    settings: dict[str, Any]
    problems: dict[str, list[EvalSample]]

    def rewards(self, problem: str) -> list[float]:
        """Of the samples that have a verdict."""
        return [sample.reward for sample in self.problems[problem] if sample.reward is not None]


def stored_sets(folder: Path) -> dict[str, Path]:
    """The files of one evaluation, by set."""
    return {path.stem: path for path in sorted(folder.glob("*.jsonl"))}


def stored_steps(workdir: Path) -> dict[int, Path]:
    """The folders of samples under `eval`, by step, in order."""
    folders = (path for path in (workdir / "eval").glob("step_*") if path.name[5:].isdecimal())
    return dict(sorted((int(path.name[5:]), path) for path in folders))


def is_evaluation(folder: Path) -> bool:
    """Whether a folder holds samples, and is no run."""
    return not (folder / "config.json").exists() and bool(stored_sets(folder) or stored_steps(folder))


def evaluation_folder(folder: Path) -> Path:
    """Where the samples are: the folder itself, or the one evaluation under its `eval`. Raises ValueError: several."""
    steps = stored_steps(folder)
    if stored_sets(folder):
        return folder
    if len(steps) > 1:
        raise ValueError(
            f"{folder} holds evaluations of several steps; name one: {', '.join(map(str, steps.values()))}"
        )
    return next(iter(steps.values()))


def pair_evaluations(first: Path, second: Path) -> tuple[list[Record], list[str]]:
    """The sets that two evaluations both have, the first against the second; and notes.

    Raises:
        ValueError: they have no set in common, a set is not of the same problems, or a file is not one of samples.
    """
    files = [stored_sets(evaluation_folder(folder)) for folder in (first, second)]
    shared = [name for name in files[0] if name in files[1]]
    if not shared:
        raise ValueError(f"no set in common: {first} has {', '.join(files[0])}; {second} has {', '.join(files[1])}")
    records, notes = [], []
    for name in shared:
        sides = _side(str(first), files[0][name]), _side(str(second), files[1][name])
        record, found = _pair(name, [sides])
        records.append({"runs": str(first), "against": str(second), "set": name, **record})
        notes += found
    alone = sorted(files[0].keys() ^ files[1].keys())
    if alone:
        notes.append(f"Only one of the two has {', '.join(alone)}.")
    return records, notes


def pair_groups(groups: dict[str, list[Run]]) -> tuple[list[Record], list[str]]:
    """Every group against the baseline, or the first group without one; a record a set, and notes on what is missing.

    The runs of a seed are paired at the last step of which all of them have samples; the means of a problem are pooled
    over seeds.

    Raises:
        ValueError: a file is not one of samples.
    """
    base = BASELINE if BASELINE in groups else next(iter(groups))
    records: list[Record] = []
    notes: list[str] = []
    for label in groups:
        if label != base:
            found, why = _pair_runs(label, groups[label], base, groups[base])
            records += found
            notes += why
    return records, notes


def _pair_runs(label: str, runs: Sequence[Run], base: str, bases: Sequence[Run]) -> tuple[list[Record], list[str]]:
    pairs = [(run, other) for run in runs for other in bases if str(run.seed) == str(other.seed)]
    if not pairs:
        return [], [f"{label} and {base} are not paired over problems: they have no seed in common."]
    stored = [(_by_set(run), _by_set(other)) for run, other in pairs]
    records: list[Record] = []
    notes: list[str] = []
    for name in sorted({name for run, other in stored for name in run.keys() & other.keys()}):
        both = [i for i, (run, other) in enumerate(stored) if name in run and name in other]
        steps = set.intersection(*(stored[i][0][name].keys() & stored[i][1][name].keys() for i in both))
        if not steps:
            notes.append(f"{label} and {base} are not paired over {name}: no step has samples of all of them.")
            continue
        step = max(steps)
        sides = [
            (_side(pairs[i][0].name, stored[i][0][name][step]), _side(pairs[i][1].name, stored[i][1][name][step]))
            for i in both
        ]
        try:
            record, found = _pair(name, sides)
        except NotPaired as error:
            notes.append(f"{label} and {base} are not paired over {name}: at step {step}, {error}.")
            continue
        head = {"runs": label, "against": base, "set": name, "step": step, "seeds": len(both)}
        records.append({**head, **record})
        notes += found
    if not records and not notes:
        notes.append(
            f"{label} and {base} are not paired over problems: no samples of the same set and seed are stored."
        )
    return records, notes


def _by_set(run: Run) -> dict[str, dict[int, Path]]:
    """The files of samples of a run, by set and step."""
    files: dict[str, dict[int, Path]] = {}
    for step, folder in stored_steps(run.workdir).items():
        for name, path in stored_sets(folder).items():
            files.setdefault(name, {})[step] = path
    return files


def _side(label: str, path: Path) -> Side:
    return Side(label, *read_samples(path))


def _pair(name: str, pairs: Sequence[tuple[Side, Side]]) -> tuple[Record, list[str]]:
    """Pairs the problems of a set, pooled over the pairs. Raises NotPaired where two sides have other problems."""
    sides = [side for pair in pairs for side in pair]
    for side in sides[1:]:
        _same_problems(name, sides[0], side)
    a: list[list[float]] = []
    b: list[list[float]] = []
    for problem in sides[0].problems:
        # A seed in which one side of a problem has no verdict would count on the other side alone.
        scored = [(x, y) for one, other in pairs if (x := one.rewards(problem)) and (y := other.rewards(problem))]
        a.append([statistics.fmean(x) for x, _ in scored])
        b.append([statistics.fmean(y) for _, y in scored])
    differ = sorted({field for one, other in pairs for field in _other_settings(one, other)})
    notes = [f"{name} was sampled with other {', '.join(differ)} on the two sides."] if differ else []
    return dataclasses.asdict(paired_bootstrap(a, b)), notes


def _same_problems(name: str, one: Side, other: Side) -> None:
    ids = one.problems.keys(), other.problems.keys()
    if ids[0] != ids[1]:
        alone = [sorted(mine - theirs) for mine, theirs in (ids, ids[::-1])]
        parts = [
            f"{len(lacking)} of {len(mine)} in {side.label} alone" + (f" (such as {lacking[0]})" if lacking else "")
            for side, mine, lacking in zip((one, other), ids, alone, strict=True)
        ]
        raise NotPaired(f"{name} has other problems: {', '.join(parts)}")
    for problem, samples in one.problems.items():
        if len(samples) != len(other.problems[problem]):
            raise NotPaired(
                f"{name} has {len(samples)} samples of {problem} in {one.label} and "
                f"{len(other.problems[problem])} in {other.label}"
            )


def _other_settings(one: Side, other: Side) -> list[str]:
    """The settings of the domain, the limits and the temperature in which two sides differ: not policy, step, seed."""
    flat = [
        flat_config({part: side.settings.get(part) for part in ("domain", "rollout", "temperature")})
        for side in (one, other)
    ]
    return [name for name in flat[0].keys() | flat[1].keys() if _text(flat[0], name) != _text(flat[1], name)]


def _text(settings: dict[str, Any], name: str) -> str:
    return json.dumps(settings.get(name), sort_keys=True)
