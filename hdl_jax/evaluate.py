"""Evaluates a policy: a run's checkpoint, or the one that a config starts from.

    python -m hdl_jax.evaluate --workdir=RUN [--step=N|best|latest] [--sets=test@4,...] [--problems=64]
    python -m hdl_jax.evaluate --config=FILE[:ARG] --out=DIR [--config.FIELD=VALUE ...]
    python -m hdl_jax.evaluate --rescore=RUN/eval/step_000010/validation.jsonl

It prints a table and keeps every sample of a set in SET.jsonl, its figures beside them in SET.json, in eval/step_NNNNNN
of the run or of --out. An evaluation that was stopped goes on where it was when the command is repeated. --rescore
judges stored samples again with today's verifier, without a policy. --oracle=N asks another question: which tokens
decide, and which signal knows (localize/oracle.py).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.checkpoint import find_step
from hdl_jax.command_line import CONFIG, OUT, WORKDIR, Refused, parse_flags, refusing
from hdl_jax.eval_store import OtherSettings, samples_path
from hdl_jax.evaluation import evaluate
from hdl_jax.localize import oracle
from hdl_jax.metrics import table
from hdl_jax.policy.source import Policy
from hdl_jax.rescore import rescore
from hdl_jax.trained import trained_policy

_STEP = flags.DEFINE_string("step", "best", "A step that has a checkpoint, `best` by its score, or `latest`.")
_SETS = flags.DEFINE_list("sets", None, "NAME@K of each set, instead of eval.sets.")
_PROBLEMS = flags.DEFINE_integer("problems", None, "Of each set, instead of eval.problems; 0: all.")
_ORACLE = flags.DEFINE_integer("oracle", 0, "Judge the signals on so many problems instead.")
_RESCORE = flags.DEFINE_list("rescore", [], "Files of samples to judge again.")


def run_config(workdir: Path) -> ConfigDict:
    """The config of a run. Raises FileNotFoundError; ValueError where it is none."""
    path = workdir / "config.json"
    try:
        return ConfigDict(json.loads(path.read_bytes()))
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}") from error


def sampled_with(samples: Path) -> ConfigDict:
    """The config of a file of samples: that of the evaluation beside it, or of the run that it lies in.

    Raises:
        FileNotFoundError, ValueError: there is neither, or it is not one of ours.
    """
    beside = samples.with_suffix(".json")
    if not beside.is_file():
        return run_config(samples.absolute().parents[2])
    try:
        return ConfigDict(json.loads(beside.read_bytes())["config"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{beside} does not say what its samples were made with: {error!r}") from error


def asked(workdir: str | None, config: ConfigDict | None, out: str | None) -> tuple[ConfigDict, Policy, int, Path]:
    """The config, the policy, its step and where results go. Raises ValueError where the flags name none or two."""
    if (workdir is None) == (config is None):
        raise ValueError("either --workdir=RUN or --config=FILE is needed, and not both")
    if workdir is not None:
        step = find_step(Path(workdir), _STEP.value)
        return run_config(Path(workdir)), trained_policy(Path(workdir), _STEP.value), step, Path(out or workdir)
    if out is None:
        raise ValueError("--out=DIR is needed beside --config: the folder that samples and figures go into")
    return ConfigDict(config), setup_run.make_policy(config), 0, Path(out)


def figures(metrics: Mapping[str, float], name: str) -> dict[str, float]:
    """What was measured on a set: measure -> value."""
    prefix = f"eval/{name}/"
    return {metric.removeprefix(prefix): value for metric, value in metrics.items() if metric.startswith(prefix)}


def results_table(metrics: Mapping[str, float], names: Sequence[str]) -> str:
    """A row a set: its size, the mean score with its error, then whatever else was measured; of several, their mean."""
    ks = sorted({int(name.rpartition("@")[2]) for name in metrics if "/pass@" in name and name[-3:] != "_se"})
    # Where rewards are 0 and 1, a success is a score.
    scores = ["score"]
    if any(metrics[f"eval/{name}/success"] != metrics[f"eval/{name}/score"] for name in names):
        scores.append("success")

    def cell(of: Mapping[str, float], measure: str) -> str:
        return f"{of[measure]:.3f} +- {of[f'{measure}_se']:.3f}" if measure in of else "-"

    rows = []
    for name in names:
        of = figures(metrics, name)
        row = [name, f"{of['problems']:,.0f}", f"{of['samples'] / of['problems']:.0f}"]
        row += [cell(of, measure) for measure in (*scores, *(f"pass@{k}" for k in ks))]
        row += [f"{of['truncated']:.1%}", f"{of['unparsed']:.1%}", f"{of['failed']:.0f}", f"{of['tokens']:,.0f}"]
        if of["failed"]:
            # Which is which: the score leaves samples without a verdict out, the other one counts them as 0.
            row[3] += f" ({of['score_all']:.3f} of all)"
        rows.append(row)
    if len(names) > 1:
        rows.append(["mean", "", "", cell(metrics, "eval/score"), *[""] * (len(rows[0]) - 4)])
    head = ["set", "problems", "k", "score", *scores[1:], *(f"pass@{k}" for k in ks)]
    return table([*head, "truncated", "unparsed", "failed", "tokens"], rows)


def metric_table(title: str, metrics: Mapping[str, float]) -> str:
    """A row a metric."""
    rows = []
    for name, value in metrics.items():
        if not name.endswith("_se"):
            spread = metrics.get(f"{name}_se")
            rows.append([name, f"{value:.3f}" + (f" +- {spread:.3f}" if spread is not None else "")])
    return table([title, "value +- se"], rows)


def run(config: ConfigDict, policy: Policy, step: int, out: Path) -> str:
    """Evaluates the policy, or asks the oracle. Returns the table of results."""
    with refusing():
        config_lib.validate(config)
        names = [name for name, _ in config_lib.eval_sets(config)]
        domain = setup_run.make_domain(config)
        if config.oracle.problems:
            setup_run.check_sizes(config, domain)
        setup_run.check_prompts(config, domain, policy.chat, names)
        params = policy.load(None)
    engine = setup_run.make_engine(config, policy.shape)
    engine.load(params)
    if config.oracle.problems:
        return metric_table(f"step {step}", oracle.measure(engine, domain, policy.chat, config, step))
    try:
        metrics = evaluate(engine, domain, policy.chat, config, step, out, resume=True)
    except OtherSettings as error:
        raise Refused(f"{error}; --out names another folder") from error
    for name in names:
        known = {measure: value if math.isfinite(value) else None for measure, value in figures(metrics, name).items()}
        record = {"policy": policy.name, "step": step, "config": config.to_dict(), "figures": known}
        samples_path(out, step, name).with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")
    folder = samples_path(out, step, names[0]).parent
    return f"{policy.name}\n{results_table(metrics, names)}\n\nsamples and figures: {folder}"


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.WARNING)
    try:
        if _RESCORE.value:
            with refusing():
                print(rescore([Path(path) for path in _RESCORE.value], sampled_with))
            return
        with refusing():
            config, policy, step, out = asked(WORKDIR.value, CONFIG.value, OUT.value)
            with config.unlocked():
                if _SETS.value is not None:
                    config.eval.sets = tuple(_SETS.value)
                if _PROBLEMS.value is not None:
                    config.eval.problems = _PROBLEMS.value
                config.oracle.problems = _ORACLE.value
        print(run(config, policy, step, out))
    except Refused as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with the problems that are left")


if __name__ == "__main__":
    jax.config.parse_flags_with_absl()
    app.run(main, flags_parser=parse_flags)
