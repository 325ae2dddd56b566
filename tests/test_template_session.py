"""Episodes in a model's own template: masks, closings and forks of what was sampled. Played by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from chat_fixtures import ByteTokenizer, chat
from support import EchoDomain, context

from hdl_jax.domains.domain import Problem, Step, Verdict
from hdl_jax.policy.template_chat import TemplateChat
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.session import Session
from hdl_jax.sampling.requests import LaneResult

pytest.importorskip("jinja2")

PROBLEM = Problem("talk/train/1", 1, "train")
END, OTHER = (ByteTokenizer.special_tokens[text] for text in ("<|im_end|>", "<|endoftext|>"))


class Talk:
    """An episode that answers what it was told, and ends when that is `bye`."""

    def opening(self):
        return "hi"

    def step(self, action):
        return Step(f"heard {action}", action == "bye")

    def verdict(self):
        return Verdict(0, False, "f")


class TalkDomain(EchoDomain):
    def start(self, problem):
        return Talk()


def talk_context(c: TemplateChat) -> Context:
    changes = {"max_prompt_tokens": 400, "max_response_tokens": 2000, "max_action_tokens": 40}
    ctx = context(TalkDomain(), **{f"rollout__{k}": v for k, v in changes.items()})
    return dataclasses.replace(ctx, chat=c)


def play(session: Session, *actions: list[int]):
    """Feeds whole actions to a session as the engine would. Returns the trajectory."""
    tokens: list[int] = []
    generated: list[bool] = []
    for action in actions:
        answer = session.respond(action, action[-1] in session.ctx.chat.stop_ids)
        fed = answer[0] if answer else []
        tokens += action + fed
        generated += [True] * len(action) + [False] * len(fed)
    lane = LaneResult(np.asarray(tokens, np.int32), np.asarray(generated), np.zeros(len(tokens), np.float32), True)
    return session.trajectory(lane, Verdict(0.5, False, "f"))


@pytest.mark.parametrize("ending", [[END], [OTHER], []])
def test_a_turn_is_closed_however_it_ended(ending):
    """Cases T1 and T3: by the closing token, another stop id, or the budget; the history has it closed by the template.

    What was fed for the policy is never generated, its own stop token always is.
    """
    ctx = talk_context(chat("chatml", [OTHER]))
    t = play(Session(ctx, PROBLEM), [*b"go", *ending], [*b"bye", END])
    fed = [] if ending == [END] else [END]
    response = t.tokens[t.prompt_length :].tolist()
    assert response == [*b"go", *ending, *fed, *ctx.chat.observation("heard go"), *b"bye", END]
    made = [True] * (2 + len(ending))
    expected = made + [False] * (len(fed) + len(ctx.chat.observation("heard go"))) + [True] * 4
    assert t.generated[t.prompt_length :].tolist() == expected
    assert [turn.action for turn in t.turns] == ["go", "bye"] and not t.truncated


def test_another_stop_id_ends_the_last_turn_as_well():
    """Case T3: `[9, E2]` is a whole answer."""
    ctx = talk_context(chat("chatml", [OTHER]))
    t = play(Session(ctx, PROBLEM), [*b"bye", OTHER])
    assert t.generated[t.prompt_length :].all() and len(t.turns) == 1 and not t.truncated


def test_a_sampled_pad_is_a_token_like_any_other():
    """Case T1: masks come from what was sampled, never from values; id 0 and the tokenizer's pad id are generated."""
    ctx = talk_context(chat("thinker", thinking=True))
    t = play(Session(ctx, PROBLEM), [5, 0, OTHER, 7])
    assert OTHER not in ctx.chat.stop_ids
    assert t.generated[t.prompt_length : t.prompt_length + 4].all() and t.turns[0].end - t.turns[0].start == 4


def test_a_fork_keeps_sampled_ids_and_its_budget():
    """Cases T5, T5b and T10: inside a character, inside a word that text would encode differently."""
    ctx = talk_context(chat("thinker", thinking=True))
    word = [*"<think>é</think>go 猫".encode(), END]
    root = play(Session(ctx, PROBLEM), word, [*b"bye", END])
    start = root.prompt_length
    for fork in range(start, start + len(word)):
        session = Session(ctx, PROBLEM, root, fork, 0)
        assert session.budget() == 40 - (fork - start)
        child = play(session, [*b"!", END], [*b"bye", END])
        assert child.tokens[:fork].tolist() == root.tokens[:fork].tolist()
        assert child.tokens[fork : fork + 2].tolist() == [ord("!"), END]
        # What follows a broken character is appended to it; the broken character is not replaced.
        assert 0xEF not in child.tokens[start:fork].tolist()
        assert len(child.tokens) - child.prompt_length <= ctx.config.rollout.max_response_tokens


def test_a_prompt_one_token_too_long_is_refused():
    """Case T8."""
    ctx = talk_context(chat("chatml"))
    n = len(ctx.chat.prompt("hi"))
    ctx.config.rollout.max_prompt_tokens = n
    assert len(Session(ctx, PROBLEM).tokens) == n
    ctx.config.rollout.max_prompt_tokens = n - 1
    with pytest.raises(ValueError, match=f"its prompt has {n} tokens, more than rollout.max_prompt_tokens={n - 1}"):
        Session(ctx, PROBLEM)
