"""Tokenizers of Hugging Face folders: control tokens come from rendered text only, and any ids decode."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
import tokenizers  # noqa: E402
from gguf_fixtures import CONTROL, CORPUS, TEXTS, THINK, VOCABULARY  # noqa: E402

from hdl_jax.policy.byte_level import byte_level_bpe  # noqa: E402
from hdl_jax.policy.tokenizer_files import FastTokenizer, PieceTokenizer, load_tokenizer  # noqa: E402


def byte_level():
    return byte_level_bpe(VOCABULARY.tokens, VOCABULARY.kinds, VOCABULARY.merges, "smollm")


def piece_model(kind="bpe", **changes):
    """A SentencePiece model as Llama 2's: a space before every text, bytes for strange characters."""
    model = io.BytesIO()
    arguments = dict(
        model_type=kind, vocab_size=400, hard_vocab_limit=False, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, allow_whitespace_only_pieces=True, split_digits=True,
        control_symbols=["[INST]", "[INST]2"], user_defined_symbols=["<tool>"], num_threads=1, minloglevel=2,
    )  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, **arguments | changes)
    return model.getvalue()


MODEL = piece_model()
FAST = FastTokenizer(byte_level(), "<|im_start|>")
PIECES = PieceTokenizer(MODEL, "<s>")
BOTH = pytest.mark.parametrize("tokenizer", [FAST, PIECES], ids=["tokenizer.json", "tokenizer.model"])
# Texts made of what means something to a tokenizer, beside any other.
FRAGMENTS = [
    *CONTROL,
    *"<|>[ \n1",
    "<s>",
    "</s>",
    "[INST]",
    "[INST]2",
    THINK,
    "im_end",
    "\u00e9",
    "e\u0301",
    "\U0001f600",
]
WILD = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)).map("".join)


def folder(path, tokenizer=None, **files):
    """A folder of a tokenizer.json and JSON files by their stems."""
    if tokenizer is not None:
        (path / "tokenizer.json").write_text(tokenizer.to_str())
    for stem, content in files.items():
        (path / f"{stem}.json").write_text(json.dumps(content))
    return path


# ---- what holds of every tokenizer ----------------------------------------------------------------------------------


@BOTH
@settings(max_examples=200, deadline=None)
@given(text=WILD)
def test_no_text_becomes_a_control_token(tokenizer, text):
    assert not set(tokenizer.encode(text)) & set(tokenizer.special_tokens.values())


@settings(max_examples=200, deadline=None)
@given(text=WILD)
def test_any_text_survives_the_round_trip(text):
    assert FAST.decode(FAST.encode(text)) == text
    space = "\u2581"  # SentencePiece's own spelling of a space
    assert PIECES.decode(PIECES.encode(text)) == text.replace(space, " ")


@BOTH
@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 500) | st.integers() | st.sampled_from([-1, 2**31, 2**32, 2**64])))
def test_any_ids_decode(tokenizer, ids):
    readable = [i for i in ids if 0 <= i < tokenizer.vocab_size and i not in tokenizer.special_tokens.values()]
    text = tokenizer.decode(ids)
    assert text == tokenizer.decode(readable)
    text.encode()  # no half characters


@BOTH
def test_an_id_beyond_the_vocabulary_has_no_text(tokenizer):
    assert tokenizer.decode([tokenizer.vocab_size, tokenizer.vocab_size + 7]) == ""
    assert tokenizer.decode([tokenizer.vocab_size - 1]) != ""


@BOTH
def test_ids_may_be_numpys(tokenizer):
    ids = tokenizer.encode("the year")
    assert tokenizer.decode(np.array(ids, np.int32)) == "the year"


@BOTH
def test_ids_cut_inside_a_character_are_kept(tokenizer):
    """Cases T5 and T5b: text is worked out of ids for people to read, and ids never out of that text."""
    ids = tokenizer.encode("a \U0001f680 b")
    cut = next(n for n in range(len(ids)) if "\ufffd" in tokenizer.decode(ids[:n]))
    assert tokenizer.encode(tokenizer.decode(ids[:cut])) != ids[:cut]
    assert tokenizer.decode([*ids[:cut], *ids[cut:]]) == "a \U0001f680 b"


@BOTH
def test_threads_do_not_see_each_other(tokenizer):
    """Plain and rendered encoding at once, as environments and chats do it; a shared switch would mix them up."""
    control = next(iter(tokenizer.special_tokens))
    text = f"{control}the year {control} 1969" * 20
    plain, rendered = tokenizer.encode(text), tokenizer.encode_rendered(text)
    assert plain != rendered

    def work(i):
        return all(
            (tokenizer.encode if i % 2 else tokenizer.encode_rendered)(text) == (plain if i % 2 else rendered)
            for _ in range(200)
        )

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(switch)


# ---- tokenizer.json -------------------------------------------------------------------------------------------------


def test_nothing_is_added_cut_or_padded(tmp_path):
    """Cases T6: what begins a sequence is the template's to put, once."""
    tokenizer = byte_level()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> $A", pair="$A $B", special_tokens=[("<|im_start|>", 1)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=64)
    loaded = load_tokenizer(folder(tmp_path, tokenizer))
    for text in TEXTS:
        assert loaded.encode(text) == FAST.encode(text)
        assert loaded.encode_rendered(text) == FAST.encode_rendered(text)
    rendered = "<|im_start|>user\nhi<|im_end|>\n"
    assert loaded.encode_rendered(rendered).count(1) == 1


def test_rendered_control_tokens_become_their_ids():
    ids = FAST.encode_rendered(f"<|im_start|>user\n{THINK}<|im_end|>")
    assert ids == [1, *FAST.encode(f"user\n{THINK}"), 2]
    assert FAST.decode(ids) == f"user\n{THINK}"
    assert FAST.special_tokens == dict(zip(CONTROL, range(3), strict=True))


@pytest.mark.parametrize("bos", ["<|im_start|>", {"content": "<|im_start|>", "special": True}])
@pytest.mark.parametrize("stem", ["tokenizer_config", "special_tokens_map"])
def test_what_begins_a_sequence_is_read_from_beside_it(tmp_path, stem, bos):
    assert load_tokenizer(folder(tmp_path, byte_level(), **{stem: {"bos_token": bos}})).bos_id == 1


def test_nothing_need_begin_a_sequence(tmp_path):
    assert load_tokenizer(folder(tmp_path, byte_level())).bos_id is None
    files = {"tokenizer_config": {"bos_token": None}, "special_tokens_map": {"bos_token": "<|im_start|>"}}
    assert load_tokenizer(folder(tmp_path, byte_level(), **files)).bos_id is None


@pytest.mark.parametrize("bos", ["the", "<s>"])
def test_only_a_control_token_begins_a_sequence(tmp_path, bos):
    with pytest.raises(ValueError, match=rf"tokenizer.json: the token that begins .*, '{bos}', is not a control"):
        load_tokenizer(folder(tmp_path, byte_level(), tokenizer_config={"bos_token": bos}))


def test_a_vocabulary_that_lets_text_forge_control_tokens_is_refused():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[CLS]": 0, "a": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["[CLS]"])
    with pytest.raises(ValueError, match=r"plain text would become the control token that it spells: '\[CLS\]'"):
        FastTokenizer(words)


def test_vocab_size_counts_holes():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 9}, unk_token="?"))
    assert FastTokenizer(words).vocab_size == 10
    assert FastTokenizer(words).decode([0, 5, 9]) == "a ?"


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="has neither tokenizer.json nor tokenizer.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ValueError, match=r"tokenizer.json is not a readable tokenizer: "):
        load_tokenizer(tmp_path)
    for broken in ("{", "[1]", '"x"', "3"):
        (folder(tmp_path, byte_level()) / "tokenizer_config.json").write_text(broken)
        with pytest.raises(ValueError, match="tokenizer_config.json is not a JSON object"):
            load_tokenizer(tmp_path)


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ImportError, match=r"pip install 'hdl_jax\[hf\]'"):
        load_tokenizer(tmp_path)


# ---- tokenizer.model ------------------------------------------------------------------------------------------------


@pytest.fixture
def pieces(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(MODEL)
    return tmp_path


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_ids_are_those_of_sentencepiece(kind):
    model = piece_model(kind)
    tokenizer, processor = PieceTokenizer(model), sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokenizer.vocab_size == processor.vocab_size()
    for text in TEXTS:
        assert tokenizer.encode(text) == processor.encode(text)
        assert tokenizer.decode(processor.encode(text)) == text
    assert processor.id_to_piece(tokenizer.encode("the")[0])[0] == "\u2581"  # the space before every text


def test_the_space_before_a_text_is_not_repeated_inside_a_conversation():
    """Against the same model with its setting changed in the file's own terms."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(MODEL)
    proto.normalizer_spec.add_dummy_prefix = False
    bare = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    tokenizer = PieceTokenizer(MODEL, "<s>")
    one, two = (tokenizer.special_tokens[name] for name in ("[INST]", "[INST]2"))
    assert tokenizer.bos_id == 1
    inner = [one, *bare.encode("the year"), two, *bare.encode(" of")]
    assert tokenizer.encode_rendered("<s>[INST]the year[INST]2 of") == [1, *inner]
    assert tokenizer.encode_rendered("the[INST]the year[INST]2 of") == [*tokenizer.encode("the"), *inner]
    assert tokenizer.encode_rendered("") == []
    assert tokenizer.decode([1, *inner]) == "the year of"


def test_legacy_repeats_it(pieces):
    (pieces / "tokenizer_config.json").write_text('{"legacy": true, "bos_token": "<s>"}')
    tokenizer = load_tokenizer(pieces)
    assert tokenizer.encode_rendered("<s>the year") == [1, *tokenizer.encode("the year")]
    assert tokenizer.encode_rendered("<s>the year") != PIECES.encode_rendered("<s>the year")


def test_control_tokens_added_beside_the_model(pieces):
    n = PIECES.vocab_size
    added = {
        "0": {"content": "<unk>", "special": True},
        "1": {"content": "<s>", "special": True},
        str(n + 2): {"content": "<|im_end|>", "special": True},
    }
    (pieces / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added, "bos_token": "<s>"}))
    tokenizer = load_tokenizer(pieces)
    assert tokenizer.vocab_size == n + 3
    assert tokenizer.special_tokens == {**PIECES.special_tokens, "<|im_end|>": n + 2}
    ids = tokenizer.encode_rendered("<s>the<|im_end|>")
    assert (ids[0], ids[-1], tokenizer.decode(ids)) == (1, n + 2, "the")


@pytest.mark.parametrize("content", ["<think>", "the"])
def test_other_tokens_added_beside_the_model_are_refused(pieces, content):
    added = {str(PIECES.vocab_size): {"content": content, "special": False}}
    (pieces / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(ValueError, match=f"tokenizer.model lacks tokens .*: '{content}'. Save the tokenizer"):
        load_tokenizer(pieces)


def test_a_model_without_control_tokens():
    tokenizer = PieceTokenizer(piece_model(control_symbols=[], bos_id=-1, eos_id=-1))
    assert tokenizer.special_tokens == {} and tokenizer.bos_id is None
    assert tokenizer.encode_rendered("the <s>year") == tokenizer.encode("the <s>year")


def test_a_model_that_cannot_be_read(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="tokenizer.model: not a SentencePiece model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(MODEL)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<|begin|>"}')
    with pytest.raises(ValueError, match=r"tokenizer.model: the token that begins a sequence, '<\|begin\|>'"):
        load_tokenizer(tmp_path)
