"""Hindsight divergence: reflect on the verifier's record, re-score the root with and without it (method steps 3, 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hdl_jax.domains.domain import Problem
from hdl_jax.localize.localization import Localization, original_pass
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.trajectory import Reflection, Trajectory
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Job, Lane, Sample, Score

# A line that is nothing but the field, in any case, with Markdown emphasis allowed around its parts.
OUTCOME = re.compile(r"^[\s*_#>-]*outcome[\s*_]*:[\s*_]*(success|failure)[\s*_.]*$", re.IGNORECASE | re.MULTILINE)
OUTCOME_LINE = re.compile(r"^[\s*_#>-]*outcome[\s*_]*:", re.IGNORECASE | re.MULTILINE)


def parse_outcome(text: str) -> str | None:
    """The reflection's OUTCOME label, `success` or `failure`; None if it is missing, hedged or contradicts itself."""
    labels = [m.group(1).lower() for m in OUTCOME.finditer(text)]
    if not labels or len(labels) != len(OUTCOME_LINE.findall(text)) or len(set(labels)) > 1:
        return None
    return labels[0]


def reflect(ctx: Context, problem: Problem, roots: Sequence[Trajectory]) -> Job[list[Reflection]]:
    """The policy's reflection on each root, from a fresh prompt; temperature 1.0, never trained (method step 3)."""
    cfg = ctx.config.reflection
    opening = ctx.domain.start(problem).opening()
    requests = []
    for i, root in enumerate(roots):
        assert root.verdict is not None
        turns = [(t.action, t.observation) for t in root.turns]
        prompt = np.asarray(ctx.chat.reflection_prompt(opening, turns, root.verdict.feedback), np.int32)
        path = (Stream.REFLECTION, problem.index, i, len(prompt), 0, 0)
        lane = Lane(path, len(prompt), cfg.max_tokens, cfg.temperature, ctx.chat.stop_ids)
        requests.append(Sample(prompt, (lane,), "reflect"))
    results = yield list(requests)
    reflections = []
    for (lane,) in results:
        text = ctx.chat.decode(lane.tokens[: -1 if lane.stopped else None].tolist())
        reflections.append(Reflection(text, lane.tokens, parse_outcome(text), truncated=not lane.stopped))
    return reflections


def divergence(original: np.ndarray, hindsight: np.ndarray, generated: np.ndarray) -> np.ndarray:
    """s_i = |log pi_old(y_i | x, h, y_<i) - log pi_old(y_i | x, y_<i)| on generated tokens, 0 elsewhere.

    Args:
        original, hindsight: float32 [T], log-probabilities of the same recorded tokens. generated: bool [T].
    """
    return np.where(generated, np.abs(hindsight - original), 0).astype(np.float32)


def hindsight(ctx: Context, problem: Problem, roots: Sequence[Trajectory]) -> Job[Localization]:
    """Scores every root by hindsight divergence; both passes run the same compiled program."""
    reflections = yield from reflect(ctx, problem, roots)
    opening = ctx.domain.start(problem).opening()
    prompts, passes = [], []
    for root, reflection in zip(roots, reflections, strict=True):
        assert root.verdict is not None
        h = ctx.chat.hindsight(root.verdict.feedback, reflection.text)
        prompts.append(ctx.chat.prompt(opening, hindsight=h))
        tokens = np.concatenate([np.asarray(prompts[-1], np.int32), root.tokens[root.prompt_length :]])
        passes.append(Score(tokens, "score", temperature=ctx.temperature))
    informed = yield list(passes)
    original, prefixes = yield from original_pass(ctx, roots)
    scores = []
    for root, prompt, told, plain in zip(roots, prompts, informed, original, strict=True):
        # The response starts after a longer prompt there; the prompt's own entries are never scored.
        aligned = np.concatenate([plain.log_probs[: root.prompt_length], told.log_probs[len(prompt) :]])
        scores.append(divergence(plain.log_probs, aligned, root.generated))
    return Localization(scores, prefixes, reflections)
