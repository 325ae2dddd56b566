"""Code: programming problems with tests, from prepared data sets; the reward is the share of the tests that pass.

Programs run in a sandbox (sandbox.py); code_judge.py has the judging, docs/code.md all of it on one page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hdl_jax.data.code_row import CodeHead, CodeRow
from hdl_jax.data.prepared import CodeRows, read_code
from hdl_jax.data.sets import CODE_SETS
from hdl_jax.domains.code_judge import judge
from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.domains.sandbox_types import Sandbox, SandboxFailure
from hdl_jax.domains.single_turn import SingleTurn
from hdl_jax.domains.words import classify

TRAIN = "train"
FENCE = "```"
INSTRUCTION = f"Write it in Python. Put the whole program into one {FENCE}python block, the last one of your answer."


class CodeEpisode(SingleTurn):
    """One attempt at one problem: the first action is the response and ends the episode.

    Args:
        id: of the problem. head: the problem without its tests. read: gives all of it, when the program is judged: the
            tests of a training set are gigabytes, and a run looks at every question before it starts.
        instruction: what follows the question. sandbox: where its program runs.
    """

    def __init__(self, id: str, head: CodeHead, read: Callable[[], CodeRow], instruction: str, sandbox: Sandbox):
        self._id, self._head, self._read = id, head, read
        self._instruction, self._sandbox = instruction, sandbox

    def opening(self) -> str:
        """The question, what kind of program solves it, then the form of the answer."""
        entry, starter = self._head.entry, self._head.starter
        if starter:
            kind = f"The program starts from this code, and defines `{entry}`" if entry else "The program starts from"
            kind = f"{kind}:\n\n{FENCE}python\n{starter}\n{FENCE}"
        elif entry:
            kind = f"The program defines the function `{entry}`, which returns the answer."
        else:
            kind = "The program reads from standard input and prints the answer to standard output."
        return f"{self._head.question}\n\n{kind}\n\n{self._instruction}"

    def verdict(self) -> Verdict:
        """The share of the tests that pass, and the first ones that do not; a success passes all of them.

        Raises:
            EnvironmentFailure: the sandbox failed. ValueError: the prepared set is damaged.
        """
        try:
            judged = judge(self._sandbox, self._read(), self.response)
        except SandboxFailure as failure:
            raise EnvironmentFailure(f"{self._id}: {failure}") from failure
        return Verdict(judged.reward, judged.reward == 1, judged.feedback, unparsed=judged.unparsed)


class Code:
    """The domain. Its splits are `train` and the sets by their names in `data/code_sets.py`.

    Args:
        data: the folder of prepared sets.
        train: the set that `train` stands for.
        instruction: what ends every question; empty: INSTRUCTION.
        sandbox: where programs run.

    Raises:
        ValueError: the set is unknown, or the instruction does not ask for a fenced block.
    """

    name = "code"
    max_actions = 1

    def __init__(self, data: str, train: str, instruction: str, sandbox: Sandbox):
        if train not in CODE_SETS:
            raise ValueError(f"domain.train={train!r}: must be one of {', '.join(CODE_SETS)}")
        if instruction and FENCE not in instruction:
            raise ValueError(
                f"domain.instruction={instruction!r}: programs are read from {FENCE}python blocks, which it does not "
                f"ask for; for example: {INSTRUCTION}"
            )
        self._data, self._train = data, train
        self._instruction, self._sandbox = instruction or INSTRUCTION, sandbox
        self._rows = functools.cache(self._read)

    def _set(self, split: str) -> str:
        name = self._train if split == TRAIN else split
        if name not in CODE_SETS:
            raise ValueError(f"code has no split {split!r}; it has {TRAIN}, {', '.join(CODE_SETS)}")
        return name

    def _read(self, name: str) -> CodeRows:
        return read_code(name, self._data)

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order.

        Raises:
            ValueError: the split is unknown; names the known ones.
            FileNotFoundError: its set is not prepared; tells how to.
        """
        name = self._set(split)
        return [Problem(f"{name}/{head.id}", index, split) for index, head in enumerate(self._rows(name).heads)]

    def start(self, problem: Problem) -> CodeEpisode:
        """A fresh episode of the problem."""
        rows, index = self._rows(self._set(problem.split)), problem.index
        return CodeEpisode(problem.id, rows.heads[index], lambda: rows[index], self._instruction, self._sandbox)

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """See `words.classify`."""
        return classify(action)
