"""A byte-level BPE from the parts that a GGUF file carries: tokens, their kinds, merges, and the pre-tokenizer's name.

Which words the merges were learned on, and so may join, is not in the file: llama.cpp knows it by the name that
`tokenizer.ggml.pre` gives. The rules below are those of the published tokenizer.json of the models that use the name.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hdl_jax.policy.tokenizer_files import import_tokenizers

if TYPE_CHECKING:
    import tokenizers

# Kinds of token, as the format numbers them; every other kind is an ordinary token here.
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5

# The words of Llama 3 and Qwen2, in order of preference: a contraction's end; letters after at most one character of
# another kind; digits; signs after at most one space, with the line breaks behind them; line breaks; spaces but for one
# before a word.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS = ("gpt-2", "llama-bpe", "qwen2", "smollm")


def byte_level_bpe(
    tokens: Sequence[str], kinds: Sequence[int], merges: Sequence[str], pre: str
) -> tokenizers.Tokenizer:
    """The tokenizer; it adds nothing to a text.

    Args:
        tokens: of every id; ordinary ones in the byte alphabet of GPT-2, others as they are spelt.
        kinds: of every id. Control tokens become special ones, user-defined ones are found in any text, unused ids are
            left out.
        merges: "left right", the first learned first.
        pre: one of PRE_TOKENIZERS.

    Raises:
        ValueError: a pre-tokenizer that is not known here, or parts that contradict each other.
        ImportError: without the package tokenizers.
    """
    library = import_tokenizers()
    if pre not in PRE_TOKENIZERS:
        raise ValueError(f"tokenizer.ggml.pre={pre!r}: supported are {', '.join(PRE_TOKENIZERS)}")
    if len(kinds) != len(tokens):
        raise ValueError(f"tokenizer.ggml.token_type has {len(kinds)} entries for {len(tokens)} tokens")
    vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != UNUSED}
    if len(vocabulary) + sum(kind == UNUSED for kind in kinds) < len(tokens):
        twice = [token for token, n in collections.Counter(tokens).items() if n > 1]
        raise ValueError(f"tokenizer.ggml.tokens has tokens twice: {', '.join(map(repr, twice))}")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        # Llama 3's vocabulary holds words that its merges do not lead to.
        model = library.models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # The library raises nothing more special.
        raise ValueError(f"tokenizer.ggml.merges do not fit the tokens: {error}") from error
    tokenizer = library.Tokenizer(model)
    if pre == "qwen2":
        tokenizer.normalizer = library.normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(library.pre_tokenizers, library.Regex, pre)
    tokenizer.decoder = library.decoders.ByteLevel()

    def of(kind: int, special: bool) -> list[Any]:
        found = [token for token, k in zip(tokens, kinds, strict=True) if k == kind]
        return [library.AddedToken(token, normalized=False, special=special) for token in found]

    tokenizer.add_special_tokens(of(CONTROL, special=True))
    tokenizer.add_tokens(of(USER_DEFINED, special=False))
    return tokenizer


def _pre_tokenizer(pre_tokenizers: Any, regex: Any, pre: str) -> Any:
    """What cuts a text into words, and those into bytes."""
    if pre in ("gpt-2", "smollm"):
        # GPT-2's own words; SmolLM takes every digit out first.
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = pre_tokenizers.Digits(individual_digits=True)
        return gpt2 if pre == "gpt-2" else pre_tokenizers.Sequence([digits, gpt2])
    words = _WORDS % (r"\p{N}{1,3}" if pre == "llama-bpe" else r"\p{N}")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(regex(words), behavior="isolated"), to_bytes])
