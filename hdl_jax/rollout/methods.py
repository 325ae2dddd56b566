"""The methods by name: one coroutine a problem each."""

from __future__ import annotations

from collections.abc import Callable

from hdl_jax.domains.domain import Problem
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.grpo import grpo
from hdl_jax.rollout.hdl import hdl
from hdl_jax.rollout.trajectory import Group
from hdl_jax.sampling.requests import Job

METHODS: dict[str, Callable[[Context, Problem], Job[Group | None]]] = {"hdl": hdl, "grpo": grpo}
