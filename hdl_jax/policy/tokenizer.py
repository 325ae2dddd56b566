"""What a tokenizer is to a conversation, and the embedded policy's: a SentencePiece unigram model with byte fallback.

Those of published models are in hdl_jax.policy.tokenizer_files.

Of the embedded one any text but U+2581 (SentencePiece's own mark for a space) survives encoding and decoding unchanged.
The control symbols that frame a conversation have ids of their own that no text can produce: `<end>` typed by a user is
five ordinary characters. They are placed by hdl_jax.policy.chat, never by pasting text.
"""

from __future__ import annotations

import collections
import contextlib
import io
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

PAD, UNK, BOS, END, USER, ASSISTANT = range(6)
_SPACE = "\u2581"  # how SentencePiece writes a space
_CONTROL = ("<pad>", "<unk>", "<bos>", "<end>", "<user>", "<assistant>")


class Tokenizer(Protocol):
    """Text to token ids and back: what every policy's conversation needs.

    Used from several threads at once.
    """

    @property
    def vocab_size(self) -> int:
        """One more than the largest id there is."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text and nothing more; never a control token, even where the text spells one."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of any ids, without control tokens and ids there are not. Bytes that are not UTF-8 give U+FFFD."""
        ...


class SpecialTokenizer(Tokenizer, Protocol):
    """The tokenizer of a model whose conversations are rendered as text, control tokens included.

    Attributes:
        special_tokens: how each control token is spelt -> its id.
        bos_id: the id that begins a sequence, or None where the model has none.
    """

    special_tokens: Mapping[str, int]
    bos_id: int | None

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a rendered conversation: control tokens it spells become their ids, and nothing is added."""
        ...


class SentencePieceTokenizer:
    """Text to token ids and back, with the ids of the control symbols as attributes."""

    pad_id: int = PAD
    bos_id: int = BOS
    end_id: int = END
    user_id: int = USER
    assistant_id: int = ASSISTANT

    def __init__(self, model: bytes):
        """Reads a serialized model. Raises ValueError if its control symbols are not the ones used here."""
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        first = tuple(self._processor.id_to_piece(i) for i in range(len(_CONTROL)))
        if first != _CONTROL:
            raise ValueError(f"the vocabulary must begin with {' '.join(_CONTROL)}, it begins with {' '.join(first)}")

    @classmethod
    def load(cls, path: str | Path) -> SentencePieceTokenizer:
        """Reads a `.model` file. Raises FileNotFoundError if there is none."""
        return cls(Path(path).read_bytes())

    @property
    def vocab_size(self) -> int:
        """Number of ids, control symbols included."""
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; never a control symbol."""
        return self._processor.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; control symbols and unused rows have none. Bytes that are not UTF-8 give U+FFFD."""
        return self._processor.decode([int(i) for i in ids if len(_CONTROL) <= i < self.vocab_size])


def train_vocabulary(texts: Iterable[str], path: str | Path, vocab_size: int = 512) -> SentencePieceTokenizer:
    """Trains a unigram vocabulary of at most `vocab_size` pieces, writes it to `path`. Same texts, same bytes.

    Words are kept whole where they are frequent: a piece never crosses a space, and begins with the space before it.
    """
    texts = list(texts)
    model = io.BytesIO()
    # The model file keeps the name of the seed file: a name without a folder, or no two runs would give the same bytes.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # The trainer looks for candidate pieces among distinct words only, and would not think of a word that is part
        # of no other word, however frequent: so the words themselves are handed to it, with their counts.
        words = collections.Counter(
            match for text in texts for match in re.findall(r" ?[^\W\d_]+| ?\d+| [^\w\s]", text)
        )
        seeds = Path("seeds.tsv")
        seeds.write_text("".join(f"{word.replace(' ', _SPACE)}\t{n}\n" for word, n in sorted(words.items()) if n > 1))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            # A terse corpus may hold fewer pieces than asked for; the embedding's last rows then stay unused.
            hard_vocab_limit=False,
            seed_sentencepieces_file=str(seeds),
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=1.0,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=END,
            pad_piece=_CONTROL[PAD],
            unk_piece=_CONTROL[UNK],
            bos_piece=_CONTROL[BOS],
            eos_piece=_CONTROL[END],
            control_symbols=list(_CONTROL[USER:]),
            # More threads sum the expectations in another order, and the file's bytes change.
            num_threads=1,
            minloglevel=2,
        )
    Path(path).write_bytes(model.getvalue())
    return SentencePieceTokenizer(model.getvalue())
