"""The policy that a run of ours has learnt: its config says which it is, a checkpoint has its weights."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax

from hdl_jax.checkpoint import find_step, load_checkpoint
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.source import Policy, open_policy


def trained_policy(workdir: Path, which: str, **changes: Any) -> Policy:
    """The policy of a run at a step, its weights not yet read.

    Args:
        which: a step that has a checkpoint, `best` by its score, or `latest`.
        changes: arguments of `open_policy` that are to differ from the run's config.

    Raises:
        FileNotFoundError: the run, or a checkpoint of it that `best` or `latest` could mean, is not there.
        ValueError: it is not a run's config; names the file. As `open_policy` does, too.
        ImportError: as `open_policy`.
    """
    step = find_step(workdir, which)
    path = workdir / "config.json"
    try:
        config = json.loads(path.read_bytes())["policy"]
        source, options = config["source"], {name: config[name] for name in ("dtype", "system", "thinking")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error!r}") from error
    policy = open_policy(source, **options | changes)

    def load(sharding: tr.Params | None) -> tr.Params:
        like = tr.abstract_params(policy.shape)
        if sharding is not None:
            like = jax.tree.map(lambda p, s: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=s), like, sharding)
        return load_checkpoint(workdir / "checkpoints" / str(step), {"params": like}).state["params"]

    return dataclasses.replace(policy, name=f"{source} at step {step} of {workdir}", load=load)
