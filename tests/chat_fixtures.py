"""Chat templates that behave as published ones do, and a tokenizer of bytes to read ids by."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hdl_jax.policy.template import Template
from hdl_jax.policy.template_chat import TemplateChat

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|bos|>", "<|head|>", "<|tail|>", "<|eot|>", "<s>", "</s>",
)  # fmt: skip

# As SmolLM2: a system prompt of its own where there is none.
CHATML = """\
{% for m in messages %}
{% if loop.first and m['role'] != 'system' %}
{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# As Qwen3: thinks unless told not to, which puts an empty thought; drops the thoughts before the last question, and
# writes one, if only an empty one, into an answer that comes after it.
THINKER = """\
{%- set ns = namespace(asked=-1) %}
{%- for m in messages if m.role == 'user' and not m.content.startswith('<tool_response>') %}
    {%- set ns.asked = messages.index(m) %}
{%- endfor %}
{%- for m in messages %}
    {%- set text, thought = m.content, '' %}
    {%- if m.role == 'assistant' and '</think>' in text %}
        {%- set thought = text.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
        {%- set text = text.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' and loop.index0 > ns.asked %}
        {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# As Llama 3.1 and Nemotron: BOS in the template, a header a turn, always a system turn, everything trimmed.
HEADERS = """\
{{- bos_token }}
{%- set told = messages[0]['content'] | trim if messages[0]['role'] == 'system' else '' %}
{{- '<|head|>system<|tail|>\\n\\nToday: ' + strftime_now('%Y') + '\\n' + told + '<|eot|>' }}
{%- for m in messages if m['role'] != 'system' %}
    {%- set text = m['content'].split('</think>')[-1].lstrip() if m['role'] == 'assistant' else m['content'] %}
    {{- '<|head|>' + m['role'] + '<|tail|>\\n\\n' + text | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|tail|>\\n\\n' }}{% endif %}"""

# As Llama 2: a BOS before every question, a space before the closing token, no word for where the assistant speaks.
BRACKETS = """\
{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system prompt, please') }}{% endif %}
{% for m in messages %}
{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}
{%- else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

TEMPLATES = {"chatml": CHATML, "thinker": THINKER, "headers": HEADERS, "brackets": BRACKETS}
TOKENS = {
    "chatml": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "thinker": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "headers": {"bos_token": "<|bos|>", "eos_token": "<|eot|>"},
    "brackets": {"bos_token": "<s>", "eos_token": "</s>"},
}


class ByteTokenizer:
    """A byte an id, and the control tokens of all the templates above."""

    special_tokens = {text: 256 + i for i, text in enumerate(SPECIAL)}
    vocab_size = 256 + len(SPECIAL)

    def __init__(self, bos: str | None = None):
        self.bos_id = None if bos is None else self.special_tokens[bos]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_rendered(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, SPECIAL))})", text):
            ids += [self.special_tokens[piece]] if piece in self.special_tokens else self.encode(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


def chat(name: str, stop_ids: Sequence[int] = (), **options) -> TemplateChat:
    """A chat in one of the templates above."""
    template = Template(TEMPLATES[name], TOKENS[name], name)
    return TemplateChat(ByteTokenizer(TOKENS[name].get("bos_token")), template, stop_ids, **options)


def own(source: str, **options) -> TemplateChat:
    """A chat in another template, `t.jinja`, whose control tokens are <s> and </s>."""
    return TemplateChat(ByteTokenizer("<s>"), Template(source, TOKENS["brackets"], "t.jinja"), (), **options)


def spelt(ids: Sequence[int]) -> str:
    """The text of some ids, control tokens included."""
    return b"".join(bytes([i]) if i < 256 else SPECIAL[i - 256].encode() for i in ids).decode()
