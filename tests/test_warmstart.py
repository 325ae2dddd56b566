"""The warm start: its corpus is what a rollout would record, and what ships is what the policy needs."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np

from hdl_jax import warmstart
from hdl_jax.policy import transformer
from hdl_jax.policy.chat import ControlChat
from hdl_jax.policy.presets import preset
from hdl_jax.policy.tokenizer import ASSISTANT, END, PAD, SentencePieceTokenizer
from hdl_jax.policy.weights import load_params

TOKENIZER = SentencePieceTokenizer.load(warmstart.ASSETS / "errands.model")
CHAT = ControlChat(TOKENIZER)


def test_the_corpus_is_deterministic_and_has_all_kinds():
    first, again = (list(itertools.islice(warmstart.scripts("train", 3), 60)) for _ in range(2))
    assert first == again
    assert {talk.kind for talk in first} == set(warmstart.KIND_SHARES)
    assert first != list(itertools.islice(warmstart.scripts("train", 4), 60))


def test_only_the_assistants_tokens_are_trained_and_each_turn_is_closed():
    for talk in itertools.islice(warmstart.scripts("train", 0), 60):
        item = warmstart.example(CHAT, talk)
        assert len(item.ids) == len(item.own) and item.own[-1] and item.ids[-1] == END
        own = np.array(item.own)
        starts = np.flatnonzero(own & ~np.roll(own, 1))
        assert all(item.ids[start - 1] == ASSISTANT for start in starts)
        assert all(item.ids[end] == END for end in np.flatnonzero(own & ~np.roll(own, -1)))
        # Every assistant mark in the conversation is followed by trained tokens, so no turn is missing.
        assert len(starts) == item.ids.count(ASSISTANT)


def test_an_episode_is_tokenised_as_a_rollout_records_it():
    talk = next(t for t in warmstart.scripts("train", 0) if t.kind == "episode" and len(t.attempt.turns) > 2)
    ids = CHAT.prompt(talk.attempt.opening)
    for number, (action, observation) in enumerate(talk.attempt.turns):
        ids = ids + CHAT.reply(action)
        if number < len(talk.attempt.turns) - 1:
            ids = ids + CHAT.observation(observation)
    assert warmstart.example(CHAT, talk).ids == ids


def test_hindsight_conversations_never_name_a_position():
    for talk in itertools.islice((t for t in warmstart.scripts("train", 1) if t.kind == "hindsight"), 30):
        assert talk.hindsight is not None
        assert not any(character.isdigit() for character in talk.hindsight[1])


def test_conversations_fit_the_longest_row():
    items = [warmstart.example(CHAT, talk) for talk in itertools.islice(warmstart.scripts("train", 2), 1500)]
    assert sum(len(item.ids) > warmstart.LENGTHS[-1] for item in items) / len(items) < 0.01
    episodes = [len(item.ids) for item in items if item.kind == "episode"]
    assert np.mean(episodes) < 200 and max(episodes) < 300


def test_batches_are_padded_to_few_shapes():
    for batch in itertools.islice(warmstart.batches(CHAT, warmstart.scripts("train", 0)), 12):
        rows, length = batch.tokens.shape
        assert length in warmstart.LENGTHS and rows == warmstart.BATCH_TOKENS // length
        assert not (batch.own & (batch.tokens == PAD)).any()


def test_the_loss_is_the_mean_over_own_tokens_only():
    cfg = dataclasses.replace(preset("errands"), n_layers=1, d_model=32, d_ff=64)
    params = jax.jit(transformer.init, static_argnums=0)(cfg, jax.random.key(0))
    items = [warmstart.example(CHAT, talk) for talk in itertools.islice(warmstart.scripts("train", 0), 2)]
    batch = warmstart.pad(items, warmstart.LENGTHS[-1])

    @jax.jit
    def loss_and_logits(params, tokens, own):
        logits = transformer.logits(params, cfg, transformer.forward(params, cfg, tokens))
        return warmstart.summed_loss(params, cfg, tokens, own), jax.nn.log_softmax(logits)

    (total, count), log_p = loss_and_logits(params, batch.tokens, batch.own)
    log_p = np.asarray(log_p)
    expected = 0.0
    for row, item in enumerate(items):
        expected -= sum(log_p[row, t - 1, item.ids[t]] for t in range(1, len(item.ids)) if item.own[t])
    assert count == sum(sum(item.own) for item in items)
    np.testing.assert_allclose(total, expected, rtol=1e-4)


def test_the_shipped_policy_fits_its_preset_and_writes_reflections():
    cfg = preset("errands")
    params = load_params(warmstart.ASSETS / "errands.safetensors", transformer.abstract_params(cfg))
    assert sum(file.stat().st_size for file in warmstart.ASSETS.iterdir()) < 5 * 2**20
    assert TOKENIZER.vocab_size <= cfg.vocab_size
    figures = warmstart.reflection_figures(params, CHAT, cfg, count=8)
    assert figures["format"] >= 0.75 and figures["outcome_agreement"] >= 0.75
