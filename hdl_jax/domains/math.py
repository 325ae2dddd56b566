"""Maths: problems with a final answer, from prepared data sets; reward 1 for the right answer and 0 for another.

A set's questions end with an instruction that asks for what its extraction rule reads (math_answer.py). Answers are
compared in worker processes that can be killed (math_compare.py, workers.py): a check that hangs or dies is a failure
of the checker, never a wrong answer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hdl_jax.data.prepared import read_rows
from hdl_jax.data.sets import SETS, MathRow
from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.domains.math_answer import RULES, check_prompt
from hdl_jax.domains.single_turn import SingleTurn
from hdl_jax.domains.words import classify
from hdl_jax.workers import WorkerFailure, WorkerPool

TRAIN = "train"


class MathEpisode(SingleTurn):
    """One attempt at one problem: the first action is the answer and ends the episode.

    Args:
        id: of the problem. rule: of extraction, by name. instruction: what follows the question.
        check: judges an answer in a worker.
    """

    def __init__(self, id: str, row: MathRow, rule: str, instruction: str, check: WorkerPool):
        self._id, self._row, self._rule, self._instruction, self._check = id, row, rule, instruction, check

    def opening(self) -> str:
        """The question, then the form its answer should have."""
        return f"{self._row.question}\n\n{self._instruction}"

    def verdict(self) -> Verdict:
        """Reward and feedback as the paper has them: "Correct.", or the predicted and the reference answer.

        Raises:
            EnvironmentFailure: the check ran into its limit, or its worker died.
        """
        try:
            judged = self._check(self._rule, self._row.reference, self.response)
        except WorkerFailure as failure:
            raise EnvironmentFailure(f"{self._id}: {failure}") from failure
        if judged.right:
            return Verdict(1.0, True, "Correct.")
        reference = ", ".join(self._row.reference.answers)
        if self._row.reference.unit:
            reference += f" {self._row.reference.unit}"
        said = "No final answer was found" if judged.answer is None else f"The answer given was {_shown(judged.answer)}"
        feedback = f"Wrong. {said}; the reference answer is {reference}."
        return Verdict(0.0, False, feedback, unparsed=judged.answer is None)


class Math:
    """The domain. Its splits are `train` and the evaluation sets, by their names in `data/sets.py`.

    Args:
        data: the folder of prepared sets.
        train: the set that `train` stands for.
        instruction: what follows every question; empty: what each set's rule asks for.
        workers: processes that check answers. limit_s: seconds of work a check may take.

    Raises:
        ValueError: the set is unknown, or the instruction asks for another form than a set's rule reads.
    """

    name = "math"
    max_actions = 1

    def __init__(self, data: str, train: str, instruction: str, workers: int, limit_s: float):
        if train not in SETS:
            raise ValueError(f"domain.train={train!r}: must be one of {', '.join(SETS)}")
        self._data, self._train, self._instruction = data, train, instruction
        self._check = WorkerPool("hdl_jax.domains.math_check:judge", workers=workers, limit_s=limit_s)
        self._rows = functools.cache(self._read)

    def _set(self, split: str) -> str:
        name = self._train if split == TRAIN else split
        if name not in SETS:
            raise ValueError(f"math has no split {split!r}; it has {TRAIN}, {', '.join(SETS)}")
        return name

    def _read(self, name: str) -> Sequence[MathRow]:
        if self._instruction:
            check_prompt(RULES[SETS[name].rule], self._instruction)
        return read_rows(name, self._data)

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order.

        Raises:
            ValueError: the split is unknown; names the known ones.
            FileNotFoundError: its set is not prepared; tells how to.
        """
        name = self._set(split)
        return [Problem(f"{name}/{row.id}", index, split) for index, row in enumerate(self._rows(name))]

    def start(self, problem: Problem) -> MathEpisode:
        """A fresh episode of the problem."""
        name = self._set(problem.split)
        rule = SETS[name].rule
        row = self._rows(name)[problem.index]
        return MathEpisode(problem.id, row, rule, self._instruction or RULES[rule].instruction, self._check)

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """See `words.classify`."""
        return classify(action)


def _shown(answer: str, longest: int = 200) -> str:
    """An answer as feedback quotes it: on one line, and not as long as whoever wrote it likes."""
    line = " ".join(answer.split())
    return line if len(line) <= longest else f"{line[:longest]}..."
