"""Plays held-out problems, keeps every sample, and measures scores with their standard errors over problems."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging
from tqdm import tqdm

from hdl_jax.config import eval_sets
from hdl_jax.domains.domain import Domain, Problem
from hdl_jax.eval_store import EvalSample, SampleFile, check_settings, samples_path
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.chat import Chat
from hdl_jax.rollout.accounting import new_tokens
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import complete
from hdl_jax.rollout.trajectory import Trajectory
from hdl_jax.sampling.draw import GREEDY, Stream
from hdl_jax.sampling.engine import Engine
from hdl_jax.sampling.requests import Job
from hdl_jax.statistics import all_of_k, clustered, pass_at_k, powers_of_two

# Whose episodes are open at the same time; more than any engine has lanes for.
PROBLEMS_AT_ONCE = 512


def evaluate(
    engine: Engine, domain: Domain, chat: Chat, config: Any, step: int, workdir: Path, *, resume: bool = False
) -> dict[str, float]:
    """Every set of `eval.sets`, the first `eval.problems` of each, at `eval.temperature`.

    Args:
        step: of the policy. workdir: samples go into its folder `eval`.
        resume: go on with what an evaluation with the same settings left there.

    Returns:
        `measures` of each set, named `eval/SET/...`, and `eval/score`, which checkpoints are ranked by: the mean over
        the sets' scores, with `_se`.

    Raises:
        OtherSettings: samples there are of other settings; before anything is played.
    """
    temperature = config.eval.temperature
    paths = {name: samples_path(workdir, step, name) for name, _ in eval_sets(config)}
    if resume:
        for name, samples in eval_sets(config):
            check_settings(paths[name], _settings(engine, config, step, temperature, samples))
    metrics: dict[str, float] = {}
    for name, samples in eval_sets(config):
        played = play(
            engine, domain, chat, config, step, selected(domain, config, name), samples,
            path=paths[name], temperature=temperature, resume=resume,
        )  # fmt: skip
        metrics |= {f"eval/{name}/{measure}": value for measure, value in measures(played).items()}
    metrics["eval/score"] = float(np.mean([metrics[f"eval/{name}/score"] for name in paths]))
    metrics["eval/score_se"] = math.hypot(*(metrics[f"eval/{name}/score_se"] for name in paths)) / len(paths)
    return metrics


def selected(domain: Domain, config: Any, name: str) -> Sequence[Problem]:
    """The problems of a set that are played: the first `eval.problems`, or all."""
    problems = domain.problems(name)
    return problems[: config.eval.problems] if config.eval.problems else problems


def play(
    engine: Engine,
    domain: Domain,
    chat: Chat,
    config: Any,
    step: int,
    problems: Sequence[Problem],
    samples: int,
    *,
    path: Path,
    temperature: float,
    resume: bool,
) -> list[list[EvalSample]]:
    """Plays `samples` episodes of each problem, and writes those of a problem as soon as they are all there.

    Args:
        path: of the file. temperature: 0 takes the likeliest token, so that one sample says it all.
        resume: play what the file lacks.

    Returns:
        the samples of each problem, without their texts.

    Raises:
        OtherSettings: to be resumed, but the samples there are of other settings.
    """
    settings = _settings(engine, config, step, temperature, samples)
    if settings["samples"] < samples:
        logging.warning("%s: at temperature 0 all samples are the same: 1 is taken, not %d", path.stem, samples)
        samples = settings["samples"]
    ctx = Context(domain, chat, config, step, max(temperature, GREEDY))
    file = SampleFile(path, settings, whole=samples, resume=resume)

    def recorded(problem: Problem) -> Job[None]:
        trajectories = yield from complete(ctx, problem, samples, Stream.EVALUATION, "eval")
        # None at all where its environment could not be opened.
        played = [_sample(problem, i, trajectories[i] if trajectories else None) for i in range(samples)]
        file.add(problem.id, played)

    left = [problem for problem in problems if problem.id not in file.done]
    try:
        with tqdm(total=len(problems), initial=len(problems) - len(left), desc=path.stem, leave=False) as bar:
            for i in range(0, len(left), PROBLEMS_AT_ONCE):
                engine.run([recorded(p) for p in left[i : i + PROBLEMS_AT_ONCE]], step, on_done=bar.update)
    finally:
        file.close()
    return [file.done[problem.id] for problem in problems]


def measures(problems: Sequence[Sequence[EvalSample]]) -> dict[str, float]:
    """What the samples of a set say, the samples of one problem side by side.

    Returns:
        `score` and `success`: means over problems of the mean over their samples (avg@k), with `_se`, over samples that
        have a verdict, which is what papers report; `score_all`: the same with 0 for those that have none; `pass@K`
        and `all@K` of success for K in powers of two, unbiased, with `_se`, over problems with that many verdicts: that
        one of K samples is right, and that all are (known as pass^K); `truncated` and `unparsed`: shares of all
        samples; `problems`, `samples` and `failed`: how many, and how many samples without a verdict; `actions` and
        `tokens`: means of a sample; `tokens_truncated`: of a truncated one, where there are some.
    """
    every = [sample for samples in problems for sample in samples]
    scored = [[sample for sample in samples if sample.reward is not None] for samples in problems]
    right = [sum(bool(sample.success) for sample in samples) for samples in scored]
    out: dict[str, float] = {}
    out["score"], out["score_se"] = clustered(
        [[s.reward for s in samples if s.reward is not None] for samples in scored]
    )
    out["success"], out["success_se"] = clustered([[float(bool(s.success)) for s in samples] for samples in scored])
    out["score_all"] = clustered([[s.reward or 0.0 for s in samples] for samples in problems])[0]
    for k in powers_of_two(max(map(len, scored), default=0)):
        for name, chance in (("pass", pass_at_k), ("all", all_of_k)):
            chances = [[chance(len(s), c, k)] for s, c in zip(scored, right, strict=True) if len(s) >= k]
            out[f"{name}@{k}"], out[f"{name}@{k}_se"] = clustered(chances)
    out["truncated"] = float(np.mean([s.truncated for s in every]))
    out["unparsed"] = float(np.mean([s.unparsed for s in every]))
    out["problems"], out["samples"] = len(problems), len(every)
    out["failed"] = sum(s.reward is None for s in every)
    out["actions"] = float(np.mean([len(s.actions) for s in every]))
    out["tokens"] = float(np.mean([s.tokens for s in every]))
    if any(s.truncated for s in every):
        out["tokens_truncated"] = float(np.mean([s.tokens for s in every if s.truncated]))
    return out


def _sample(problem: Problem, number: int, t: Trajectory | None) -> EvalSample:
    """The record of an episode; of one that could not be opened, None."""
    if t is None:
        return EvalSample(problem.id, number, (), None, None, None, unparsed=False, truncated=False, tokens=0)
    actions, verdict = tuple(turn.action for turn in t.turns), t.verdict
    if verdict is None:
        return EvalSample(problem.id, number, actions, None, None, None, False, t.truncated, new_tokens(t))
    return EvalSample(
        problem.id, number, actions, float(verdict.reward), bool(verdict.success), verdict.feedback,
        verdict.unparsed, t.truncated, new_tokens(t),
    )  # fmt: skip


def _settings(engine: Engine, config: Any, step: int, temperature: float, samples: int) -> dict[str, Any]:
    """Everything that a sample depends on, and how many there are of a problem: at temperature 0 one (case E4)."""
    limits = ("max_prompt_tokens", "max_response_tokens", "max_action_tokens")
    domain = {name: value for name, value in config.domain.to_dict().items() if name not in ("workers", "kept")}
    return {
        "step": step,
        "seed": config.seed,
        "domain": domain,
        "policy": config.policy.to_dict(),
        "weights": _fingerprint(engine.params),
        "rollout": {name: config.rollout[name] for name in limits},
        "temperature": temperature,
        "samples": 1 if temperature == 0 else samples,
    }


@jax.jit
def _corners(params: tr.Params) -> tr.Params:
    return jax.tree.map(lambda leaf: leaf.reshape(-1)[:256], params)


def _fingerprint(params: tr.Params | None) -> str:
    """Tells weights apart that go by the same name, such as those of two runs of one config: a part of each tensor."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(_corners(params))):
        digest.update(leaf.tobytes())
    return digest.hexdigest()[:16]
