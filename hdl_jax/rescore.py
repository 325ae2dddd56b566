"""Judges stored samples again: the actions are played as they were said, no policy is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hdl_jax import setup_run
from hdl_jax.domains.domain import Domain, EnvironmentFailure, Problem
from hdl_jax.eval_store import EvalSample, read_samples
from hdl_jax.evaluation import measures
from hdl_jax.metrics import table


def judged_again(domain: Domain, problem: Problem, sample: EvalSample) -> EvalSample:
    """The sample with a fresh verdict; none where the environment or verifier fails twice."""
    if not sample.actions:
        return sample  # its environment could not be opened, so nothing was said
    for _ in range(2):
        try:
            episode = domain.start(problem)
            for action in sample.actions:
                episode.step(action)
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
    """Writes SET.rescored.jsonl beside each file, and returns a table of the scores before and after.

    Args:
        paths: files of samples, named SET.jsonl. config_of: the config that a file was sampled with.

    Raises:
        FileNotFoundError: a file, or its config, is not there.
        ValueError: a file is none of samples, or has problems that the domain has not.
    """
    rows = []
    for path in paths:
        settings, before = read_samples(path)
        config = config_of(path)
        domain = setup_run.make_domain(config)
        known = {problem.id: problem for problem in domain.problems(path.stem)}
        strange = [id for id in before if id not in known]
        if strange:
            raise ValueError(f"{path}: {domain.name}/{path.stem} has no problem {strange[0]}")
        flat = [sample for samples in before.values() for sample in samples]
        with ThreadPoolExecutor(config.engine.workers) as threads:
            again = threads.map(judged_again, [domain] * len(flat), [known[s.problem] for s in flat], flat)
            judged = list(tqdm(again, desc=f"rescore {path.stem}", total=len(flat), leave=False))
        after: dict[str, list[EvalSample]] = {}
        for sample in judged:
            after.setdefault(sample.problem, []).append(sample)
        lines = [json.dumps({"settings": settings})] + [json.dumps(dataclasses.asdict(s)) for s in judged]
        path.with_suffix(".rescored.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")
        old, new = measures(list(before.values())), measures(list(after.values()))
        changed = sum(a.reward != b.reward for a, b in zip(flat, judged, strict=True))
        rows.append([
            path.stem, str(len(flat)), f"{old['score']:.3f}", f"{new['score']:.3f}", str(changed),
            f"{old['failed']:.0f}", f"{new['failed']:.0f}",
        ])  # fmt: skip
    return table(["set", "samples", "score", "now", "changed", "failed", "now"], rows)
