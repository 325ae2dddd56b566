"""Checkpoint folders: names and orders by hand, exact ways there and back, bounded memory, one error for all."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import TINY

from hdl_jax.policy import folder as folder_lib
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.folder import load_folder, save_folder
from hdl_jax.policy.hf_config import read_config, write_config
from hdl_jax.policy.presets import TransformerConfig

BF16 = np.dtype(ml_dtypes.bfloat16)
UNTIED = dataclasses.replace(TINY, tie_embeddings=False)
LLAMA = dataclasses.replace(TINY, qk_norm=False)
KERNELS = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
}  # fmt: skip
SCALES = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
QK_SCALES = {"self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm"}


def random_params(cfg: TransformerConfig, seed: int) -> tr.Params:
    """Numbers of any kind, on the host: nothing here runs the policy."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda like: rng.standard_normal(like.shape, np.float32), tr.abstract_params(cfg))


def stored(params: tr.Params, cfg: TransformerConfig, dtype) -> dict[str, np.ndarray]:
    """The tensors of a folder, spelled out."""
    params = jax.tree.map(np.asarray, params)
    out = {"model.embed_tokens.weight": params["embed"], "model.norm.weight": params["norm"]}
    if not cfg.tie_embeddings:
        out["lm_head.weight"] = params["head"].T
    for i in range(cfg.n_layers):
        for theirs, ours in KERNELS.items():
            out[f"model.layers.{i}.{theirs}.weight"] = params["blocks"][ours]["kernel"][i].T
        for theirs, ours in (SCALES | (QK_SCALES if cfg.qk_norm else {})).items():
            out[f"model.layers.{i}.{theirs}.weight"] = params["blocks"][ours]["scale"][i]
    return {name: np.ascontiguousarray(tensor.astype(dtype)) for name, tensor in out.items()}


def write(folder, tensors: dict[str, np.ndarray], shards: int = 1):
    """A folder of these tensors, in so many files."""
    folder.mkdir(exist_ok=True)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder
    weight_map = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        save_file({n: t for n, t in tensors.items() if weight_map[n] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def config_file(cfg: TransformerConfig, dtype: str = "float32") -> dict[str, bytes]:
    return {"config.json": json.dumps(write_config(cfg, torch_dtype=dtype)).encode()}


def assert_same_bits(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


# ---- loading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("cfg", [TINY, UNTIED, LLAMA], ids=["tied", "untied", "llama"])
def test_every_number_comes_to_its_place(tmp_path, cfg, dtype, shards):
    params = random_params(cfg, seed=0)
    folder = write(tmp_path / "theirs", stored(params, cfg, dtype), shards)
    loaded = load_folder(folder, cfg)
    assert_same_bits(loaded, jax.tree.map(lambda p: np.asarray(p).astype(dtype).astype(np.float32), params))


def test_host_memory_holds_a_tensor_or_two(tmp_path):
    """The table and the head, one after the other, and eight layers; tracemalloc counts all of the host's arrays."""
    cfg = dataclasses.replace(UNTIED, vocab_size=30_000, n_layers=8)
    folder = write(tmp_path / "theirs", stored(random_params(cfg, seed=0), cfg, BF16))
    largest = 2 * cfg.vocab_size * cfg.d_model
    peaks = []
    for _ in range(4):  # the first compiles
        tracemalloc.start()
        params = load_folder(folder, cfg)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 4 * tr.parameter_count(params) > 4 * largest
    # On a busy machine a thread of the device lets go of a tensor when the next has been read.
    assert largest <= min(peaks) < 2.25 * largest


def test_a_single_file_comes_before_an_index(tmp_path):
    params = random_params(TINY, seed=0)
    write(tmp_path / "x", stored(random_params(TINY, seed=1), TINY, np.float32), shards=2)
    assert_same_bits(load_folder(write(tmp_path / "x", stored(params, TINY, np.float32)), TINY), params)


def test_a_head_stored_beside_its_table_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_lib, "ROWS", 7)
    params = random_params(TINY, seed=0)
    tensors = stored(params, TINY, np.float32)
    tensors["model.rotary_emb.inv_freq"] = np.ones(4, np.float32)  # what old checkpoints have too
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    assert_same_bits(load_folder(write(tmp_path / "same", tensors), TINY), params)
    tensors["lm_head.weight"][-1, -1] += 1e-3
    with pytest.raises(ValueError, match="lm_head.weight differs from model.embed_tokens.weight.*tie_word_embeddings"):
        load_folder(write(tmp_path / "other", tensors), TINY)


def test_all_that_does_not_fit_is_in_one_error_before_any_is_read(tmp_path, monkeypatch):
    tensors = stored(random_params(TINY, seed=0), TINY, np.float32)
    del tensors["model.norm.weight"], tensors["model.layers.1.self_attn.k_norm.weight"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((64, 32), np.float32)
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
    tensors["model.layers.0.mlp.down_proj.weight"] = np.zeros((64, 32), np.float32)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((64, 32), np.int8)
    tensors["lm_head.weight"] = np.zeros((3, 32), np.float32)
    folder = write(tmp_path / "theirs", tensors, shards=2)
    monkeypatch.setattr(folder_lib, "assemble", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError) as error:
        load_folder(folder, TINY)
    first, *lines = str(error.value).split("\n  ")
    assert first == f"{folder} does not fit this policy:"
    assert sorted(lines) == [
        "misshapen lm_head.weight: (3, 32) in the folder, (64, 32) wanted",
        "misshapen model.layers.0.mlp.down_proj.weight: (64, 32) in the folder, (32, 64) wanted",
        "missing model.layers.1.self_attn.k_norm.weight (8,)",
        "missing model.norm.weight (32,)",
        "model.layers.0.mlp.up_proj.weight is I8: only F32, BF16, F16 are read",
        "unexpected model.layers.0.self_attn.q_proj.bias (32,)",
        "unexpected model.layers.2.mlp.up_proj.weight (64, 32)",
    ]


def test_folders_without_readable_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither model.safetensors nor model.safetensors.index.json"):
        load_folder(tmp_path, TINY)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="pytorch_model.bin must be converted to safetensors"):
        load_folder(tmp_path, TINY)

    folder = write(tmp_path / "x", stored(random_params(TINY, seed=0), TINY, np.float32), shards=4)
    whole = (folder / "model-2.safetensors").read_bytes()
    (folder / "model-2.safetensors").write_bytes(whole[:-5])
    with pytest.raises(ValueError, match="model-2.safetensors is not a readable safetensors file"):
        load_folder(folder, TINY)
    (folder / "model-2.safetensors").unlink()
    (folder / "model-0.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="index.json names.*: model-0.safetensors, model-2.safetensors"):
        load_folder(folder, TINY)
    for text in ("", "{}", "[]", '{"weight_map": ["a"]}', '{"weight_map": {"a": {}'):
        (folder / "model.safetensors.index.json").write_text(text)
        with pytest.raises(ValueError, match="index.json is not an index"):
            load_folder(folder, TINY)


# ---- saving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cfg", [TINY, UNTIED, LLAMA], ids=["tied", "untied", "llama"])
def test_a_saved_folder_is_what_it_was_loaded_from(tmp_path, cfg, dtype, shard_bytes):
    tensors = stored(random_params(cfg, seed=2), cfg, dtype)
    table = tensors["model.embed_tokens.weight"]
    table.flat[:4] = [-0.0, 1e-39, -1e-40, 3e38]  # signs, numbers below the normal ones, near the largest
    theirs = write(tmp_path / "theirs", tensors)
    params = load_folder(theirs, cfg)
    files = config_file(cfg, dtype) | {"tokenizer.json": b"\xff{}", "LICENSE": b"text"}
    ours = tmp_path / "deep" / "ours"
    save_folder(ours, params, cfg, files=files, dtype=dtype, shard_bytes=shard_bytes)

    weights = sorted(p.name for p in ours.glob("*.safetensors"))
    held = {name: load_file(ours / name) for name in weights}
    assert_same_bits({n: t for file in held.values() for n, t in file.items()}, tensors)
    for name in weights:  # readers that map a file want its numbers aligned
        assert int.from_bytes((ours / name).read_bytes()[:8], "little") % 8 == 0
    assert {n: (ours / n).read_bytes() for n in files} == files
    assert_same_bits(load_folder(ours, read_config(ours)), params)

    size = sum(t.nbytes for t in tensors.values())
    if shard_bytes > size:
        assert weights == ["model.safetensors"]
        assert sorted(p.name for p in ours.iterdir()) == sorted([*files, "model.safetensors"])
        return
    assert weights == [f"model-{i + 1:05d}-of-{len(weights):05d}.safetensors" for i in range(len(weights))]
    assert all(len(f) == 1 or sum(t.nbytes for t in f.values()) <= shard_bytes for f in held.values())
    assert shard_bytes > 1 or len(weights) == len(tensors)
    index = json.loads((ours / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {name: file for file, tensors in held.items() for name in tensors}
    assert index["metadata"]["total_size"] == size


def test_bfloat16_is_the_nearest(tmp_path):
    params = random_params(TINY, seed=3)
    save_folder(tmp_path / "x", params, TINY, files=config_file(TINY, "bfloat16"))
    assert_same_bits(load_file(tmp_path / "x" / "model.safetensors"), stored(params, TINY, BF16))


@pytest.mark.parametrize("names", [("torch_dtype",), ("dtype",), ("dtype", "torch_dtype")])
def test_config_json_says_the_dtype_of_the_weights(tmp_path, names):
    config = write_config(TINY, eos_token_id=[1, 2], **dict.fromkeys(names, "bfloat16"))
    files = {"config.json": json.dumps(config).encode()}
    save_folder(tmp_path / "x", random_params(TINY, seed=3), TINY, files=files, dtype="float32")
    assert json.loads((tmp_path / "x" / "config.json").read_text()) == config | dict.fromkeys(names, "float32")


def test_what_a_policy_computes_in_is_not_what_it_is_stored_in(tmp_path):
    cfg = dataclasses.replace(TINY, dtype="bfloat16")
    save_folder(tmp_path / "x", random_params(TINY, seed=3), cfg, files=config_file(cfg), dtype="float32")
    assert read_config(tmp_path / "x") == TINY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, "dtype='float16' is not one of float32, bfloat16"),
        ({"files": {}}, "files has no config.json"),
        ({"files": {"config.json": b"{"}}, r"files\['config.json'\] is not JSON"),
        ({"files": config_file(dataclasses.replace(TINY, rope_theta=7.0))}, "rope_theta: 7.0, not 10000.0"),
        ({"files": config_file(UNTIED)}, "tie_embeddings: False, not True"),
        ({"files": config_file(TINY) | {"a/b": b"", "../c": b"", "model.safetensors": b""}}, "a/b, ../c, model.safe"),
        ({"cfg": UNTIED, "files": config_file(UNTIED)}, r"head: None, not \(32, 64\)"),
        ({"cfg": dataclasses.replace(TINY, d_ff=32)}, r"blocks/down/kernel: \(2, 64, 32\), not \(2, 32, 32\)\n"),
    ],
)  # fmt: skip
def test_what_is_not_this_policy_is_not_written(tmp_path, changes, message):
    call = {"cfg": TINY, "files": config_file(TINY), **changes}
    with pytest.raises(ValueError, match=message):
        save_folder(tmp_path / "x", random_params(TINY, seed=0), **call)
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path):
    params = random_params(TINY, seed=0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    (tmp_path / "file").write_text("")
    for name in ("full", "file"):
        with pytest.raises(FileExistsError, match="is not an empty folder"):
            save_folder(tmp_path / name, params, TINY, files=config_file(TINY))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]


def test_a_save_that_breaks_off_leaves_no_folder_and_does_not_hinder_the_next(tmp_path, monkeypatch):
    params, to = random_params(TINY, seed=0), tmp_path / "x"
    to.mkdir()  # an empty one may be there
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):

        def fail(*_):
            raise OSError("the disk is full")

        patch.setattr(folder_lib, "disassemble", fail)
        save_folder(to, params, TINY, files=config_file(TINY) | {"old": b""})
    assert not list(to.iterdir())
    save_folder(to, params, TINY, files=config_file(TINY), dtype="float32")
    assert sorted(p.name for p in to.iterdir()) == ["config.json", "model.safetensors"]
    assert_same_bits(load_folder(to, TINY), params)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
