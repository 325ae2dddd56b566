"""What a step's groups cost and contain, as flat metrics: pure functions of them (method, "What is counted")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hdl_jax.learn.advantage import zero_variance_fraction
from hdl_jax.rollout.trajectory import Group, Trajectory

Metrics = dict[str, float]


def new_tokens(t: Trajectory) -> int:
    """Tokens the policy sampled for this trajectory itself: those it shares with its root were paid for there."""
    return int(t.trained.sum())


def reused_tokens(t: Trajectory) -> int:
    """Generated tokens of the root that a continuation kept; 0 for a root."""
    return int(t.generated[: t.fork].sum())


def token_counts(groups: Sequence[Group], sampled: int) -> Metrics:
    """Tokens by what they were for.

    Args:
        groups: of the step.
        sampled: every token the engine drew in the step, whatever became of it.

    Returns:
        `rollout/generated_tokens` = sampled; its parts root, reflection, continuation, and discarded (sampled for
        problems or lanes that were dropped); scored tokens, counted once a context; reused prefix tokens; and the
        packed (prefix once) and unpacked lengths an update forwards.
    """
    trajectories = [t for g in groups for t in g.trajectories]
    root = sum(new_tokens(t) for t in trajectories if t.origin is None)
    continuation = sum(new_tokens(t) for t in trajectories if t.origin is not None)
    reflection = sum(len(r.tokens) for g in groups for r in g.reflections)
    passes = {True: 2, False: 1}
    scored = sum(passes[bool(g.reflections)] * int(t.generated.sum()) for g in groups if g.points for t in g.roots)
    return {
        "rollout/generated_tokens": sampled,
        "rollout/generated_tokens/root": root,
        "rollout/generated_tokens/reflection": reflection,
        "rollout/generated_tokens/continuation": continuation,
        "rollout/generated_tokens/discarded": sampled - root - reflection - continuation,
        "rollout/scored_tokens": scored,
        "rollout/reused_prefix_tokens": sum(reused_tokens(t) for t in trajectories),
        "rollout/packed_tokens": sum(len(t.tokens) - (t.fork if t.origin is not None else 0) for t in trajectories),
        "rollout/unpacked_tokens": sum(len(t.tokens) for t in trajectories),
    }


def reward_metrics(groups: Sequence[Group]) -> Metrics:
    """Rewards by kind, group contrast, truncation. Trajectories without a verdict count in none of the means."""
    trajectories = [t for g in groups for t in g.trajectories]
    scored = [t for t in trajectories if t.verdict is not None]
    ids = [g.problem.id for g in groups for _ in g.trajectories]

    def mean(of: Sequence[Trajectory]) -> float:
        return float(np.mean([t.verdict.reward for t in of if t.verdict])) if of else 0.0

    out = {
        "reward/mean": mean(scored),
        "reward/root_mean": mean([t for t in scored if t.origin is None]),
        "reward/success": float(np.mean([bool(t.verdict and t.verdict.success) for t in scored])) if scored else 0.0,
        "group/zero_variance_fraction": zero_variance_fraction(
            [t.verdict.reward if t.verdict else None for t in trajectories], ids
        ),
        "rollout/truncated_fraction": float(np.mean([t.truncated for t in trajectories])),
        "rollout/failed_verifications": len(trajectories) - len(scored),
        "rollout/actions": float(np.mean([len(t.turns) for t in trajectories])),
        "rollout/trajectory_tokens": float(np.mean([int(t.generated.sum()) for t in trajectories])),
    }
    continuations = [t for t in scored if t.origin is not None]
    if continuations:
        out["reward/continuation_mean"] = mean(continuations)
    return out


def branch_metrics(groups: Sequence[Group], classify: Callable[[Trajectory, int], str]) -> Metrics:
    """Where branches start and what was there; empty where nothing branched.

    Args:
        classify: (root, position) -> `filler`, `verb`, `argument` or `end`, the class of the token there.
    """
    points = [(g.roots[p.root], p) for g in groups for p in g.points]
    if not points:
        return {}
    valid = [(root, p) for root, p in points if p.score is not None]
    fractions = [_depth(root, p.position) for root, p in points]
    weights = np.asarray([p.continuations for _, p in points], float)
    kinds = [classify(root, p.position) for root, p in valid]
    expected = sum(p.continuations for _, p in points)
    made = sum(t.origin is not None for g in groups for t in g.trajectories)
    out = {
        "branch/valid_points_per_group": len(valid) / len(groups),
        "branch/roots_without_point": len(points) - len(valid),
        "branch/dropped_continuations": expected - made,
        "branch/position_fraction": float(np.mean(fractions)),
        # Over continuations, not points: the term of the token ratio's arithmetic.
        "branch/fork_fraction": float(np.average(fractions, weights=weights)),
        "branch/score_at_points": float(np.mean([p.score for _, p in valid])) if valid else 0.0,
    }
    for kind in ("filler", "verb", "argument", "end"):
        out[f"branch/share_{kind}"] = kinds.count(kind) / max(len(kinds), 1)
    return out


def _depth(root: Trajectory, position: int) -> float:
    """Share of the root's generated tokens that lie before the position."""
    return float(root.generated[:position].sum() / max(root.generated.sum(), 1))


def reflection_metrics(groups: Sequence[Group]) -> Metrics:
    """How well reflections know the outcome (unparsed ones count against them), and their length."""
    pairs = [(r, t) for g in groups for r, t in zip(g.reflections, g.roots, strict=False)]
    if not pairs:
        return {}
    right = [r.outcome == ("success" if t.verdict and t.verdict.success else "failure") for r, t in pairs]
    return {
        "reflection/outcome_agreement": float(np.mean(right)),
        "reflection/unparsed": sum(r.outcome is None for r, _ in pairs),
        "reflection/truncated": sum(r.truncated for r, _ in pairs),
        "reflection/cut": sum(r.cut for r, _ in pairs),
        "reflection/tokens": float(np.mean([len(r.tokens) for r, _ in pairs])),
    }


def token_ratio(groups: Sequence[Group], group_size: int) -> Metrics:
    """Generated tokens against a GRPO group of the same size and episode length, by HDL's own arithmetic.

    (M + sum over continuations of (1 - fork fraction)) / G + reflection tokens / (G x tokens of an episode). It takes a
    continuation to be as long as its root; what was really generated is beside it.
    """
    if not any(g.points for g in groups):
        return {}
    roots = [t for g in groups for t in g.roots]
    episode = float(np.mean([int(t.generated.sum()) for t in roots]))
    complete = len(roots) / len(groups)
    kept = sum(p.continuations * (1 - _depth(g.roots[p.root], p.position)) for g in groups for p in g.points)
    kept /= len(groups)
    reflections = sum(len(r.tokens) for g in groups for r in g.reflections) / len(groups)
    actual = sum(new_tokens(t) for g in groups for t in g.trajectories) / len(groups) + reflections
    return {
        "cost/root_episode_tokens": episode,
        "cost/predicted_token_ratio": (complete + kept) / group_size + reflections / (group_size * episode),
        "cost/token_ratio": actual / (group_size * episode),
    }
