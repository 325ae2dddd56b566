"""Weights files: exact round trips, and one error that names everything that does not fit."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from hdl_jax.policy.weights import flatten_params, load_params, save_params, unflatten_params

BF16 = np.dtype(ml_dtypes.bfloat16)
NAMES = st.text(min_size=1, max_size=4).filter(lambda s: "/" not in s and s.isprintable())
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
TREES = st.recursive(SHAPES, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6)


def _fill(tree, dtype, rng):
    if isinstance(tree, dict):
        return {name: _fill(node, dtype, rng) for name, node in tree.items()}
    return rng.standard_normal(tree).astype(dtype)


@settings(deadline=None, max_examples=40)
@given(tree=TREES.filter(lambda t: isinstance(t, dict)), dtype=st.sampled_from([np.float32, BF16, np.float16]))
def test_round_trip_is_exact(tree, dtype, tmp_path_factory):
    params = _fill(tree, dtype, np.random.default_rng(0))
    path = tmp_path_factory.mktemp("weights") / "p.safetensors"
    save_params(path, params)
    back = load_params(path, jax.eval_shape(lambda: params))
    assert jax.tree.structure(back) == jax.tree.structure(params)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert unflatten_params(flatten_params(params)).keys() == params.keys()


def test_a_transposed_view_is_stored_as_it_reads(tmp_path):
    kernel = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    save_params(tmp_path / "w", {"a": {"kernel": kernel}})
    np.testing.assert_array_equal(load_file(tmp_path / "w")["a/kernel"], kernel)


def test_saved_in_bfloat16_loads_in_the_dtype_wanted(tmp_path):
    exact, rounded = np.float32([1.0, 0.5]), np.float32([1.001, 3.14159])
    save_params(tmp_path / "w", {"exact": exact, "rounded": rounded}, dtype=ml_dtypes.bfloat16)
    assert {a.dtype for a in load_file(tmp_path / "w").values()} == {BF16}
    back = load_params(tmp_path / "w", {"exact": exact, "rounded": rounded})
    assert back["rounded"].dtype == np.float32
    np.testing.assert_array_equal(back["exact"], exact)
    np.testing.assert_array_equal(back["rounded"], rounded.astype(BF16).astype(np.float32))


def test_everything_that_does_not_fit_is_in_one_error(tmp_path):
    path = tmp_path / "odd.safetensors"
    save_file({"a/w": np.zeros((2, 3), np.float32), "extra": np.zeros(1, np.float32), "n": np.zeros(2, np.int32)}, path)
    like = {"a": {"w": np.zeros((3, 2), np.float32)}, "b": np.zeros(4, np.float32), "n": np.zeros(2, np.float32)}
    with pytest.raises(ValueError) as error:
        load_params(path, like)
    for part in (
        str(path),
        "missing b (4,)",
        "unexpected extra (1,)",
        "a/w: (2, 3) in the file, (3, 2) wanted",
        "n: I32",
    ):
        assert part in str(error.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        load_params(tmp_path / "nothing-here", {})
    save_params(tmp_path / "w", {"a": np.zeros(100, np.float32)})
    (tmp_path / "cut").write_bytes((tmp_path / "w").read_bytes()[:-7])
    for name, content in {"cut": None, "text": b"not weights at all", "empty": b""}.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a readable safetensors file"):
            load_params(tmp_path / name, {"a": np.zeros(100, np.float32)})


@pytest.mark.parametrize("name", ["a/b", "", 3])
def test_a_name_that_would_not_survive_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="without '/'"):
        save_params(tmp_path / "w", {"outer": {name: np.zeros(1)}})
    assert not list(tmp_path.iterdir())
