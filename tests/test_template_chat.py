"""Conversations in a model's own template: what is rendered once, what is appended, and what stays text."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_fixtures import TEMPLATES, TOKENS, ByteTokenizer, chat, own, spelt

from hdl_jax.localize.hindsight import parse_outcome
from hdl_jax.localize.reflection import parse_steps
from hdl_jax.policy.template import Template
from hdl_jax.policy.template_chat import MAX_STOPS, TemplateChat
from hdl_jax.policy.texts import INSTRUCT
from hdl_jax.sampling import pool

pytest.importorskip("jinja2")

ID = ByteTokenizer.special_tokens
NAMES = sorted(TEMPLATES)


# ---- prompts ---------------------------------------------------------------------------------------------------------


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


# ---- thinking --------------------------------------------------------------------------------------------------------


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


# ---- later turns -----------------------------------------------------------------------------------------------------


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
        (
            "{% for m in messages %}{% if m.role == 'user' %}<s>{{ m.content }}</s>{% endif %}{% endfor %}",
            "leaves out what the assistant said",
        ),
        (
            "{% for m in messages %}[{{ loop.index }}]{{ m.content }}</s>{% endfor %}",
            "t.jinja frames the second turn as .* and the third as",
        ),
        ("{% for m in messages[:2] %}{{ m.content }}</s>{% endfor %}", "t.jinja leaves out what the user said"),
        ("{{ raise_exception('never') }}", "t.jinja refuses a conversation of user, assistant, user: never"),
    ],
)
def test_templates_without_turns_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        own(source)


def test_a_system_prompt_that_a_template_does_not_take_is_refused():
    with pytest.raises(ValueError, match="brackets refuses a conversation of system.*: no system prompt, please"):
        chat("brackets", system="Be brief.")


# ---- stop ids --------------------------------------------------------------------------------------------------------


def test_every_stop_id_ends_a_turn_and_the_closing_one_is_among_them():
    """Case T3: a list is common, and may lack the template's own."""
    end, other = ID["<|im_end|>"], ID["<|endoftext|>"]
    assert chat("chatml", [other]).stop_ids == (end, other)
    assert chat("chatml", [other, end, other]).stop_ids == (end, other)
    most = [ID["<|im_end|>"], *range(1, MAX_STOPS)]
    assert len(chat("chatml", most).stop_ids) == MAX_STOPS == pool.MAX_STOPS
    with pytest.raises(ValueError, match="9 stop ids .*: at most 8"):
        chat("chatml", range(1, MAX_STOPS + 1))
    with pytest.raises(ValueError, match=r"stop ids \[5000\] are not in the vocabulary of 265"):
        chat("chatml", [5000])


# ---- wording ---------------------------------------------------------------------------------------------------------


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
