"""What runs in a worker: the rule and the comparison, and that hostile answers stop nothing but themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("math_verify", reason="comparing answers needs hdl_jax[math]")

from hdl_jax.domains.math_check import Judged, judge
from hdl_jax.domains.math_compare import Reference
from hdl_jax.workers import WorkerPool, WorkerTimeout

GOLD = Reference(("42",))


def test_right_wrong_and_no_answer():
    assert judge("boxed", GOLD, r"So $\boxed{42.0}$.") == Judged(True, "42.0")
    assert judge("boxed", GOLD, r"So $\boxed{41}$.") == Judged(False, "41")
    assert judge("boxed", GOLD, "It is 42.") == Judged(False, None)
    assert judge("hash", GOLD, "#### $42") == Judged(True, "$42")
    assert judge("answer", GOLD, "Answer: 42") == Judged(True, "42")
    with pytest.raises(KeyError):
        judge("guess", GOLD, "42")


def test_rows_of_hashes():
    """M32."""
    for response, gold in [
        ("#### 1,000", "1000"),
        ("#### $42", "42"),
        ("#### 42.", "42"),
        ("####42", "42"),
        ("#### 42.0", "42"),
    ]:
        assert judge("hash", Reference((gold,)), response).right


def test_no_answer_is_not_the_answer_that_is_nothing():
    """M4, M5, M17."""
    for response in ("The answer is 42", "<think> 42", r"\boxed{}", r"\boxed{42", ""):
        for gold in ("The answer is 42", "42", ""):
            assert judge("boxed", Reference((gold,)), response) == Judged(False, None)


def test_hostile_checks_end_alone():
    """M1, M2: from threads, a check that never ends is stopped and those before and after it have their verdicts."""
    endless = Reference((r"\sum_{n=1}^{\infty} \frac{1}{n^2+n}",)), r"\boxed{\sum_{n=1}^{\infty} \frac{\sin n}{n^{3}}}"
    half, power = (Reference((r"\frac12",)), r"\boxed{0.5}"), (Reference(("1",)), r"\boxed{9^{9^9}}")

    def check(reference, response):
        try:
            return pool("boxed", reference, response).right
        except WorkerTimeout:
            return "stopped"

    with (
        WorkerPool("hdl_jax.domains.math_check:judge", workers=1, limit_s=3.0) as pool,
        ThreadPoolExecutor(3) as threads,
    ):
        found = list(threads.map(lambda item: check(*item), [half, endless, half, power, half]))
    assert found == [True, "stopped", True, False, True]
