"""Every text and token that frames a conversation: turns, the reflection and retry-point prompts, the hindsight block.

A conversation of the embedded policy is `<bos> <user> OPENING <assistant> ACTION <end> <user> OBSERVATION <assistant>
...`. The policy samples an action and the `<end>` that closes it; everything else is put in by this file and is never
trained. Observations and actions are only ever appended to what is recorded, so nothing is tokenised twice. What the
hindsight context adds is encoded by itself and follows the same first ids as the original prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hdl_jax.policy.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Texts:
    """The wording, as `str.format` templates. The defaults are those of the embedded policy: short, as it is.

    Attributes:
        lead: put before each text, so that a text's first word is the same piece as inside a sentence.
        turn: one turn of an attempt; fields action, observation.
        numbered_turn: the same for the retry-point prompt; also number, from 1.
        reflection: asks for the two-field reflection; fields opening, attempt, feedback.
        hindsight: what the hindsight context adds to the first user message; fields feedback, reflection.
        retry_failure: asks for the earliest wrong step of a failed attempt; fields opening, attempt, feedback, last.
        retry_success: asks for a step worth branching at in a successful one; the same fields.
    """

    lead: str = " "
    turn: str = "{action} | {observation} ; "
    numbered_turn: str = "{number} {action} | {observation} ; "
    reflection: str = "{opening} attempt : {attempt}record : {feedback} . reflect"
    hindsight: str = "record : {feedback} . reflection : {reflection}"
    retry_failure: str = "{opening} attempt : {attempt}record : {feedback} . earliest wrong step , 1 to {last}"
    retry_success: str = "{opening} attempt : {attempt}record : {feedback} . steps to branch at , 1 to {last}"


class Chat:
    """Builds token ids of conversations; pure functions of a tokenizer and the wording."""

    def __init__(self, tokenizer: Tokenizer, texts: Texts | None = None):
        self.tokenizer = tokenizer
        self.texts = texts or Texts()
        self.stop_ids: tuple[int, ...] = (tokenizer.end_id,)

    def prompt(self, opening: str, hindsight: str = "") -> list[int]:
        """The first user message, with the hindsight text after it if there is one, up to where the policy speaks."""
        tokenizer = self.tokenizer
        body = self._encode(opening) + (self._encode(hindsight) if hindsight else [])
        return [tokenizer.bos_id, tokenizer.user_id, *body, tokenizer.assistant_id]

    def observation(self, text: str) -> list[int]:
        """A later user message, from where the policy's turn ended to where it speaks again."""
        return [self.tokenizer.user_id, *self._encode(text), self.tokenizer.assistant_id]

    def reply(self, text: str) -> list[int]:
        """What the policy would have sampled to say this; for supervised learning, never for what it did sample."""
        return [*self._encode(text), self.tokenizer.end_id]

    def decode(self, ids: Sequence[int]) -> str:
        """What the policy said, without control symbols and surrounding space."""
        return self.tokenizer.decode(ids).strip()

    def reflection_prompt(self, opening: str, turns: Sequence[tuple[str, str]], feedback: str) -> list[int]:
        """Asks for `OUTCOME: ...` and `SUMMARY: ...` about an attempt, given as (action, observation) turns."""
        attempt = "".join(self.texts.turn.format(action=a, observation=o) for a, o in turns)
        return self.prompt(self.texts.reflection.format(opening=opening, attempt=attempt, feedback=feedback))

    def hindsight(self, feedback: str, reflection: str) -> str:
        """The text h that is appended to the first user message: the record, then the reflection on it."""
        return self.texts.hindsight.format(feedback=feedback, reflection=reflection)

    def retry_prompt(self, opening: str, turns: Sequence[tuple[str, str]], feedback: str, success: bool) -> list[int]:
        """Asks for two steps of an attempt, numbered from 1, to be answered as `STEP: n` and `STEP2: n`."""
        numbered = self.texts.numbered_turn
        attempt = "".join(numbered.format(number=n, action=a, observation=o) for n, (a, o) in enumerate(turns, 1))
        template = self.texts.retry_success if success else self.texts.retry_failure
        return self.prompt(template.format(opening=opening, attempt=attempt, feedback=feedback, last=len(turns)))

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(self.texts.lead + text)
