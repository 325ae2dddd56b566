"""Where would a signal branch in this response? python -m hdl_jax.anatomy --config=FILE --problem=ID --response=FILE

Takes a response that somebody wrote for the policy's own: plays it, has it verified, lets the policy reflect on it, and
scores its tokens as a root's in training. Prints the tokens that score highest and the branch points, and writes
OUT/anatomy.html (--out, default: runs/anatomy). In domains of several turns --response is given once an action.
--reflection=FILE takes a text for the policy's reflection.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags, logging

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.command_line import CONFIG, OUT, Refused, parse_flags, refusing
from hdl_jax.domains.domain import EnvironmentFailure, Problem
from hdl_jax.localize import SIGNALS
from hdl_jax.localize.hindsight import informed_by, parse_outcome
from hdl_jax.localize.localization import Localization
from hdl_jax.localize.select import choose
from hdl_jax.metrics import table
from hdl_jax.report_anatomy import group_html, visible
from hdl_jax.report_page import page
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.session import Session
from hdl_jax.rollout.store import read_groups, write_groups
from hdl_jax.rollout.trajectory import Group, Reflection, Trajectory
from hdl_jax.sampling.requests import Job, LaneResult, Score

SHOWN = 12  # tokens in the table

_PROBLEM = flags.DEFINE_string("problem", None, "Id of the problem, of the train split or of one in eval.sets.")
_RESPONSE = flags.DEFINE_multi_string("response", [], "File with what the policy says; once an action.")
_REFLECTION = flags.DEFINE_string("reflection", None, "File with the reflection; without it the policy reflects.")


def find_problem(config: Any, ctx: Context, id: str) -> Problem:
    """The problem of that id. Raises ValueError: no split of the config has it; names a few that there are."""
    splits = ["train", *(name for name, _ in config_lib.eval_sets(config))]
    there = [problem for split in splits for problem in ctx.domain.problems(split)]
    for problem in there:
        if problem.id == id:
            return problem
    raise ValueError(f"--problem={id}: not in {', '.join(splits)}; there are {', '.join(p.id for p in there[:5])}, ...")


def recorded(ctx: Context, problem: Problem, actions: Sequence[str]) -> Trajectory:
    """A root of these actions, verified.

    Raises:
        ValueError: the episode ends before the last of them or goes on after it, or an action is longer than the
            policy's may be. EnvironmentFailure: the verifier failed.
    """
    session = Session(ctx, problem)
    tokens: list[int] = []
    generated: list[bool] = []
    for number, action in enumerate(actions, 1):
        ids = ctx.chat.reply(action)
        if len(ids) > session.budget():
            raise ValueError(f"action {number} has {len(ids)} tokens, and the policy's may have {session.budget()}")
        heard = session.respond(ids, True)
        tokens, generated = tokens + ids, generated + [True] * len(ids)
        if (heard is None) != (number == len(actions)):
            raise ValueError(f"the episode {'goes on' if heard else 'ends'} after action {number} of {len(actions)}")
        if heard:
            tokens, generated = tokens + heard[0], generated + [False] * len(heard[0])
    lane = LaneResult(
        tokens=np.asarray(tokens, np.int32),
        generated=np.asarray(generated),
        log_probs=np.zeros(len(tokens), np.float32),
        stopped=True,
    )
    return session.trajectory(lane, session.episode.verdict())


def localized(
    ctx: Context, problem: Problem, root: Trajectory, reflection: str | None
) -> Job[tuple[Trajectory, Localization]]:
    """The root with its log-probabilities, and its scores: by the config's signal, or by hindsight with a reflection
    that is given.
    """
    (scored,) = yield [Score(root.tokens, "score", temperature=ctx.temperature)]
    root = dataclasses.replace(root, log_probs=np.where(root.generated, scored.log_probs, 0).astype(np.float32))
    if reflection is None:
        return root, (yield from SIGNALS[ctx.config.branch.signal](ctx, problem, [root]))
    told = Reflection(reflection, np.zeros(0, np.int32), parse_outcome(reflection), truncated=False)
    return root, (yield from informed_by(ctx, problem, [root], [told]))


def anatomy(config: Any, id: str, actions: Sequence[str], reflection: str | None, out: Path) -> str:
    """Scores a response, writes the page, and returns what to print. Raises Refused before any long work."""
    with refusing():
        config_lib.validate(config)
        domain, policy = setup_run.make_domain(config), setup_run.make_policy(config)
        ctx = Context(domain, policy.chat, config, 0, config.rollout.temperature)
        if reflection is not None and config.branch.signal != "hindsight":
            raise ValueError(f"--reflection is for branch.signal='hindsight', not {config.branch.signal!r}")
        problem = find_problem(config, ctx, id)
        try:
            root = recorded(ctx, problem, actions)
        except EnvironmentFailure as failure:
            raise ValueError(f"the response could not be verified: {failure}") from failure
        engine = setup_run.make_engine(config, policy.shape)
        engine.load(policy.load(None))
    ((root, found),) = engine.run([localized(ctx, problem, root, reflection)], 0)
    branch = config.branch
    (points,) = choose(
        id, [root], found.scores, points=branch.points_per_root, spacing=branch.min_spacing,
        continuations=branch.continuations, capacity=ctx.max_tokens,
    )  # fmt: skip
    group = Group(problem, (root,), tuple(found.scores), tuple(points), tuple(found.reflections))
    write_groups(out, 0, [group], [np.zeros(1)], policy.chat.tokenizer.decode)
    (stored,) = read_groups(out, 0)
    body = f"<h1>{visible(id)}</h1><h3>{visible(policy.name)}</h3>{group_html(stored, branch.signal)}"
    path = out / "anatomy.html"
    path.write_text(page(f"anatomy of {id}", body), encoding="utf-8")
    return f"{shown(group, stored[0].record['pieces'])}\n\npage: {path}"


def shown(group: Group, pieces: Sequence[str]) -> str:
    """The verdict, the reflection, and a line for each of the tokens that score highest."""
    (root,), (scores,) = group.trajectories, group.scores
    assert root.verdict is not None
    flags_ = {point.position: str(number) for number, point in enumerate(group.points, 1)}
    rows = []
    for position in np.argsort(-np.where(root.generated, scores, -1), kind="stable")[:SHOWN]:
        if root.generated[position]:
            before = "".join(pieces[max(root.prompt_length, position - 8) : position])
            after = "".join(pieces[position + 1 : position + 5])
            rows.append(
                [
                    flags_.get(int(position), ""),
                    str(position - root.prompt_length),
                    f"{scores[position]:.3f}",
                    repr(pieces[position])[1:-1],
                    f"{repr(before)[1:-1]} [{repr(pieces[position])[1:-1]}] {repr(after)[1:-1]}",
                ]
            )
    said = "".join(f"\n\nreflection: {reflection.text}" for reflection in group.reflections)
    told = f"reward {root.verdict.reward:.3g}\n{root.verdict.feedback}{said}"
    return f"{told}\n\n{table(['point', 'token', 'score', 'text', 'in its place'], rows)}"


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.WARNING)
    if CONFIG.value is None or not _PROBLEM.value or not _RESPONSE.value:
        raise app.UsageError("--config, --problem and --response are needed")
    try:
        actions = [Path(path).read_text(encoding="utf-8").strip() for path in _RESPONSE.value]
        told = Path(_REFLECTION.value).read_text(encoding="utf-8").strip() if _REFLECTION.value else None
        print(anatomy(CONFIG.value, _PROBLEM.value, actions, told, Path(OUT.value or "runs/anatomy")))
    except (Refused, OSError, UnicodeDecodeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
