"""Stored rollouts: what is written is what is read, whatever the policy sampled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.domains.domain import Problem, Verdict
from hdl_jax.rollout.store import drop_after, read_groups, stored_steps, write_groups
from hdl_jax.rollout.trajectory import BranchPoint, Group, Reflection, Trajectory, Turn


def _trajectory(tokens, *, fork=2, origin=None, verdict=None, turns=()):
    tokens = np.asarray(tokens, np.int32)
    generated = np.arange(len(tokens)) >= 2
    return Trajectory(
        tokens=tokens,
        generated=generated,
        log_probs=np.where(generated, -0.5, 0).astype(np.float32),
        prompt_length=2,
        fork=fork,
        turns=turns,
        verdict=verdict,
        truncated=False,
        origin=origin,
    )


def _group(index=0, text="hello"):
    verdict = Verdict(0.5, False, text, (("found", True), ("put", False)))
    roots = (
        _trajectory([1, 2, 3, 4, 5], verdict=verdict, turns=(Turn(2, 5, text, text),)),
        _trajectory([1, 2, 9, 9], verdict=None),
    )
    continuation = _trajectory([1, 2, 3, 7], fork=3, origin=0, verdict=verdict)
    return Group(
        problem=Problem(f"errands/train/{index}", index, "train"),
        trajectories=(*roots, continuation),
        scores=(np.float32([0, 0, 0.1, 2.5, 0.3]), np.float32([0, 0, 1, 0])),
        points=(BranchPoint(0, 3, 2.5, 1), BranchPoint(1, 2, None, 0)),
        reflections=(Reflection(text, np.int32([1]), "FAILURE", False), Reflection("", np.int32([]), None, True)),
    )


ADVANTAGES = np.float32([0.25, -0.5, 0.25])


def _decode(ids):
    return "".join(f"<{i}>" for i in ids)


def test_round_trip(tmp_path):
    write_groups(tmp_path, 10, [_group(0), _group(1)], [ADVANTAGES, ADVANTAGES], _decode)
    groups = read_groups(tmp_path, 10)
    assert [len(group) for group in groups] == [3, 3]
    root, failed, continuation = groups[1]
    assert root.record["problem"] == "errands/train/1"
    assert (root.record["step"], root.record["split"], root.record["group"], root.record["member"]) == (
        10,
        "train",
        1,
        0,
    )
    assert root.record["points"] == [{"position": 3, "score": 2.5, "continuations": 1}]
    assert failed.record["points"] == [{"position": 2, "score": None, "continuations": 0}]
    assert root.record["reflection"] == {"text": "hello", "outcome": "FAILURE", "truncated": False}
    assert root.record["turns"] == [{"start": 2, "end": 5, "action": "hello", "observation": "hello"}]
    assert root.record["subgoals"] == [["found", True], ["put", False]]
    assert root.record["prompt"] == "<1><2>"
    assert root.record["pieces"] == ["<1>", "<2>", "<3>", "<4>", "<5>"]
    assert (failed.record["reward"], failed.record["success"], failed.record["feedback"]) == (None, None, None)
    assert (continuation.record["origin"], continuation.record["fork"]) == (0, 3)
    assert (continuation.record["reward"], continuation.record["advantage"]) == (0.5, 0.25)
    assert continuation.scores is None and "points" not in continuation.record
    np.testing.assert_array_equal(root.tokens, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(root.scores, np.float32([0, 0, 0.1, 2.5, 0.3]))
    np.testing.assert_array_equal(continuation.generated, [False, False, True, True])
    np.testing.assert_array_equal(continuation.log_probs, np.float32([0, 0, -0.5, -0.5]))


@settings(deadline=None, max_examples=40)
@given(text=st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_survives(text, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    write_groups(workdir, 1, [_group(text=text)], [ADVANTAGES], lambda ids: text)
    ((root, *_),) = read_groups(workdir, 1)
    assert root.record["turns"][0]["action"] == text
    assert root.record["reflection"]["text"] == root.record["feedback"] == root.record["pieces"][0] == text


@pytest.mark.parametrize(("share", "kept"), [(0.0, 0), (0.01, 1), (0.5, 2), (0.51, 3), (1.0, 4)])
def test_the_share_kept(tmp_path, share, kept):
    write_groups(tmp_path, 1, [_group(i) for i in range(4)], [ADVANTAGES] * 4, _decode, share)
    assert stored_steps(tmp_path) == ([1] if kept else [])
    if kept:
        assert [g[0].record["problem"] for g in read_groups(tmp_path, 1)] == [f"errands/train/{i}" for i in range(kept)]


def test_a_rerun_step_replaces_the_old_one(tmp_path):
    write_groups(tmp_path, 2, [_group(0), _group(1)], [ADVANTAGES] * 2, _decode)
    write_groups(tmp_path, 2, [_group(5)], [ADVANTAGES], _decode)
    write_groups(tmp_path, 12, [_group(6)], [ADVANTAGES], _decode)
    assert stored_steps(tmp_path) == [2, 12]
    ((root, *_),) = read_groups(tmp_path, 2)
    assert root.record["problem"] == "errands/train/5"
    assert not list(tmp_path.rglob("*.partial"))


def test_later_steps_are_dropped_and_foreign_files_left(tmp_path):
    for step in (1, 10, 20):
        write_groups(tmp_path, step, [_group()], [ADVANTAGES], _decode)
    foreign = tmp_path / "rollouts" / "step_000010 (copy).jsonl"
    foreign.write_text("{}")
    assert stored_steps(tmp_path) == [1, 10, 20]
    drop_after(tmp_path, 10)
    assert stored_steps(tmp_path) == [1, 10] and foreign.exists()
    assert len(list((tmp_path / "rollouts").glob("*.npz"))) == 2
    drop_after(tmp_path / "new", 0)


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="between 0 and 1, got 1.5"):
        write_groups(tmp_path, 2, [], [], _decode, 1.5)
    with pytest.raises(FileNotFoundError, match="stored steps: none"):
        read_groups(tmp_path, 3)
    write_groups(tmp_path, 2, [_group(0)], [ADVANTAGES], _decode)
    with pytest.raises(FileNotFoundError, match="step 3 .*stored steps: 2"):
        read_groups(tmp_path, 3)
    path = tmp_path / "rollouts" / "step_000002.jsonl"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"step_000002.jsonl:3 is not a line of JSON"):
        read_groups(tmp_path, 2)
