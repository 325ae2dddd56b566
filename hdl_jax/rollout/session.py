"""One episode bound to token ids: what the environment says and the policy samples, appended in order."""

from __future__ import annotations

import numpy as np

from hdl_jax.domains.domain import EnvironmentFailure, Problem, Verdict
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.trajectory import Trajectory, Turn
from hdl_jax.sampling.requests import LaneResult


class ReplayMismatch(EnvironmentFailure):
    """A replayed environment did not repeat its recorded observations."""


class Session:
    """Plays one trajectory: a root from its opening, or a continuation from a position inside its root.

    A continuation replays the root's complete actions in a fresh episode, comparing every observation with the record,
    and keeps the sampled tokens of the action it interrupts.

    Args:
        parent, fork, origin: the root, the first token to draw again, and the root's place in the group.

    Raises:
        ReplayMismatch: an observation differs from the record.
        ValueError: the prompt is longer than `rollout.max_prompt_tokens`.
    """

    def __init__(
        self,
        ctx: Context,
        problem: Problem,
        parent: Trajectory | None = None,
        fork: int | None = None,
        origin: int | None = None,
    ):
        self.ctx, self.problem, self.parent, self.origin = ctx, problem, parent, origin
        self.episode = ctx.domain.start(problem)
        opening = self.episode.opening()
        self.truncated = False
        if parent is None:
            self.tokens = list(ctx.chat.prompt(opening))
            limit = ctx.config.rollout.max_prompt_tokens
            if len(self.tokens) > limit:
                raise ValueError(
                    f"{problem.id}: its prompt has {len(self.tokens)} tokens, more than "
                    f"rollout.max_prompt_tokens={limit}"
                )
            self.prompt_length = self.fork = self.turn_start = len(self.tokens)
            self.limit = self.prompt_length + ctx.config.rollout.max_response_tokens
            self.turns: list[Turn] = []
            return
        assert fork is not None
        if list(ctx.chat.prompt(opening)) != parent.tokens[: parent.prompt_length].tolist():
            raise ReplayMismatch(f"{problem.id}: it now opens with {opening!r}, which is not the recorded prompt")
        self.tokens, self.prompt_length, self.fork = parent.tokens[:fork].tolist(), parent.prompt_length, fork
        self.limit = self.prompt_length + ctx.config.rollout.max_response_tokens
        self.turns = [t for t in parent.turns if t.end <= fork]
        interrupted = parent.turns[len(self.turns)]
        assert interrupted.start <= fork < interrupted.end, "a branch point lies inside an action"
        self.turn_start = interrupted.start
        for i, turn in enumerate(self.turns):
            step = self.episode.step(turn.action)
            if step.observation != turn.observation or step.done:
                raise ReplayMismatch(f"{problem.id}: action {i} answered {step}, recorded {turn.observation!r}")

    def budget(self) -> int:
        """Tokens the policy may sample before its action is cut."""
        in_action = self.ctx.config.rollout.max_action_tokens - (len(self.tokens) - self.turn_start)
        return min(in_action, self.limit - len(self.tokens))

    def respond(self, sampled: list[int], stopped: bool) -> tuple[list[int], int] | None:
        """Takes the tokens of one action, steps the environment, and returns the observation's ids and next budget."""
        self.tokens += sampled
        end = len(self.tokens)
        text = self.ctx.chat.decode(self.tokens[self.turn_start : end - 1 if stopped else end])
        step = self.episode.step(text)
        self.turns.append(Turn(self.turn_start, end, text, step.observation))
        if step.done:
            # Over, but without its stop token: the budget cut the last action (a single-turn answer, say).
            self.truncated = not stopped
            return None
        # An action that was cut, or ended by another of the stop ids, is closed for the policy as its history has it:
        # tokens of the template are fed, never generated.
        chat = self.ctx.chat
        closed = stopped and sampled[-1] == chat.end_id
        ids = ([] if closed else [chat.end_id]) + chat.observation(step.observation)
        if len(self.turns) >= self.ctx.domain.max_actions or end + len(ids) >= self.limit:
            self.truncated = True
            return None
        self.tokens += ids
        self.turn_start = len(self.tokens)
        return ids, self.budget()

    def trajectory(self, lane: LaneResult, verdict: Verdict | None) -> Trajectory:
        """The finished record: the parent's prefix as it was, then the lane's tokens."""
        assert self.tokens[self.fork :] == lane.tokens.tolist(), "the engine and the session recorded different tokens"
        prefix = self.tokens[: self.fork]
        generated, log_probs = np.zeros(self.fork, bool), np.zeros(self.fork, np.float32)
        if self.parent is not None:
            assert prefix == self.parent.tokens[: self.fork].tolist(), "a continuation keeps its root's prefix"
            generated, log_probs = self.parent.generated[: self.fork], self.parent.log_probs[: self.fork]
        return Trajectory(
            tokens=np.asarray(self.tokens, np.int32),
            generated=np.concatenate([generated, lane.generated]),
            log_probs=np.concatenate([log_probs, lane.log_probs]),
            prompt_length=self.prompt_length,
            fork=self.fork,
            turns=tuple(self.turns),
            verdict=verdict,
            truncated=self.truncated,
            origin=self.origin,
        )
