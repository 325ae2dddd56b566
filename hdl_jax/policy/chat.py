"""Token ids of a conversation: the prompt, the turns that follow it, and the questions that are asked beside it.

The policy samples an action and the token that closes it; everything else is put in by a chat and is never trained.
Observations and actions are only ever appended to what is recorded, so nothing is tokenised twice. The wording is in
hdl_jax.policy.texts; how a turn is framed is each policy's own: control symbols here, a chat template in
hdl_jax.policy.template_chat.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

from hdl_jax.policy.texts import EMBEDDED, Texts
from hdl_jax.policy.tokenizer import Tokenizer

# The most ids that may end a turn: the engine compares each token with so many.
MAX_STOPS = 8


class Chat(abc.ABC):
    """Builds token ids of conversations. Nothing of it changes once it is built: worker threads share one.

    Attributes:
        tokenizer: text to ids and back.
        texts: the wording.
        stop_ids: any of them, sampled, ends the policy's turn.
        end_id: the one that closes a turn in the history; it is put in where the policy did not sample it itself.
    """

    tokenizer: Tokenizer
    texts: Texts
    stop_ids: tuple[int, ...]
    end_id: int

    @abc.abstractmethod
    def prompt(self, opening: str, hindsight: str = "") -> list[int]:
        """The first user message, with the hindsight text after it if there is one, up to where the policy speaks."""

    @abc.abstractmethod
    def observation(self, text: str) -> list[int]:
        """A later user message, from behind `end_id`, which closed the policy's turn, to where it speaks again."""

    @abc.abstractmethod
    def reply(self, text: str) -> list[int]:
        """What the policy would have sampled to say this; for supervised learning, never for what it did sample."""

    @abc.abstractmethod
    def ask(self, text: str) -> list[int]:
        """A fresh prompt of one message, to be answered at once: never in thinking mode."""

    def decode(self, ids: Sequence[int]) -> str:
        """What the policy said, without control symbols and surrounding space."""
        return self.tokenizer.decode(ids).strip()

    def reflection_prompt(self, opening: str, turns: Sequence[tuple[str, str]], feedback: str) -> list[int]:
        """Asks for `OUTCOME: ...` and `SUMMARY: ...` about an attempt, given as (action, observation) turns."""
        attempt = "".join(self.texts.turn.format(action=a, observation=o) for a, o in turns)
        return self.ask(self.texts.reflection.format(opening=opening, attempt=attempt, feedback=feedback))

    def hindsight(self, feedback: str, reflection: str) -> str:
        """The text h that is appended to the first user message: the record, then the reflection on it."""
        return self.texts.hindsight.format(feedback=feedback, reflection=reflection)

    def retry_prompt(self, opening: str, turns: Sequence[tuple[str, str]], feedback: str, success: bool) -> list[int]:
        """Asks for two steps of an attempt, numbered from 1, to be answered as `STEP: n` and `STEP2: n`."""
        numbered = self.texts.numbered_turn
        attempt = "".join(numbered.format(number=n, action=a, observation=o) for n, (a, o) in enumerate(turns, 1))
        template = self.texts.retry_success if success else self.texts.retry_failure
        return self.ask(template.format(opening=opening, attempt=attempt, feedback=feedback, last=len(turns)))


class ControlTokenizer(Tokenizer, Protocol):
    """A tokenizer with ids of its own for what frames a turn."""

    bos_id: int
    end_id: int
    user_id: int
    assistant_id: int


class ControlChat(Chat):
    """The embedded policy's conversation: `<bos> <user> OPENING <assistant> ACTION <end> <user> OBSERVATION ...`.

    What the hindsight context adds is encoded by itself and follows the same first ids as the original prompt.
    """

    tokenizer: ControlTokenizer

    def __init__(self, tokenizer: ControlTokenizer, texts: Texts = EMBEDDED):
        self.tokenizer = tokenizer
        self.texts = texts
        self.end_id = tokenizer.end_id
        self.stop_ids = (tokenizer.end_id,)

    def prompt(self, opening: str, hindsight: str = "") -> list[int]:
        tokenizer = self.tokenizer
        body = self._encode(opening) + (self._encode(hindsight) if hindsight else [])
        return [tokenizer.bos_id, tokenizer.user_id, *body, tokenizer.assistant_id]

    def observation(self, text: str) -> list[int]:
        return [self.tokenizer.user_id, *self._encode(text), self.tokenizer.assistant_id]

    def reply(self, text: str) -> list[int]:
        return [*self._encode(text), self.end_id]

    def ask(self, text: str) -> list[int]:
        return self.prompt(text)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(self.texts.lead + text)
