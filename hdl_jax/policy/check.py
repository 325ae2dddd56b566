"""Is a checkpoint the same policy here as in transformers? python -m hdl_jax.policy.check SOURCE

SOURCE is a Hugging Face folder, FILE.gguf or package:NAME. Both libraries run it in float32 on fixed texts, one after
the other; without transformers there is only what can be checked here. A figure a line, as JSON:

    check/max_logit_difference          whole rows against theirs
    check/max_cached_logit_difference   prefill and decode, by the engine's programs, against whole rows here and theirs
    check/greedy_equal                  the likeliest token of each step, by the engine, against their cached decode
    check/roundtrip_equal               every number after reading, writing (beside the system's temporary files) and
                                        reading again
    check/chat_equal                    conversations as text and ids

The exit status is 1 where something differs, logits by more than float32 accounts for: 1e-4, or RELATIVE of the largest
logit where that is more (40 is common in published models).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gc
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.check_theirs import CONVERSATIONS, TEXTS, Theirs, run_theirs
from hdl_jax.policy.folder import save_folder, weight_files
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.policy.source import Policy, open_policy
from hdl_jax.policy.template_chat import TemplateChat
from hdl_jax.policy.tensors import places
from hdl_jax.sample import engine_for, sample, tell
from hdl_jax.sampling import cache as kv
from hdl_jax.sampling.decode import decode_step
from hdl_jax.sampling.prefill import prefill

ABSOLUTE, RELATIVE = 1e-4, 2e-5
# Tokens of each text that are compared, a cache block, and tokens that greedy decoding adds.
LENGTH, BLOCK, NEW = 96, 32, 32


# ---- ours -----------------------------------------------------------------------------------------------------------


def whole_rows(params: tr.Params, cfg: TransformerConfig, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """float32 [T, V] of each row, in one pass."""
    padded = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    run = jax.jit(lambda params, tokens: tr.logits(params, cfg, tr.forward(params, cfg, tokens)))
    return [z[: len(row)] for z, row in zip(np.asarray(run(params, padded)), rows, strict=True)]


def cached_rows(params: tr.Params, cfg: TransformerConfig, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """float32 [T - T // 2, V] of each row's second half: the row is prefilled, left at its middle and decoded on."""
    n, longest = len(rows), max(map(len, rows))
    blocks = -(-longest // BLOCK)
    cache = kv.empty(cfg, kv.CacheShape(n, n, blocks * BLOCK, longest, BLOCK))
    tokens, fed = np.zeros((n, blocks * BLOCK), np.int32), np.zeros((n, longest), np.int32)
    forks = np.array([len(row) // 2 for row in rows], np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)], fed[i, : len(row) - forks[i]] = row, row[forks[i] :]
    row_of, block_of = (x.reshape(-1).astype(np.int32) for x in np.mgrid[:n, :blocks])
    params = jax.jit(tr.sampling_layout, static_argnums=1)(params, cfg)
    chunks = tokens.reshape(-1, BLOCK)
    cache, _ = prefill(params, cache, row_of, block_of, chunks, chunks, np.float32(1), cfg=cfg, score=False)
    step = jax.jit(functools.partial(decode_step, cfg=cfg), donate_argnames="cache")
    lane, out = np.arange(n, dtype=np.int32), []
    for i in range(longest - longest // 2):
        z, cache = step(
            params, cache=cache, tokens=fed[:, i], row=lane, slot=lane, fork=forks, length=np.full(n, i, np.int32)
        )
        out.append(np.asarray(z).T)
    logits = np.stack(out, axis=1)
    return [logits[i, : len(row) - forks[i]] for i, row in enumerate(rows)]


def greedy_tokens(params: tr.Params, cfg: TransformerConfig, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The tokens that the engine adds to each row, whatever ends a turn."""
    engine = engine_for(cfg, families=len(rows), lanes=1, prefix=max(map(len, rows)), suffix=NEW)
    engine.load(params)
    prefixes = [np.asarray(row, np.int32) for row in rows]
    results = sample(engine, prefixes, lanes=1, budget=NEW, temperature=0.0, stop=(-1,))
    return [lane.tokens.tolist() for (lane,) in results]


def roundtrip_equal(policy: Policy, params: tr.Params, folder: Path | None) -> bool:
    """Whether a folder written from these parameters has the numbers of the folder they were read from, bit for bit.

    Of a policy that was no folder (None): whether it is read back as it was.
    """
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as files:
        stored = _tensors(folder, files) if folder is not None else {}
        # What is neither of the two dtypes that are written, or of several, comes back as float32.
        kinds = {tensor.get_dtype() for tensor in stored.values()}
        dtype = "bfloat16" if kinds == {"BF16"} else "float32"
        out = Path(temporary) / "written"
        save_folder(out, params, policy.shape, files=policy.files(), dtype=dtype)
        if folder is None:
            again = open_policy(str(out)).load(None)
            return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), params, again)))
        written = _tensors(out, files)
        return all(
            np.array_equal(stored[name][...].astype(dtype).view(np.uint8), written[name][...].view(np.uint8))
            for name in places(policy.shape)
        )


def _tensors(folder: Path, files: contextlib.ExitStack) -> dict[str, Any]:
    opened = [files.enter_context(safe_open(path, framework="numpy")) for path in weight_files(folder)]
    return {name: file.get_slice(name) for file in opened for name in file.keys()}


# ---- figures --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of output. value: None where it was not measured. passed: whether it is as it should be."""

    name: str
    value: float | bool | None
    passed: bool
    more: dict[str, Any]


def difference(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """The largest difference between two lists of arrays; NaN where there is one."""
    return float(np.max([np.abs(x - y).max() for x, y in zip(a, b, strict=True)]))


def first_difference(ours: Sequence[int], theirs: Sequence[int], logits: np.ndarray, tolerance: float) -> int | None:
    """Where two greedy answers part, if they do; not where the two best logits are too close to tell apart."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b:
            return i if logits[i, b] - logits[i, a] > 2 * tolerance else None
    return None


def compare_chat(chat: TemplateChat, theirs: Theirs) -> list[int]:
    """The conversations, by number, that differ as text or as ids."""
    differing = []
    for i, (messages, wanted) in enumerate(zip(CONVERSATIONS, theirs.rendered, strict=True)):
        try:
            text = chat.template.render(messages, add_generation_prompt=True, thinking=False)
        except ValueError:
            found = None
        else:
            found = (text, chat.tokenizer.encode_rendered(text))
        prompt = len(messages) > 1 or found is None or chat.prompt(messages[0]["content"]) == found[1]
        if found != wanted or not prompt:
            differing.append(i)
    return differing


def check(name: str) -> Iterator[Figure]:
    """Runs all checks. Raises ValueError, OSError or ImportError where a library cannot load the checkpoint."""
    policy = open_policy(name)
    chat = policy.chat
    if not isinstance(chat, TemplateChat):
        raise ValueError(f"{name} is a policy of this project's own, which transformers knows nothing of")
    rows = [chat.tokenizer.encode(text)[:LENGTH] for text in TEXTS]
    theirs, reason = None, ""
    tell("running it in transformers ...")
    try:
        theirs = run_theirs(name, rows, NEW)
    except ImportError as error:
        reason = f"not compared with transformers: {' '.join(str(error).split())}"
    gc.collect()  # their weights, before ours come

    tell("running it here ...")
    params = policy.load(None)
    # Accelerators multiply in fewer bits unless they are told not to.
    with jax.default_matmul_precision("highest"):
        whole = whole_rows(params, policy.shape, rows)
        cached = cached_rows(params, policy.shape, rows)
        greedy = greedy_tokens(params, policy.shape, rows)
    tolerance = max(ABSOLUTE, RELATIVE * max(float(np.abs(z).max()) for z in whole))

    def second_halves(logits: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [z[len(z) // 2 :] for z in logits]

    def apart(measured: str, value: float, against: str) -> Figure:
        # A NaN is within nothing.
        shown = {"tolerance": float(f"{tolerance:.3g}"), "against": against}
        return Figure(measured, float(f"{value:.3g}"), value <= tolerance, shown)

    by_cache = difference(cached, second_halves(whole))
    if theirs is None:
        yield Figure("max_logit_difference", None, True, {"reason": reason})
        yield apart("max_cached_logit_difference", by_cache, "whole rows")
        yield Figure("greedy_equal", None, True, {"reason": reason})
    else:
        yield apart("max_logit_difference", difference(whole, theirs.logits), "transformers")
        value = float(np.max([by_cache, difference(cached, second_halves(theirs.logits))]))
        yield apart("max_cached_logit_difference", value, "whole rows and transformers")
        answers = zip(greedy, theirs.greedy, theirs.greedy_logits, strict=True)
        parted = [first_difference(*answer, tolerance) for answer in answers]
        equal = all(i is None for i in parted)
        yield Figure("greedy_equal", equal, equal, {"tokens": NEW * len(rows)} | ({} if equal else {"parted": parted}))
    equal = roundtrip_equal(policy, params, Path(name) if Path(name).is_dir() else None)
    yield Figure("roundtrip_equal", equal, equal, {})
    if theirs is None:
        yield Figure("chat_equal", None, True, {"reason": reason})
    else:
        differing = compare_chat(chat, theirs)
        more: dict[str, Any] = {"conversations": len(CONVERSATIONS)} | ({"differing": differing} if differing else {})
        yield Figure("chat_equal", not differing, not differing, more)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hdl_jax.policy.check", description="Is a checkpoint the same policy here as in transformers?"
    )
    parser.add_argument("source", help="a Hugging Face folder, FILE.gguf or package:NAME")
    args = parser.parse_args(argv)
    passed = True
    try:
        for figure in check(args.source):
            # JSON has no NaN.
            odd = isinstance(figure.value, float) and not math.isfinite(figure.value)
            value = str(figure.value) if odd else figure.value
            print(json.dumps({"name": f"check/{figure.name}", "value": value, **figure.more}), flush=True)
            passed &= figure.passed
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
