"""The benchmarks' arithmetic, and that each runs at toy sizes. No time is ever looked at."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given
from safetensors.numpy import load_file

import benchmarks
from benchmarks import ceilings, common, peers
from benchmarks.peers import weights
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig

ROOT = Path(benchmarks.__file__).parent.parent
# Whatever takes the arguments that benchmarks have in common.
NAMES = sorted(f.stem for f in (ROOT / "benchmarks").glob("*.py") if "common.arguments(" in f.read_text())


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.fixture(autouse=True)
def no_figures_left(capsys):
    yield
    common.finish()


# ---- every benchmark ------------------------------------------------------------------------------------------------


def test_the_benchmarks_of_this_room_are_found():
    assert {"ceilings", "sampler", "peers_step"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_it_measures(name, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "--tiny" in text and f"python -m benchmarks.{name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_at_toy_size_and_prints_figures(name):
    """As a person starts it, without peers; every figure is a JSON line of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--tiny", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    described, *figures = lines(done.stdout)
    assert described["benchmark"] == name and described["jax"] == jax.__version__
    assert figures
    for figure in figures:
        assert {"name", "value", "unit"} <= set(figure)
        assert figure["value"] is not None or figure["reason"]
        assert "/" in figure["name"]


# ---- figures --------------------------------------------------------------------------------------------------------


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_keeps_four_digits(x):
    rounded = common.sensible(x)
    assert math.isclose(rounded, x, rel_tol=5.001e-4, abs_tol=1e-300)
    assert rounded == common.sensible(rounded)


@pytest.mark.parametrize(
    ("x", "shown"),
    [(3.41592, 3.416), (123456.7, 123457.0), (0.00123456, 0.001235), (-2.71828, -2.718), (0.0, 0.0)],
)
def test_rounding_by_example(x, shown):
    assert common.sensible(x) == shown


def test_figures_are_json_lines_and_end_in_a_table(capsys):
    common.figure("a/speed", 2.34567, "x", repeats=3, spread=0.0123456, settings={"threads": 2})
    common.figure("a/other", None, "x", reason="no such machine")
    printed = lines(capsys.readouterr().out)
    assert printed == [
        {"name": "a/speed", "value": 2.346, "unit": "x", "repeats": 3, "spread": 0.01235, "settings": {"threads": 2}},
        {"name": "a/other", "value": None, "unit": "x", "reason": "no such machine"},
    ]
    assert common.finish() == printed
    table = capsys.readouterr().out
    assert "2.346 x" in table and "not measured" in table and "no such machine" in table
    assert common.finish() == []


def test_a_figure_needs_a_value_or_a_reason():
    with pytest.raises(ValueError, match="a/b.*reason"):
        common.figure("a/b", None, "x")
    with pytest.raises(ValueError):
        common.figure("a/b", math.nan, "x")


# ---- timing ---------------------------------------------------------------------------------------------------------


def test_sides_are_measured_in_turn_and_warm_runs_do_not_count():
    calls, clock = [], iter(range(100))

    def side(name):
        return lambda: calls.append(name) or next(clock)

    times = common.interleaved({"a": side("a"), "b": side("b")}, repeats=3, warm=2, measure=lambda run: float(run()))
    assert calls == ["a", "b"] * 5
    assert times["a"].seconds == (4.0, 6.0, 8.0) and times["b"].seconds == (5.0, 7.0, 9.0)


def test_seconds_of_runs_once_without_garbage_collection():
    import gc

    seen = []
    seconds = common.seconds_of(lambda: seen.append(gc.isenabled()))
    assert seen == [False] and gc.isenabled() and seconds >= 0


def test_median_spread_and_ratio():
    a, b = common.Timing((4.0, 2.0, 3.0)), common.Timing((1.0, 2.0, 1.0))
    assert a.median == 3.0 and a.spread == pytest.approx(2 / 3)
    assert common.ratio(a, b) == {"value": 3.0, "low": 1.0, "high": 4.0, "repeats": 3}


# ---- the machine ----------------------------------------------------------------------------------------------------


def test_other_load_leaves_out_idling_waiting_and_what_is_ours():
    #         user nice system idle iowait irq softirq steal
    before = [100, 0, 50, 1000, 10, 0, 0, 0]
    after = [250, 10, 90, 1200, 60, 5, 5, 10]
    # 150 + 10 + 40 + 5 + 5 + 10 ticks of work in 2 s, of which this process did half a second's.
    assert common.other_load(before, after, own=0.5, elapsed=2.0, ticks=100) == pytest.approx((2.2 - 0.5) / 2)
    assert common.other_load(before, before, own=0.1, elapsed=2.0, ticks=100) == 0.0


@pytest.mark.parametrize(("load", "warned"), [(0.0, False), (0.05, False), (1.3, True), (None, False)])
def test_a_busy_machine_is_warned_about(load, warned, monkeypatch, capsys):
    monkeypatch.setattr(common, "measure_other_load", lambda: load)
    common.start("x")
    out, err = capsys.readouterr()
    assert lines(out)[0]["other_load_cores"] == load and lines(out)[0]["cores"] >= 1
    assert ("WARNING" in err) is warned


# ---- ceilings -------------------------------------------------------------------------------------------------------


def test_what_a_decode_step_costs_by_hand():
    cfg = TransformerConfig(vocab_size=10, d_model=4, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=2, d_ff=3)
    block = 4 * 4 + 2 * (4 * 2) + 4 * 4 + 3 * (4 * 3) + 2 * 4  # q, k and v, o, the MLP, two norms
    weights_ = 10 * 4 + 2 * block + 4
    assert ceilings.decode_step_bytes(cfg, lanes=3, context=5) == 4 * (weights_ + 2 * 2 * 1 * 2 * 3 * 5)
    assert ceilings.decode_step_operations(cfg, lanes=3, context=5) == 3 * (2 * weights_ + 4 * 2 * 2 * 2 * 5)


def test_an_untied_embedding_is_not_read():
    tied = common.TINY
    untied = TransformerConfig(**{**vars(tied), "tie_embeddings": False})
    assert ceilings.decode_step_bytes(tied, 4, 8) == ceilings.decode_step_bytes(untied, 4, 8)


def test_a_step_is_bound_by_the_slower_of_the_two():
    cfg = common.SMOLLM2_135M
    read, rate = ceilings.decode_step_bytes(cfg, 16, 100), ceilings.decode_step_operations(cfg, 16, 100)
    assert 134e6 < read / 4 < 155e6  # 135 million weights and a small cache
    slow_memory = ceilings.Ceilings(read=read / 2, float32=rate / 0.1, bfloat16=1.0)
    slow_products = ceilings.Ceilings(read=read / 0.1, float32=rate / 3, bfloat16=1.0)
    assert ceilings.decode_ceiling_seconds(cfg, slow_memory, 16, [100]) == pytest.approx(2)
    assert ceilings.decode_ceiling_seconds(cfg, slow_products, 16, [100, 100]) == pytest.approx(6)


@pytest.mark.parametrize(
    ("kind", "gbs"),
    [("NVIDIA H100 80GB HBM3", 3350), ("NVIDIA H200", 4800), ("NVIDIA GB200", 8000), ("TPU v5 lite", 819),
     ("TPU v5", 2765), ("TPU v6 lite", 1638)],
)  # fmt: skip
def test_published_peaks_by_device_kind(kind, gbs):
    assert ceilings.published(kind).read_gbs == gbs


def test_an_unknown_chip_has_no_published_peak():
    assert ceilings.published("cpu") is None


# ---- peers ----------------------------------------------------------------------------------------------------------


def test_weights_for_peers_are_ours_under_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "HOME", tmp_path)
    cfg, params = common.TINY, common.random_params(common.TINY)
    to = weights.write(params, cfg, seed=3)
    tensors = load_file(to / "model.safetensors")
    assert sum(t.size for t in tensors.values()) == tr.parameter_count(params)
    down = tensors["model.layers.1.mlp.down_proj.weight"]
    np.testing.assert_array_equal(down, np.asarray(params["blocks"]["down"]["kernel"])[1].T)
    assert json.loads((to / "config.json").read_text())["rope_theta"] == cfg.rope_theta
    assert weights.write(params, cfg, seed=3) == to != weights.folder(cfg, seed=4)


def test_a_peer_that_cannot_be_installed_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "HOME", tmp_path / "home")
    (tmp_path / "broken.txt").write_text("-r no-such-file-anywhere.txt\n")
    with pytest.raises(peers.PeerMissing, match="broken could not be installed"):
        peers.environment("broken")
    assert not (tmp_path / "home" / "broken" / "made_from.txt").exists()


def test_a_peer_that_dies_says_why():
    with pytest.raises(peers.PeerMissing, match="no_such_program"):
        peers.Process(Path(sys.executable), "no_such_program", {})


def test_requests_and_answers_over_the_line(tmp_path):
    """What a library prints does not get between the messages."""
    program = tmp_path / "program.py"
    program.write_text(
        "from benchmarks.peers.protocol import Channel, peak_rss_bytes\n"
        "channel = Channel()\n"
        "print('noise')\n"
        "channel.say({'ready': True})\n"
        "channel.serve({'add': lambda a, b: print('more noise') or {'sum': a + b, 'peak': peak_rss_bytes()}})\n"
    )
    done = subprocess.run(
        [sys.executable, str(program), "{}"],
        input='{"do": "add", "a": 1, "b": 2}\n',
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    hello, answer = [json.loads(line) for line in done.stdout.splitlines()]
    assert hello == {"ready": True} and answer["sum"] == 3 and answer["peak"] > 1 << 20
    assert "more noise" in done.stderr
