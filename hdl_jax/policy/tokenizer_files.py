"""The tokenizers of Hugging Face folders: tokenizer.json, or tokenizer.model where that is all there is.

Control tokens are those that the file itself declares special. Text never becomes one through `encode`; a rendered
conversation does through `encode_rendered`. Tokens that a file adds without calling them special, such as Qwen3's
`<think>`, are ordinary text with an id of its own: they are found in any text, and decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece

from hdl_jax.policy.tokenizer import SpecialTokenizer

if TYPE_CHECKING:
    import tokenizers

# Laid behind a serialized SentencePiece model, these bytes are read as part of it, and what is read last holds: its
# field 3, the normalizer, says in its own field 3 that no space is put before the text (sentencepiece_model.proto).
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"


def load_tokenizer(folder: str | Path) -> SpecialTokenizer:
    """The tokenizer of a folder: tokenizer.json, else a SentencePiece tokenizer.model.

    Raises:
        FileNotFoundError: the folder has neither.
        ValueError: a file cannot be read or contradicts another; names it.
        ImportError: tokenizer.json needs the extra `hf`.
    """
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        return FastTokenizer.load(folder)
    if (folder / "tokenizer.model").is_file():
        return PieceTokenizer.load(folder)
    raise FileNotFoundError(f"{folder} has neither tokenizer.json nor tokenizer.model")


def import_tokenizers() -> Any:
    """The optional package `tokenizers`. Raises ImportError that names the extra."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("this tokenizer needs the tokenizers package: pip install 'hdl_jax[hf]'") from error
    return tokenizers


class FastTokenizer:
    """A `tokenizers.Tokenizer`, whatever its model, as a SpecialTokenizer."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, bos: str | None = None):
        """Takes the tokenizer over; its post-processor, padding and truncation are not used.

        Args:
            bos: how the token that begins a sequence is spelt.

        Raises ValueError if `bos` is not a control token, or if the vocabulary reads a control token's spelling as the
        control token even in plain text.
        """
        self._rendered = tokenizer
        self._rendered.no_padding()
        self._rendered.no_truncation()
        self._rendered.encode_special_tokens = False
        # Whether spelt control tokens are split like other text is a switch of the whole tokenizer. Switching it per
        # call would be a race between threads: there are two tokenizers, and neither is changed after this.
        self._plain = import_tokenizers().Tokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True
        added = sorted(tokenizer.get_added_tokens_decoder().items())
        self.special_tokens: Mapping[str, int] = {token.content: i for i, token in added if token.special}
        self.bos_id = _check_control(self, bos)
        # Not the number of tokens: ids may have holes.
        self.vocab_size = 1 + max(tokenizer.get_vocab().values(), default=-1)

    @classmethod
    def load(cls, folder: str | Path) -> FastTokenizer:
        """Reads folder/tokenizer.json, and which token begins a sequence from the files beside it.

        Raises FileNotFoundError, ValueError or ImportError as `load_tokenizer` does.
        """
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer.json in {folder}")
        library = import_tokenizers()
        try:
            tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:  # The library raises nothing more special.
            raise ValueError(f"{path} is not a readable tokenizer: {error}") from error
        try:
            return cls(tokenizer, _bos(_tokenizer_config(path.parent)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of a text; never a control token."""
        return self._plain.encode(text, add_special_tokens=False).ids

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a rendered conversation, with the control tokens that it spells and no other."""
        return self._rendered.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, without control tokens."""
        return self._rendered.decode([int(i) for i in ids if 0 <= i < self.vocab_size], skip_special_tokens=True)


class PieceTokenizer:
    """A SentencePiece model, as Llama 2 has it, as a SpecialTokenizer.

    Most such models begin every text with a space (`add_dummy_prefix`), which `decode` takes away again. A rendered
    conversation gets that space where it begins with text; after a control token only where transformers gives it one,
    which is where tokenizer_config.json says `legacy`.
    """

    def __init__(
        self, model: bytes, bos: str | None = None, added: Mapping[str, int] | None = None, *, legacy: bool = False
    ):
        """Reads a serialized model.

        Args:
            bos: how the token that begins a sequence is spelt.
            added: control tokens beside those of the model, content -> id.
            legacy: see above.

        Raises ValueError if the model cannot be read, or as FastTokenizer does.
        """
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            inner = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_DUMMY_PREFIX)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model: {error}") from error
        self._inner = self._processor if legacy else inner
        n = self._processor.vocab_size()
        control = {self._processor.id_to_piece(i): i for i in range(n) if self._processor.is_control(i)}
        # The unknown token is often listed with them, but frames nothing, and any strange character may become it.
        control |= {text: i for text, i in (added or {}).items() if i != self._processor.unk_id()}
        self.special_tokens: Mapping[str, int] = control
        self.bos_id = _check_control(self, bos)
        self.vocab_size = max(n, 1 + max(control.values(), default=-1))
        # The longest first: one may begin like another. Where there are none, a pattern that never matches.
        spelt = sorted(control, key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(map(re.escape, spelt)) or '(?!)'})")
        self._readable = set(range(n)) - set(control.values())

    @classmethod
    def load(cls, folder: str | Path) -> PieceTokenizer:
        """Reads folder/tokenizer.model, and what tokenizer_config.json adds to it.

        Raises FileNotFoundError or ValueError as `load_tokenizer` does.
        """
        path = Path(folder) / "tokenizer.model"
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer.model in {folder}")
        config = _tokenizer_config(path.parent)
        added = {token["content"]: (int(i), token) for i, token in config.get("added_tokens_decoder", {}).items()}
        special = {text: i for text, (i, token) in added.items() if token.get("special")}
        try:
            tokenizer = cls(path.read_bytes(), _bos(config), special, legacy=bool(config.get("legacy")))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        foreign = [text for text, (i, _) in added.items() if text not in special and i not in tokenizer._readable]
        if foreign:
            raise ValueError(
                f"{path} lacks tokens that tokenizer_config.json adds without calling them special: "
                f"{', '.join(map(repr, foreign))}. Save the tokenizer with transformers, which writes a tokenizer.json"
            )
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """The ids of a text; never a control token."""
        return self._processor.encode(text)

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a rendered conversation, with the control tokens that it spells and no other."""
        first, *rest = self._control.split(text)
        ids = self._processor.encode(first)
        for control, after in zip(rest[::2], rest[1::2], strict=True):
            ids.append(self.special_tokens[control])
            ids += self._inner.encode(after)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, without control tokens."""
        return self._processor.decode([int(i) for i in ids if i in self._readable])


def _check_control(tokenizer: SpecialTokenizer, bos: str | None) -> int | None:
    """The id of the token that begins a sequence.

    Raises ValueError if that is no control token, or if plain text that spells a control token would become it: a
    vocabulary may hold a control token as a word like any other.
    """
    special = tokenizer.special_tokens
    forged = [text for text, i in special.items() if i in tokenizer.encode(text)]
    if forged:
        raise ValueError(f"plain text would become the control token that it spells: {', '.join(map(repr, forged))}")
    if bos is not None and bos not in special:
        raise ValueError(f"the token that begins a sequence, {bos!r}, is not a control token of the vocabulary")
    return None if bos is None else special[bos]


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json over special_tokens_map.json, as far as there are such files.

    Raises ValueError if one is not a JSON object.
    """
    config: dict[str, Any] = {}
    for path in (folder / "special_tokens_map.json", folder / "tokenizer_config.json"):
        if not path.is_file():
            continue
        try:
            config |= json.loads(path.read_bytes())
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a JSON object: {error}") from error
    return config


def _bos(config: Mapping[str, Any]) -> str | None:
    """How the token that begins a sequence is spelt: a string, or with its flags in an object."""
    bos = config.get("bos_token")
    return bos["content"] if isinstance(bos, dict) else bos
