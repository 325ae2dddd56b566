r"""Checking of maths answers on real reference answers. python -m benchmarks.math_check --data=../shared/data

DATA holds test files of AIME 2024, Minerva, OlympiadBench (open-ended English maths) and GSM8K, named aime24.jsonl,
minerva_math.jsonl, olympiadbench.jsonl and gsm8k.jsonl. Every reference answer, in the form that its set's extraction
rule reads, is checked against

* itself: `math/SET/self`, goal 100 %;
* itself in another typesetting, benchmarks/math_forms.py says which: `math/SET/retypeset`, goal 100 %. `alike` counts
  those that spelling alone decides, spaces and brackets of one kind left out; by `kinds`, how many of each;
* the answer of the next problem that has another one: `math/SET/cross`, goal 0 %.

What misses its goal is listed. `math/checks_per_s` is one core's rate over all of these checks.

Then 10,000 checks run in two workers with a limit of 2 s each. 100 of them hang: they compare infinite sums, the one
thing that is left to math-verify's simplification, and would take it minutes. `math/hanging_s` is how long this took,
goal 240 s, and `math/workers_left` how many processes are left after closing the pool. About 3 minutes on 2 CPU cores.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import common
from benchmarks.math_forms import retypeset
from hdl_jax.data.convert import Raw
from hdl_jax.data.sets import SETS
from hdl_jax.domains import math_check
from hdl_jax.domains.math_compare import Reference
from hdl_jax.domains.math_text import clean, key
from hdl_jax.workers import WorkerPool, WorkerTimeout

FILES = {
    "aime24": "aime24.jsonl",
    "minerva": "minerva_math.jsonl",
    "olympiadbench": "olympiadbench.jsonl",
    "gsm8k": "gsm8k.jsonl",
}
FORMS = {"boxed": "So it is $\\boxed{{{}}}$.", "hash": "So that is it.\n#### {}", "answer": "Answer: {}"}
LIMIT_S, WORKERS = 2.0, 2
HANGING = Reference((r"\sum_{n=1}^{\infty} \frac{1}{n^2+n}",)), r"\sum_{n=1}^{\infty} \frac{\sin n}{n^{3}}"
_MARK = "HDL_JAX_MATH_CHECK"

# rule, reference, response, and whether it is right
Check = tuple[str, Reference, str, bool]


def read(name: str, data: Path, most: int | None) -> list[Reference]:
    """The reference answers of a set, the first `most` of them."""
    with (data / FILES[name]).open(encoding="utf-8") as file:
        rows = [SETS[name].convert(Raw(json.loads(line), SETS[name].fields, i)) for i, line in enumerate(file)]
    return [row.reference for row in rows[:most]]


def written(reference: Reference) -> str:
    """The reference answer as it is, a list on one line."""
    return ", ".join(reference.answers)


def checks(name: str, references: Sequence[Reference]) -> dict[str, list[Check]]:
    """The checks of a set, by figure."""
    rule = SETS[name].rule
    form = FORMS[rule]
    found: dict[str, list[Check]] = {"self": [], "retypeset": [], "cross": []}
    for i, reference in enumerate(references):
        found["self"].append((rule, reference, form.format(written(reference)), True))
        found["retypeset"].append((rule, reference, form.format(retypeset(reference)[1]), True))
        later = [*references[i + 1 :], *references[:i]]
        other = next((r for r in later if written(r) != written(reference)), None)
        if other is not None:
            found["cross"].append((rule, reference, form.format(written(other)), False))
    return found


def measure(name: str, found: dict[str, list[Check]]) -> float:
    """Makes and prints the figures of a set. Returns the seconds that its checks took."""
    begun = time.perf_counter()
    for figure, made in found.items():
        right = [math_check.judge(rule, reference, response).right for rule, reference, response, _ in made]
        for (_, reference, response, wanted), verdict in zip(made, right, strict=True):
            if verdict != wanted:
                print(f"math/{name}/{figure}: {'right' if verdict else 'wrong'}: {reference} <- {response!r}")
        extra = {}
        if figure == "retypeset":
            forms = [(reference, retypeset(reference)) for _, reference, _, _ in made]
            kinds = Counter(kind for _, (kind, _) in forms)
            alike = sum(key(clean(written(reference))) == key(clean(text)) for reference, (_, text) in forms)
            same = sum(text in (written(reference), *reference.answers) for reference, (_, text) in forms)
            extra = {"unchanged": same, "alike": alike, "kinds": dict(kinds.most_common())}
        common.figure(f"math/{name}/{figure}", 100 * sum(right) / len(right), "%", of=len(right), **extra)
    return time.perf_counter() - begun


def hang(made: Sequence[Check], count: int, hanging: int) -> None:
    """Makes and prints the figures of the worker pool: `count` checks, `hanging` of them endless and spread evenly.

    Raises:
        RuntimeError: a check that hangs was not stopped, or another got another verdict than it should.
    """
    rule = "boxed"
    endless: Check = (rule, HANGING[0], FORMS[rule].format(HANGING[1]), False)
    every = count // hanging
    queue = [endless if i % every == every // 2 else made[i % len(made)] for i in range(count)]
    mark = secrets.token_hex(8)
    os.environ[_MARK] = mark
    try:
        with (
            WorkerPool("hdl_jax.domains.math_check:judge", workers=WORKERS, limit_s=LIMIT_S) as pool,
            ThreadPoolExecutor(2 * WORKERS) as threads,
        ):

            def check(item: Check) -> str:
                try:
                    return "agrees" if pool(*item[:3]).right == item[3] else "differs"
                except WorkerTimeout:
                    return "stopped"

            begun = time.perf_counter()
            outcomes = Counter(threads.map(check, queue))
            seconds = time.perf_counter() - begun
    finally:
        del os.environ[_MARK]
    common.figure(
        "math/hanging_s", seconds, "s", checks=count, hanging=hanging, limit_s=LIMIT_S, workers=WORKERS, **outcomes
    )
    left = marked(mark)
    if left is None:
        common.figure("math/workers_left", None, "processes", reason="there is no /proc to find them in")
    else:
        common.figure("math/workers_left", left, "processes")
    if outcomes["stopped"] < hanging or outcomes["differs"]:
        raise RuntimeError(f"{hanging} checks should have been stopped, and none should differ: {dict(outcomes)}")


def marked(mark: str) -> int | None:
    """Processes that were started with the mark in their environment; None where the system does not tell."""
    if not Path("/proc/self/environ").exists():
        return None
    count = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            count += f"{_MARK}={mark}".encode() in path.read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
    return count


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.arguments(__doc__, repeats=1)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="the folder of files (default %(default)s)"
    )
    args = parser.parse_args(argv)
    missing = [file for file in FILES.values() if not (args.data / file).is_file()]
    if missing and not args.tiny:
        sys.exit(f"--data={args.data}: has no {', '.join(missing)}; see the top of --help")
    common.start("math_check")
    made: list[Check] = []
    seconds = 0.0
    for name, file in FILES.items():
        if file in missing:
            common.figure(f"math/{name}/self", None, "%", reason=f"no {args.data / file}")
            continue
        found = checks(name, read(name, args.data, 8 if args.tiny else None))
        seconds += measure(name, found)
        made += [check for checks_ in found.values() for check in checks_]
    if made:
        common.figure("math/checks_per_s", len(made) / seconds, "checks/s", checks=len(made), cores=1)
    else:
        made = [("boxed", Reference(("1/2",)), FORMS["boxed"].format("0.5"), True)]
    hang(made, *((20, 2) if args.tiny else (10_000, 100)))
    common.finish()


if __name__ == "__main__":
    main()
