"""A model's own chat template: Jinja source that comes with its weights, rendered as transformers renders it.

Templates are written against what `apply_chat_template` of transformers offers them: its whitespace rules, loop
controls, a `tojson` that leaves HTML alone, `raise_exception`, `strftime_now`, and a `{% generation %}` block that
marks the assistant's own text. The same is offered here (read from transformers 5.24), in Jinja's sandbox: a template
is a program that came with a download.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# What the templates of Qwen3 and SmolLM3 read to switch thinking on or off.
THINKING = "enable_thinking"


class Template:
    """A compiled chat template. Threads may share one.

    `strftime_now` tells the time at which the template was made: a template that puts the date into its prompts would
    otherwise turn one problem into another at midnight.

    Attributes:
        variables: the names it reads and does not set.
    """

    def __init__(self, source: str, tokens: Mapping[str, str], origin: str = "the chat template"):
        """Compiles a template.

        Args:
            source: the Jinja source. origin: what errors call it.
            tokens: what it may read of the vocabulary, e.g. `{"bos_token": "<s>", "eos_token": "</s>"}`.

        Raises:
            ValueError: the source is not a Jinja template; names the line.
            ImportError: jinja2 is not installed.
        """
        try:
            import jinja2.meta
        except ImportError as error:
            raise ImportError("a chat template needs jinja2: pip install 'hdl_jax[hf]'") from error
        self.source, self.tokens, self.origin = source, dict(tokens), origin
        self._error = jinja2.TemplateError
        environment = _environment(datetime.datetime.now())
        try:
            self._compiled = environment.from_string(source)
            self.variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"{origin}, line {error.lineno}: {error.message}") from error

    def render(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, thinking: bool | None = None
    ) -> str:
        """The text of a conversation.

        Args:
            messages: each with a `role` and a `content`.
            add_generation_prompt: whether it ends where the assistant is to speak.
            thinking: the template's thinking switch; None leaves it to the template.

        Raises ValueError if the template refuses the conversation; carries its message.
        """
        switch = {} if thinking is None else {THINKING: thinking}
        try:
            return self._compiled.render(
                messages=messages,  # the sandbox lets nothing be changed
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.tokens,
                **switch,
            )
        except self._error as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ValueError(f"{self.origin} refuses a conversation of {roles}: {error}") from error


def _environment(now: datetime.datetime) -> Any:
    """The sandbox that templates are compiled in."""
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
    import jinja2.utils

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` ... `{% endgeneration %}`: what is inside, with the scope of a call block."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller: Any) -> str:
            return caller()

    class Namespace(jinja2.utils.Namespace):
        """Jinja's, without names that Python itself looks for on an object."""

        def __init__(*args: Any, **attributes: Any) -> None:
            self, *given = args
            attributes = dict(*given, **attributes)
            _check_names(attributes)
            jinja2.utils.Namespace.__init__(self, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_names([name])
            super().__setitem__(name, value)

    def _check_names(names: Iterable[str]) -> None:
        for name in names:
            if str(name).startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace may not have an attribute {name!r}")

    class Dict:
        """Makes dictionaries, and has none of the methods that change one."""

        def __call__(self, *args: Any, **items: Any) -> dict:
            return dict(*args, **items)

        def fromkeys(self, *args: Any) -> dict:
            return dict.fromkeys(*args)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": now.strftime,
        "dict": Dict(),
        "namespace": Namespace,
    }
    return environment
