"""Weights on disk: one flat safetensors file, tensor names are the parameter path joined by '/'.

The format is the one the Hugging Face ecosystem reads; nothing in the file is code. bfloat16 goes through ml_dtypes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

Params = Any  # a nested dict whose leaves are arrays (or ShapeDtypeStructs, where only shapes matter)

# Spelled by the safetensors format; read here so that a file is checked before any tensor is copied.
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def flatten_params(params: Params) -> dict[str, Any]:
    """Flattens nested dicts to {'a/b/c': leaf}, in sorted order.

    Raises ValueError for a key that contains '/' or is not a string, which would not survive the way back.
    """
    flat: dict[str, Any] = {}

    def walk(node: Any, path: tuple[str, ...]) -> None:
        if not isinstance(node, Mapping):
            flat["/".join(path)] = node
            return
        for key in node:
            if not isinstance(key, str) or not key or "/" in key:
                raise ValueError(
                    f"parameter name {key!r} under {'/'.join(path)!r} is not a non-empty string without '/'"
                )
        for key in sorted(node):
            walk(node[key], (*path, key))

    walk(params, ())
    return flat


def unflatten_params(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of `flatten_params` for trees without empty dicts."""
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def save_params(path: str | os.PathLike[str], params: Params, dtype: Any = None) -> None:
    """Writes `params` to one safetensors file, cast to `dtype` (e.g. ml_dtypes.bfloat16) where given.

    The file appears whole or not at all: it is written beside the target and renamed.
    """
    path = Path(path)
    arrays = {}
    for name, leaf in flatten_params(jax.device_get(params)).items():
        array = np.asarray(leaf)
        # safetensors stores the buffer as it lies in memory: a transposed view would be written in the wrong order.
        arrays[name] = np.ascontiguousarray(array if dtype is None else array.astype(dtype)).reshape(array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    save_file(arrays, partial)
    partial.replace(path)


def load_params(path: str | os.PathLike[str], like: Params) -> Params:
    """Reads a safetensors file into the structure of `like`, cast to the dtypes of its leaves.

    Args:
        path: the file.
        like: nested dicts of arrays or `jax.ShapeDtypeStruct`s: which names, shapes and dtypes are wanted.

    Returns:
        nested dicts of numpy arrays.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not safetensors, or tensors are missing, unexpected, of another shape or not floating
            point; one error names the file and every such tensor.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    wanted = flatten_params(like)
    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: file.get_slice(name) for name in file.keys()}
            problems = [f"missing {name} {tuple(leaf.shape)}" for name, leaf in wanted.items() if name not in found]
            problems += [
                f"unexpected {name} {tuple(found[name].get_shape())}" for name in sorted(set(found) - set(wanted))
            ]
            for name, leaf in wanted.items():
                if name not in found:
                    continue
                shape = tuple(found[name].get_shape())
                if shape != tuple(leaf.shape):
                    problems.append(f"misshapen {name}: {shape} in the file, {tuple(leaf.shape)} wanted")
                if found[name].get_dtype() not in _DTYPES:
                    problems.append(f"not floating point {name}: {found[name].get_dtype()}")
            if problems:
                raise ValueError(f"{path} does not fit this policy:\n  " + "\n  ".join(problems))
            flat = {name: file.get_tensor(name).astype(leaf.dtype) for name, leaf in wanted.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from error
    return unflatten_params(flat)
