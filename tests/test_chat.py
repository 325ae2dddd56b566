"""Conversations: what is put in around the policy's own tokens, and that it never changes what is recorded."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.policy.chat import ControlChat
from hdl_jax.policy.texts import EMBEDDED
from hdl_jax.policy.tokenizer import ASSISTANT, BOS, END, USER, SentencePieceTokenizer
from hdl_jax.warmstart import ASSETS

TOKENIZER = SentencePieceTokenizer.load(ASSETS / "errands.model")
CHAT = ControlChat(TOKENIZER)
OPENING = "clean shirt to chest . pen to crate . hall"
TURNS = [("ok go study", "desk shelf"), ("open desk", "desk : pen"), ("done", "over")]


def test_a_prompt_is_framed_by_control_symbols_only_at_its_ends():
    ids = CHAT.prompt(OPENING)
    assert ids[:2] == [BOS, USER] and ids[-1] == ASSISTANT
    assert TOKENIZER.decode(ids[2:-1]) == f" {OPENING}"
    assert not {BOS, USER, END, ASSISTANT} & set(ids[2:-1])


def test_an_observation_opens_the_next_turn():
    assert CHAT.observation("desk shelf") == [USER, *TOKENIZER.encode(" desk shelf"), ASSISTANT]


def test_hindsight_follows_the_same_ids_as_the_original_prompt():
    plain = CHAT.prompt(OPENING)
    told = CHAT.prompt(OPENING, CHAT.hindsight("score 10 . not completed", "OUTCOME: FAILURE\nSUMMARY: too slow"))
    assert told[: len(plain) - 1] == plain[:-1]
    assert told[-1] == plain[-1] == ASSISTANT
    assert "score 10 . not completed" in TOKENIZER.decode(told) and "SUMMARY: too slow" in TOKENIZER.decode(told)


def test_no_hindsight_is_the_original_prompt():
    assert CHAT.prompt(OPENING, "") == CHAT.prompt(OPENING)


def test_a_reply_ends_with_the_stop_token_and_decodes_to_itself():
    ids = CHAT.reply("ok take pen")
    assert (ids[-1],) == CHAT.stop_ids == (END,)
    assert CHAT.decode(ids) == "ok take pen"


def test_reflection_prompt_shows_task_turns_and_record_without_positions():
    text = TOKENIZER.decode(CHAT.reflection_prompt(OPENING, TURNS, "score 8 . not completed"))
    assert text.startswith(f" {OPENING}")
    assert "ok go study | desk shelf ; open desk | desk : pen ; done | over ;" in text
    assert "score 8 . not completed" in text
    assert not any(f" {number} " in text for number in range(1, 4))


def test_retry_prompt_numbers_the_turns_from_one_and_tells_the_range():
    for success in (False, True):
        text = TOKENIZER.decode(CHAT.retry_prompt(OPENING, TURNS, "score 8 . not completed", success))
        assert " 1 ok go study | desk shelf ; 2 open desk | desk : pen ; 3 done | over ;" in text
        assert "1 to 3" in text
    failed, solved = (CHAT.retry_prompt(OPENING, TURNS, "score 8 . not completed", s) for s in (False, True))
    assert failed != solved


def test_texts_that_look_like_templates_are_left_alone():
    text = TOKENIZER.decode(CHAT.reflection_prompt("{opening} {0}", [("{action}", "{}")], "{feedback}"))
    assert "{opening} {0}" in text and "{action} | {}" in text and "{feedback}" in text


def test_another_wording_is_used_as_given():
    chat = ControlChat(TOKENIZER, dataclasses.replace(EMBEDDED, lead="", hindsight="[{feedback}][{reflection}]"))
    assert TOKENIZER.decode(chat.prompt("task ", chat.hindsight("f", "r"))) == "task [f][r]"


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")))
def test_no_text_can_close_a_turn(text):
    inside = CHAT.prompt(text, text)[2:-1] + CHAT.observation(text)[1:-1]
    assert not {BOS, USER, END, ASSISTANT} & set(inside)
