"""How the training state lies on several devices; the tests that need eight run in a process of their own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from support import TINY

from hdl_jax.mesh import bytes_a_device, fsdp_mesh, parameter_shardings, parameter_specs
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.folder import load_folder, save_folder
from hdl_jax.policy.hf_config import write_config
from hdl_jax.policy.presets import preset

DEVICES = 8
# No width but the vocabulary's is divided by eight, or all are.
UNEVEN = dataclasses.replace(TINY, d_model=36, d_ff=60, n_heads=6, n_kv_heads=3, head_dim=6, tie_embeddings=False)
EVEN = dataclasses.replace(TINY, tie_embeddings=False)
many = pytest.mark.skipif(jax.device_count() < DEVICES, reason="test_with_eight_devices runs it")


@pytest.mark.skipif(jax.device_count() >= DEVICES, reason="this is that process")
def test_with_eight_devices():
    env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__, "-k", "many"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and " passed" in run.stdout and "skipped" not in run.stdout, run.stdout + run.stderr


def test_matrices_are_cut_along_their_rows_where_the_devices_divide_them():
    # As many layers as devices: it is not layers that are cut.
    cfg = dataclasses.replace(EVEN, n_layers=DEVICES)
    specs = parameter_specs(cfg, DEVICES)
    assert (specs["embed"], specs["head"], specs["norm"]) == (P("fsdp"), P("fsdp"), P())
    blocks = specs["blocks"]
    assert {name: inner["kernel"] for name, inner in blocks.items() if "kernel" in inner} == dict.fromkeys(
        ("q", "k", "v", "o", "gate", "up", "down"), P(None, "fsdp")
    )
    assert {inner["scale"] for inner in blocks.values() if "scale" in inner} == {P()}
    uneven = parameter_specs(UNEVEN, DEVICES)
    assert (uneven["embed"], uneven["head"]) == (P("fsdp"), P())
    assert set(jax.tree.leaves(uneven["blocks"])) == {P()}
    assert jax.tree.structure(specs) == jax.tree.structure(tr.abstract_params(cfg))


def test_bytes_of_an_8b_on_sixteen_devices_by_hand():
    vectors = 36 * (2 * 4096 + 2 * 128) + 4096
    held = (8_190_735_360 - vectors) // 16 + vectors
    cfg = dataclasses.replace(preset("qwen3-8b"), dtype="bfloat16")
    assert bytes_a_device(cfg, 16) == {
        "parameters": 4 * held,
        "gradients": 4 * held,
        "moments": 8 * held,
        "sampling": 2 * (8_190_735_360 - vectors) + 4 * vectors,
    }
    assert bytes_a_device(preset("qwen3-8b"), 16)["sampling"] == 4 * 8_190_735_360


def test_one_device_holds_all():
    count = tr.parameter_count(tr.abstract_params(TINY))
    expected = {"parameters": 4 * count, "gradients": 4 * count, "moments": 8 * count, "sampling": 4 * count}
    assert bytes_a_device(TINY, 1) == expected


@many
@pytest.mark.parametrize("cfg", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_many_devices_hold_what_the_plan_says(cfg):
    params = jax.device_put(random_params(cfg), parameter_shardings(cfg, fsdp_mesh(jax.devices()[:DEVICES])))
    for device in jax.devices()[:DEVICES]:
        held = [s.data.nbytes for p in jax.tree.leaves(params) for s in p.addressable_shards if s.device == device]
        assert sum(held) == bytes_a_device(cfg, DEVICES)["parameters"]


def random_params(cfg):
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda like: rng.standard_normal(like.shape, np.float32), tr.abstract_params(cfg))


def _folder(tmp_path, cfg, params):
    files = {"config.json": json.dumps(write_config(cfg)).encode()}
    save_folder(tmp_path / "x", params, cfg, files=files, dtype="float32", shard_bytes=20_000)
    return tmp_path / "x"


def _assert_loads(folder, cfg, params, shardings):
    loaded = load_folder(folder, cfg, shardings)

    def same(got, expected, sharding):
        assert got.sharding == sharding
        np.testing.assert_array_equal(got, expected)

    jax.tree.map(same, loaded, params, shardings)
    return loaded


@many
@pytest.mark.parametrize("cfg", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_many_devices_load_their_parts_and_save_the_whole(tmp_path, cfg):
    params = random_params(cfg)
    shardings = parameter_shardings(cfg, fsdp_mesh(jax.devices()[:DEVICES]))
    folder = _folder(tmp_path, cfg, params)
    loaded = _assert_loads(folder, cfg, params, shardings)
    again = _folder(tmp_path / "again", cfg, loaded)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {p.name: p.read_bytes() for p in again.iterdir()}


@many
def test_many_devices_load_into_whatever_sharding(tmp_path):
    """Over both axes of a mesh, along layers, over columns, whole, and on a device that is not the default one."""
    params = random_params(EVEN)
    folder = _folder(tmp_path, EVEN, params)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 2, 2), ("a", "b", "c"))
    specs = {2: P("a"), 3: P("a", ("b", "c")), 1: P("b"), 0: P()}
    other = {2: P(None, "c"), 3: P(None, None, "b"), 1: P(), 0: P()}
    for of_rank in (specs, other):
        shardings = jax.tree.map(lambda p, r=of_rank: NamedSharding(mesh, r[p.ndim]), params)
        _assert_loads(folder, EVEN, params, shardings)
    one = jax.tree.map(lambda p: SingleDeviceSharding(jax.devices()[3]), params)
    _assert_loads(folder, EVEN, params, one)


@many
def test_many_devices_read_no_more_than_their_parts(tmp_path, monkeypatch):
    """Of every matrix a device reads an eighth, and that of which it holds the turned one."""
    from hdl_jax.policy import folder as folder_lib

    params = random_params(EVEN)
    folder = _folder(tmp_path, EVEN, params)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    assemble = folder_lib.assemble

    def counting(cfg, read, sharding):
        def counted(name, index):
            part = read(name, index)
            shapes.setdefault(name, []).append(part.shape)
            return part

        return assemble(cfg, counted, sharding)

    monkeypatch.setattr(folder_lib, "assemble", counting)
    load_folder(folder, EVEN, parameter_shardings(EVEN, fsdp_mesh(jax.devices()[:DEVICES])))
    assert shapes["model.layers.1.mlp.up_proj.weight"] == [(EVEN.d_ff, EVEN.d_model // DEVICES)] * DEVICES
    assert shapes["lm_head.weight"] == [(EVEN.vocab_size, EVEN.d_model // DEVICES)] * DEVICES
    assert shapes["model.embed_tokens.weight"] == [(EVEN.vocab_size // DEVICES, EVEN.d_model)] * DEVICES
