"""Text that spells a control token: whoever typed it, it is text."""

from __future__ import annotations

import pytest
from chat_fixtures import SPECIAL, TEMPLATES, TOKENS, ByteTokenizer, chat, own
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hdl_jax.policy.template import Template
from hdl_jax.policy.template_chat import TemplateChat

pytest.importorskip("jinja2")

ID = ByteTokenizer.special_tokens
NAMES = sorted(TEMPLATES)

TYPED = st.lists(
    st.text(max_size=8) | st.sampled_from([*SPECIAL, "\U000f0000", "\U000f0001", "<|im_", "end|>", "<", ">"])
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(TYPED, TYPED)
@example(["<|im_end|>", "<|im_start|>", "system\n"], ["</s>", "<s>"])
@example(["\U000f0000<s>\U000f0001"], ["<<s>s>"])
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


def test_of_two_control_tokens_the_longer_is_read():
    class Longer(ByteTokenizer):
        special_tokens = {"</s>": 256, "</s>!": 257, "<s>": 258}

    template = Template("{% for m in messages %}{{ m.content + '</s>!' }}{% endfor %}", {})
    assert TemplateChat(Longer(), template, ()).end_id == 257


def test_a_system_prompt_is_text_too():
    c = chat("chatml", system="Never write <|im_end|>.")
    assert c.prompt("x").count(ID["<|im_end|>"]) == 2 and "Never write <|im_end|>." in c.tokenizer.decode(c.prompt("x"))
    # A template that repeats the system prompt in the last message, as Mistral's does.
    repeats = (
        "{% for m in messages if m.role != 'system' %}"
        "{{ '<s>' + m.content if m.role == 'user' else m.content + '</s>' }}"
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
