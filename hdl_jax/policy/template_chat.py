"""Conversations of published models: each framed by the chat template that came with its weights.

The template renders a prompt once. After that ids are only appended: what stands between two turns of the policy is
worked out on a made-up conversation, because rendering the real one again would change it (the template of Qwen3, for
one, drops the thinking of earlier turns) and encoding its text again would give other ids than those that were sampled.

Text that spells a control token is text: the template's control tokens and those typed by a user are told apart.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hdl_jax.policy.chat import MAX_STOPS, Chat
from hdl_jax.policy.template import THINKING, Template
from hdl_jax.policy.texts import INSTRUCT, Texts
from hdl_jax.policy.tokenizer import SpecialTokenizer

# How Llama-3.1-Nemotron is told whether to think: a line of its system prompt.
THINKING_ON, THINKING_OFF = "detailed thinking on", "detailed thinking off"

PRIVATE_USE = range(0xF0000, 0x10FFFE)  # 130,000 characters that no script has, and so no long text all of

Message = Mapping[str, str]


def message(role: str, content: str) -> Message:
    """One turn, as templates read it."""
    return {"role": role, "content": content}


class TemplateChat(Chat):
    """A conversation in a model's own chat template."""

    tokenizer: SpecialTokenizer

    def __init__(
        self,
        tokenizer: SpecialTokenizer,
        template: Template,
        stop_ids: Sequence[int],
        *,
        system: str = "",
        thinking: bool = False,
        texts: Texts = INSTRUCT,
    ):
        """Reads off the template how a turn is closed; `stop_ids` gains that token if it lacks it.

        Args:
            tokenizer, template: those of the model.
            stop_ids: what its generation_config.json says ends a turn.
            system: the system prompt of every conversation; empty: whatever the template then puts.
            thinking: whether the policy thinks before it speaks. Reflections and retry points are asked for without.

        Raises:
            ValueError: the thinking mode cannot be had from this template and system prompt, or contradicts them; the
                template closes no turn, or frames a turn differently later on; too many or unknown stop ids; two BOS.
        """
        self.tokenizer, self.template, self.texts = tokenizer, template, texts
        self.thinking = thinking
        self._system = [message("system", system)] if system else []
        self._system_asking = [message("system", system.replace(THINKING_ON, THINKING_OFF))] if system else []
        self._check_thinking(system)
        spelt = sorted(tokenizer.special_tokens, key=len, reverse=True)  # the longest first: one may begin like another
        self._around = "".join((system, template.source, *spelt))
        self._control = re.compile("|".join(map(re.escape, spelt)) or "(?!)")
        self.end_id = self._closing_id()
        self.stop_ids = tuple(dict.fromkeys((self.end_id, *stop_ids)))
        if len(self.stop_ids) > MAX_STOPS:
            raise ValueError(f"{len(self.stop_ids)} stop ids {self.stop_ids}: at most {MAX_STOPS} are supported")
        if unknown := [i for i in self.stop_ids if not 0 <= i < tokenizer.vocab_size]:
            raise ValueError(f"stop ids {unknown} are not in the vocabulary of {tokenizer.vocab_size}")
        if tokenizer.bos_id is not None and self.prompt("x")[:2] == [tokenizer.bos_id] * 2:
            raise ValueError(
                f"{template.origin} puts a BOS of its own before the one that the tokenizer puts: drop one"
            )

    def prompt(self, opening: str, hindsight: str = "") -> list[int]:
        content = f"{opening}\n\n{hindsight}" if hindsight else opening
        return self._encode([*self._system, message("user", content)], self.thinking)

    def observation(self, text: str) -> list[int]:
        said, *marks = self._absent(text, 3)
        rendered = self._after(said, text, marks=marks)
        end = self._control.search(rendered)
        assert end is not None, "checked when the chat was built"
        # The closing token is encoded with what follows it, which it may take spaces from, and is there already.
        return self._ids(rendered[end.start() :], marks)[1:]

    def reply(self, text: str) -> list[int]:
        return [*self.tokenizer.encode(text), self.end_id]

    def ask(self, text: str) -> list[int]:
        return self._encode([*self._system_asking, message("user", text)], thinking=False)

    # ---- how the template frames a turn -----------------------------------------------------------------------------

    def _after(self, said: str, heard: str, exchanges: int = 1, marks: Sequence[str] = ("", "")) -> str:
        """What is rendered behind the policy's last turn of a made-up conversation, up to where it speaks again.

        Args:
            said: each of the policy's turns, a text that occurs nowhere else. heard: the user's answer to the last.
            exchanges: how many turns the policy had. marks: put around control tokens that messages spell.
        """
        history = [message("user", "x"), message("assistant", said)] * exchanges
        messages = [self._marked(m, marks) for m in (*self._system, *history, message("user", heard))]
        rendered = self.template.render(messages, add_generation_prompt=True, thinking=self.thinking)
        if said not in rendered:
            raise ValueError(f"{self.template.origin} leaves out what the assistant said")
        return rendered[rendered.rindex(said) + len(said) :]

    def _closing_id(self) -> int:
        """The control token that comes first after the policy's turn."""
        said, heard = self._absent("", 2)
        behind, later = (self._after(said, heard, exchanges) for exchanges in (1, 2))
        if behind != later:
            raise ValueError(f"{self.template.origin} frames the second turn as {behind!r} and the third as {later!r}")
        if heard not in behind:
            raise ValueError(f"{self.template.origin} leaves out what the user said")
        gap = behind.partition(heard)[0]
        end = self._control.search(gap)
        if end is None:
            raise ValueError(
                f"{self.template.origin} puts no control token of the vocabulary between two turns, but {gap!r}: a "
                "turn of the policy would have no end"
            )
        return self.tokenizer.special_tokens[end.group()]

    def _check_thinking(self, system: str) -> None:
        switch = THINKING in self.template.variables
        if self.thinking and not switch and THINKING_ON not in system:
            raise ValueError(
                f"thinking=True, but {self.template.origin} reads no {THINKING}: this model does not think, or is told "
                f"to by its system prompt ({THINKING_ON!r} for Llama-3.1-Nemotron)"
            )
        if not self.thinking and THINKING_ON in system:
            raise ValueError(f"thinking=False, but the system prompt says {THINKING_ON!r}: say {THINKING_OFF!r}")

    # ---- ids --------------------------------------------------------------------------------------------------------

    def _encode(self, messages: Sequence[Message], thinking: bool) -> list[int]:
        """The ids of a conversation up to where the policy speaks, every control token in its messages as text."""
        marks = self._absent("".join(m["content"] for m in messages), 2)
        marked = [self._marked(m, marks) for m in messages]
        return self._ids(self.template.render(marked, add_generation_prompt=True, thinking=thinking), marks)

    def _marked(self, m: Message, marks: Sequence[str]) -> Message:
        """The message with each control token that it spells between two marks."""
        begin, end = marks
        return message(m["role"], self._control.sub(lambda found: begin + found.group() + end, m["content"]))

    def _ids(self, rendered: str, marks: Sequence[str]) -> list[int]:
        """The ids of a rendered conversation: as a whole if nothing in it is marked, else a piece at a time."""
        begin, end = marks
        first, *rest = re.split(f"{begin}([^{begin}{end}]*){end}", rendered)
        if any(mark in piece for piece in (first, *rest) for mark in marks):
            raise ValueError(f"{self.template.origin} cuts a message inside a control token that the message spells")
        ids = self.tokenizer.encode_rendered(first)
        for typed, after in zip(rest[::2], rest[1::2], strict=True):
            ids += self.tokenizer.encode(typed) + self.tokenizer.encode_rendered(after)
        return ids

    def _absent(self, text: str, n: int) -> list[str]:
        """Characters that occur neither in a text nor in anything that the template puts around it."""
        free = (c for c in map(chr, PRIVATE_USE) if c not in text and c not in self._around)
        return list(itertools.islice(free, n))


# ---- reading a folder -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ChatFiles:
    """What a Hugging Face folder says of conversations: the template, and all ids that end a turn (may be none)."""

    template: Template
    stop_ids: tuple[int, ...]


NAMES = (
    "chat_template.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
)


def chat_files(folder: str | Path) -> ChatFiles:
    """Reads the files of a folder that concern conversations. Raises ValueError as `read_chat` does."""
    folder = Path(folder)
    return read_chat({n: (folder / n).read_bytes() for n in NAMES if (folder / n).is_file()}, str(folder))


def read_chat(files: Mapping[str, bytes], where: str) -> ChatFiles:
    """The same from the files' contents, by name; `where` names their folder in errors.

    chat_template.jinja goes before tokenizer_config.json's field, and generation_config.json's stop ids before those of
    config.json, as in transformers.

    Raises:
        ValueError: there is no chat template, or a file or field is not what it should be; names it.
    """

    def load(name: str) -> dict[str, Any]:
        try:
            value = json.loads(files.get(name, b"{}"))
        except ValueError as error:
            raise ValueError(f"{where}/{name} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"{where}/{name} is not a JSON object")
        return value

    config = load("tokenizer_config.json")
    origin, source = f"{where}/tokenizer_config.json: chat_template", config.get("chat_template")
    if isinstance(source, list):
        # Several by name: the others are for tools or documents, which we have none of.
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if "chat_template.jinja" in files:
        origin = f"{where}/chat_template.jinja"
        try:
            source = files["chat_template.jinja"].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{origin} is not UTF-8: {error}") from error
    if not isinstance(source, str):
        raise ValueError(
            f"{where} has no chat template: neither chat_template.jinja nor a chat_template in tokenizer_config.json. "
            "Put the template that the model was trained with into chat_template.jinja"
        )
    # A token is spelt as a string, or with its flags in an object; `add_bos_token` and its like are neither.
    spelt = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in {**load("special_tokens_map.json"), **config}.items()
        if name.endswith("_token")
    }
    tokens = {name: value for name, value in spelt.items() if isinstance(value, str)}
    name = "generation_config.json" if load("generation_config.json").get("eos_token_id") is not None else "config.json"
    stop = load(name).get("eos_token_id")
    stops = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if not all(type(i) is int and i >= 0 for i in stops):
        raise ValueError(f"{where}/{name}: eos_token_id={stop!r}: must be a token id or a list of them")
    return ChatFiles(Template(source, tokens, origin), tuple(stops))
