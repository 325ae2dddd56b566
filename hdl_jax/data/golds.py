"""Whether the reference answers of a set can be read, asked before anything is trained or judged with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tqdm import tqdm

from hdl_jax.domains.math_compare import Reference
from hdl_jax.workers import WorkerFailure, WorkerPool

READER = "hdl_jax.domains.math_compare:unreadable"
LIMIT_S = 10.0  # of work for one reference
_PLAIN = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")


def unreadable_golds(references: Sequence[Reference], workers: int) -> dict[int, str]:
    """Why the references that cannot be read cannot, by their place in the sequence.

    Each different reference is read once, in a worker that is killed at LIMIT_S: an answer that hangs the parser is as
    unreadable as one that it refuses. Plain numbers are not asked about.
    """
    asked = list(dict.fromkeys(reference for reference in references if not _is_plain(reference)))
    if not asked:
        return {}
    with WorkerPool(READER, workers=workers, limit_s=LIMIT_S) as pool:

        def why(reference: Reference) -> str:
            try:
                return pool(reference)
            except WorkerFailure as failure:
                return f"reading it failed: {str(failure).strip().splitlines()[-1]}"

        threads = ThreadPoolExecutor(workers)
        try:
            bar = tqdm(threads.map(why, asked), desc="reading answers", unit="answer", total=len(asked))
            reasons = dict(zip(asked, bar, strict=True))
        finally:
            threads.shutdown(cancel_futures=True)  # or an interrupt would wait for all of them
    found = {place: reasons.get(reference, "") for place, reference in enumerate(references)}
    return {place: reason for place, reason in found.items() if reason}


def _is_plain(reference: Reference) -> bool:
    return len(reference.answers) == 1 and _PLAIN.fullmatch(reference.answers[0]) is not None
