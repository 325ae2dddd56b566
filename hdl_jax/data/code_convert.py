"""What a publisher's row of a programming problem says: the converters of data/code_sets.py."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from hdl_jax.data.code_row import CodeRow
from hdl_jax.data.code_tests import A_TEXT, NO_TESTS, decode_tests, parse, unpack
from hdl_jax.data.convert import Dropped, Raw, RowError, unicode

NOT_PASSED = "its publisher's solution does not pass"
OTHER_CLASS = "calls a method of another class than Solution"


def published(raw: Raw) -> CodeRow:
    """A problem of DeepCoder, rStar-Coder, or our own: `tests`, or columns `inputs` and `outputs`.

    Where rows say whether a solution passed, only those that say so are problems: the tests of others may be wrong.
    """
    if str(raw.get("passed")).lower() in ("false", "0"):
        raise Dropped(NOT_PASSED)
    tests = raw.get("tests")
    if tests is None and raw.get("inputs") is not None:
        tests = _columns(raw)
    if tests is None:
        raise Dropped(NO_TESTS)
    return _row(raw, *decode_tests(tests, _function(raw)))


def _columns(raw: Raw) -> dict[str, Any]:
    """rStar-Coder: JSON texts of lists of inputs and outputs; of a function's, each is a JSON text once more."""
    if raw.get("class") not in (None, "", "Solution"):
        raise Dropped(OTHER_CLASS)
    function = _function(raw)
    sides = {side: unpack(raw.get(side)) for side in ("inputs", "outputs")}
    for side, values in sides.items():
        if not isinstance(values, list):
            raise RowError(f"{raw.find(side)[0]} must be a list, is {type(values).__name__}")
        if function:
            sides[side] = [parse(value) if isinstance(value, str) else value for value in values]
    return {**sides, "fn_name": function}


def _function(raw: Raw) -> str:
    """The function that tests call, from the row's own fields: a name, or metadata (JSON text) with one."""
    if raw.get("entry") not in (None, ""):
        return raw.text("entry")
    metadata = raw.get("metadata")
    if isinstance(metadata, str):
        metadata = parse(metadata) if metadata.strip() else None
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def livecodebench(start: datetime.date, end: datetime.date) -> Callable[[Raw], CodeRow]:
    """A converter for problems of contests from `start` on and before `end`: a contest at midnight of `end` is out.

    The tests are the public ones, then the private ones, as LiveCodeBench itself judges by both.
    """

    def convert(raw: Raw) -> CodeRow:
        date = _date(raw)
        if not start <= date.date() < end:
            raise Dropped(f"not from {start} on and before {end}")
        tests = []
        for field in ("public", "private"):
            cases = unpack(raw.get(field)) if raw.get(field) not in (None, "") else []
            if not isinstance(cases, list):
                raise RowError(f"{raw.find(field)[0]} must hold a list, holds {type(cases).__name__}")
            tests += cases
        return _row(raw, *decode_tests(tests, _function(raw)), contest_date=date.isoformat())

    return convert


def _date(raw: Raw) -> datetime.datetime:
    value = raw.get("contest_date")
    if isinstance(value, datetime.datetime):
        return value
    text = raw.text("contest_date")
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise RowError(f"contest_date must be a date, as 2025-01-31T00:00:00, is {text[:40]!r}") from error


def _row(raw: Raw, tests: Any, entry: str, **meta: str) -> CodeRow:
    starter = raw.get("starter")
    if not isinstance(starter, str | None):
        raise RowError(f"{raw.find('starter')[0]} must be text, is {type(starter).__name__}")
    starter = unicode(starter.rstrip().lstrip("\n"), A_TEXT) if starter else ""
    return CodeRow(raw.id(), raw.text("question"), tests, entry, starter, {**raw.meta(), **meta})
