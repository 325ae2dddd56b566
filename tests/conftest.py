"""Settings of the whole test run, and the fixtures that several files share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Test files are imported by path; this makes tests/support.py importable from them.
sys.path.insert(0, str(Path(__file__).parent))

import jax  # noqa: E402
import pytest  # noqa: E402
import support  # noqa: E402


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of published test files, beside the repository. They are no part of it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the published test files are not there: {folder}")
    return folder


@pytest.fixture(scope="session")
def params():
    """Random weights of the tiny policy."""
    return support.random_params(support.TINY, seed=0)


def _loaded(engine, params):
    engine.load(params)
    yield engine
    engine.workers.shutdown(wait=False)


@pytest.fixture
def engine(params):
    """A fresh engine; all of them have one shape, so its programs are compiled once a process."""
    yield from _loaded(support.engine(), params)


@pytest.fixture(scope="module")
def shared(params):
    """One engine for a whole file: it keeps nothing between runs."""
    yield from _loaded(support.engine(), params)


@pytest.fixture(scope="module")
def scarce(params):
    """An engine of three rows and four lanes, where requests have to wait."""
    yield from _loaded(support.engine(rows=3, lanes=4), params)


@pytest.fixture(scope="session")
def oracle(params):
    """The slow sampler: a full forward of the whole path for every token."""
    return support.SlowSampler(params, support.TINY, jax.random.key(support.SEED))
