"""Episodes of one response: what the domains share whose problems are answered at once."""

from __future__ import annotations

from hdl_jax.domains.domain import Step


class SingleTurn:
    """The first action is the response and ends the episode; what it was asked and earns is the subclass's."""

    _said: str | None = None

    @property
    def response(self) -> str:
        """What was said; empty before anything was."""
        return self._said or ""

    def step(self, action: str) -> Step:
        """Takes the response; later actions change nothing. There is nothing to observe."""
        if self._said is None:
            self._said = action
        return Step("", True)
