"""Judges stored samples again: the actions are played as they were said, no policy is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hdl_jax import setup_run
from hdl_jax.domains.domain import Domain, EnvironmentFailure, Problem
from hdl_jax.eval_store import EvalSample, read_samples
from hdl_jax.evaluation import measures
from hdl_jax.metrics import table

SHOWN = 10  # of the samples of a set that were judged otherwise
Samples = dict[str, list[EvalSample]]


def judged_again(domain: Domain, problem: Problem, sample: EvalSample) -> EvalSample:
    """The sample with a fresh verdict; none where the environment or verifier fails twice.

    An episode that the environment had broken off stays without a verdict: what would have followed was never said.
    """
    for _ in range(2):
        done = sample.truncated
        try:
            episode = domain.start(problem)
            for action in sample.actions:
                done |= episode.step(action).done
            if not done:
                break
            verdict = episode.verdict()
        except EnvironmentFailure:
            continue
        return dataclasses.replace(
            sample,
            reward=float(verdict.reward),
            success=bool(verdict.success),
            feedback=verdict.feedback,
            unparsed=verdict.unparsed,
        )
    return dataclasses.replace(sample, reward=None, success=None, feedback=None, unparsed=False)


def rescore(paths: Sequence[Path], config_of: Callable[[Path], Any]) -> str:
    """Writes SET.rescored.jsonl beside each file. Returns a table of the scores before and after, and what changed.

    Args:
        paths: files of samples, named SET.jsonl. config_of: the config that a file was sampled with.

    Raises:
        FileNotFoundError: a file, or its config, is not there.
        ValueError: a file is none of samples, or has problems that the domain has not.
    """
    opened = [_opened(path, config_of(path)) for path in paths]
    rows, notes = [], []
    for path, (settings, before, domain, known, workers) in zip(paths, opened, strict=True):
        flat = [sample for samples in before.values() for sample in samples]
        with ThreadPoolExecutor(workers) as threads:
            again = threads.map(judged_again, [domain] * len(flat), [known[s.problem] for s in flat], flat)
            judged = list(tqdm(again, desc=f"rescore {path.stem}", total=len(flat), leave=False))
        after: Samples = {}
        for sample in judged:
            after.setdefault(sample.problem, []).append(sample)
        lines = [json.dumps({"settings": settings})] + [json.dumps(dataclasses.asdict(s)) for s in judged]
        path.with_suffix(".rescored.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")
        old, new = measures(list(before.values())), measures(list(after.values()))
        changed = [(a, b) for a, b in zip(flat, judged, strict=True) if a.reward != b.reward]
        rows.append([
            path.stem, str(len(flat)), _score(old), _score(new), str(len(changed)),
            f"{old['failed']:.0f}", f"{new['failed']:.0f}",
        ])  # fmt: skip
        notes += [f"{a.problem}, sample {a.sample}: {_reward(a)} -> {_reward(b)}" for a, b in changed[:SHOWN]]
        notes += [f"and {len(changed) - SHOWN} more of {path.stem}"] * (len(changed) > SHOWN)
    shown = table(["set", "samples", "score", "now", "changed", "failed", "now"], rows)
    return "\n".join([shown, *([""] if notes else []), *notes])


def _opened(path: Path, config: Any) -> tuple[dict[str, Any], Samples, Domain, dict[str, Problem], int]:
    """Settings and samples of a file, the domain and its problems, and the threads for environments and verifiers."""
    settings, samples = read_samples(path)
    domain = setup_run.make_domain(config)
    known = {problem.id: problem for problem in domain.problems(path.stem)}
    strange = [id for id in samples if id not in known]
    if strange or not samples:
        lacks = f"{domain.name}/{path.stem} has no problem {strange[0]}" if strange else "it has no samples"
        raise ValueError(f"{path}: {lacks}")
    return settings, samples, domain, known, config.engine.workers


def _score(measured: Mapping[str, float]) -> str:
    return f"{measured['score']:.3f} +- {measured['score_se']:.3f}"


def _reward(sample: EvalSample) -> str:
    return "no verdict" if sample.reward is None else f"{sample.reward:g}"
