"""Tokenizers against transformers: the same ids and texts from the same files."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("transformers")
pytest.importorskip("gguf")
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from gguf_fixtures import CORPUS, TEXTS, VOCABULARY, config, fields, random_weights, tensors, write  # noqa: E402
from test_tokenizer_files import FRAGMENTS, byte_level, folder, piece_model  # noqa: E402

from hdl_jax.policy.gguf_file import GgufFile  # noqa: E402
from hdl_jax.policy.tokenizer_files import load_tokenizer  # noqa: E402


def wild(n, seed=0):
    """Texts put together at random of what means something to a tokenizer."""
    rng = random.Random(seed)
    parts = [*FRAGMENTS, *CORPUS[:6], *TEXTS, "  ", "\t", "1969", "x", "'re", "\r\n", "\u0307", "\u00a0", "\u2028"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 6))) for _ in range(n)]


def assert_same(ours, theirs, texts):
    for text in texts:
        assert ours.encode_rendered(text) == theirs(text, add_special_tokens=False).input_ids, text
        plain = theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert ours.encode(text) == plain, text
        ids = ours.encode_rendered(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


def test_tokenizer_json(tmp_path):
    bos = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    folder(tmp_path, byte_level(), tokenizer_config=bos)
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert ours.bos_id == theirs.bos_token_id
    assert_same(ours, theirs, [*TEXTS, *wild(200)])


@pytest.mark.parametrize("legacy", [True, False])
def test_tokenizer_model(tmp_path, legacy):
    """Texts that begin with a space are left out: transformers then adds none, SentencePiece adds another."""
    (tmp_path / "tokenizer.model").write_bytes(piece_model(control_symbols=[], user_defined_symbols=[]))
    named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | {"legacy": legacy}))
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(theirs, transformers.LlamaTokenizer)
    assert ours.bos_id == theirs.bos_token_id
    rendered = ["<s>[INST] hi [/INST]", "<s>the year</s><s>the book", "the</s>"]
    for text in [*CORPUS[:2], "the year", "In 1969  1984", "x  y\n\nz", "caf\u00e9 \U0001f600\u200d", *rendered]:
        assert ours.encode_rendered(text) == theirs(text, add_special_tokens=False).input_ids, text


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_gguf_vocabulary(tmp_path, pre):
    """Transformers' own reading of the same file, put right where it departs from the published tokenizer."""
    cfg = config("llama")
    write(tmp_path / "a.gguf", "llama", fields(cfg, "llama", pre), tensors(random_weights(cfg), cfg, "llama"))
    ours = GgufFile(tmp_path / "a.gguf").tokenizer()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="a.gguf")
    backend = theirs.backend_tokenizer
    if pre == "smollm":  # It does not know the name, and takes GPT-2's words.
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    if pre == "qwen2":  # It leaves out what Qwen2Tokenizer does first.
        backend.normalizer = tokenizers.normalizers.NFC()
    assert_same(ours, theirs, [*TEXTS, *wild(200)])


def test_qwen2s_words_are_its_tokenizers(tmp_path):
    tokens = dict(zip(VOCABULARY.tokens, range(10_000), strict=False))
    merges = [tuple(merge.split(" ")) for merge in VOCABULARY.merges]
    theirs = transformers.Qwen2Tokenizer(vocab=tokens, merges=merges)
    cfg = config("llama")
    write(tmp_path / "a.gguf", "llama", fields(cfg, "llama", "qwen2"), tensors(random_weights(cfg), cfg, "llama"))
    ours = GgufFile(tmp_path / "a.gguf").tokenizer()
    for text in [*TEXTS[:-1], *(text for text in wild(200, seed=1) if "<" not in text)]:
        assert ours.encode(text) == theirs(text).input_ids, text
