"""How good is a signal? Monte-Carlo estimates of what a token decided, and how well each signal ranks them by that.

The value of a prefix is the mean reward of continuations from it; a token's consequence is |V(y_<=i) - V(y_<i)|. A
token counts as consequential where that exceeds two of its standard errors, as one in twenty does by chance alone. A
signal's AUC is the chance that it scores a consequential token of a root above another token of that root (0.5 for one
that knows nothing). All signals are asked about the same roots, so the kinds of tokens they would branch at can be
compared too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from hdl_jax.domains.domain import Domain, Problem
from hdl_jax.localize import SIGNALS
from hdl_jax.localize.select import choose
from hdl_jax.policy.chat import Chat
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.play import Forks, branches, complete
from hdl_jax.rollout.tokenclass import classifier
from hdl_jax.rollout.trajectory import BranchPoint, Trajectory
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.engine import Engine
from hdl_jax.sampling.requests import Held, Job, Release

# Standard errors by which V(after) and V(before) must differ for a token to count as consequential.
SIGNIFICANT = 2.0
BOOTSTRAPS = 200


@dataclasses.dataclass(frozen=True)
class RootEstimate:
    """One root's sampled positions.

    Attributes:
        consequence: float [P], |V(after) - V(before)|. error: float [P], its standard error.
        scores: signal name -> float [P].
        kinds: signal name -> class of the token at each point the signal would branch at.
    """

    consequence: np.ndarray
    error: np.ndarray
    scores: dict[str, np.ndarray]
    kinds: dict[str, list[str]]

    @property
    def consequential(self) -> np.ndarray:
        return self.consequence > SIGNIFICANT * self.error


def pair_auc(estimates: Sequence[RootEstimate], signal: str) -> tuple[float, int]:
    """AUC over pairs of a consequential and another token of one root; ties count half.

    Returns:
        the AUC, NaN without any pair, and the number of pairs.
    """
    won, pairs = 0.0, 0
    for e in estimates:
        score, high = e.scores[signal], e.consequential
        difference = score[high][:, None] - score[~high][None, :]
        won += float((difference > 0).sum() + 0.5 * (difference == 0).sum())
        pairs += difference.size
    return (won / pairs if pairs else float("nan")), pairs


def _next_generated(root: Trajectory, position: int) -> int | None:
    later = np.flatnonzero(root.generated[position + 1 :])
    return position + 1 + int(later[0]) if len(later) else None


def estimate(ctx: Context, problem: Problem, positions: int, samples: int) -> Job[list[RootEstimate]]:
    """Estimates every root of one problem; roots as HDL plays them, `positions` uniform generated tokens each."""
    m = ctx.config.branch.roots
    roots = yield from complete(ctx, problem, m, Stream.ORACLE_ROOT, "oracle")
    if not roots or any(root.verdict is None for root in roots):
        return []
    branch, classify = ctx.config.branch, classifier(ctx.domain, ctx.chat)
    scores, kinds = {}, {}
    prefixes: list[Held] = []
    for name, signal in SIGNALS.items():
        if prefixes:
            yield [Release(held) for held in prefixes]
        found = yield from signal(ctx, problem, roots)
        scores[name], prefixes = found.scores, found.prefixes
        points = choose(
            problem.id, roots, found.scores, points=branch.points_per_root, spacing=branch.min_spacing,
            continuations=branch.continuations, capacity=ctx.max_tokens,
        )  # fmt: skip
        kinds[name] = [
            [classify(root, p.position) for p in of_root if p.score is not None]
            for root, of_root in zip(roots, points, strict=True)
        ]
    chosen, forks = [], []
    for i, root in enumerate(roots):
        # One more word than the Uniform signal's seed, whose draws must not choose the positions it is judged at.
        rng = np.random.default_rng([ctx.config.seed, ctx.step, problem.index, i, Stream.ORACLE_ROOT])
        eligible = np.flatnonzero(root.generated)
        chosen.append(np.sort(rng.choice(eligible, min(positions, len(eligible)), replace=False)))
        wanted = {int(p) for p in chosen[-1]} | {n for p in chosen[-1] if (n := _next_generated(root, p)) is not None}
        forks.append(Forks(root, i, prefixes[i], [BranchPoint(i, p, None, samples) for p in sorted(wanted)]))
    played = yield from branches(ctx, problem, forks, Stream.ORACLE_CONTINUATION, "oracle")
    rewards: dict[tuple[int, int], list[float]] = {}
    for t in played:
        if t.verdict is not None and t.origin is not None:
            rewards.setdefault((t.origin, t.fork), []).append(t.verdict.reward)

    def value(i: int, fork: int | None) -> tuple[float, float]:
        """Mean reward from a fork and the variance of that mean; the end of a root is worth its own reward."""
        if fork is None:
            verdict = roots[i].verdict
            assert verdict is not None
            return verdict.reward, 0.0
        r = rewards.get((i, fork), [])
        return (float(np.mean(r)), float(np.var(r, ddof=1) / len(r))) if len(r) > 1 else (float("nan"), 0.0)

    out = []
    for i, root in enumerate(roots):
        pairs = [(value(i, int(p)), value(i, _next_generated(root, int(p)))) for p in chosen[i]]
        consequence = np.asarray([abs(after - before) for (before, _), (after, _) in pairs])
        error = np.sqrt([v + w for (_, v), (_, w) in pairs])
        known = np.isfinite(consequence)
        at_chosen = {s: scores[s][i][chosen[i][known]] for s in scores}
        out.append(RootEstimate(consequence[known], error[known], at_chosen, {s: kinds[s][i] for s in kinds}))
    return out


def measure(engine: Engine, domain: Domain, chat: Chat, config: Any, step: int) -> dict[str, float]:
    """`localize/oracle_auc/SIGNAL` of the engine's policy, and what it rests on; on the first of `eval.sets`.

    Each with `_se`, by bootstrap over roots. Also `localize/share_KIND/SIGNAL`, the kinds of tokens it would branch at;
    `localize/oracle_pairs`; `localize/oracle_consequential`, the share of the sampled tokens that are; and
    `localize/oracle_consequence`, the mean |V(after) - V(before)|.
    """
    cfg = config.oracle
    ctx = Context(domain, chat, config, step, config.rollout.temperature)
    split = str(config.eval.sets[0]).partition("@")[0]
    problems = domain.problems(split)[: cfg.problems]
    with tqdm(total=len(problems), desc="oracle", unit="problem", leave=False) as bar:
        found = engine.run([estimate(ctx, p, cfg.positions, cfg.samples) for p in problems], step, on_done=bar.update)
    estimates = [e for of_problem in found for e in of_problem]
    if not estimates:
        return {}
    out: dict[str, float] = {}
    rng = np.random.default_rng([config.seed, step])
    for signal in SIGNALS:
        out[f"localize/oracle_auc/{signal}"], pairs = pair_auc(estimates, signal)
        resampled = [
            pair_auc([estimates[j] for j in rng.integers(len(estimates), size=len(estimates))], signal)[0]
            for _ in range(BOOTSTRAPS)
        ]
        known = [auc for auc in resampled if np.isfinite(auc)]
        out[f"localize/oracle_auc/{signal}_se"] = float(np.std(known)) if known else float("nan")
        branched = [kind for e in estimates for kind in e.kinds[signal]]
        for kind in ("filler", "verb", "argument", "end"):
            out[f"localize/share_{kind}/{signal}"] = branched.count(kind) / max(len(branched), 1)
    return {
        **out,
        "localize/oracle_pairs": pairs,
        "localize/oracle_consequential": float(np.mean(np.concatenate([e.consequential for e in estimates]))),
        "localize/oracle_consequence": float(np.mean(np.concatenate([e.consequence for e in estimates]))),
    }
