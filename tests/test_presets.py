"""The published models' shapes, and what the rotary frequencies make of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import PRESETS, RopeScaling, preset

# As the models' cards and checkpoints count them, a tied table once.
PUBLISHED = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "llama-3.1-8b": 8_030_261_248,
    "nemotron-nano-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_as_many_parameters_as_published(name):
    assert tr.parameter_count(tr.abstract_params(preset(name))) == PUBLISHED[name]


def test_every_preset_but_the_embedded_one_is_counted_here():
    assert set(PRESETS) == {*PUBLISHED, "errands"}
    assert {cfg.dtype for cfg in PRESETS.values()} == {"float32"}


@pytest.mark.parametrize(
    ("name", "theta", "eps", "factor", "qk_norm"),
    [
        ("qwen3-8b", 1e6, 1e-6, None, True),
        ("llama-3.1-8b", 5e5, 1e-5, 8, False),
        ("nemotron-nano-8b", 5e5, 1e-5, 8, False),
        ("llama-3.2-1b", 5e5, 1e-5, 32, False),
        ("smollm2-135m", 1e5, 1e-5, None, False),
        ("smollm2-360m", 1e5, 1e-5, None, False),
        ("smollm2-1.7b", 1.3e5, 1e-5, None, False),
    ],
)
def test_what_no_count_of_parameters_tells(name, theta, eps, factor, qk_norm):
    cfg = preset(name)
    assert (cfg.rope_theta, cfg.norm_eps, cfg.qk_norm) == (theta, eps, qk_norm)
    assert cfg.rope_scaling == (RopeScaling(factor, 1.0, 4.0, 8192) if factor else None)


def test_scaled_frequencies_keep_the_fast_and_slow_down_the_slow():
    """Llama 3.1 8B: heads of 128, base 500,000; a pair turns 8192 f / 2 pi times in the pretraining's context."""
    cfg = preset("llama-3.1-8b")
    plain = tr.rotary_frequencies(dataclasses.replace(cfg, rope_scaling=None))
    scaled = tr.rotary_frequencies(cfg)
    np.testing.assert_allclose(plain, 500_000.0 ** (-2 * np.arange(64) / 128), rtol=1e-7)
    turns = 8192 * plain.astype(np.float64) / (2 * np.pi)
    assert plain.dtype == scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled[turns > 4], plain[turns > 4])
    np.testing.assert_allclose(scaled[turns < 1], plain[turns < 1] / 8, rtol=1e-6)
    between = (turns > 1) & (turns < 4)
    assert between.sum() == 6
    share = (turns[between] - 1) / 3
    np.testing.assert_allclose(scaled[between], (1 - share) * plain[between] / 8 + share * plain[between], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factor": 0}, "factor=0"),
        ({"original_max_position": 0}, "original_max_position=0"),
        ({"low_freq_factor": 4.0}, "low_freq_factor=4.0"),
        ({"low_freq_factor": 0.0}, "low_freq_factor=0.0"),
    ],
)
def test_impossible_scalings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RopeScaling(
            **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 64} | change
        )


def test_unknown_preset_names_the_known_ones():
    assert preset("errands").vocab_size == 512
    with pytest.raises(ValueError, match="'nope' is unknown.*errands"):
        preset("nope")
