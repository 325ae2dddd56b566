"""Estimators of what evaluations measure: pure functions of scores and counts."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np


def clustered(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean over problems of their mean, and its standard error over problems (Miller 2024, arXiv 2411.00640).

    Samples of one problem are not independent evidence; problems are (case E3). The error of one problem is NaN, and
    so are both of none; a problem without a value is left out.
    """
    means = np.asarray([np.mean(v) for v in values if len(v)])
    if not len(means):
        return math.nan, math.nan
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.nan


def pass_at_k(samples: int, right: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): an unbiased estimate of the chance that one of k samples is right (case E1).

    Chen et al. 2021, arXiv 2107.03374. Raises ValueError unless 0 <= right <= samples and 1 <= k <= samples.
    """
    if not (0 <= right <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {right} right in {samples} samples does not exist")
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)


def all_of_k(samples: int, right: int, k: int) -> float:
    """C(c, k) / C(n, k): an unbiased estimate of the chance that all of k samples are right (pass^k, case E2).

    Yao et al. 2024, arXiv 2406.12045. Raises ValueError unless 0 <= right <= samples and 1 <= k <= samples.
    """
    if not (0 <= right <= samples and 1 <= k <= samples):
        raise ValueError(f"pass^{k} of {right} right in {samples} samples does not exist")
    return math.comb(right, k) / math.comb(samples, k)


def powers_of_two(most: int) -> list[int]:
    """2, 4, 8, ... up to and including `most`: the k of pass@k that are reported, 1 being the mean itself."""
    return [2**i for i in range(1, most.bit_length()) if 2**i <= most]


@dataclasses.dataclass(frozen=True)
class TopThree:
    """Mean and sample standard deviation (NaN of one) of the best three values of a curve, and their steps."""

    mean: float
    std: float
    steps: tuple[int, ...]


def top_three(curve: Mapping[int, float]) -> TopThree:
    """The three best checkpoints of a run, of equals the latest (as they are kept); all where they are fewer.

    Chosen and measured by the same noisy values, their mean is biased upwards, less than the best one is (case E7).

    Args:
        curve: score by step.

    Raises:
        ValueError: the curve is empty.
    """
    if not curve:
        raise ValueError("the top three of an empty curve do not exist")
    steps = tuple(sorted(curve, key=lambda step: (-curve[step], -step))[:3])
    values = [curve[step] for step in steps]
    return TopThree(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan, steps)


@dataclasses.dataclass(frozen=True)
class Paired:
    """What two samples over the same problems say of their difference.

    Attributes:
        problems: that count. left_out: those without a value on one side.
        difference: of the means over problems. low, high: its 95 % interval.
        p: two-sided, of no difference.
    """

    problems: int
    left_out: int
    difference: float
    low: float
    high: float
    p: float


RESAMPLES = 10_000
_BLOCK = 1 << 22  # Indices drawn at once: 32 MB


def paired_bootstrap(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Paired:
    """The mean of a minus that of b, over problems, by resampling problems 10,000 times with a fixed seed.

    A problem keeps its values on both sides, so that its difficulty cancels. The interval is that of percentiles; p is
    twice the smaller share of resamples at or beyond 0, so that it is below 0.05 where the interval leaves 0 out
    (Efron and Tibshirani 1993, An Introduction to the Bootstrap, 13.3 and 15.4). With few problems both are too sure;
    of one problem they are NaN, and of none so is the difference.

    Args:
        a: values of each problem, such as the rewards of its samples. b: the same problems in the same order.

    Raises:
        ValueError: the two differ in length.
    """
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if len(x) and len(y)]
    differences = np.asarray([np.mean(x) - np.mean(y) for x, y in pairs])
    count, left_out = len(pairs), len(a) - len(pairs)
    if count < 2:
        return Paired(count, left_out, float(differences[0]) if count else math.nan, math.nan, math.nan, math.nan)
    random = np.random.default_rng(0)
    means = np.empty(RESAMPLES)
    rows = max(1, _BLOCK // count)
    for start in range(0, RESAMPLES, rows):
        part = means[start : start + rows]
        part[:] = differences[random.integers(count, size=(len(part), count))].mean(axis=1)
    # Thirds that should cancel leave a rounding error behind, which must not decide on which side of 0 a resample is.
    means[np.abs(means) < 1e-9 * np.abs(differences).max()] = 0.0
    low, high = np.quantile(means, (0.025, 0.975))
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (RESAMPLES + 1))
    return Paired(count, left_out, float(differences.mean()), float(low), float(high), p)
