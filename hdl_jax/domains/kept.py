"""A domain with a part of its training problems: those that a filter kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hdl_jax.domains.domain import Domain, Episode, Problem


class Kept:
    """The domain, its split `train` cut down to the problems that a file names, in index order.

    Args:
        domain: all of it.
        path: kept.json as `hdl_jax.filter` writes it; its `ids` are those of the problems to keep.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another file, or names problems that the split does not have; says how many, and one.
    """

    def __init__(self, domain: Domain, path: Path):
        self._domain = domain
        self.name, self.max_actions = domain.name, domain.max_actions
        if not path.is_file():
            raise FileNotFoundError(f"domain.kept={path}: there is no such file; `python -m hdl_jax.filter` writes it")
        try:
            ids = frozenset(json.loads(path.read_bytes())["ids"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"domain.kept={path}: not the kept.json of a filter: {error!r}") from error
        self._train = [problem for problem in domain.problems("train") if problem.id in ids]
        strange = ids - {problem.id for problem in self._train}
        if strange:
            raise ValueError(
                f"domain.kept={path}: {len(strange)} of its {len(ids)} problems are not in {domain.name}/train, "
                f"{min(strange)} for one: it was made from other data"
            )

    def problems(self, split: str) -> Sequence[Problem]:
        """As the domain has them, those of `train` filtered."""
        return self._train if split == "train" else self._domain.problems(split)

    def start(self, problem: Problem) -> Episode:
        """A fresh episode of the problem."""
        return self._domain.start(problem)

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """As the domain has it."""
        return self._domain.token_class(action)
