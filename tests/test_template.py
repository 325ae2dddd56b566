"""Chat templates: what they may do, what they may not, and that a mistake is named."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_fixtures import TEMPLATES, TOKENS

from hdl_jax.policy.template import Template

pytest.importorskip("jinja2")

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages=USER, *, tokens=None, **options) -> str:
    return Template(source, tokens or {}).render(messages, add_generation_prompt=True, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),  # blocks take their line with them
        ("{{ messages | length }}{{ messages[0].role }}{{ messages[0]['content'] }}", "1userhi"),
        ("{{ add_generation_prompt }}{{ tools is none }}{{ documents is none }}", "TrueTrueTrue"),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}", "False"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ {'é': 1} | tojson(ensure_ascii=true) }}", '{"\\u00e9": 1}'),
        ("{% set ns = namespace(n=1, self=2) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ ns.self }}", "22"),
        ("{{ dict(a=1) }}{{ dict([('b', 2)]).b }}{{ dict.fromkeys('ab', 0) }}", "{'a': 1}2{'a': 0, 'b': 0}"),
        ("{{ '<b>' }}", "<b>"),
        ("{{ bos_token }}|{{ eos_token }}", "<s>|"),
    ],
)
def test_what_templates_are_offered(source, text):
    assert render(source, tokens={"bos_token": "<s>"}) == text


@pytest.mark.parametrize(("thinking", "text"), [(None, "unsaid"), (True, "True"), (False, "False")])
def test_the_thinking_switch_is_given_or_left_alone(thinking, text):
    source = "{{ enable_thinking if enable_thinking is defined else 'unsaid' }}"
    assert render(source, thinking=thinking) == text
    assert Template(source, {}).variables == {"enable_thinking"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ dict.update(messages[0], {'a': 1}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ strftime_now.__self__.today() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{% set ns = namespace() %}{% set ns.__html__ = 1 %}",
        "{% set ns = namespace(_a=1) %}",
        "{% set ns = namespace({'__call__': 1}) %}",
        "{% include '/etc/hostname' %}",
    ],
)
def test_a_template_reaches_nothing_outside(source):
    with pytest.raises((ValueError, TypeError)):
        render(source)
    assert USER == [{"role": "user", "content": "hi"}]


def test_a_refusal_carries_the_templates_words_and_its_name():
    template = Template("{{ raise_exception('only two roles') }}", {}, "models/x/chat_template.jinja")
    with pytest.raises(ValueError, match="models/x/chat_template.jinja refuses a conversation of user: only two roles"):
        template.render(USER, add_generation_prompt=True)
    with pytest.raises(ValueError, match="undefined"):
        render("{{ 'a' + missing }}")


def test_a_syntax_error_names_file_and_line():
    with pytest.raises(ValueError, match="t.jinja, line 3: "):
        Template("a\nb\n{% if %}", {}, "t.jinja")


def test_the_time_is_that_of_the_template(monkeypatch):
    """A date in a prompt does not change in the middle of a run."""

    class Clock(datetime.datetime):
        day = 1

        @classmethod
        def now(cls, tz=None):
            return datetime.datetime(2024, 7, cls.day)

    monkeypatch.setattr(datetime, "datetime", Clock)
    template = Template("{{ strftime_now('%d %b %Y') }}", {})
    Clock.day = 2
    assert template.render(USER, add_generation_prompt=True) == "01 Jul 2024"


def test_threads_share_a_template():
    template = Template(TEMPLATES["thinker"], TOKENS["thinker"])
    conversations = [[{"role": "user", "content": f"{i} " * (i % 50)}] for i in range(200)]

    def one(messages):
        return template.render(messages, add_generation_prompt=True, thinking=False)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, conversations)) == [one(c) for c in conversations]
