"""Keeps the training problems that teach: python -m hdl_jax.filter --config=FILE[:ARG] --out=DIR.

The policy that the config starts from answers every problem of the train split `filter.samples` times, at
`rollout.temperature`. Problems that it solves never or always have nothing to say to a group's mean; those with a share
solved in [filter.min_rate, filter.max_rate] are kept, and DIR/kept.json names them: train with
--config.domain.kept=DIR/kept.json. DIR/train.jsonl has every sample. A filter that was stopped goes on where it was
when the command is repeated; other thresholds sample nothing anew.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.command_line import CONFIG, OUT, Refused, parse_flags, refusing
from hdl_jax.eval_store import EvalSample
from hdl_jax.evaluation import play
from hdl_jax.host_memory import return_freed_blocks
from hdl_jax.metrics import table

BARS = 40  # characters of the longest bar


@dataclasses.dataclass(frozen=True)
class Rates:
    """How often each problem was solved.

    Attributes:
        solved: problem id -> share of its samples, of those with a verdict.
        unknown: ids of problems without any verdict.
    """

    solved: dict[str, float]
    unknown: list[str]

    def kept(self, low: float, high: float) -> list[str]:
        """Ids of the problems with a share in [low, high], in the order they were played."""
        return [id for id, rate in self.solved.items() if low <= rate <= high]


def solve_rates(problems: Sequence[Sequence[EvalSample]]) -> Rates:
    """From the samples of each problem, at least one each. A sample without a verdict counts neither way."""
    solved, unknown = {}, []
    for samples in problems:
        known = [bool(sample.success) for sample in samples if sample.reward is not None]
        if known:
            solved[samples[0].problem] = sum(known) / len(known)
        else:
            unknown.append(samples[0].problem)
    return Rates(solved, unknown)


def histogram(rates: Rates, samples: int, low: float, high: float) -> str:
    """A line for each share that `samples` samples can come to: problems, a bar, and whether they are kept."""
    counts = [0] * (samples + 1)
    for rate in rates.solved.values():
        counts[round(rate * samples)] += 1
    most = max([*counts, 1])
    rows = [
        [
            f"{i}/{samples}",
            f"{n:,}",
            "kept" if low <= i / samples <= high else "",
            ("#" * round(BARS * n / most)).ljust(BARS),
        ]
        for i, n in enumerate(counts)
    ]
    return table(["solved", "problems", "", "".ljust(BARS)], rows)


def filter_problems(config: Any, out: Path) -> str:
    """Samples, writes kept.json, and returns what to print. Raises Refused before any long work."""
    with refusing():
        config_lib.validate(config)
        if config.domain.kept:
            raise ValueError(f"domain.kept={config.domain.kept}: a filter looks at all problems; leave it empty")
        domain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
        setup_run.check_prompts(config, domain, policy.chat, ["train"])
        params = policy.load(None)
    engine = setup_run.make_engine(config, policy.shape)
    engine.load(params)
    settings = config.filter
    try:
        played = play(
            engine, domain, policy.chat, config, 0, domain.problems("train"), settings.samples,
            path=out / "train.jsonl", temperature=config.rollout.temperature, resume=True,
        )  # fmt: skip
    except ValueError as error:
        raise Refused(f"{error}; --out names another folder") from error
    rates = solve_rates(played)
    ids = rates.kept(settings.min_rate, settings.max_rate)
    record = {
        "policy": policy.name,
        "domain": config.domain.to_dict(),
        "filter": settings.to_dict(),
        "problems": len(played),
        "unknown": rates.unknown,
        "ids": ids,
    }
    path = out / "kept.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    shown = histogram(rates, settings.samples, settings.min_rate, settings.max_rate)
    return f"{shown}\n\n{len(ids):,} of {len(played):,} problems kept, {len(rates.unknown)} without a verdict: {path}"


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    return_freed_blocks()
    logging.set_verbosity(logging.WARNING)
    if not OUT.value:
        raise app.UsageError("--out is needed: the folder that samples and kept.json go into")
    try:
        print(filter_problems(CONFIG.value, Path(OUT.value)))
    except Refused as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with the problems that are left")


if __name__ == "__main__":
    jax.config.parse_flags_with_absl()
    flags.mark_flag_as_required("config")
    app.run(main, flags_parser=parse_flags)
