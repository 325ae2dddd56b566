"""Comparing runs: means, errors and ratios against hand-made numbers."""

from __future__ import annotations

import csv
import json
import math

import pytest

from hdl_jax.compare import compare, main
from hdl_jax.compare_page import tokens_until
from hdl_jax.compare_runs import compared_score, estimate, ratio, read_run
from hdl_jax.metrics import MetricsWriter


def _run(path, method, seed, scores, tokens, signal="hindsight", seconds=2.0, sets=("validation",), **config):
    """One evaluation at each of steps 0, 2, 4, ..., every set with the same score; tokens from step 1 on."""
    path.mkdir(parents=True)
    fields = {"method": method, "seed": seed, "branch": {"signal": signal}} | config
    (path / "config.json").write_text(json.dumps(fields))
    with MetricsWriter(path) as writer:
        for step in range(max(2 * len(scores) - 1, len(tokens) + 1)):
            row = {}
            if step % 2 == 0 and step // 2 < len(scores):
                names = ["eval/score", *(f"eval/{name}/score" for name in sets)]
                row |= {name: scores[step // 2] for name in names} | {f"{name}_se": 0.01 for name in names}
            if 1 <= step <= len(tokens):
                row |= {"rollout/generated_tokens": tokens[step - 1], "timing_s/rollout": seconds}
            writer.write(step, row)
    return path


@pytest.fixture
def runs(tmp_path):
    return [
        _run(tmp_path / "h0", "hdl", 0, [0.3, 0.5], [60, 60]),
        _run(tmp_path / "h1", "hdl", 1, [0.4, 0.7], [40, 40]),
        _run(tmp_path / "g0", "grpo", 0, [0.3, 0.4], [100, 100], seconds=4.0),
        _run(tmp_path / "g1", "grpo", 1, [0.3, 0.6], [100, 100], seconds=4.0),
    ]


def test_numbers(tmp_path, runs):
    text = compare(runs)
    with (tmp_path / "compare.csv").open() as file:
        grpo, hdl = csv.DictReader(file)
    assert (grpo["runs"], hdl["runs"]) == ("grpo", "hdl hindsight")
    assert float(hdl["before"]) == pytest.approx(0.35)
    assert float(hdl["after"]) == pytest.approx(0.6)
    assert float(hdl["after se"]) == pytest.approx(0.1)  # |0.7 - 0.5| / 2
    assert float(hdl["gain"]) == pytest.approx(0.25)
    assert float(hdl["gain se"]) == pytest.approx(0.05)  # of the differences, not of before and after
    assert float(hdl["tokens"]) == 100
    assert float(hdl["token ratio"]) == pytest.approx(0.5)
    assert float(hdl["rollout time ratio"]) == pytest.approx(0.5)
    assert float(grpo["token ratio"]) == 1
    assert "0.600 +- 0.100" in text
    page = (tmp_path / "compare.html").read_text()
    assert page.count("<figure>") == 4
    assert "0.600 ± 0.100" in page and "differ in more" not in page


def test_checkpoints_one_would_pick(tmp_path):
    """Case E7, for two seeds of which the second is .1 better everywhere; and one checkpoint alone."""
    curve = [0.2, 0.5, 0.4, 0.45, 0.3]
    paths = [_run(tmp_path / f"h{i}", "hdl", i, [v + 0.1 * i for v in curve], [1] * 8) for i in range(2)]
    text = compare([*paths, _run(tmp_path / "g", "grpo", 0, [0.25], [1])])
    with (tmp_path / "compare.csv").open() as file:
        grpo, hdl = csv.DictReader(file)
    assert float(hdl["best"]) == pytest.approx(0.55) and float(hdl["best se"]) == pytest.approx(0.05)
    assert float(hdl["top 3"]) == pytest.approx(0.5) and float(hdl["top 3 se"]) == pytest.approx(0.05)
    assert float(hdl["top 3 std"]) == pytest.approx(0.05)  # over the checkpoints of a run, not over seeds
    assert hdl["top 3 at"] == "2 6 4; 2 6 4"
    assert float(hdl["last"]) == pytest.approx(0.35)
    points = [point.split(":") for point in hdl["curve"].split(" ")]
    assert [(int(step), float(value)) for step, value in points] == [
        (2 * i, pytest.approx(value + 0.05)) for i, value in enumerate(curve)
    ]
    assert hdl["selected by"] == "eval/score"
    assert (grpo["best"], grpo["top 3"], grpo["top 3 std"], grpo["top 3 at"]) == ("0.25", "0.25", "", "0")
    page = (tmp_path / "compare.html").read_text()
    for shown in (text, page.replace("±", "+-")):
        assert "checkpoints by eval/score" in shown.lower() and "biased upwards" in shown
        assert "0.500 +- 0.050" in shown and "0.250 0.550 0.450 0.500 0.350" in shown


def test_the_score_compared(tmp_path):
    def runs(*sets):
        folder = tmp_path / "_".join(map("".join, sets))
        return [
            read_run(_run(folder / str(i), "hdl", i, [0.1, 0.2], [1, 1], sets=names)) for i, names in enumerate(sets)
        ]

    assert compared_score(runs("ab", "ab")) == "eval/score"
    assert compared_score(runs("ab", "bc")) == "eval/b/score"  # their means are of different sets
    assert compared_score(runs(["a", "validation"], ["a", "b", "validation"])) == "eval/validation/score"
    with pytest.raises(ValueError, match="share no eval/SET/score"):
        compared_score(runs("a", "b"))
    old = read_run(_run(tmp_path / "old", "hdl", 0, [0.1, 0.2], [1, 1], sets=["a"]))
    for row in old.rows:
        row.pop("eval/score", None)
    assert compared_score([old, *runs("a", "a")]) == "eval/a/score"


def test_ratios_use_the_steps_both_sides_have(tmp_path):
    long = _run(tmp_path / "h", "hdl", 0, [0.3, 0.4, 0.5], [50, 50, 900, 900])
    short = _run(tmp_path / "g", "grpo", 0, [0.3, 0.4], [100, 100])
    assert ratio([read_run(long)], [read_run(short)], "rollout/generated_tokens") == pytest.approx(0.5)
    assert ratio([read_run(long)], [read_run(short)], "no/such") is None


def test_before_and_after_use_steps_every_seed_has(tmp_path):
    _run(tmp_path / "a", "hdl", 0, [0.1, 0.2, 0.9], [1, 1, 1, 1])
    _run(tmp_path / "b", "hdl", 1, [0.1, 0.4], [1, 1])  # stopped early
    text = compare([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert "0 to 2" in text and "0.300 +- 0.100" in text
    assert (tmp_path / "out" / "compare.html").is_file() and not (tmp_path / "compare.html").exists()


def test_one_seed_claims_no_error(tmp_path):
    text = compare([_run(tmp_path / "a", "hdl", 0, [0.1, 0.2], [1, 1])])
    assert "0.200 (1 seed)" in text and "+-" not in text


def test_estimate():
    assert (estimate([1.0, 2.0, 3.0]).mean, estimate([1.0, 2.0, 3.0]).error) == (2.0, pytest.approx(1 / math.sqrt(3)))
    assert estimate([1.0]).error is None
    assert str(estimate([])) == "-"


def test_tokens_until(tmp_path):
    run = read_run(_run(tmp_path / "a", "hdl", 0, [0.1, 0.2], [5, 7]))
    assert [tokens_until(run, step) for step in range(3)] == [0, 5, 12]


def test_signals_are_groups_of_their_own(tmp_path):
    paths = [
        _run(tmp_path / signal, "hdl", 0, [0.1, 0.2], [1, 1], signal=signal) for signal in ("entropy", "hindsight")
    ]
    text = compare([*paths, _run(tmp_path / "g", "grpo", 0, [0.1, 0.2], [1, 1], signal="entropy")])
    results = text.split("\n\n")[0]
    assert [line.split("  ")[0] for line in results.split("\n")[2:]] == ["grpo", "hdl entropy", "hdl hindsight"]


def test_repetitions_that_are_none_are_named(tmp_path):
    paths = [_run(tmp_path / str(i), "hdl", i, [0.1, 0.2], [1, 1], rate=0.1 * i) for i in range(2)]
    assert "The runs of hdl hindsight differ in more than their seed: rate." in compare(paths)


def test_errors(tmp_path, runs, capsys):
    with pytest.raises(ValueError, match=r"repeat a seed.*h0 \(seed 0\), h0 \(seed 0\)"):
        compare([runs[0], runs[0]])
    assert main([str(tmp_path / "nowhere")]) == 1
    assert "no config at" in capsys.readouterr().err
    (runs[0] / "metrics.jsonl").write_text('{"step": 0}\n{"step"\n')
    assert main([str(runs[0])]) == 1
    assert "metrics.jsonl:2" in capsys.readouterr().err
    (runs[0] / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(ValueError, match="share no eval"):
        compare(runs)
    assert main([]) == main(["--unknown", str(runs[0])]) == 2


def test_command_line(tmp_path, runs, capsys):
    assert main([*map(str, runs), f"--out={tmp_path / 'out'}"]) == 0
    out = capsys.readouterr().out
    assert "hdl hindsight" in out and str(tmp_path / "out" / "compare.html") in out
