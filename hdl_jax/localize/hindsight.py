"""Hindsight divergence: reflect on the verifier's record, re-score the root with and without it (method steps 3, 4)."""

from __future__ import annotations

import dataclasses
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


def reflection_prompt(ctx: Context, opening: str, root: Trajectory) -> tuple[list[int], bool]:
    """The prompt that asks for a reflection, and whether the attempt had to be shortened.

    Where the whole attempt does not fit `engine.context_tokens`, its earliest turns are left out: text that is rendered
    anew can take more tokens than the ids it was sampled as.
    """
    assert root.verdict is not None
    turns = [(t.action, t.observation) for t in root.turns]
    limit = ctx.config.engine.context_tokens
    for first in range(len(turns) + 1):
        ids = ctx.chat.reflection_prompt(opening, turns[first:], root.verdict.feedback)
        if len(ids) <= limit:
            return ids, first > 0
    raise ValueError(
        f"a reflection prompt without any turn has {len(ids)} tokens, more than engine.context_tokens={limit}"
    )


def hindsight_prompt(ctx: Context, opening: str, root: Trajectory, reflection: str) -> tuple[list[int], bool]:
    """The original prompt with h = [feedback; reflection] in it, and whether the reflection had to be shortened.

    The response is teacher-forced behind it, so both have to fit `engine.context_tokens`; the reflection's end gives.
    """
    assert root.verdict is not None
    limit = ctx.config.engine.context_tokens
    room, text = limit - (len(root.tokens) - root.prompt_length), reflection
    while True:
        ids = ctx.chat.prompt(opening, hindsight=ctx.chat.hindsight(root.verdict.feedback, text))
        if len(ids) <= room:
            return ids, text != reflection
        if not text:
            raise ValueError(
                f"prompt, feedback and response have {limit + len(ids) - room} tokens, more than "
                f"engine.context_tokens={limit}: raise it"
            )
        # A character is at most four tokens, so this never cuts much more than it has to.
        text = text[: -max(1, (len(ids) - room) // 4)]


def reflect(ctx: Context, problem: Problem, roots: Sequence[Trajectory]) -> Job[list[Reflection]]:
    """The policy's reflection on each root, from a fresh prompt; temperature 1.0, never trained (method step 3)."""
    cfg = ctx.config.reflection
    opening = ctx.domain.start(problem).opening()
    prompts = [reflection_prompt(ctx, opening, root) for root in roots]
    requests = []
    for i, (ids, _) in enumerate(prompts):
        lane = Lane(
            (Stream.REFLECTION, problem.index, i, len(ids), 0, 0),
            fork=len(ids),
            budget=cfg.max_tokens,
            temperature=cfg.temperature,
            stop=ctx.chat.stop_ids,
        )
        requests.append(Sample(np.asarray(ids, np.int32), (lane,), "reflect"))
    results = yield list(requests)
    reflections = []
    for (lane_result,), (_, cut) in zip(results, prompts, strict=True):
        text = ctx.chat.decode(lane_result.tokens[: -1 if lane_result.stopped else None].tolist())
        reflections.append(
            Reflection(text, lane_result.tokens, parse_outcome(text), truncated=not lane_result.stopped, cut=cut)
        )
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
    return (yield from informed_by(ctx, problem, roots, reflections))


def informed_by(
    ctx: Context, problem: Problem, roots: Sequence[Trajectory], reflections: Sequence[Reflection]
) -> Job[Localization]:
    """Scores every root by what its verdict and this reflection on it change (method step 4)."""
    reflections = list(reflections)
    opening = ctx.domain.start(problem).opening()
    prompts, passes = [], []
    for i, root in enumerate(roots):
        ids, cut = hindsight_prompt(ctx, opening, root, reflections[i].text)
        reflections[i] = dataclasses.replace(reflections[i], cut=reflections[i].cut or cut)
        prompts.append(ids)
        tokens = np.concatenate([np.asarray(ids, np.int32), root.tokens[root.prompt_length :]])
        passes.append(Score(tokens, "score", temperature=ctx.temperature))
    informed = yield list(passes)
    original, prefixes = yield from original_pass(ctx, roots)
    scores = []
    for root, prompt, told, plain in zip(roots, prompts, informed, original, strict=True):
        # The response starts after a longer prompt there; the prompt's own entries are never scored.
        aligned = np.concatenate([plain.log_probs[: root.prompt_length], told.log_probs[len(prompt) :]])
        scores.append(divergence(plain.log_probs, aligned, root.generated))
    return Localization(scores, prefixes, reflections)
