"""A domain cut down to what a filter kept."""

from __future__ import annotations

import json

import pytest

from hdl_jax import config as config_lib
from hdl_jax import setup_run
from hdl_jax.domains.errands import Errands
from hdl_jax.domains.kept import Kept

ERRANDS = Errands()


def kept_file(folder, ids):
    path = folder / "kept.json"
    path.write_text(json.dumps({"ids": ids}))
    return path


def test_keeps_the_named_problems_in_index_order_and_nothing_else_changes(tmp_path):
    domain = Kept(ERRANDS, kept_file(tmp_path, ["errands/train/7", "errands/train/2"]))
    assert [p.id for p in domain.problems("train")] == ["errands/train/2", "errands/train/7"]
    assert [p.index for p in domain.problems("train")] == [2, 7], "a problem's random keys hang on its index"
    assert domain.problems("test") == ERRANDS.problems("test")
    assert (domain.name, domain.max_actions) == (ERRANDS.name, ERRANDS.max_actions)
    problem = domain.problems("train")[0]
    assert domain.start(problem).opening() == ERRANDS.start(problem).opening()
    assert domain.token_class("open chest") == ERRANDS.token_class("open chest")


def test_the_config_names_it(tmp_path):
    config = config_lib.default()
    config.domain.kept = str(kept_file(tmp_path, ["errands/train/3"]))
    domain = setup_run.make_domain(config)
    assert [p.id for p in domain.problems("train")] == ["errands/train/3"]
    with pytest.raises(ValueError, match=r"rollout.problems_per_step=8, but errands/train has 1 problems"):
        setup_run.check_sizes(config, domain)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ids": 3}', "\xff"])
def test_another_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"domain.kept=.*other.json: not the kept.json of a filter"):
        Kept(ERRANDS, path)


def test_a_missing_file_says_what_writes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"domain.kept=.*python -m hdl_jax.filter"):
        Kept(ERRANDS, tmp_path / "kept.json")


def test_ids_of_other_data_are_refused(tmp_path):
    path = kept_file(tmp_path, ["errands/train/3", "math/train/1", "math/train/0"])
    with pytest.raises(ValueError, match=r"2 of its 3 problems are not in errands/train, math/train/0 for one"):
        Kept(ERRANDS, path)
