"""Whether a peer's model computes what ours does, before anything about it is timed."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks import common
from benchmarks.peers import PeerMissing, Process
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig

# Nats between log-probabilities of the same weights, both in float32.
TOLERANCE = 1e-4


def check(figure: str, peer: Process, params: tr.Params, cfg: TransformerConfig) -> None:
    """Prints the largest difference of log-probabilities as a figure.

    Raises PeerMissing where it is above TOLERANCE: times of another computation would say nothing.
    """
    ours = dataclasses.replace(cfg, rope_theta=peer.hello.get("rope_theta", cfg.rope_theta))
    tokens = common.prompts(cfg, 1, 64)[0]
    theirs = np.asarray(peer.ask("log_probs", tokens=tokens.tolist())["log_probs"])
    difference = float(np.abs(common.log_probs(params, ours, tokens) - theirs).max())
    common.figure(figure, difference, "nats", rope_theta=ours.rope_theta)
    if not difference <= TOLERANCE:
        raise PeerMissing(f"it computes something else: log-probabilities differ by {difference:.2g} nats")
