"""This machine's own ceilings: memory reads and large matrix products; and, on a known chip, their published peaks.

    python -m benchmarks.ceilings

Figures: ceilings/read_bandwidth, ceilings/matmul_float32, ceilings/matmul_bfloat16; on a chip of PEAKS their shares of
the published peaks. Each is the fastest of its repeats, as a ceiling should be.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig


@dataclasses.dataclass(frozen=True)
class Peak:
    """A chip's published figures: dense bfloat16 TFLOP/s, memory GB/s, and who says so."""

    tflops: float
    read_gbs: float
    source: str


# By the start of jax's device_kind, longer names first where one begins another.
PEAKS = {
    "NVIDIA H100": Peak(989, 3350, "NVIDIA H100 datasheet, SXM, without sparsity"),
    "NVIDIA H200": Peak(989, 4800, "NVIDIA H200 datasheet, SXM, without sparsity"),
    "NVIDIA GB200": Peak(2500, 8000, "NVIDIA GB200 NVL72 datasheet, one GPU, without sparsity"),
    "TPU v5 lite": Peak(197, 819, "Google Cloud documentation, TPU v5e"),
    "TPU v5": Peak(459, 2765, "Google Cloud documentation, TPU v5p"),
    "TPU v6 lite": Peak(918, 1638, "Google Cloud documentation, TPU v6e"),
}


def published(device_kind: str) -> Peak | None:
    """The published peaks of a chip, None for one that PEAKS does not know."""
    return next((peak for kind, peak in PEAKS.items() if device_kind.startswith(kind)), None)


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What was measured: memory reads in bytes/s, large products in float32 and in bfloat16 in operations/s."""

    read: float
    float32: float
    bfloat16: float

    def matmul(self, dtype: str) -> float:
        return self.bfloat16 if dtype == "bfloat16" else self.float32


# ---- what a decode step costs at best -------------------------------------------------------------------------------


def decode_step_bytes(cfg: TransformerConfig, lanes: int, context: int) -> float:
    """Bytes one decode step has to read: every weight once, every lane's cache of `context` tokens.

    A tied embedding table is read as the head; an untied one is not read (a few rows of it are, which do not count).
    """
    size = jnp.dtype(cfg.dtype).itemsize
    cache = 2 * cfg.n_layers * cfg.n_kv_heads * cfg.head_dim * lanes * context
    return size * (_matmul_weights(cfg) + cache)


def decode_step_operations(cfg: TransformerConfig, lanes: int, context: int) -> float:
    """Floating-point operations of one decode step: two a weight and lane, four a cached token, head width and lane."""
    attention = 4 * cfg.n_layers * cfg.n_heads * cfg.head_dim * context
    return lanes * (2 * _matmul_weights(cfg) + attention)


def decode_ceiling_seconds(cfg: TransformerConfig, ceilings: Ceilings, lanes: int, contexts: Sequence[int]) -> float:
    """The least time that decode steps at these context lengths can take, each bound by its reads or its products."""
    return sum(
        max(
            decode_step_bytes(cfg, lanes, n) / ceilings.read,
            decode_step_operations(cfg, lanes, n) / ceilings.matmul(cfg.dtype),
        )
        for n in contexts
    )


def _matmul_weights(cfg: TransformerConfig) -> int:
    params = tr.abstract_params(cfg)
    return tr.parameter_count(params) - (0 if cfg.tie_embeddings else cfg.vocab_size * cfg.d_model)


# ---- measuring ------------------------------------------------------------------------------------------------------


def measure(*, repeats: int, tiny: bool = False) -> Ceilings:
    """Measures the default device."""
    read = read_bandwidth(1 << (22 if tiny else 30), repeats)
    width = 128 if tiny else (4096 if jax.default_backend() == "cpu" else 8192)
    return Ceilings(read, matmul_rate(width, "float32", repeats), matmul_rate(width, "bfloat16", repeats))


def read_bandwidth(size: int, repeats: int) -> float:
    """Bytes/s of reading `size` bytes once, with all cores; far more than any cache holds."""
    run = _read_on_cores(size) if jax.default_backend() == "cpu" else _read_on_device(size)
    return size / min(common.interleaved({"read": run}, repeats=repeats)["read"].seconds)


def _read_on_cores(size: int) -> Callable[[], object]:
    # The fastest of what was tried: NumPy's vectorised sum, a thread a core (matrix-vector products of NumPy and of XLA
    # reach 75 to 90 % of it).
    data = np.ones(size // 4, np.float32)
    cores = common.cores()
    parts = np.array_split(data, cores)
    pool = concurrent.futures.ThreadPoolExecutor(cores)
    return lambda: list(pool.map(np.sum, parts))


def _read_on_device(size: int) -> Callable[[], object]:
    data, total = jnp.ones(size // 4, jnp.float32), jax.jit(jnp.sum)
    return lambda: total(data)


def matmul_rate(width: int, dtype: str, repeats: int) -> float:
    """Operations/s of a square product at the precision that jax takes by default for this dtype on this device."""
    key_a, key_b = jax.random.split(jax.random.key(0))
    a, b = (jax.random.normal(k, (width, width), dtype) for k in (key_a, key_b))
    product = jax.jit(jnp.matmul)
    return 2 * width**3 / min(common.interleaved({"matmul": lambda: product(a, b)}, repeats=repeats)["matmul"].seconds)


def report(ceilings: Ceilings, repeats: int) -> None:
    """The figures of what was measured."""
    peak = published(jax.devices()[0].device_kind)
    for name, value, unit, best in (
        ("read_bandwidth", ceilings.read / 1e9, "GB/s", peak and peak.read_gbs),
        ("matmul_float32", ceilings.float32 / 1e9, "GFLOP/s", None),
        ("matmul_bfloat16", ceilings.bfloat16 / 1e9, "GFLOP/s", peak and peak.tflops * 1e3),
    ):
        common.figure(f"ceilings/{name}", value, unit, repeats=repeats, of="the fastest")
        if peak and best:
            common.figure(f"ceilings/{name}_share", value / best, "of the published peak", source=peak.source)


def main(argv: Sequence[str] | None = None) -> None:
    args = common.arguments(__doc__, repeats=5).parse_args(argv)
    common.start("ceilings")
    report(measure(repeats=args.repeats, tiny=args.tiny), args.repeats)
    common.finish()


if __name__ == "__main__":
    main()
