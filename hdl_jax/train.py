"""Trains a policy: python -m hdl_jax.train --config=configs/quickstart.py[:ARG] --workdir=DIR [--config.FIELD=VALUE].

A workdir that holds a checkpoint is resumed; a run that was stopped and resumed gives the numbers of one that never
was.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging
from tqdm import tqdm

from hdl_jax import config as config_lib
from hdl_jax import plan, report, setup_run
from hdl_jax.checkpoint import Checkpoints, config_differences
from hdl_jax.command_line import CONFIG, WORKDIR, Refused, parse_flags, refusing
from hdl_jax.compilations import count_compilations
from hdl_jax.domains.domain import Problem
from hdl_jax.eval_store import drop_samples_after
from hdl_jax.evaluation import evaluate
from hdl_jax.host_memory import return_freed_blocks
from hdl_jax.learn import state as train_state
from hdl_jax.learn.advantage import group_advantages
from hdl_jax.learn.update import Updater
from hdl_jax.localize import oracle
from hdl_jax.localize.select import select
from hdl_jax.metrics import MetricsWriter, final_table, read_metrics
from hdl_jax.rollout import accounting
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.methods import METHODS
from hdl_jax.rollout.store import drop_after, write_groups
from hdl_jax.rollout.tokenclass import Classify, classifier
from hdl_jax.rollout.trajectory import Group

# Fields that may differ between a run and its continuation: they change what is kept or shown, not what is learnt.
RESUMABLE = ("total_steps", "log", "checkpoint", "engine.workers", "domain.workers", "domain.isolation")

_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Check the config and the data, print the plan, and stop.")


def problem_order(problems: Sequence[Problem], seed: int, per_step: int) -> Iterator[list[Problem]]:
    """Batches of problems for ever: a seeded permutation an epoch, its last incomplete batch dropped.

    So no step holds one problem twice, and the batch of any step is known from the seed alone.
    """
    if per_step > len(problems):
        raise ValueError(f"rollout.problems_per_step={per_step}, but the train split has {len(problems)} problems")
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(len(problems))
        for i in range(0, len(problems) - per_step + 1, per_step):
            yield [problems[j] for j in order[i : i + per_step]]


def rollout_metrics(groups: Sequence[Group], config: Any, classify: Classify, sampled: int) -> dict[str, float]:
    """Everything a step's groups tell; only what was spent, where every problem was dropped."""
    counts = accounting.token_counts(groups, sampled)
    if not groups:
        return counts
    return {
        **counts,
        **accounting.reward_metrics(groups),
        **accounting.branch_metrics(groups, classify),
        **accounting.reflection_metrics(groups),
        **accounting.token_ratio(groups, config.rollout.group_size),
    }


def warm_up_select(ctx: Context) -> None:
    """Compiles the selector for the shape that every problem of the run has."""
    branch = ctx.config.branch
    shape = (branch.roots, ctx.max_tokens)
    nothing = np.zeros(shape, np.float32), np.zeros(shape, bool)
    select(*nothing, points=branch.points_per_root, spacing=branch.min_spacing)


def train(config: Any, workdir: Path) -> None:
    """Runs a whole training, from the workdir's checkpoint if it has one. Raises Refused before any long work."""
    count = count_compilations()

    # ---- what the run is made of ------------------------------------------------------------------------------------
    with refusing():
        config_lib.validate(config)
        if config.mesh.devices > 1:
            raise ValueError(f"mesh.devices={config.mesh.devices}: so far a run takes 1; --dry_run plans for more")
        domain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
        chat = policy.chat
        setup_run.check_sizes(config, domain)
        setup_run.check_prompts(config, domain, chat, ["train", *(name for name, _ in config_lib.eval_sets(config))])
        classify = classifier(domain, chat)
        tx = train_state.optimizer(config.learn)
        state = train_state.create(policy.load(None), tx)
        engine = setup_run.make_engine(config, policy.shape)
        longest = config_lib.longest_trajectory(config)
        updater = Updater(policy.shape, tx, config.learn, config.rollout.temperature, longest)
        method = METHODS[config.method]
        workdir.mkdir(parents=True, exist_ok=True)

        # ---- resume -------------------------------------------------------------------------------------------------
        checkpoints = Checkpoints(workdir / "checkpoints", best=config.checkpoint.best)
        saved = checkpoints.restore_latest(state)
        first_step = 0
        if saved is not None:
            changed = config_differences(saved.extra["config"], config.to_dict(), ignore=RESUMABLE)
            if changed:
                raise ValueError(
                    f"{workdir} holds a run whose config differs in {', '.join(changed)}: use another --workdir, or go "
                    "back to its config.json"
                )
            if saved.step > config.total_steps:
                raise ValueError(
                    f"{workdir} has done {saved.step} steps already, more than total_steps={config.total_steps}"
                )
            state, first_step = saved.state, saved.step
            print(f"resuming {workdir} after step {first_step}", file=sys.stderr, flush=True)
    (workdir / "config.json").write_text(json.dumps(config.to_dict(), indent=2) + "\n")
    (workdir / "policy.json").write_text(json.dumps(policy.described(), indent=2, ensure_ascii=False) + "\n")
    writer = MetricsWriter(workdir, resumed_step=first_step if saved is not None else -1)
    drop_after(workdir, first_step)
    drop_samples_after(workdir, first_step)

    # ---- compile everything once ------------------------------------------------------------------------------------
    print(f"attention {updater.attention}", file=sys.stderr)
    print(f"compiling for {jax.devices()[0].device_kind} ...", file=sys.stderr, flush=True)
    begun = time.perf_counter()
    engine.load(state.params)
    engine.warm_up()
    updater.warm_up(state)
    warm_up_select(Context(domain, chat, config, first_step, config.rollout.temperature))
    print(f"compiled in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)

    def save(step: int, metrics: dict[str, float]) -> None:
        score = metrics.get("eval/score", math.nan)
        # An evaluation whose every episode failed has no score to be ranked by.
        checkpoints.save(step, state, {"config": config.to_dict()}, score if math.isfinite(score) else None)

    def measure(step: int, with_oracle: bool) -> dict[str, float]:
        """Held-out score of the current policy and, on request, how well each signal knows what mattered."""
        engine.load(state.params)
        begun = time.perf_counter()
        metrics = evaluate(engine, domain, chat, config, step, workdir)
        metrics["timing_s/eval"] = time.perf_counter() - begun
        if with_oracle and config.oracle.problems:
            begun = time.perf_counter()
            metrics |= oracle.measure(engine, domain, chat, config, step)
            metrics["timing_s/oracle"] = time.perf_counter() - begun
        return metrics

    if saved is None:
        begun = time.perf_counter()
        metrics = measure(0, with_oracle=False)
        metrics |= {"timing_s/step": time.perf_counter() - begun, "perf/compilations": count()}
        writer.write(0, metrics)
        save(0, metrics)

    # ---- the loop ---------------------------------------------------------------------------------------------------
    last_step = config.total_steps
    order = problem_order(domain.problems("train"), config.seed, config.rollout.problems_per_step)
    batches = itertools.islice(order, first_step, last_step)
    bar = tqdm(batches, desc=f"train {config.method}", unit="step", initial=first_step, total=last_step)
    for step, problems in enumerate(bar, first_step + 1):
        step_begun = time.perf_counter()

        # Rollout: every problem's coroutine, batched by the engine.
        engine.load(state.params)
        engine.take_usage()
        ctx = Context(domain, chat, config, step, config.rollout.temperature)
        finished = engine.run([method(ctx, problem) for problem in problems], step)
        groups = [group for group in finished if group is not None]
        rollout_s = time.perf_counter() - step_begun
        usage = engine.take_usage()
        engine.unload()

        # Update: one mean a group, one denominator a step.
        update_begun = time.perf_counter()
        rewards = [t.verdict.reward if t.verdict else None for group in groups for t in group.trajectories]
        ids = [i for i, group in enumerate(groups) for _ in group.trajectories]
        edges = np.cumsum([0, *(len(group.trajectories) for group in groups)])
        flat = group_advantages(rewards, ids)
        advantages = [flat[a:b] for a, b in itertools.pairwise(edges)]
        state, metrics = updater(state, [group.trajectories for group in groups], advantages)
        update_s = time.perf_counter() - update_begun

        # Record.
        metrics |= rollout_metrics(groups, config, classify, sum(usage.sampled.values()))
        metrics["rollout/dropped_problems"] = len(problems) - len(groups)
        metrics |= {f"timing_s/{phase}": s for phase, s in usage.seconds.items()}
        metrics |= {"timing_s/rollout": rollout_s, "timing_s/update": update_s}
        evaluated = step % config.eval.every == 0 or step == last_step
        if evaluated:
            metrics |= measure(step, with_oracle=step == last_step)
        if groups and (step in (1, last_step) or step % config.log.rollouts_every == 0):
            write_groups(workdir, step, groups, advantages, chat.tokenizer.decode, share=config.log.rollout_share)
        metrics["timing_s/step"] = time.perf_counter() - step_begun
        metrics["perf/compilations"] = count()
        writer.write(step, metrics)
        if evaluated or step % config.checkpoint.every == 0 or step == last_step:
            save(step, metrics)
        bar.set_postfix(reward=f"{metrics.get('reward/mean', 0):.3f}", tokens=sum(usage.sampled.values()))

    # ---- the end ----------------------------------------------------------------------------------------------------
    writer.close()
    checkpoints.close()
    page = report.write_report(workdir)
    print(final_table(read_metrics(workdir)))
    print(f"\nreport: {page}")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    return_freed_blocks()
    logging.set_verbosity(logging.WARNING)  # Orbax tells every option it has at INFO
    try:
        if _DRY_RUN.value:
            with refusing():
                print(plan.plan(CONFIG.value))
        elif not WORKDIR.value:
            raise app.UsageError("--workdir is needed: the folder that the run writes everything into")
        else:
            train(CONFIG.value, Path(WORKDIR.value))
    except Refused as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    jax.config.parse_flags_with_absl()
    flags.mark_flag_as_required("config")
    app.run(main, flags_parser=parse_flags)
