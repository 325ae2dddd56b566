"""The difficulty filter: solve rates, what is kept, and going on after a stop."""

from __future__ import annotations

import json

import pytest
from test_evaluation import sample

from hdl_jax import config as config_lib
from hdl_jax import filter as filter_lib
from hdl_jax import setup_run
from hdl_jax.command_line import Refused
from hdl_jax.domains.errands import Errands
from hdl_jax.eval_store import read_samples
from hdl_jax.filter import filter_problems, histogram, solve_rates

PROBLEMS = [
    [sample("never", i, 0.0) for i in range(4)],
    [sample("once", i, 1.0 if i == 0 else 0.5) for i in range(4)],
    [sample("always", i, 1.0) for i in range(4)],
    [sample("half known", i, r) for i, r in enumerate((1.0, None, 0.0, None))],
    [sample("unknown", i, None) for i in range(4)],
]


def test_rates_are_of_samples_with_a_verdict():
    rates = solve_rates(PROBLEMS)
    assert rates.solved == {"never": 0, "once": 0.25, "always": 1, "half known": 0.5}
    assert rates.unknown == ["unknown"]


def test_what_is_solved_never_or_always_is_dropped_and_the_limits_are_kept():
    rates = solve_rates(PROBLEMS)
    assert rates.kept(0.01, 0.99) == ["once", "half known"]
    assert rates.kept(0.25, 0.5) == ["once", "half known"]
    assert rates.kept(0.26, 1) == ["always", "half known"]
    assert rates.kept(0, 1) == ["never", "once", "always", "half known"]


def test_the_histogram_counts_every_share():
    lines = [line.split() for line in histogram(solve_rates(PROBLEMS), 4, 0.01, 0.99).splitlines()[2:]]
    assert [line[:2] for line in lines] == [["0/4", "1"], ["1/4", "1"], ["2/4", "1"], ["3/4", "0"], ["4/4", "1"]]
    assert [line[2:3] == ["kept"] for line in lines] == [False, True, True, True, False]


class Few(Errands):
    def problems(self, split):
        return super().problems(split)[:6]


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setitem(setup_run.DOMAINS, "errands", lambda _: Few())
    config = config_lib.default()
    config.engine.rows, config.engine.lanes, config.engine.width = 4, 8, 4
    config.filter.samples = 2
    return config


def test_kept_problems_are_trained_on(config, tmp_path, monkeypatch):
    printed = filter_problems(config, tmp_path)
    _, samples = read_samples(tmp_path / "train.jsonl")
    assert list(samples) and {id for id in samples} == {p.id for p in Few().problems("train")}
    kept = json.loads((tmp_path / "kept.json").read_text())
    expected = [id for id, of in samples.items() if 0 < sum(s.success for s in of) < len(of)]
    assert sorted(kept["ids"]) == sorted(expected) and kept["problems"] == 6 and kept["policy"] == "errands"
    assert f"{len(expected)} of 6 problems kept, 0 without a verdict" in printed

    # Other thresholds: what was sampled is read, not sampled again.
    config.filter.min_rate, config.filter.max_rate = 0.0, 1.0
    monkeypatch.setattr(filter_lib, "play", _nothing_left(filter_lib.play))
    filter_problems(config, tmp_path)
    config.domain.kept = str(tmp_path / "kept.json")
    assert len(setup_run.make_domain(config).problems("train")) == 6


def _nothing_left(play):
    def checked(engine, *args, **kwargs):
        def run(jobs, *_, **__):
            assert not jobs

        engine.run = run
        return play(engine, *args, **kwargs)

    return checked


def test_samples_of_other_settings_are_not_mixed(config, tmp_path):
    filter_problems(config, tmp_path)
    config.filter.samples = 3
    with pytest.raises(Refused, match=r"other settings \(samples\).*--out names another folder"):
        filter_problems(config, tmp_path)


def test_a_filtered_domain_is_not_filtered_again(config, tmp_path):
    config.domain.kept = "kept.json"
    with pytest.raises(Refused, match=r"domain.kept=kept.json: a filter looks at all problems"):
        filter_problems(config, tmp_path)
