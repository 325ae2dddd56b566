"""Reading config.json: what it says, in the spelling of either transformers version, and what is refused by name."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.policy.hf_config import parse_config, read_config, write_config
from hdl_jax.policy.presets import PRESETS, RopeScaling, TransformerConfig

# As published with Llama-3.1-8B, without what says nothing about the network.
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
# And with Qwen3-8B.
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def parse(config: dict, **changes) -> TransformerConfig:
    """Of a config with some fields changed; None takes one away."""
    changed = {k: v for k, v in {**config, **changes}.items() if v is not None}
    return parse_config(json.dumps(changed).encode(), "somewhere/config.json")


def problems(config: dict, **changes) -> list[str]:
    with pytest.raises(ValueError) as error:
        parse(config, **changes)
    first, *rest = str(error.value).split("\n  ")
    assert first == "somewhere/config.json describes a policy that is not supported:"
    return rest


def test_published_configs_are_the_presets(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    assert read_config(tmp_path) == PRESETS["qwen3-8b"]
    assert parse(LLAMA) == PRESETS["llama-3.1-8b"] == PRESETS["nemotron-nano-8b"]


def test_rotary_settings_are_read_where_either_version_keeps_them():
    scaling = {**LLAMA["rope_scaling"], "rope_theta": 500000.0}
    assert parse(LLAMA, rope_scaling=None, rope_theta=None, rope_parameters=scaling) == parse(LLAMA)
    older = {k: v for k, v in LLAMA["rope_scaling"].items() if k != "rope_type"} | {"type": "llama3"}
    assert parse(LLAMA, rope_scaling=older) == parse(LLAMA)
    plain = parse(LLAMA, rope_scaling=None)
    assert plain == dataclasses.replace(parse(LLAMA), rope_scaling=None)
    default = {"rope_type": "default", "rope_theta": 500000.0}
    assert parse(LLAMA, rope_scaling=None, rope_theta=None, rope_parameters=default) == plain
    # The set of parameters has the last word, as in transformers.
    assert parse(LLAMA, rope_scaling=None, rope_theta=3.0, rope_parameters=default) == plain
    assert parse(LLAMA, rope_scaling=None, rope_theta=3.0, rope_parameters={"rope_type": "default"}).rope_theta == 3.0
    assert parse(LLAMA, original_max_position_embeddings=4096).rope_scaling == RopeScaling(8.0, 1.0, 4.0, 4096)


def test_absent_fields_are_what_transformers_takes_them_for():
    absent = dict.fromkeys(["num_key_value_heads", "rope_theta", "rope_scaling", "rms_norm_eps", "tie_word_embeddings"])
    cfg = parse(LLAMA, **absent, hidden_act=None, attention_bias=None, mlp_bias=None)
    assert cfg == TransformerConfig(128256, 4096, 32, 32, 32, 128, 14336, 10_000.0, 1e-6, False, False)
    cfg = parse(QWEN3, head_dim=None, num_key_value_heads=None, hidden_size=2560)
    assert (cfg.head_dim, cfg.n_kv_heads) == (128, 32)


@pytest.mark.parametrize(
    ("base", "changes", "field"),
    [
        (LLAMA, {"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}, "architectures=['GemmaForCausalLM']"),
        (LLAMA, {"architectures": ["GemmaForCausalLM"], "model_type": None}, "architectures=['GemmaForCausalLM']"),
        (LLAMA, {"architectures": None}, "architectures=None"),
        (LLAMA, {"model_type": "qwen3"}, "model_type='qwen3'"),
        (LLAMA, {"architectures": [["LlamaForCausalLM"]]}, "architectures="),
        (LLAMA, {"attention_bias": True}, "attention_bias=True"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias=True"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (LLAMA, {"rope_scaling": {"type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor=0.25"),
        (LLAMA, {"rope_interleaved": True}, "rope_interleaved=True"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq"}}, "quantization_config="),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn'"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear'"),
        (LLAMA, {"rope_scaling": {"rope_type": ["llama3"]}}, "rope type ['llama3']"),
        (LLAMA, {"rope_scaling": {"full_attention": {"rope_type": "default"}}}, "rope_parameters="),
        (LLAMA, {"rope_scaling": "llama3"}, "rope_parameters='llama3'"),
        (LLAMA, {"rope_scaling": {**LLAMA["rope_scaling"], "low_freq_factor": 4.0}}, "low_freq_factor=4.0"),
        (LLAMA, {"rope_theta": 0}, "rope_theta=0"),
        (LLAMA, {"rms_norm_eps": float("inf")}, "rms_norm_eps=inf"),
        (LLAMA, {"vocab_size": None}, "vocab_size=None"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size='4096'"),
        (LLAMA, {"num_hidden_layers": True}, "num_hidden_layers=True"),
        (LLAMA, {"num_key_value_heads": 5}, "n_kv_heads=5 must divide n_heads=32"),
        (LLAMA, {"head_dim": 7}, "head_dim=7 must be even"),
        (LLAMA, {"tie_word_embeddings": "false"}, "tie_word_embeddings='false'"),
        (QWEN3, {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28}, "sliding_window=4096"),
        (QWEN3, {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 28}, "sliding_window=4096"),
        (QWEN3, {"layer_types": ["full_attention"] * 35 + ["sliding_attention"]}, "layer_types="),
        (QWEN3, {"layer_types": "full_attention"}, "layer_types='full_attention'"),
    ],
)  # fmt: skip
def test_another_network_is_refused_by_its_field(base, changes, field):
    (problem,) = problems(base, **changes)
    assert field in problem


def test_a_window_that_no_layer_uses_is_no_window():
    assert parse(QWEN3, use_sliding_window=True, sliding_window=4096, max_window_layers=36) == parse(QWEN3)
    assert parse(QWEN3, layer_types=["full_attention"] * 36) == parse(QWEN3)
    null = json.dumps(QWEN3 | {"use_sliding_window": True, "max_window_layers": 28, "sliding_window": None})
    assert parse_config(null.encode(), "here") == parse(QWEN3)


def test_everything_that_is_wrong_is_in_one_error():
    scaling = {"rope_type": "llama3", "factor": -1}
    found = problems(LLAMA, hidden_act="relu", vocab_size=0, rope_scaling=scaling, attention_bias=True)
    for part in (
        "hidden_act='relu': only 'silu'",
        "attention_bias=True: only False is supported (biases in the attention)",
        "vocab_size=0: must be a positive whole number",
        "factor=-1: must be a positive number",
        "low_freq_factor=None",
        "high_freq_factor=None",
        "original_max_position_embeddings=None",
    ):
        assert sum(part in line for line in found) == 1
    assert len(found) == 7


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'"config"'])
def test_files_that_are_no_config(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ValueError, match="config.json is not"):
        read_config(tmp_path)


def test_a_folder_without_a_config(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no config.json in {tmp_path}"):
        read_config(tmp_path)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3) | st.just("llama3"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*LLAMA["rope_scaling"], "x"]), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(
    base=st.sampled_from([LLAMA, QWEN3]),
    changes=st.dictionaries(
        st.sampled_from([*LLAMA, *QWEN3, "rope_parameters", "layer_types", "quantization_config"]), ANY, max_size=4
    ),
)
def test_whatever_is_in_a_config_it_is_a_policy_or_an_error_that_names_the_file(base, changes):
    try:
        cfg = parse_config(json.dumps(base | changes).encode(), "somewhere/config.json")
    except ValueError as error:
        assert "somewhere/config.json" in str(error)
    else:
        assert isinstance(cfg, TransformerConfig) and hash(cfg)


@pytest.mark.parametrize("name", PRESETS)
def test_a_written_config_is_read_back(name):
    config = write_config(PRESETS[name], eos_token_id=[1, 2], max_position_embeddings=4096)
    assert parse_config(json.dumps(config).encode(), name) == PRESETS[name]
    assert (config["eos_token_id"], config["max_position_embeddings"]) == ([1, 2], 4096)


def test_a_config_that_would_not_be_this_policys_is_not_written():
    with pytest.raises(TypeError, match="vocab_size"):
        write_config(PRESETS["qwen3-8b"], vocab_size=3)
    with pytest.raises(ValueError, match="d_model=160.*n_heads=3"):
        write_config(dataclasses.replace(PRESETS["errands"], qk_norm=False, n_heads=3))
