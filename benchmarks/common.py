"""What every benchmark shares: figures as JSON lines, fair timing, the machine's description, shapes and engines."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

from benchmarks.peers.protocol import peak_rss_bytes as peak_rss_bytes
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import PRESETS, TransformerConfig
from hdl_jax.sampling.cache import CacheShape
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.engine import Engine
from hdl_jax.sampling.requests import Lane, LaneResult, Sample

SMOLLM2_135M = PRESETS["smollm2-135m"]
# The same ratios, for tests: a benchmark at this size shows that it runs, and nothing else.
TINY = TransformerConfig(
    vocab_size=512, d_model=48, n_layers=2, n_heads=3, n_kv_heads=1, head_dim=16, d_ff=96,
    rope_theta=100_000.0, norm_eps=1e-5, tie_embeddings=True,
)  # fmt: skip

# A stop id outside every vocabulary: lanes run to their budget.
NEVER = (-1,)
# Cores' worth of other processes above which times are not to be trusted.
IDLE_CORES = 0.1


def arguments(doc: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """The parser that all benchmarks start from.

    Args:
        doc: the module's docstring. repeats: default number of measured runs of each side.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="measured runs of each side (default %(default)s)")
    parser.add_argument(
        "--tiny", action="store_true", help="toy sizes: shows that the benchmark runs, measures nothing"
    )
    return parser


# ---- figures --------------------------------------------------------------------------------------------------------

_figures: list[dict[str, Any]] = []


def sensible(value: float) -> float:
    """Four significant digits; whole numbers of more digits stay whole."""
    if not math.isfinite(value) or value == 0:
        return value
    digits = 3 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else float(round(value))


def figure(name: str, value: float | None, unit: str, **extra: Any) -> None:
    """Prints one figure as a JSON line and keeps it for `finish`.

    Args:
        name: `benchmark/figure`. value: None where it was not measured: then extra must have a `reason`.
        extra: repeats, spread and whatever else a reader needs to judge the value.
    """
    if value is None and "reason" not in extra:
        raise ValueError(f"{name}: a figure without a value needs a reason")
    rounded = {k: sensible(v) if isinstance(v, float) else v for k, v in extra.items()}
    line = {"name": name, "value": None if value is None else sensible(float(value)), "unit": unit, **rounded}
    _figures.append(line)
    print(json.dumps(line, allow_nan=False), flush=True)


def finish() -> list[dict[str, Any]]:
    """Prints the figures so far as a table, forgets them and returns them."""
    taken = _figures.copy()
    _figures.clear()
    width = max((len(f["name"]) for f in taken), default=0)
    print()
    for f in taken:
        value = "not measured" if f["value"] is None else f"{f['value']:g} {f['unit']}"
        rest = ", ".join(f"{k} {v}" for k, v in f.items() if k not in ("name", "value", "unit", "versions", "settings"))
        print(f"{f['name']:<{width}}  {value:<20}  {rest}".rstrip())
    return taken


# ---- the machine ----------------------------------------------------------------------------------------------------


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")]  # fmt: skip
        cpu = names[0] if names else cpu
    device = jax.devices()[0]
    return {
        "cpu": cpu,
        "cores": cores(),
        "device": device.device_kind,
        "devices": jax.device_count(),
        "platform": device.platform,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }


def other_load(before: Sequence[int], after: Sequence[int], own: float, elapsed: float, ticks: int) -> float:
    """Cores' worth of work that other processes did.

    Args:
        before, after: the counters of /proc/stat's first line (user, nice, system, idle, iowait, irq, softirq, steal).
        own: CPU seconds this process used meanwhile. elapsed: seconds between the two. ticks: counters a second.
    """
    spent = [b - a for a, b in zip(before, after, strict=True)]
    busy = (sum(spent[:8]) - spent[3] - spent[4]) / ticks
    return max(0.0, (busy - own) / elapsed)


def measure_other_load(seconds: float = 1.0) -> float | None:
    """`other_load` over the next seconds; None where the system does not tell."""

    def counters() -> list[int]:
        return [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    try:
        before = counters()
    except (OSError, ValueError):
        return None
    begun, own = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    elapsed, own = time.perf_counter() - begun, time.process_time() - own
    return other_load(before, counters(), own, elapsed, os.sysconf("SC_CLK_TCK"))


def start(name: str) -> None:
    """Prints the machine's description, and a warning on stderr where other processes are at work."""
    load = measure_other_load()
    print(json.dumps({"benchmark": name, **machine(), "other_load_cores": None if load is None else round(load, 3)}))
    if load is not None and load > IDLE_CORES:
        print(f"WARNING: other processes use {load:.2f} cores; times will be wrong. Wait until they end.",
              file=sys.stderr)  # fmt: skip
    sys.stdout.flush()


# ---- timing ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of each measured run of one side."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Collects garbage now and not inside."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def seconds_of(function: Callable[[], Any]) -> float:
    """Wall-clock of one call, to the end of the device's work on what it returns."""
    with no_garbage():
        begun = time.perf_counter()
        jax.block_until_ready(function())
        return time.perf_counter() - begun


def interleaved(
    sides: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    warm: int = 1,
    measure: Callable[[Callable[[], Any]], float] = seconds_of,
) -> dict[str, Timing]:
    """Measures all sides in turn, A B A B ..., so that a machine that drifts drifts for both.

    Args:
        sides: name -> one run. repeats: measured runs of each. warm: runs before that are not counted.
        measure: seconds of one run; a side that knows its own seconds (another process) is measured by that.
    """
    for _ in range(warm):
        for run in sides.values():
            measure(run)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            seconds[name].append(measure(run))
    return {name: Timing(tuple(s)) for name, s in seconds.items()}


def ratio(over: Timing, under: Timing) -> dict[str, float | int]:
    """over / under as `value`, from the medians, with the extras a figure carries: the lowest and highest ratio of
    neighbouring runs as `low` and `high`, and `repeats`."""
    pairs = [a / b for a, b in zip(over.seconds, under.seconds, strict=True)]
    return {"value": over.median / under.median, "low": min(pairs), "high": max(pairs), "repeats": len(pairs)}


# ---- the policy and the engine --------------------------------------------------------------------------------------


def policy(*, tiny: bool) -> TransformerConfig:
    """The 135M shape in the dtype that suits the device, or the toy shape."""
    if tiny:
        return TINY
    return SMOLLM2_135M if jax.default_backend() == "cpu" else dataclasses.replace(SMOLLM2_135M, dtype="bfloat16")


def random_params(cfg: TransformerConfig, seed: int = 0) -> tr.Params:
    """Random float32 weights, stacked, on the device."""
    return jax.jit(tr.init, static_argnums=0)(cfg, jax.random.key(seed))


@functools.partial(jax.jit, static_argnums=1)
def _log_probs(params: tr.Params, cfg: TransformerConfig, tokens: jax.Array) -> jax.Array:
    hidden = tr.forward(params, cfg, tokens[None])[0]
    return tr.token_logprobs(params, cfg, hidden[:-1], tokens[1:])[0]


def log_probs(params: tr.Params, cfg: TransformerConfig, tokens: np.ndarray) -> np.ndarray:
    """float32 [T - 1]: of tokens[1:], each given those before it; tokens int32 [T]."""
    return np.asarray(_log_probs(params, cfg, tokens))


def prompts(cfg: TransformerConfig, count: int, length: int, seed: int = 0) -> np.ndarray:
    """int32 [count, length] of random ids; the first few, which are often special, are left out."""
    return np.random.default_rng(seed).integers(16, cfg.vocab_size, (count, length)).astype(np.int32)


def make_engine(cfg: TransformerConfig, *, families: int, lanes: int, prefix: int, suffix: int) -> Engine:
    """An engine that holds `families` prefixes of `prefix` tokens with `lanes` lanes of `suffix` new tokens each.

    `load` weights into it and `warm_up` before measuring.
    """
    total, block = families * lanes, 64 if prefix <= 64 else 128
    return Engine(
        cfg,
        CacheShape(families, total, prefix, suffix, block),
        seed=0,
        tile=min(lanes, 16),
        width=total,
        chunks=max(1, 512 // block),
        steps=64,
    )


def sample(
    engine: Engine, prefixes: Sequence[np.ndarray], *, lanes: int, new_tokens: int, step: int = 0
) -> list[list[LaneResult]]:
    """Samples `new_tokens` on each of `lanes` lanes of every prefix at temperature 1, without early stops.

    Returns:
        by prefix, its lanes' results.
    """

    def job(index: int, prefix: np.ndarray):
        path = (Stream.ROOT, index, 0, len(prefix), 0)
        family = tuple(Lane((*path, i), len(prefix), new_tokens, 1.0, NEVER) for i in range(lanes))
        return (yield [Sample(prefix, family, "root")])[0]

    return engine.run([job(i, p) for i, p in enumerate(prefixes)], step)
