"""Custom: a file of prompts and a Python function that rewards a response, both the user's; see docs/bring_your_own.md.

A row of the file is a JSON object on a line of its own: `prompt`, the first user message; `id`, if the line's number is
not to name it; and whatever else the reward function wants to know. The function is `reward(row, response)`, with the
row as it stands in the file and the policy's whole response. It returns a number from 0 to 1, or that and a text: the
feedback that hindsight is given. It runs in worker processes that can be killed (workers.py): where it raises, hangs or
dies, the response has no reward and is left out of the training, never counted as wrong.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.domains.single_turn import SingleTurn
from hdl_jax.domains.words import classify
from hdl_jax.workers import WorkerFailure, WorkerPool

LONGEST_FEEDBACK = 1000  # characters; prompts with it have to fit `engine.context_tokens`


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a file.

    Attributes:
        where: file and line. id: unique within the file. prompt: the first user message.
        fields: all of it, as the reward function gets it.
    """

    where: str
    id: str
    prompt: str
    fields: dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a JSONL file, in its order; empty lines are none.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no JSON object, lacks its prompt, or has the id of another; names file, line and field.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of prompts")
    rows: dict[str, Row] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            if line.strip():
                try:
                    name, prompt, fields = _parsed(line, number)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from error
                if name in rows:
                    raise ValueError(f"{where}: its id {name!r} is also that of {rows[name].where}")
                rows[name] = Row(where, name, prompt, fields)
    if not rows:
        raise ValueError(f'{path}: no row in it: a row is a line such as {{"prompt": "What is 6 * 7?", "answer": 42}}')
    return list(rows.values())


def _parsed(line: bytes, number: int) -> tuple[str, str, dict[str, Any]]:
    """A line's id, prompt and all of its fields. Raises ValueError."""
    try:
        fields = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"a row is a JSON object, not {_shown(fields)}")
    if "prompt" not in fields:
        raise ValueError(f"no field `prompt` in {_shown(fields)}")
    prompt, name = fields["prompt"], fields.get("id", number)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"prompt={_shown(prompt)}: must be a text")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ValueError(f"id={_shown(name)}: must be a text or a whole number")
    for field, text in (("prompt", prompt), ("id", str(name))):
        if not _is_text(text):
            raise ValueError(f"{field}={_shown(text)}: holds half a character, which no tokenizer takes")
    return str(name), prompt, fields


class CustomEpisode(SingleTurn):
    """One attempt at one prompt: the first action is the response and ends the episode."""

    def __init__(self, domain: Custom, row: Row):
        self._domain, self._row = domain, row

    def opening(self) -> str:
        """The prompt."""
        return self._row.prompt

    def verdict(self) -> Verdict:
        """What the reward function says of the response; a success is a reward of 1.

        Raises:
            EnvironmentFailure: the function raised, ran into its limit, or died.
            ValueError: what it returned is no reward.
        """
        return self._domain.judge(self._row, self.response)


class Custom:
    """The domain. Its splits are `train` and `validation`.

    Args:
        data, eval_data: the files of the two splits.
        reward: `path/to/file.py:function` or `package.module:function`.
        workers: processes that the function runs in. limit_s: seconds that it may take for a response.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: an argument is missing, a file is not what it should be (see `read_rows`), or the function does not
            work for an empty response to the first prompt.
        ImportError: the function cannot be imported; the message ends with the traceback.
    """

    name = "custom"
    max_actions = 1

    def __init__(self, data: str, eval_data: str, reward: str, workers: int, limit_s: float):
        for field, value, what in (
            ("data", data, "FILE.jsonl with the prompts to train on"),
            ("eval_data", eval_data, "FILE.jsonl with the prompts to evaluate on"),
            ("reward", reward, "FILE.py:FUNCTION"),
        ):
            if not value:
                raise ValueError(f"domain.name='custom' needs domain.{field}={what}")
        self._rows = {"train": read_rows(Path(data)), "validation": read_rows(Path(eval_data))}
        self._reward = reward
        self._pool = WorkerPool(reward, workers=workers, limit_s=limit_s)
        try:
            self.judge(self._rows["train"][0], "")
        except EnvironmentFailure as failure:
            self._pool.close()
            raise ValueError(f"the reward function does not work for an empty response: {failure}") from failure

    def judge(self, row: Row, response: str) -> Verdict:
        """What the reward function says of a response. Raises as `CustomEpisode.verdict` does."""
        try:
            said = self._pool(row.fields, response)
        except WorkerFailure as failure:
            raise EnvironmentFailure(f"{row.where}: {failure}") from failure
        reward, feedback = said if isinstance(said, tuple) and len(said) == 2 else (said, None)
        if not _is_reward(reward) or not isinstance(feedback, str | None):
            raise ValueError(
                f"domain.reward={self._reward} returned {_shown(said)} for {row.where}: it must return a number from "
                "0 to 1, or (number, text)"
            )
        if feedback is None:
            feedback = "Correct." if reward == 1 else f"Not right: the reward is {float(reward):.3g}; 1 is the best."
        return Verdict(float(reward), bool(reward == 1), _cut(feedback, LONGEST_FEEDBACK))

    def problems(self, split: str) -> Sequence[Problem]:
        """All prompts of a split, in the file's order. Raises ValueError for an unknown one, naming those there are."""
        return [Problem(f"custom/{split}/{row.id}", i, split) for i, row in enumerate(self._split(split))]

    def start(self, problem: Problem) -> CustomEpisode:
        """A fresh episode of the problem."""
        return CustomEpisode(self, self._split(problem.split)[problem.index])

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """See `words.classify`."""
        return classify(action)

    def _split(self, split: str) -> list[Row]:
        if split not in self._rows:
            raise ValueError(f"custom has no split {split!r}; it has {', '.join(self._rows)}")
        return self._rows[split]


def _is_text(text: str) -> bool:
    """Whether all of it is characters: JSON can spell halves of them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_reward(value: Any) -> bool:
    """Whether it is a number from 0 to 1, Python's or numpy's, or a truth value; NaN is none."""
    return isinstance(value, int | float | np.bool_ | np.integer | np.floating) and bool(0 <= value <= 1)


def _shown(value: Any) -> str:
    return _cut(ascii(value), 200)


def _cut(text: str, longest: int) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= longest else f"{text[:longest]}..."
