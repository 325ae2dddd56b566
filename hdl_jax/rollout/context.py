"""What every method is given: the domain, the chat, the limits of a rollout. Plain data, the same for all problems."""

from __future__ import annotations

import dataclasses
from typing import Any

from hdl_jax.domains.domain import Domain
from hdl_jax.policy.chat import Chat


@dataclasses.dataclass(frozen=True)
class Context:
    """Attributes:
    domain: the domain played. chat: turns text into ids and back.
    config: the run's config (an ml_collections ConfigDict or anything with the same fields).
    step: the training step, which uniform scores and random keys depend on.
    temperature: of roots, continuations or evaluation episodes.
    """

    domain: Domain
    chat: Chat
    config: Any
    step: int
    temperature: float

    @property
    def max_tokens(self) -> int:
        """The most tokens a whole trajectory can have, prompt included."""
        return self.config.rollout.max_prompt_tokens + self.config.rollout.max_response_tokens
