"""Checkpoints: what stays, what loads after a kill, what is refused (cases R3, R4, R7, R8, R9)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hdl_jax.checkpoint import Checkpoints, config_differences, load_checkpoint, saved_scores


def _state(value: float = 1.0):
    params = {"dense": {"w": jnp.full((2, 3), value, jnp.bfloat16)}, "scale": jnp.full(3, value, jnp.float32)}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    _, opt_state = optimizer.update(params, optimizer.init(params), params)  # moments that are not zero
    return {"params": params, "opt_state": opt_state, "step": jnp.int32(value)}


def _abstract(state):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)


def _assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.filterwarnings("error")
def test_round_trip_keeps_structure_dtypes_bits_and_extra(tmp_path, caplog):
    state, extra = _state(), {"position": 2**40, "best": ((10, 0.1),), "config": {"a": None, "b": "x/y"}}
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore_latest(_abstract(state)) is None
        checkpoints.save(5, state, extra, score=0.25)
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore_latest(_abstract(state))
    assert restored.step == 5
    assert restored.extra == extra | {"best": [[10, 0.1]]}
    _assert_same(restored.state, state)
    assert "deprecated" not in caplog.text


@pytest.mark.parametrize(("keep", "expected"), [(3, [20, 30, 50]), (2, [30, 50])])
@pytest.mark.parametrize("reopen", [False, True])
def test_keeps_the_best_and_the_later_of_ties(tmp_path, keep, expected, reopen):
    checkpoints = Checkpoints(tmp_path, best=keep)
    for step, score in zip((10, 20, 30, 40, 50), (0.3, 0.5, 0.5, 0.4, 0.5), strict=True):
        checkpoints.save(step, _state(step), {}, score)
        if reopen:  # scores must survive a restart, else nothing is pruned after it
            checkpoints.close()
            checkpoints = Checkpoints(tmp_path, best=keep)
    assert checkpoints.steps() == expected
    assert [step for step, _ in checkpoints.ranking()] == expected[::-1]
    assert list(saved_scores(tmp_path)) == expected and set(saved_scores(tmp_path).values()) <= {0.4, 0.5}
    checkpoints.close()
    assert sorted(int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()) == expected


def test_the_latest_stays_without_a_score(tmp_path):
    with Checkpoints(tmp_path, best=1) as checkpoints:
        checkpoints.save(1, _state(), {}, 0.9)
        for step in (2, 3, 4):
            checkpoints.save(step, _state(step), {})
        assert checkpoints.steps() == [1, 4]
        checkpoints.save(5, _state(5), {}, 0.1)
        assert checkpoints.steps() == [1, 5]


def test_a_score_that_cannot_be_ranked_is_refused(tmp_path):
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(ValueError, match="step 3 is nan"):
        checkpoints.save(3, _state(), {}, float("nan"))


def _damage_every_file_cut_short(directory: Path) -> None:
    for file in sorted(p for p in directory.rglob("*") if p.is_file() and p.stat().st_size):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _damage_arrays_cut_short(directory: Path) -> None:
    for file in (directory / "state").rglob("*/d/*"):
        file.write_bytes(file.read_bytes()[:10])
    for file in (directory / "state" / "d").iterdir():
        file.write_bytes(file.read_bytes()[:10])


def _damage_no_arrays(directory: Path) -> None:
    shutil.rmtree(directory / "state")


def _damage_no_metadata(directory: Path) -> None:
    (directory / "_CHECKPOINT_METADATA").unlink()
    shutil.rmtree(directory / "state" / "d")


def _damage_empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def _damage_temporary_name(directory: Path) -> None:
    directory.rename(directory.with_name(directory.name + ".orbax-checkpoint-tmp"))


# Orbax abandons its read of a cut-off file, and the event loop it leaves behind complains when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "damage",
    [
        _damage_every_file_cut_short,
        _damage_arrays_cut_short,
        _damage_no_arrays,
        _damage_no_metadata,
        _damage_empty,
        _damage_temporary_name,
    ],
)
def test_a_half_written_newest_directory_is_passed_over(tmp_path, damage):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(10, _state(10), {"at": 10}, 0.3)
        checkpoints.save(20, _state(20), {"at": 20}, 0.2)
    shutil.copytree(tmp_path / "20", tmp_path / "30")
    damage(tmp_path / "30")
    with Checkpoints(tmp_path, best=0) as checkpoints:
        restored = checkpoints.restore_latest(_abstract(_state()))
        assert (restored.step, restored.extra) == (20, {"at": 20})
        _assert_same(restored.state, _state(20))
        checkpoints.save(25, _state(25), {"at": 25}, 0.1)  # older than the damaged one, and still the latest
        assert checkpoints.steps() == [25]
        checkpoints.save(30, _state(30), {"at": 30}, 0.1)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore_latest(_abstract(_state())).extra == {"at": 30}


def test_a_killed_save_leaves_the_previous_one(tmp_path):
    """A process is killed while it saves step 2: step 1 loads, and step 2 can be saved again."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        import jax.numpy as jnp
        from hdl_jax.checkpoint import Checkpoints
        checkpoints = Checkpoints(sys.argv[1])
        checkpoints.save(1, {"w": jnp.ones(4)}, {"at": 1})
        rename = os.rename
        def die(source, target):
            if str(target).endswith("/2"):
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)
        os.rename = die
        import pathlib
        pathlib.Path.rename = lambda self, target: die(self, target)
        checkpoints.save(2, {"w": jnp.zeros(4)}, {"at": 2})
        """
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=env, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert any("tmp" in p.name for p in tmp_path.iterdir()), "the kill came too late to test anything"
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore_latest({"w": jax.ShapeDtypeStruct((4,), jnp.float32)})
        assert restored.extra == {"at": 1}
        np.testing.assert_array_equal(restored.state["w"], np.ones(4))
        checkpoints.save(2, {"w": jnp.zeros(4)}, {"at": 2})
    assert load_checkpoint(tmp_path / "2", {"w": jnp.zeros(4)}).extra == {"at": 2}


def test_another_structure_is_refused_by_name_and_not_passed_over(tmp_path):
    state = _state()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.save(2, state, {})
        like = _abstract(state)
        like["params"] = {"dense": {"w": jax.ShapeDtypeStruct((2, 4), jnp.bfloat16)}, "new": like["step"]}
        with pytest.raises(ValueError) as error:
            checkpoints.restore_latest(like)
    for line in (
        "missing params/new ()",
        "unexpected params/scale (3,)",
        "params/dense/w: (2, 3) saved, (2, 4) wanted",
    ):
        assert line in str(error.value)
    assert "opt_state" not in str(error.value)


def test_load_by_path(tmp_path):
    state = _state(7)
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(10, _state(1), {}, 1.0)
        checkpoints.save(20, state, {"a": 1})
    restored = load_checkpoint(tmp_path / "run" / "20", {"params": _abstract(state["params"])})
    assert restored.extra == {"a": 1}
    _assert_same(restored.state, {"params": state["params"]})
    with pytest.raises(FileNotFoundError, match=r"run/30; .*has steps 10, 20"):
        load_checkpoint(tmp_path / "run" / "30", _abstract(state))
    with pytest.raises(FileNotFoundError, match="nowhere/30"):
        load_checkpoint(tmp_path / "nowhere" / "30", _abstract(state))
    assert not (tmp_path / "nowhere").exists()


def test_config_differences():
    saved = {"lr": 0.1, "branch": {"roots": 2, "continuations": [[3, 4]]}, "steps": 10, "old": None}
    same = {"lr": 0.1, "branch": {"roots": 2, "continuations": ((3, 4),)}, "steps": 20, "old": None}
    assert config_differences(saved, same, ignore=["steps"]) == []
    other = {"lr": 0.2, "branch": {"roots": 2, "continuations": [4, 3], "new": None}, "steps": 20}
    assert config_differences(saved, other) == ["branch.continuations", "branch.new", "lr", "old", "steps"]
    assert config_differences(saved, other, ignore=["branch", "steps", "ol"]) == ["lr", "old"]


def test_looking_at_scores_touches_nothing(tmp_path):
    """A run may be saving meanwhile: its temporary and damaged directories are passed over, not cleaned."""
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, _state(), {}, 0.25)
        checkpoints.save(4, _state(), {})
    (tmp_path / "5.orbax-checkpoint-tmp-1" / "state").mkdir(parents=True)
    (tmp_path / "6").mkdir()
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    assert saved_scores(tmp_path) == {3: 0.25, 4: None}
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
    with pytest.raises(FileNotFoundError, match="no checkpoints at"):
        saved_scores(tmp_path / "nowhere")
