"""Small policies in every form that hdl_jax.policy.source opens, and a run of ours that began with one."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
from chat_fixtures import THINKER
from gguf_fixtures import made

from hdl_jax import config as config_lib
from hdl_jax.checkpoint import Checkpoints
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.folder import save_folder


def folder(path: Path, architecture: str = "qwen3", *, dtype: str = "float32", thinks: bool = False) -> tr.Params:
    """Writes a Hugging Face folder of random weights. Returns its parameters.

    Its conversations are framed as `<|im_start|>ROLE TEXT<|im_end|>`, control tokens 1 and 2.
    """
    path.mkdir()
    changes = {"tokenizer.chat_template": THINKER} if thinks else {}
    file, params, cfg = made(path, architecture, changes=changes)
    file.path.rename(path.with_suffix(".source"))
    files = file.files()
    save_folder(path, params, cfg, files=files, dtype=dtype)
    return params


def run(workdir: Path, source: str, shape, **steps: float | None) -> dict[int, tr.Params]:
    """A workdir whose checkpoints `s3=0.5` (score, or None) hold random weights. Returns them by step."""
    config = config_lib.default()
    config.policy.source = source
    workdir.mkdir()
    (workdir / "config.json").write_text(json.dumps(config.to_dict()))
    saved = {}
    with Checkpoints(workdir / "checkpoints") as checkpoints:
        for name, score in steps.items():
            step = int(name[1:])
            saved[step] = jax.tree.map(np.asarray, jax.jit(tr.init, static_argnums=0)(shape, jax.random.key(step)))
            checkpoints.save(step, {"params": saved[step]}, {}, score=score)
    return saved


def assert_same(a: tr.Params, b: tr.Params) -> None:
    """Equal trees of equal arrays."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
