"""The signals: reflections read as they should be, and scores equal to plain forward passes over the same ids."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support import STOPS, TEXTS, context, play

from hdl_jax.localize.entropy import entropy
from hdl_jax.localize.hindsight import divergence, hindsight, hindsight_prompt, parse_outcome, reflection_prompt
from hdl_jax.localize.uniform import uniform
from hdl_jax.policy.chat import ControlChat
from hdl_jax.rollout import accounting
from hdl_jax.rollout.hdl import hdl
from hdl_jax.rollout.play import complete
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Lane


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("OUTCOME: SUCCESS\nSUMMARY: x", "success"),  # H12, and its kind
        ("outcome: failure", "failure"),
        ("**OUTCOME:** FAILURE", "failure"),
        ("**OUTCOME: FAILURE**\n**SUMMARY:** y", "failure"),
        ("OUTCOME: **Success**", "success"),
        ("__OUTCOME__: SUCCESS", "success"),
        ("- OUTCOME: SUCCESS.", "success"),
        ("# Outcome : failure", "failure"),
        ("> OUTCOME: SUCCESS", "success"),
        ("  OUTCOME:FAILURE  \r\nSUMMARY: z", "failure"),
        ("Let me see.\nOUTCOME: FAILURE\nSUMMARY: it was no success", "failure"),
        ("OUTCOME: SUCCESS\nSUMMARY: the outcome: failure was near", "success"),
        ("OUTCOME: SUCCESS\n\nOUTCOME: SUCCESS", "success"),
        ("OUTCOME: SUCCESS or FAILURE", None),
        ("OUTCOME: SUCCESS/FAILURE", None),
        ("OUTCOME: SUCCESS|FAILURE", None),
        ("OUTCOME: NOT SUCCESS", None),
        ("OUTCOME: not a failure", None),
        ("OUTCOME: partial SUCCESS", None),
        ("OUTCOME: SUCCESSFUL", None),
        ("OUTCOME: UNSUCCESSFUL", None),
        ("OUTCOME: SUCCESS\nOUTCOME: FAILURE", None),
        ("OUTCOME: SUCCESS\nOUTCOME: unclear", None),
        ("OUTCOME: unclear\nOUTCOME: FAILURE", None),
        ("OUTCOME:", None),
        ("OUTCOME:\nSUMMARY: success", None),
        ("SUMMARY: OUTCOME: SUCCESS", None),
        ("the outcome was a success", None),
        ("SUCCESS", None),
        ("OUTCOMES: SUCCESS", None),
        ("", None),
        ("\ufffd\ufffd OUTCOME", None),
    ],
)
def test_parse_outcome(text, outcome):
    assert parse_outcome(text) == outcome


def test_parsing_a_long_text_is_quick():
    for text in ("\n" * 3000, "*" * 3000, "outcome:" * 500, "outcome: " + "* \n" * 1000 + "x"):
        assert parse_outcome(text) is None


def test_divergence_is_symmetric_and_of_generated_tokens_only():
    """H15, and prompt tokens with wild values."""
    original, told = np.array([[-0.1, -7.1, np.nan, -3], [-7.1, -0.1, -1, -2]], np.float32)
    generated = np.array([True, True, False, False])
    np.testing.assert_allclose(divergence(original, told, generated), [7, 7, 0, 0], rtol=1e-6)


# ---- on the engine --------------------------------------------------------------------------------------------------


def _localized(engine, ctx, signal):
    """Roots of two problems and what the signal says of them: [(problem, roots, localization)]."""

    def job(ctx, problem):
        roots = yield from complete(ctx, problem, 2, Stream.ROOT, "root")
        return problem, roots, (yield from signal(ctx, problem, roots))

    return play(engine, job, ctx, (1, 4))


def _log_probs(oracle, tokens, temperature) -> np.ndarray:
    log_p = oracle.log_softmax(tokens, temperature)
    return np.concatenate([[0], np.take_along_axis(log_p[:-1], tokens[1:, None], -1)[:, 0]])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_two_plain_forward_passes(engine, oracle, temperature):
    """P6: both contexts at one temperature, the roots' own."""
    ctx = dataclasses.replace(context(), temperature=temperature)
    observed = False
    for problem, roots, found in _localized(engine, ctx, hindsight):
        opening = ctx.domain.start(problem).opening()
        for root, scores, reflection in zip(roots, found.scores, found.reflections, strict=True):
            h = ctx.chat.hindsight(root.verdict.feedback, reflection.text)
            prompt = np.array(ctx.chat.prompt(opening, hindsight=h))
            assert len(prompt) > root.prompt_length
            response = root.tokens[root.prompt_length :]
            plain = _log_probs(oracle, root.tokens, temperature)[root.prompt_length :]
            told = _log_probs(oracle, np.concatenate([prompt, response]), temperature)[len(prompt) :]
            expected = np.where(root.generated[root.prompt_length :], np.abs(told - plain), 0)
            assert expected.max() > 0.01
            observed |= not root.generated[root.prompt_length :].all()
            np.testing.assert_allclose(scores[root.prompt_length :], expected, atol=5e-5)
            assert (scores[: root.prompt_length] == 0).all()
    assert observed, "another seed: no root has an observation, which must not score"


def test_an_empty_hindsight_scores_exactly_zero(engine):
    """H14: the same ids in both contexts, scored beside other rows, give the same bits."""
    ctx = context()
    chat = ControlChat(ctx.chat.tokenizer, dataclasses.replace(TEXTS, hindsight=""))
    chat.stop_ids = STOPS
    for _, _, found in _localized(engine, dataclasses.replace(ctx, chat=chat), hindsight):
        assert all((scores == 0).all() for scores in found.scores)


def test_reflections_are_samples_of_their_own_prompt(engine, oracle):
    ctx = context()
    reflections = []
    for problem, roots, found in _localized(engine, ctx, hindsight):
        opening = ctx.domain.start(problem).opening()
        for i, (root, reflection) in enumerate(zip(roots, found.reflections, strict=True)):
            turns = [(t.action, t.observation) for t in root.turns]
            prompt = ctx.chat.reflection_prompt(opening, turns, root.verdict.feedback)
            path = (Stream.REFLECTION, problem.index, i, len(prompt), 0, 0)
            slow = oracle.sample(prompt, Lane(path, len(prompt), 8, 1.0, STOPS), ctx.step)
            assert reflection.tokens.tolist() == slow.tokens
            assert reflection.truncated == (not slow.stopped)
            said = slow.tokens[:-1] if slow.stopped else slow.tokens
            assert reflection.text == ctx.chat.decode(said)
            assert reflection.outcome is None
            reflections.append(reflection)
    assert len({tuple(r.tokens.tolist()) for r in reflections}) == len(reflections)


def test_entropy_is_that_of_the_full_vocabulary(engine, oracle):
    for _, roots, found in _localized(engine, context(), entropy):
        assert not found.reflections
        for root, scores in zip(roots, found.scores, strict=True):
            log_p = oracle.log_softmax(root.tokens)[:-1]
            expected = np.concatenate([[0], -(np.exp(log_p) * log_p).sum(-1)])
            np.testing.assert_allclose(scores, np.where(root.generated, expected, 0), atol=2e-5)


def test_uniform_scores_are_drawn_anew_for_each_root_problem_and_step(engine):
    seen = set()
    for step in (1, 2):
        ctx = context(step=step)
        runs = [_localized(engine, ctx, uniform) for _ in range(2)]
        for (_, roots, found), (_, _, again) in zip(*runs, strict=True):
            for root, scores, repeated in zip(roots, found.scores, again.scores, strict=True):
                assert scores.tolist() == repeated.tolist()
                assert (scores[~root.generated] == 0).all() and (scores < 1).all()
                seen |= set(scores[root.generated].tolist())
    assert len(seen) > 60, "scores repeat between roots, problems or steps"
    assert np.mean(list(seen)) == pytest.approx(0.5, abs=0.15)


# ---- contexts that are too long -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(shared):
    ctx = context()
    problem = ctx.domain.problems("train")[1]
    roots = shared.run([complete(ctx, problem, 4, Stream.ROOT, "root")], 1)[0]
    return max(roots, key=lambda t: len(t.turns))


def test_a_long_attempt_loses_its_earliest_turns(root):
    """As few as it takes, and it is told."""
    ctx, opening = context(), "abc"
    turns = [(t.action, t.observation) for t in root.turns]
    whole = ctx.chat.reflection_prompt(opening, turns, root.verdict.feedback)
    assert len(turns) > 1 and reflection_prompt(ctx, opening, root) == (whole, False)
    for limit in range(len(whole), 0, -1):
        ctx.config.engine.context_tokens = limit
        fitting = [
            ids
            for first in range(len(turns) + 1)
            if len(ids := ctx.chat.reflection_prompt(opening, turns[first:], root.verdict.feedback)) <= limit
        ]
        if not fitting:
            with pytest.raises(ValueError, match=f"engine.context_tokens={limit}"):
                reflection_prompt(ctx, opening, root)
            break
        assert reflection_prompt(ctx, opening, root) == (fitting[0], fitting[0] != whole)
    else:
        pytest.fail("no limit was too small")


def test_a_long_reflection_is_cut_behind(root):
    """The hindsight context and the response it precedes fit together; what is left of the reflection is its start."""
    ctx, opening, told = context(), "abc", "abc def " * 20
    response = len(root.tokens) - root.prompt_length

    def built(text):
        return ctx.chat.prompt(opening, hindsight=ctx.chat.hindsight(root.verdict.feedback, text))

    ctx.config.engine.context_tokens = len(built(told)) + response
    assert hindsight_prompt(ctx, opening, root, told) == (built(told), False)
    cuts = set()
    for limit in range(len(built(told)) + response - 1, len(built("")) + response - 1, -1):
        ctx.config.engine.context_tokens = limit
        ids, cut = hindsight_prompt(ctx, opening, root, told)
        assert cut and len(ids) + response <= limit
        kept = [n for n in range(len(told)) if built(told[:n]) == ids]
        assert kept, "the start of the reflection, and nothing else"
        cuts.add(kept[-1])
    assert len(cuts) > 10
    ctx.config.engine.context_tokens = len(built("")) + response - 1
    with pytest.raises(ValueError, match="engine.context_tokens"):
        hindsight_prompt(ctx, opening, root, told)


def test_cut_contexts_are_counted(engine):
    """A whole run in a context that is too short for the attempts and the reflections."""
    groups = play(engine, hdl, context(engine__context_tokens=52))
    assert all(np.isfinite(s).all() for group in groups for s in group.scores)
    metrics = accounting.reflection_metrics(groups)
    assert metrics["reflection/cut"] == sum(r.cut for group in groups for r in group.reflections) > 0
    assert accounting.reflection_metrics(play(engine, hdl, context()))["reflection/cut"] == 0
