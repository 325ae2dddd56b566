"""Metrics files: exact values, no line twice, and clear errors."""

from __future__ import annotations

import json
import math
import struct

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.metrics import MetricsWriter, final_table, read_metrics, score_names, series, table

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=8).filter(
    lambda s: s != "step"
)


@settings(deadline=None, max_examples=25)
@given(metrics=st.dictionaries(NAMES, st.one_of(st.integers(-(2**53), 2**53), st.floats()), max_size=4))
def test_every_value_comes_back(metrics, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    with MetricsWriter(workdir) as writer:
        writer.write(3, metrics)
    (row,) = read_metrics(workdir)
    assert row.pop("step") == 3
    assert row.keys() == metrics.keys()
    for name, value in metrics.items():
        assert row[name] == value if math.isfinite(value) else math.isnan(row[name])
    json.loads((workdir / "metrics.jsonl").read_text(), parse_constant=pytest.fail)  # strict JSON: no bare NaN


def test_scalars_of_every_kind(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(0, {"a": np.float32(0.5), "b": jnp.int32(7), "c": np.bool_(True), "d": jnp.float32(jnp.nan)})
        for bad in ("text", None, [1.0], np.ones(2)):
            with pytest.raises(TypeError, match="metric x/y is"):
                writer.write(1, {"x/y": bad})
        with pytest.raises(ValueError, match="cannot be named"):
            writer.write(1, {"step": 1})
    (row,) = read_metrics(tmp_path)
    assert (row["a"], row["b"], row["c"]) == (0.5, 7, 1)
    assert math.isnan(row["d"])


def test_a_value_that_is_not_finite_is_announced(tmp_path, caplog):
    with MetricsWriter(tmp_path) as writer:
        writer.write(4, {"update/grad_norm": math.inf, "fine": 1})
    assert "step 4: not finite: update/grad_norm = inf" in caplog.text
    assert '"update/grad_norm": null' in (tmp_path / "metrics.jsonl").read_text()


def _run(workdir, first, last, resumed_step=-1):
    with MetricsWriter(workdir, resumed_step) as writer:
        for step in range(first, last + 1):
            writer.write(step, {"reward/mean": step / 7, "eval/validation/score": step * 0.1} | {"x": math.nan})


@pytest.mark.parametrize("cut", [b"", b'{"step": 8, "rew', b'{"step": 8}'])
def test_a_resumed_run_writes_the_file_of_one_that_never_stopped(tmp_path, cut):
    _run(tmp_path / "whole", 0, 9)
    _run(tmp_path / "resumed", 0, 7)
    path = tmp_path / "resumed" / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + cut)  # killed at step 8, in mid-line; the newest checkpoint is of step 5
    _run(tmp_path / "resumed", 6, 9, resumed_step=5)
    assert path.read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_a_run_without_a_checkpoint_starts_afresh(tmp_path):
    _run(tmp_path, 0, 3)
    _run(tmp_path, 0, 1)
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1]


def test_no_step_twice(tmp_path):
    _run(tmp_path, 0, 10)
    with MetricsWriter(tmp_path, resumed_step=10) as writer:
        with pytest.raises(ValueError, match="step 10 is already in .* ends at step 10"):
            writer.write(10, {"eval/validation/score": 1.0})


def test_tensorboard_gets_the_same_values(tmp_path):
    _run(tmp_path, 0, 2)
    (events,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    data = events.read_bytes()
    assert data.count(b"reward/mean") == 3
    assert struct.pack("<f", 2 / 7) in data


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"step": "3"}', '{"step": 3, "a": "text"}', '{"step": 3, "a": [1]}', ""]
)
def test_a_corrupt_line_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + line + '\n{"step": 4}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl:2 is not a line of metrics"):
        read_metrics(tmp_path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere/metrics.jsonl"):
        read_metrics(tmp_path / "nowhere")


def test_series_skips_gaps():
    rows = [{"step": 0, "a": 1.0}, {"step": 1}, {"step": 2, "a": math.nan}, {"step": 3, "a": 2.0}]
    assert series(rows, "a") == ([0, 3], [1.0, 2.0])
    assert series(rows, "b") == ([], [])


def test_table():
    assert table(["name", "n"], [["a", "10"], ["longer", "7"]]).split("\n") == [
        "name     n",
        "------  --",
        "a       10",
        "longer   7",
    ]


def test_final_table():
    rows = [
        {"step": 0, "eval/validation/score": 0.25, "eval/validation/score_se": 0.02, "timing_s/eval": 3.0},
        {"step": 1, "rollout/generated_tokens": 1500, "rollout/generated_tokens/root": 1000, "timing_s/step": 2.0},
        {"step": 2, "rollout/generated_tokens": 500, "rollout/generated_tokens/root": 500, "timing_s/step": 3.0}
        | {"eval/validation/score": 0.45, "eval/validation/score_se": 0.03, "timing_s/eval": 1.0},
    ]
    lines = [line.split() for line in final_table(rows).split("\n")]
    assert ["eval/validation/score", "0.250", "+-", "0.020", "0.450", "+-", "0.030", "+0.200"] in lines
    assert ["generated", "2,000", "100%"] in lines
    assert ["root", "1,500", "75%"] in lines
    assert ["eval", "4", "s", "80%"] in lines
    assert final_table([]) == ""


def test_final_table_of_several_sets_has_a_line_a_set_after_their_mean():
    """Success has a line where it says something else: rewards that are 0 or 1 make it the score."""
    row = {
        f"eval/{name}/{m}": 0.5 for name in ("minerva", "aime24") for m in ("score", "score_se", "success", "pass@2")
    }
    row |= {"eval/score": 0.5, "eval/score_se": 0.1}
    rows = [{"step": 0} | row, {"step": 1} | row | {"eval/aime24/success": 0.25}]
    lines = [line.split()[0] for line in final_table(rows).split("\n")[2:]]
    assert lines == ["eval/score", "eval/aime24/score", "eval/aime24/success", "eval/minerva/score"]
    assert score_names(rows) == ["eval/score", "eval/aime24/score", "eval/minerva/score"]
    one = [{"step": 0, "eval/score": 0.5, "eval/validation/score": 0.5}]
    assert score_names(one) == ["eval/validation/score"] and score_names([]) == []
