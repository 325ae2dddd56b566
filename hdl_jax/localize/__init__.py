"""Localization signals: where to branch. Each scores the tokens of finished roots; all share the selector."""

from __future__ import annotations

from hdl_jax.localize.entropy import entropy
from hdl_jax.localize.hindsight import hindsight
from hdl_jax.localize.localization import Signal
from hdl_jax.localize.uniform import uniform

SIGNALS: dict[str, Signal] = {"hindsight": hindsight, "entropy": entropy, "uniform": uniform}
