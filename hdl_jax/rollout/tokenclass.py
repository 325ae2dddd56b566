"""Which kind of word a token of an action belongs to, for analyses of where signals branch."""

from __future__ import annotations

from collections.abc import Callable

from hdl_jax.domains.domain import Domain
from hdl_jax.policy.chat import Chat
from hdl_jax.rollout.trajectory import Trajectory

Classify = Callable[[Trajectory, int], str]


def classifier(domain: Domain, chat: Chat) -> Classify:
    """Returns (trajectory, position) -> `filler`, `verb`, `argument`, `end` (the token closing an action), `other`."""

    def classify(trajectory: Trajectory, position: int) -> str:
        turn = next((t for t in trajectory.turns if t.start <= position < t.end), None)
        if turn is None:
            return "other"
        if int(trajectory.tokens[position]) in chat.stop_ids:
            return "end"
        ids = trajectory.tokens[turn.start : turn.end].tolist()
        at = position - turn.start
        # Decoding strips the space before a word, so a token's own text ends where the text up to it ends.
        begin, end = len(chat.decode(ids[:at])), len(chat.decode(ids[: at + 1]))
        for start, stop, kind in domain.token_class(turn.action):
            if start < end and begin < stop:
                return kind
        return "other"

    return classify
