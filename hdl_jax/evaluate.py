"""Evaluates a checkpoint of a run: python -m hdl_jax.evaluate --workdir=DIR [--step=N|best|latest] [--split=test].

With --oracle=N it asks another question instead: which tokens decide, and which signal knows (localize/oracle.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.checkpoint import load_checkpoint, saved_scores
from hdl_jax.evaluation import evaluate
from hdl_jax.localize import oracle
from hdl_jax.metrics import table
from hdl_jax.policy import transformer as tr


def find_step(workdir: Path, which: str) -> int:
    """The step that `--step` names. Raises FileNotFoundError where the run has no such checkpoint."""
    if which.isdigit():
        return int(which)
    if which not in ("best", "latest"):
        raise ValueError(f"--step={which}: must be a step number, best or latest")
    scores = saved_scores(workdir / "checkpoints")
    ranked = [(score, step) for step, score in scores.items() if score is not None]
    if which == "best" and ranked:
        return max(ranked)[1]
    if which == "latest" and scores:
        return max(scores)
    raise FileNotFoundError(f"{workdir}/checkpoints holds no {'evaluated ' if which == 'best' else ''}checkpoint")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.evaluate", description="Evaluates a checkpoint of a run.")
    parser.add_argument("--workdir", type=Path, required=True, help="the run to evaluate")
    parser.add_argument("--step", default="best", help="a step that has a checkpoint, `best` by its score, or `latest`")
    parser.add_argument("--split", default="test", help="the split to play")
    parser.add_argument("--variations", type=int, default=64, help="problems to play")
    parser.add_argument("--episodes", type=int, default=4, help="episodes of each")
    parser.add_argument("--oracle", type=int, default=0, metavar="N", help="judge the signals on N problems instead")
    args = parser.parse_args(argv)
    try:
        step = find_step(args.workdir, args.step)
        config = ConfigDict(json.loads((args.workdir / "config.json").read_text()))
        config.eval.update(split=args.split, variations=args.variations, episodes=args.episodes)
        config.oracle.problems = args.oracle
        config_lib.validate(config)
        domain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
        setup_run.check_sizes(config, domain)
        setup_run.check_prompts(config, domain, policy.chat, (config.eval.split,))
        like = {"params": tr.abstract_params(policy.shape)}
        params = load_checkpoint(args.workdir / "checkpoints" / str(step), like).state["params"]
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    engine = setup_run.make_engine(config, policy.shape)
    engine.load(params)
    measure = oracle.measure if args.oracle else evaluate
    metrics = measure(engine, domain, policy.chat, config, step)
    rows = []
    for name, value in metrics.items():
        if not name.endswith("_se"):
            spread = metrics.get(f"{name}_se")
            rows.append([name, f"{value:.3f}" + (f" +- {spread:.3f}" if spread is not None else "")])
    print(table([f"step {step}, {args.split}", "value +- se"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
