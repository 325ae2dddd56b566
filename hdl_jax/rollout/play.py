"""Plays episodes through the engine: opens or replays environments, samples lanes, verifies; for all methods."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from absl import logging

from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.session import Session
from hdl_jax.rollout.trajectory import BranchPoint, Trajectory
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.requests import Call, Held, Job, Lane, LaneResult, Sample

LOGGED = 5  # failures of verifiers that a run tells of; all are counted


@dataclasses.dataclass(frozen=True)
class Forks:
    """Continuations to play from one root.

    Attributes:
        root: the root. origin: its position in the group. prefix: its held KV. points: where its continuations start.
    """

    root: Trajectory
    origin: int
    prefix: Held
    points: Sequence[BranchPoint]


def complete(ctx: Context, problem: Problem, lanes: int, stream: Stream, phase: str) -> Job[list[Trajectory]]:
    """Plays `lanes` complete trajectories of one problem, which share its prompt.

    Returns none at all where an environment could not be opened in two tries: the problem is dropped and counted.
    """
    makers = [functools.partial(Session, ctx, problem) for _ in range(lanes)]
    for _ in range(2):
        sessions = yield from _open(makers)
        if not any(isinstance(session, EnvironmentFailure) for session in sessions):
            break
    else:
        return []
    plays = [_lane(ctx, s, (stream, problem.index, 0, s.fork, 0, i)) for i, s in enumerate(sessions)]
    prompt = np.asarray(sessions[0].tokens, np.int32)
    (results,) = yield [Sample(prompt, tuple(plays), phase)]
    return (yield from _verify(sessions, results))


def branches(
    ctx: Context, problem: Problem, forks: Sequence[Forks], stream: Stream, phase: str
) -> Job[list[Trajectory]]:
    """Plays the continuations of all roots under the original context (method step 6).

    A continuation whose environment cannot be rebuilt (a replay that differs, a failure) is left out; the caller sees
    it missing. Order: root, point, lane.
    """
    where = [(f, point, lane) for f in forks for point in f.points for lane in range(point.continuations)]
    opened = yield from _open(
        [functools.partial(Session, ctx, problem, f.root, point.position, f.origin) for f, point, _ in where]
    )
    sessions: list[Session] = []
    families: list[Sample] = []
    for f in forks:
        mine = [
            (s, (stream, problem.index, f.origin, point.position, 0, lane))
            for s, (g, point, lane) in zip(opened, where, strict=True)
            if g is f and not isinstance(s, EnvironmentFailure)
        ]
        if mine:
            sessions += [s for s, _ in mine]
            families.append(Sample(f.prefix, tuple(_lane(ctx, s, path) for s, path in mine), phase))
    results = yield list(families)
    return (yield from _verify(sessions, [lane for family in results for lane in family]))


def _lane(ctx: Context, session: Session, path: tuple[int, int, int, int, int, int]) -> Lane:
    return Lane(path, session.fork, session.budget(), ctx.temperature, ctx.chat.stop_ids, session.respond)


def _open(makers: Sequence) -> Job[list]:
    return (yield [Call(make, "verify") for make in makers])


def _verify(sessions: Sequence[Session], lanes: Sequence[LaneResult]) -> Job[list[Trajectory]]:
    """Verifies finished lanes; a verifier that fails is asked once more, then the verdict is None."""
    verdicts: list[Verdict | EnvironmentFailure | None] = [None] * len(sessions)
    for _ in range(2):
        again = [
            i
            for i, (v, lane) in enumerate(zip(verdicts, lanes, strict=True))
            if not isinstance(v, Verdict) and lane.failure is None
        ]
        answers = yield [Call(sessions[i].episode.verdict, "verify") for i in again]
        for i, answer in zip(again, answers, strict=True):
            verdicts[i] = answer
    for session, verdict in zip(sessions, verdicts, strict=True):
        if isinstance(verdict, EnvironmentFailure):
            logging.log_first_n(logging.WARNING, "no verdict, %s: %s", LOGGED, session.problem.id, verdict)
    return [
        s.trajectory(lane, v if isinstance(v, Verdict) else None)
        for s, lane, v in zip(sessions, lanes, verdicts, strict=True)
    ]
