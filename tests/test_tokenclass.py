"""Token classes of the embedded domain against the class of each token's own characters."""

from __future__ import annotations

import numpy as np
import pytest

from hdl_jax import config, setup_run
from hdl_jax.domains.errands import Errands
from hdl_jax.rollout.tokenclass import classifier
from hdl_jax.rollout.trajectory import Trajectory, Turn

DOMAIN = Errands()
CHAT = setup_run.make_policy(config.default()).chat


def _trajectory(actions: list[list[int]], observation="nothing") -> Trajectory:
    tokens = list(CHAT.prompt("pen to crate . hall"))
    prompt, turns = len(tokens), []
    for ids in actions:
        start = len(tokens)
        tokens += ids
        stopped = ids[-1] in CHAT.stop_ids
        turns.append(Turn(start, len(tokens), CHAT.decode(ids[:-1] if stopped else ids), observation))
        tokens += CHAT.observation(observation)
    n = len(tokens)
    return Trajectory(
        np.array(tokens, np.int32), np.ones(n, bool), np.zeros(n, np.float32), prompt, prompt, tuple(turns), None, False
    )


def _by_characters(text: str) -> list[int]:
    """The same text a character a token, as bytes where the vocabulary has no such piece."""
    return [i for c in text for i in CHAT.tokenizer.encode(c)]


WORDS = [
    ("ok", "filler"), ("go", "verb"), ("kitchen", "argument"), (None, "end"),
    ("put", "verb"), ("pen", "argument"), ("crate", "argument"), (None, "end"),
    ("done", "verb"), (None, "end"),
]  # fmt: skip


@pytest.mark.parametrize("spell", [CHAT.tokenizer.encode, _by_characters], ids=["pieces", "characters"])
def test_every_token_has_the_class_of_its_word(spell):
    """However a word is cut into tokens."""
    (end,) = CHAT.stop_ids
    actions: list[list[int]] = [[]]
    expected: list[list[str]] = [[]]
    for word, kind in WORDS:
        ids = [end] if word is None else spell(" " + word)
        actions[-1] += ids
        expected[-1] += [kind] * len(ids)
        if word is None:
            actions.append([])
            expected.append([])
    trajectory = _trajectory(actions[:-1])
    classify = classifier(DOMAIN, CHAT)
    for turn, kinds in zip(trajectory.turns, expected, strict=False):
        got = [classify(trajectory, i) for i in range(turn.start, turn.end)]
        # A space that is a token of its own belongs to no word.
        spaces = {i for i, t in enumerate(trajectory.tokens[turn.start : turn.end]) if not CHAT.decode([t])}
        assert all(g == k for i, (g, k) in enumerate(zip(got, kinds, strict=True)) if i not in spaces or k == "end")


def test_what_the_policy_did_not_say_has_no_class():
    trajectory = _trajectory([CHAT.reply("go kitchen"), CHAT.reply("look")])
    classify = classifier(DOMAIN, CHAT)
    said = {i for turn in trajectory.turns for i in range(turn.start, turn.end)}
    assert {classify(trajectory, i) for i in range(len(trajectory.tokens)) if i not in said} == {"other"}


def test_a_cut_action_has_no_end():
    trajectory = _trajectory([CHAT.tokenizer.encode(" go kitchen")])
    turn = trajectory.turns[0]
    classify = classifier(DOMAIN, CHAT)
    kinds = [classify(trajectory, i) for i in range(turn.start, turn.end)]
    assert "end" not in kinds and kinds[0] == "verb" and kinds[-1] == "argument"


def test_nonsense_has_no_class_but_the_words_after_an_unknown_verb_are_arguments():
    trajectory = _trajectory([CHAT.reply("frobnicate the pen")])
    turn = trajectory.turns[0]
    classify = classifier(DOMAIN, CHAT)
    assert classify(trajectory, turn.start) == "other"
    assert classify(trajectory, turn.end - 2) == "argument" and classify(trajectory, turn.end - 1) == "end"
