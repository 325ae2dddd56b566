"""One check of a response against a reference answer: what runs in a worker process.

Nothing here sets a limit: a check of hostile input may hang or eat memory, so it is called through `workers.WorkerPool`
(`hdl_jax.domains.math_check:judge`), which kills it. Importing this loads math-verify, so that workers start with it.
"""

from __future__ import annotations

import dataclasses

from hdl_jax.domains.math_answer import RULES
from hdl_jax.domains.math_compare import Reference, same

# A first expression costs a tenth of a second or more, for the tables that the grammar makes as it goes.
_TYPICAL = (
    r"\frac{x^{2} e^{-t}}{\sqrt{1-y}} \cos(\omega t) - \lfloor n! \rfloor"
    r" + \sum_{k=1}^{n} |k| \ln\left(\pi-\frac{1}{2}\right)"
)
same(Reference((_TYPICAL,)), f"x {_TYPICAL}")


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a check found: whether the answer is right, and the answer as it was written, None if there is none."""

    right: bool
    answer: str | None


def judge(rule: str, reference: Reference, response: str) -> Judged:
    """Finds the final answer in a response by the named rule and compares it. Raises KeyError for an unknown rule."""
    answer = RULES[rule].find(response)
    return Judged(answer is not None and same(reference, answer), answer)
