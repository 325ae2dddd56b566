"""GGUF files: the network and the weights that they hold, and what is refused."""

from __future__ import annotations

import dataclasses
import weakref

import jax
import numpy as np
import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
import gguf  # noqa: E402
import gguf_fixtures  # noqa: E402
from gguf_fixtures import LLAMA3, config, fields, made, rope_freqs, write  # noqa: E402

from hdl_jax import mesh  # noqa: E402
from hdl_jax.policy import gguf_file  # noqa: E402
from hdl_jax.policy import transformer as tr  # noqa: E402
from hdl_jax.policy.gguf_file import GgufFile  # noqa: E402
from hdl_jax.policy.presets import PRESETS  # noqa: E402
from hdl_jax.policy.tensors import places  # noqa: E402


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


# ---- the network and its weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_config_and_weights_come_back_as_they_were(tmp_path, architecture, tied):
    file, params, cfg = made(tmp_path, architecture, tie_embeddings=tied)
    assert file.config == cfg
    assert_equal(file.load(), params)


def test_what_llama_cpp_leaves_out_has_its_defaults(tmp_path):
    absent = ("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base")
    absent = [f"llama.{key}" for key in (*absent, "rope.dimension_count", "vocab_size")]
    file, params, cfg = made(tmp_path, without=absent, n_kv_heads=4, rope_theta=10_000.0)
    assert file.config == cfg
    assert_equal(file.load(), params)


def test_weights_go_into_the_sharding_asked_for(tmp_path):
    file, params, cfg = made(tmp_path)
    shardings = mesh.parameter_shardings(cfg, mesh.fsdp_mesh(jax.devices()))
    loaded = file.load(shardings)
    assert_equal(loaded, params)
    assert jax.tree.map(lambda p: p.sharding, loaded) == shardings


def test_a_tensor_is_dequantised_once_however_many_devices_take_a_part(tmp_path, monkeypatch):
    file, _, cfg = made(tmp_path)
    tensor, calls = file._tensor, []
    monkeypatch.setattr(file, "_tensor", lambda name: calls.append(name) or tensor(name))

    def in_halves(cfg, read, sharding):
        for name, place in places(cfg).items():
            half = place.shape[0] // 2
            parts = [read(name, (slice(None, half),)), read(name, (slice(half, None),))]
            assert np.concatenate(parts).shape == place.shape

    monkeypatch.setattr(gguf_file, "assemble", in_halves)
    file.load()
    assert len(calls) == len(set(calls)) == 2 + 9 * cfg.n_layers


def test_the_host_holds_one_tensor_at_a_time(tmp_path, monkeypatch):
    file, _, _ = made(tmp_path, kind=gguf.GGMLQuantizationType.Q8_0)
    tensor, held = file._tensor, []

    def read(name):
        assert not [ref for ref in held if ref() is not None]
        array = tensor(name)
        held.append(weakref.ref(array))
        return array

    monkeypatch.setattr(file, "_tensor", read)
    file.load()
    assert len(held) > 2


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantised_weights_are_what_the_package_makes_of_them(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    file, params, cfg = made(tmp_path, kind=kind)

    def through(w):
        """[.., in, out] through the type and back, which cuts blocks out of rows [out, in]."""
        rows = np.ascontiguousarray(np.asarray(w).swapaxes(-1, -2))
        return gguf.dequantize(gguf.quantize(rows, kind), kind).swapaxes(-1, -2)

    loaded = file.load()
    assert loaded["embed"].dtype == np.float32
    # Turned rows and the order of heads only move whole rows, which blocks lie within.
    np.testing.assert_array_equal(loaded["blocks"]["q"]["kernel"], through(params["blocks"]["q"]["kernel"]))
    np.testing.assert_array_equal(loaded["blocks"]["down"]["kernel"], through(params["blocks"]["down"]["kernel"]))
    np.testing.assert_array_equal(loaded["embed"], through(params["embed"].T).T)
    np.testing.assert_array_equal(loaded["norm"], params["norm"])


def test_loaded_weights_do_not_hang_on_the_file(tmp_path):
    file, params, _ = made(tmp_path)
    loaded = file.load()
    with file.path.open("r+b") as f:
        f.write(b"\0" * file.path.stat().st_size)
    assert_equal(loaded, params)


def test_llama_31s_scaling_is_read_off_its_tensor(tmp_path):
    cfg = config("llama", head_dim=16, rope_theta=500_000.0, rope_scaling=LLAMA3)
    factors = rope_freqs(cfg, LLAMA3)
    assert len(set(factors)) > 2  # kept, changed gradually, slowed down
    file, params, _ = made(tmp_path, rope_theta=500_000.0, extra={"rope_freqs.weight": factors})
    assert file.config == cfg
    assert_equal(file.load(), params)


@pytest.mark.parametrize("change", [{"high_freq_factor": 8.0}, {"original_max_position": 4096}])
def test_another_scaling_is_refused(tmp_path, change):
    cfg = config("llama", rope_theta=500_000.0)
    factors = rope_freqs(cfg, dataclasses.replace(LLAMA3, **change))
    file, _, _ = made(tmp_path, rope_theta=500_000.0, extra={"rope_freqs.weight": factors})
    with pytest.raises(ValueError, match=r"a\.gguf: rope_freqs.weight is not Llama 3.1's scaling"):
        _ = file.config


def test_one_error_names_all_tensors_that_do_not_fit(tmp_path, monkeypatch):
    extra = {
        "blk.0.attn_q.bias": np.zeros(64, np.float32),
        "blk.1.ffn_up.weight": np.zeros((64, 96), np.float32),
        "blk.1.attn_v.weight": np.zeros((32, 64)),  # float64
    }
    file, _, _ = made(tmp_path, without=("blk.0.ffn_norm.weight", "output_norm.weight"), extra=extra)
    monkeypatch.setattr(file, "_tensor", None)  # nothing is read
    with pytest.raises(ValueError) as error:
        file.load()
    assert str(error.value).splitlines() == [
        f"{file.path} does not fit this policy:",
        "  missing blk.0.ffn_norm.weight (64,)",
        "  missing output_norm.weight (64,)",
        "  unexpected blk.0.attn_q.bias (64,)",
        "  misshapen blk.1.ffn_up.weight: (64, 96) in the file, (96, 64) wanted",
        "  blk.1.attn_v.weight is quantised as F64, which the gguf package does not read",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count=8: only 0 is supported .a mixture of experts"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type='yarn': only 'none'"),
        ({"llama.rope.scale_linear": 2.0}, "llama.rope.scale_linear=2.0: only 1.0"),
        ({"llama.attention.sliding_window": 128}, "llama.attention.sliding_window=128: only 0"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length=8: only a whole head, 16"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count=8: only a whole head, 16"),
        ({"llama.attention.head_count_kv": [2, 1]}, r"llama.attention.head_count_kv is \[2, 1\], not int"),
        ({"llama.attention.head_count_kv": 3}, "n_kv_heads=3 must divide n_heads=4"),
        ({"llama.attention.head_count": 0}, "llama.attention.head_count=0: must be positive"),
    ],
)
def test_a_network_that_is_not_ours_is_refused_by_key(tmp_path, changes, message):
    with pytest.raises(ValueError, match=f"(?s)a.gguf holds a policy that is not supported:.*{message}"):
        _ = made(tmp_path, changes=changes)[0].config


def test_harmless_values_of_the_same_keys_are_read(tmp_path):
    changes = {"llama.expert_count": 0, "llama.rope.scaling.type": "none", "llama.rope.scale_linear": 1.0}
    file, _, cfg = made(tmp_path, changes=changes)
    assert file.config == cfg


def test_missing_keys_are_named_together(tmp_path):
    file, _, _ = made(tmp_path, without=("llama.block_count", "llama.feed_forward_length", "token_embd.weight"))
    with pytest.raises(ValueError, match="(?s)token_embd.weight.*llama.block_count is missing.*feed_forward_length"):
        _ = file.config


def test_another_architecture_is_refused_by_name(tmp_path):
    path = write(tmp_path / "a.gguf", "qwen2", fields(config("llama"), "qwen2"), {})
    with pytest.raises(ValueError, match="a.gguf: general.architecture='qwen2': supported are llama, qwen3"):
        _ = GgufFile(path).config


def test_a_file_cut_short_is_refused_wherever_it_is_cut(tmp_path):
    file, _, _ = made(tmp_path)
    whole = file.path.read_bytes()
    short = tmp_path / "short.gguf"
    for cut in [0, 3, 8, 20, 100, 1000, 5000, 9000, len(whole) // 2, len(whole) - 100]:
        short.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="short.gguf is not a readable GGUF file"):
            GgufFile(short)


def test_files_that_are_not_there_or_not_gguf(tmp_path):
    with pytest.raises(FileNotFoundError, match="no GGUF file at .*absent.gguf"):
        GgufFile(tmp_path / "absent.gguf")
    (tmp_path / "a.gguf").write_bytes(b"PK\3\4 not this format" * 9)
    with pytest.raises(ValueError, match="a.gguf is not a readable GGUF file: GGUF magic invalid"):
        GgufFile(tmp_path / "a.gguf")


# ---- SmolLM2-135M-Instruct ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2():
    return gguf_fixtures.smollm2()


def test_smollm2_is_the_preset(smollm2):
    assert smollm2.config == PRESETS["smollm2-135m"]
    assert (smollm2.bos_id, smollm2.stop_ids) == (1, (2,))


def test_smollm2_knows_english(smollm2):
    """A mistake in the order of heads or in a name costs more than a nat a token."""
    cfg, tokenizer = smollm2.config, smollm2.tokenizer()
    text = "The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is Rome."
    tokens = np.array([tokenizer.encode(text)])
    params = smollm2.load()
    log_p, _ = tr.token_logprobs(params, cfg, tr.forward(params, cfg, tokens)[:, :-1], tokens[:, 1:])
    assert -log_p.mean() < 1.5
