"""Tests of programs as publishers write them, decoded into one form. docs/data.md has the forms.

A publisher's text is never run: a pickle in it may hold values, not functions or classes.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import pickletools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hdl_jax.data.code_row import CodeTest
from hdl_jax.data.convert import Dropped, RowError, unicode

LARGEST = 1 << 30  # bytes of the tests of one problem once unpacked; the largest published are some 100 MB
_DEEPEST = 4  # texts within texts
_MEMO = 1 << 16  # objects that a pickle may remember: a few bytes may claim room for 4 billion
NO_TESTS = "has no tests"
A_TEXT = "a text"  # what an error calls one that has no field of its own
UNEQUAL = "has not as many expected outputs as inputs"


def decode_tests(published: Any, entry: str = "") -> tuple[tuple[CodeTest, ...], str]:
    """The tests of a problem, from any of the forms in docs/data.md.

    Args:
        published: text, or what JSON text of it would be.
        entry: the function that tests call which say that they call one but not which.

    Returns:
        the tests, and the function that they call; empty: they are of stdin and stdout.

    Raises:
        Dropped: there are none, or there are more inputs than outputs or fewer.
        RowError: they cannot be read, or call several functions.
    """
    value = unpack(published)
    if isinstance(value, Mapping) and "input_output" in value:
        value = unpack(value["input_output"])
    if isinstance(value, Mapping):
        inputs, outputs, entry = value.get("inputs"), value.get("outputs"), _name(value.get("fn_name"))
        if not isinstance(inputs, list) or not isinstance(outputs, list):
            raise RowError(f"its tests must have lists of inputs and of outputs, have {', '.join(map(str, value))}")
        if len(inputs) != len(outputs):
            raise Dropped(UNEQUAL)
    elif isinstance(value, list):
        for case in value:
            if not isinstance(case, Mapping) or not {"input", "output"} <= case.keys():
                raise RowError(f"a test must have an input and an output, is {_shown(case)}")
        inputs, outputs = [case["input"] for case in value], [case["output"] for case in value]
        entry = _one_entry(_called(case, entry) for case in value)
    else:
        raise RowError(f"its tests must be a list or an object, are {_shown(value)}")
    if not inputs:
        raise Dropped(NO_TESTS)
    return (_calls(inputs, outputs) if entry else _streams(inputs, outputs)), entry


def unpack(published: Any) -> Any:
    """What a text holds: JSON, JSON in a JSON text, or base64 of zlib of a pickle of one of these.

    Raises RowError: it is none of them, is larger than LARGEST, or the pickle holds more than values.
    """
    for _ in range(_DEEPEST):
        if not isinstance(published, str):
            return published
        text = published.strip()
        published = parse(text) if text[:1] in ("[", "{", '"') else _unpickle(text)
    raise RowError(f"its tests are texts within texts, more than {_DEEPEST} deep")


def parse(text: str) -> Any:
    """The value of a JSON text, NaN and infinities not among them. Raises RowError: it is none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RowError(f"a test is not JSON: {str(error)[:80]}: {_shown(text)}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class _Values(pickle.Unpickler):
    """Reads values only: nothing that a pickle names is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise RowError(f"its tests are a pickle that names {module}.{name}: refused, only values are read")

    def persistent_load(self, pid: Any) -> Any:
        raise RowError("its tests are a pickle that refers to something outside: refused, only values are read")


def _unpickle(text: str) -> Any:
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), LARGEST)
        if inflate.unconsumed_tail:
            raise RowError(f"its tests are more than {LARGEST} bytes once unpacked")
        if not inflate.eof:
            raise RowError("its tests are cut short: base64 of zlib data without an end")
        for opcode, argument, _ in pickletools.genops(data):
            if "PUT" in opcode.name and isinstance(argument, int) and argument > _MEMO:
                raise RowError(f"its tests are a pickle that claims {argument} objects: refused")
        return _Values(io.BytesIO(data)).load()
    except RowError:
        raise
    except (binascii.Error, zlib.error, ValueError) as error:
        raise RowError(f"its tests are neither JSON nor base64 of zlib of a pickle: {error}: {_shown(text)}") from error
    except Exception as error:  # a broken pickle raises what it likes
        raise RowError(f"its tests are a broken pickle: {error!r}") from error


def _name(name: Any) -> str:
    if name is None or name == "":
        return ""
    if not isinstance(name, str) or not name.isidentifier():
        raise RowError(f"the function to call must be a name, is {_shown(name)}")
    return name


_CALLS, _STREAMS = ("functional", "function_call"), ("stdin", "stdin_stdout")


def _called(case: Mapping[str, Any], entry: str) -> str:
    """The function that one test calls."""
    metadata = case.get("metadata")
    own = _name(case.get("fn_name") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None))
    kind = case.get("testtype") or case.get("type")
    if kind in _STREAMS:
        return ""
    if kind is not None and kind not in _CALLS:
        raise RowError(f"a test must be one of {', '.join(_CALLS + _STREAMS)}, is {_shown(kind)}")
    if kind in _CALLS and not (own or entry):
        raise RowError("a test calls a function but names none")
    return own or (entry if kind in _CALLS else "")


def _one_entry(entries: Iterable[str]) -> str:
    found = sorted(set(entries))
    if len(found) > 1:
        raise RowError(f"its tests are not of one kind: {', '.join(name or 'stdin' for name in found)}")
    return found[0] if found else ""


def _streams(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[CodeTest, ...]:
    return tuple(
        CodeTest(_stream(given, "stdin"), _stream(wanted, "stdout"))
        for given, wanted in zip(inputs, outputs, strict=True)
    )


def _stream(side: Any, key: str) -> str:
    """A text, its lines in a list, or {"stdin": text}."""
    if isinstance(side, Mapping):
        side = side.get(key)
    if isinstance(side, list) and all(isinstance(line, str) for line in side):
        side = "\n".join(side)
    if not isinstance(side, str):
        raise RowError(f"{key} of a test must be text or a list of lines, is {_shown(side)}")
    return unicode(side, A_TEXT)


def _calls(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[CodeTest, ...]:
    """Tests of a function: lists of arguments with values, or texts with a JSON value a line and a JSON text.

    The values of some publishers are each in a list of one, those of others are not. They are taken out where that is
    so in all tests of a problem, since a function that returns lists seldom returns one of one element every time.
    """
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return tuple(
        CodeTest(_lines(given), _text(wanted))
        if isinstance(given, str)
        else CodeTest(_arguments(given), _json(wanted[0] if wrapped else wanted))
        for given, wanted in zip(inputs, outputs, strict=True)
    )


def _arguments(given: Any) -> str:
    if not isinstance(given, list):
        raise RowError(f"the arguments of a test must be a list, are {_shown(given)}")
    return _json(given)


def _lines(given: str) -> str:
    # Not splitlines: a JSON text may hold other separators of lines than this one.
    return "[" + ", ".join(_text(line) for line in given.split("\n") if line.strip()) + "]"


def _text(value: Any) -> str:
    """A JSON text as it is: numbers keep their digits."""
    if not isinstance(value, str):
        raise RowError(f"what a function returns must be JSON text where its arguments are, is {_shown(value)}")
    text = value.strip()
    try:
        json.loads(text, parse_constant=_no_constant, parse_int=len)  # a whole number may have any number of digits
    except (ValueError, RecursionError) as error:
        raise RowError(f"a test is not JSON: {str(error)[:80]}: {_shown(text)}") from error
    return unicode(text, A_TEXT)


def _json(value: Any) -> str:
    try:
        return unicode(json.dumps(value, ensure_ascii=False, allow_nan=False), A_TEXT)
    except (ValueError, TypeError, RecursionError) as error:
        raise RowError(f"a value of a test is no JSON: {str(error)[:80]}: {_shown(value)}") from error


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"a deep {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}..."
