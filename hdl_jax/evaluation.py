"""Plays held-out problems and measures the score, with the standard error that clustered episodes have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from hdl_jax.domains.domain import Domain
from hdl_jax.policy.chat import Chat
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import complete
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.engine import Engine


def clustered(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean over problems of their mean, and its standard error over problems (Miller 2024, arXiv 2411.00640).

    Episodes of one problem are not independent evidence; problems are (case E3). The error of one problem is NaN.
    """
    means = np.asarray([np.mean(v) for v in values if len(v)])
    if not len(means):
        return math.nan, math.nan
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.nan


def evaluate(engine: Engine, domain: Domain, chat: Chat, config: Any, step: int) -> dict[str, float]:
    """Score and success of `eval.variations` problems of `eval.split`, `eval.episodes` each, at `eval.temperature`.

    Returns:
        `eval/SPLIT/score`, `/success` and their `_se`, `/actions`, and `/failed`: episodes whose environment or
        verifier failed, which are in no mean.
    """
    cfg = config.eval
    problems = domain.problems(cfg.split)
    if cfg.variations > len(problems):
        raise ValueError(
            f"eval.variations={cfg.variations}, but {domain.name}/{cfg.split} has {len(problems)} problems"
        )
    ctx = Context(domain, chat, config, step, cfg.temperature)
    with tqdm(total=cfg.variations, desc=f"evaluate {cfg.split}", unit="problem", leave=False) as bar:
        jobs = [complete(ctx, p, cfg.episodes, Stream.EVALUATION, "eval") for p in problems[: cfg.variations]]
        played = engine.run(jobs, step, on_done=bar.update)
    verdicts = [[t.verdict for t in episodes if t.verdict] for episodes in played]
    score, score_se = clustered([[v.reward for v in vs] for vs in verdicts])
    success, success_se = clustered([[float(v.success) for v in vs] for vs in verdicts])
    prefix = f"eval/{cfg.split}"
    return {
        f"{prefix}/score": score,
        f"{prefix}/score_se": score_se,
        f"{prefix}/success": success,
        f"{prefix}/success_se": success_se,
        f"{prefix}/actions": float(np.mean([len(t.turns) for episodes in played for t in episodes])),
        f"{prefix}/failed": cfg.variations * cfg.episodes - sum(map(len, verdicts)),
    }
