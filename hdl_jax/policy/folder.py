"""Hugging Face checkpoint folders: weights in, weights out, a tensor at a time.

Loading reads a tensor, or of it what this process's devices hold, puts it on the devices as it is stored, and lets them
turn it, cast it and write it into its place. Saving goes the other way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.hf_config import parse_config
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.policy.tensors import Place, assemble, disassemble, places
from hdl_jax.policy.weights import flatten_params

HEAD = "lm_head.weight"
# Spelled by the safetensors format, with the bytes of a number.
DTYPES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}
READABLE = ("F32", "BF16", "F16")
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Rows compared at once where a head is stored beside the table that it is tied to.
ROWS = 4096


# ---- loading --------------------------------------------------------------------------------------------------------


def load_folder(folder: Path, cfg: TransformerConfig, sharding: tr.Params | None = None) -> tr.Params:
    """Reads model.safetensors, or the shards that model.safetensors.index.json names.

    Host memory holds one tensor at a time. Several processes may load at once, each what its own devices hold.

    Args:
        sharding: of each parameter, a tree like them; None: all on the default device.

    Returns:
        stacked parameters, float32.

    Raises:
        FileNotFoundError: there are no weights, or shards are missing; names all of them.
        ValueError: a file is not safetensors, or tensors are missing, unexpected, misshapen or of a dtype that is not
            read; one error names every one, before any is read.
    """
    with contextlib.ExitStack() as files:
        stored = {}
        for path in weight_files(Path(folder)):
            try:
                file = files.enter_context(safe_open(path, framework="numpy"))
            except SafetensorError as error:
                raise ValueError(f"{path} is not a readable safetensors file: {error}") from error
            stored.update({name: file.get_slice(name) for name in file.keys()})
        _check(Path(folder), cfg, stored)
        return assemble(cfg, lambda name, index: stored[name][index], sharding)


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights; where there is a single one, that, as transformers does."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        found = ", ".join(sorted(p.name for p in folder.glob("*.bin")))
        hint = f"; {found} must be converted to safetensors first" if found else ""
        raise FileNotFoundError(f"neither {SINGLE} nor {INDEX} in {folder}{hint}")
    try:
        names = sorted({str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / INDEX} is not an index of safetensors files: {error!r}") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder / INDEX} names files that are not there: {', '.join(missing)}")
    return [folder / name for name in names]


def _check(folder: Path, cfg: TransformerConfig, stored: Mapping[str, Any]) -> None:
    """Raises one ValueError for all that does not fit."""
    wanted = places(cfg)
    shapes = {name: tuple(tensor.get_shape()) for name, tensor in stored.items()}
    if cfg.tie_embeddings and HEAD in stored:
        # Some checkpoints store the table twice.
        wanted[HEAD] = wanted["model.embed_tokens.weight"]
    # Older Llamas store the rotary frequencies, which follow from the config.
    unexpected = [n for n in sorted(set(stored) - set(wanted)) if not n.endswith(".rotary_emb.inv_freq")]
    problems = [f"missing {name} {place.shape}" for name, place in wanted.items() if name not in stored]
    problems += [f"unexpected {name} {shapes[name]}" for name in unexpected]
    for name, place in wanted.items():
        if name in stored and shapes[name] != place.shape:
            problems.append(f"misshapen {name}: {shapes[name]} in the folder, {place.shape} wanted")
        if name in stored and stored[name].get_dtype() not in READABLE:
            problems.append(f"{name} is {stored[name].get_dtype()}: only {', '.join(READABLE)} are read")
    if not problems and HEAD in stored and cfg.tie_embeddings:
        table, head = stored["model.embed_tokens.weight"], stored[HEAD]
        for row in range(0, cfg.vocab_size, ROWS):
            rows = slice(row, min(row + ROWS, cfg.vocab_size))
            if not np.array_equal(table[rows], head[rows]):
                problems.append(
                    f"{HEAD} differs from model.embed_tokens.weight, but config.json says tie_word_embeddings=true: "
                    "if the head is to be used, say false there"
                )
                break
    if problems:
        raise ValueError(f"{folder} does not fit this policy:\n  " + "\n  ".join(problems))


# ---- saving ---------------------------------------------------------------------------------------------------------


def save_folder(
    folder: Path,
    params: tr.Params,
    cfg: TransformerConfig,
    *,
    files: Mapping[str, bytes],
    dtype: str = "bfloat16",
    shard_bytes: int = 5 * 10**9,
) -> None:
    """Writes a folder that transformers loads; it appears whole or not at all.

    Args:
        folder: new, or empty.
        params: stacked, every part of them on a device of this process.
        files: what lies beside the weights, name -> content: config.json, tokenizer.json, ...; written as they are, but
            for config.json's dtype where it is not that of the weights.
        dtype: of the weights written, bfloat16 or float32.
        shard_bytes: a file of weights holds no more, unless one tensor does.

    Raises:
        FileExistsError: there is something in the folder.
        ValueError: params, files or dtype are not of this policy; nothing was written.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not an empty folder: name one that is not there yet")
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is not one of {', '.join(DTYPES)}")
    flat, wanted = flatten_params(params), flatten_params(tr.abstract_params(cfg))
    have, want = ({name: tuple(leaf.shape) for name, leaf in tree.items()} for tree in (flat, wanted))
    differ = [f"{n}: {have.get(n)}, not {want.get(n)}" for n in sorted({*have, *want}) if have.get(n) != want.get(n)]
    if differ:
        raise ValueError("the parameters are not this policy's:\n  " + "\n  ".join(differ))
    beside = {**files, "config.json": _config_of(files, cfg, dtype)}
    odd = [name for name in beside if Path(name).name != name or name == INDEX or name.endswith(".safetensors")]
    if odd:
        raise ValueError(f"files: {', '.join(odd)} cannot lie beside the weights under this name")

    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a save that was interrupted
    partial.mkdir(parents=True)
    size = DTYPES[dtype][1]
    shards = _shards(places(cfg), size, shard_bytes)
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    names = [SINGLE] if len(shards) == 1 else names
    for name, shard in zip(names, shards, strict=True):
        _write_safetensors(partial / name, shard, flat, dtype)
    if len(shards) > 1:
        total = size * tr.parameter_count(params)
        weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        beside[INDEX] = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2).encode()
    for name, content in beside.items():
        (partial / name).write_bytes(content)
    partial.replace(folder)


def _config_of(files: Mapping[str, bytes], cfg: TransformerConfig, dtype: str) -> bytes:
    """The config.json to write: the one given, if it describes cfg, with the dtype of the weights."""
    if "config.json" not in files:
        raise ValueError("files has no config.json, without which nothing loads the weights; hf_config makes one")
    text = files["config.json"]
    # The dtype that cfg computes in need not be the one of the weights.
    described = dataclasses.replace(parse_config(text, "files['config.json']"), dtype=cfg.dtype)
    fields = [field.name for field in dataclasses.fields(cfg)]
    there, here = ({f: getattr(c, f) for f in fields} for c in (described, cfg))
    differ = [f"{f}: {there[f]}, not {here[f]}" for f in fields if there[f] != here[f]]
    if differ:
        raise ValueError("config.json does not describe this policy:\n  " + "\n  ".join(differ))
    config = json.loads(text)
    # Transformers 5 writes the one, version 4 the other; both read either, and cast what they load to it.
    wrong = [name for name in ("dtype", "torch_dtype") if config.get(name, dtype) != dtype]
    return json.dumps(config | dict.fromkeys(wrong, dtype), indent=2).encode() if wrong else text


def _shards(tensors: Mapping[str, Place], size: int, limit: int) -> list[dict[str, Place]]:
    """Tensors by file, in order; numbers are of `size` bytes."""
    shards: list[dict[str, Place]] = [{}]
    held = 0
    for name, place in tensors.items():
        n = size * math.prod(place.shape)
        if shards[-1] and held + n > limit:
            shards.append({})
            held = 0
        shards[-1][name] = place
        held += n
    return shards


def _write_safetensors(path: Path, tensors: Mapping[str, Place], flat: Mapping[str, Any], dtype: str) -> None:
    """One file of the format: the length of a JSON header, the header, the tensors; written as they come."""
    code, size = DTYPES[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, place in tensors.items():
        begin, end = end, end + size * math.prod(place.shape)
        header[name] = {"dtype": code, "shape": place.shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for place in tensors.values():
            file.write(disassemble(flat, place, dtype).view(np.uint8).data)
