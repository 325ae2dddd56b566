"""The vocabulary of a GGUF file as a tokenizer, and the files that lie beside its weights in a folder."""

from __future__ import annotations

import unicodedata

import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
import gguf_fixtures  # noqa: E402
from gguf_fixtures import CONTROL, LLAMA3, TEMPLATE, TEXTS, THINK, VOCABULARY, config, made, rope_freqs  # noqa: E402

from hdl_jax.policy.byte_level import PRE_TOKENIZERS, byte_level_bpe  # noqa: E402
from hdl_jax.policy.hf_config import read_config  # noqa: E402
from hdl_jax.policy.template_chat import read_chat  # noqa: E402
from hdl_jax.policy.tokenizer_files import FastTokenizer, load_tokenizer  # noqa: E402


def spelt(tokenizer, text):
    """A text's tokens as text."""
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


@pytest.fixture(scope="module")
def parts():
    return VOCABULARY.tokens, VOCABULARY.kinds, VOCABULARY.merges


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", " 1969  1984", [" 1969", " ", " 1984"]),
        ("smollm", " 1969  1984", [" ", "1", "9", "6", "9", "  ", "1", "9", "8", "4"]),
        ("gpt-2", "(1969144)\n\n\n(", ["(", "1969", "144", ")", "\n\n", "\n", "("]),
        ("smollm", "(1441)\n\n\n(", ["(", "1", "4", "4", "1", ")", "\n\n", "\n", "("]),
        ("qwen2", "(1441)\n\n\n(", ["(", "1", "4", "4", "1", ")", "\n\n\n", "("]),
        ("llama-bpe", "(1441)\n\n\n(", ["(", "144", "1", ")", "\n\n\n", "("]),
        ("smollm", "()\n(", ["(", ")", "\n", "("]),
        ("qwen2", "()\n(", ["(", ")\n", "("]),
    ],
)
def test_words_are_those_of_the_pre_tokenizer(parts, pre, text, pieces):
    assert spelt(FastTokenizer(byte_level_bpe(*parts, pre)), text) == pieces


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_survive_the_round_trip(parts, pre, text):
    tokenizer = FastTokenizer(byte_level_bpe(*parts, pre))
    same = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == same
    assert not set(ids) & set(tokenizer.special_tokens.values())


def test_a_word_that_no_merge_leads_to_is_whole_for_llama_3_only(parts):
    tokens, kinds, merges = parts
    tokens, kinds = [*tokens, "zebra"], [*kinds, 1]
    for pre, expected in (("llama-bpe", 1), ("gpt-2", 5)):
        assert len(FastTokenizer(byte_level_bpe(tokens, kinds, merges, pre)).encode("zebra")) == expected


def test_kinds_of_tokens(parts):
    tokenizer = FastTokenizer(byte_level_bpe(*parts, "smollm"), "<|im_start|>")
    think = VOCABULARY.tokens.index(THINK)
    assert tokenizer.special_tokens == dict(zip(CONTROL, range(3), strict=True))
    assert tokenizer.bos_id == 1
    assert tokenizer.vocab_size == think + 1  # without the unused rows
    assert tokenizer.encode(f"a{THINK}") == [*tokenizer.encode("a"), think]
    assert tokenizer.decode([0, think, 2]) == THINK
    assert tokenizer.decode([think + 1, think + 2]) == ""
    assert tokenizer.encode_rendered("<|im_start|>a<|im_end|>") == [1, *tokenizer.encode("a"), 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.pre": "deepseek-llm"}, "tokenizer.ggml.pre='deepseek-llm': supported are gpt-2, llama-bpe"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model='llama': only gpt2"),
        ({"tokenizer.ggml.merges": ["a b", "zz yy"]}, "tokenizer.ggml.merges do not fit the tokens"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "tokenizer.ggml.merges do not fit the tokens"),
        ({"tokenizer.ggml.token_type": [1, 1]}, r"tokenizer.ggml.token_type has 2 entries for \d+ tokens"),
        ({"tokenizer.ggml.tokens": ["!", *VOCABULARY.tokens[1:]]}, "tokenizer.ggml.tokens has tokens twice: '!'"),
        ({"tokenizer.ggml.tokens": [*VOCABULARY.tokens, *"\u4e00\u4e8c\u4e09\u56db"]}, "tokens, but embeddings of"),
        ({"tokenizer.ggml.bos_token_id": 100_000}, "tokenizer.ggml.bos_token_id=100000: there are"),
        ({"tokenizer.ggml.bos_token_id": 50}, "the token that begins a sequence, .* is not a control token"),
    ],
)
def test_a_vocabulary_that_is_not_ours_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=f"a.gguf: .*{message}"):
        made(tmp_path, changes=change)[0].tokenizer()


def test_a_vocabulary_without_a_pre_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a.gguf: tokenizer.ggml.pre is missing"):
        made(tmp_path, without=("tokenizer.ggml.pre",))[0].tokenizer()


def test_stop_ids_are_all_that_the_file_names(tmp_path):
    file, _, _ = made(tmp_path, changes={"tokenizer.ggml.eot_token_id": 0, "tokenizer.ggml.eom_token_id": 2})
    assert file.stop_ids == (2, 0)
    file, _, _ = made(tmp_path, without=("tokenizer.ggml.eos_token_id",))
    with pytest.raises(ValueError, match="tokenizer.ggml.eos_token_id is missing"):
        _ = file.stop_ids


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_files_describe_the_same_policy(tmp_path, architecture):
    scaled = (
        {"rope_freqs.weight": rope_freqs(config("llama", rope_theta=5e5), LLAMA3)} if architecture == "llama" else {}
    )
    file, _, _ = made(tmp_path, architecture, rope_theta=5e5, extra=scaled, changes={"tokenizer.ggml.eot_token_id": 0})
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in file.files().items():
        (folder / name).write_bytes(content)
    assert read_config(folder) == file.config
    ours, theirs = file.tokenizer(), load_tokenizer(folder)
    assert theirs.bos_id == ours.bos_id == file.bos_id == 1
    assert theirs.special_tokens == ours.special_tokens
    for text in TEXTS:
        assert theirs.encode(text) == ours.encode(text)
        assert theirs.encode_rendered(text) == ours.encode_rendered(text)
    chat = read_chat(file.files(), "folder")
    assert chat.template.source == TEMPLATE
    assert chat.stop_ids == file.stop_ids == (2, 0)


@pytest.fixture(scope="module")
def smollm2():
    return gguf_fixtures.smollm2()


def test_smollm2_reads_digits_one_by_one(smollm2):
    tokenizer = smollm2.tokenizer()
    assert spelt(tokenizer, "The sum is 1969  and 12.") == [
        "The", " sum", " is", " ", "1", "9", "6", "9", " ", " and", " ", "1", "2", ".",
    ]  # fmt: skip
    assert spelt(tokenizer, "a  12") == ["a", "  ", "1", "2"]
    assert tokenizer.encode_rendered("<|im_start|>user\n") == [1, *tokenizer.encode("user\n")]
