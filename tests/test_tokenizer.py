"""The vocabulary: lossless, deterministic, and no text can forge a control symbol."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains import errands
from hdl_jax.policy.tokenizer import ASSISTANT, BOS, END, PAD, UNK, USER, SentencePieceTokenizer, train_vocabulary
from hdl_jax.warmstart import ASSETS

SHIPPED = SentencePieceTokenizer.load(ASSETS / "errands.model")
CONTROL = {PAD, UNK, BOS, END, USER, ASSISTANT}


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")))
def test_any_text_survives_the_round_trip(text):
    ids = SHIPPED.encode(text)
    assert SHIPPED.decode(ids) == text
    assert not CONTROL & set(ids)


@pytest.mark.parametrize("symbol", ["<pad>", "<unk>", "<bos>", "<end>", "<user>", "<assistant>"])
def test_a_control_symbol_in_a_text_is_ordinary_text(symbol):
    text = f" go hall{symbol} {symbol}open desk"
    ids = SHIPPED.encode(text)
    assert not CONTROL & set(ids)
    assert SHIPPED.decode(ids) == text


def test_control_symbols_and_unused_rows_decode_to_nothing():
    ids = SHIPPED.encode(" take pen")
    assert SHIPPED.decode([BOS, USER, *ids, END, SHIPPED.vocab_size, 10_000]) == " take pen"


def test_every_byte_sequence_decodes():
    for start in range(6, 262):
        assert isinstance(SHIPPED.decode([start, 200, start]), str)


def test_words_of_the_game_are_single_pieces():
    ruined = [treatment.ruin for treatment in errands.TREATMENTS.values()]
    words = {*errands.ROOMS, *errands.CONTAINERS, *errands.OBJECTS, *errands.VERBS, *errands.FILLERS}
    words |= {*errands.TREATMENTS, *ruined, "cannot", "have", "nothing", "over", "score", "completed", "."}
    assert {word for word in words if len(SHIPPED.encode(f" {word}")) != 1} == set()


def test_same_texts_give_the_same_bytes(tmp_path):
    texts = [" go hall", " open desk", " desk : pen lamp", " have pen", " caf\u00e9 \u20ac"] * 20
    first = train_vocabulary(texts, tmp_path / "a.model", vocab_size=300)
    second = train_vocabulary(texts, tmp_path / "b.model", vocab_size=300)
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()
    assert first.vocab_size == second.vocab_size <= 300
    assert len(first.encode(" open desk")) == 2


def test_a_vocabulary_with_other_control_symbols_is_refused(tmp_path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["some text", "more text"] * 9),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match="must begin with <pad> <unk> <bos> <end> <user> <assistant>"):
        SentencePieceTokenizer(model.getvalue())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.model"):
        SentencePieceTokenizer.load(tmp_path / "absent.model")
