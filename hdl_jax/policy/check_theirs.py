"""What transformers makes of a checkpoint, for policy.check: fixed texts and conversations, run and rendered."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdl_jax.policy.source import PACKAGE, packaged

TEXTS = (
    "The harbour was quiet in the early morning. A single boat came in with the tide, and the two people on board "
    "tied it to the pier, looked at the sky for a while, and walked up to the village without a word.",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / "
    "len(values)\n\n\nprint(mean([3, 1, 4, 1, 5, 9, 2, 6]))\n",
    "Q: A box holds 24 pencils. How many pencils are in 17 boxes?\nA: 24 * 17 = 408, so there are 408 pencils.\n"
    "Q: A train needs 45 minutes for 60 km. How fast is it?\nA:",
    "Le caf\u00e9 co\u00fbte 2,50 \u20ac. \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041c\u043e\u0441\u043a\u0432\u0430, "
    "\u03b1 + \u03b2 = \u03b3, \U0001f600 na\u00efve fa\u00e7ade",
)


def turns(*contents: str, system: str = "") -> list[dict[str, str]]:
    """A conversation, the user first."""
    said = [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
    return [*([{"role": "system", "content": system}] if system else []), *said]


CONVERSATIONS = (
    turns("What is 17 + 25?"),
    turns("What is 17 + 25?", system="You are a careful clerk. Answer in one word."),
    turns("Name a river.", "The Danube.", "And a city on it?"),
    turns(*TEXTS[:3]),
    turns(
        TEXTS[3], "\u00a1Hola!  \n\n", " a line\n\n    and another\t", system="\u041e\u0442\u0432\u0435\u0442\u044c."
    ),
)


@dataclasses.dataclass(frozen=True)
class Theirs:
    """What transformers makes of a checkpoint.

    Attributes:
        logits: of each text, float32 [T, V].
        greedy: the tokens that follow each text; greedy_logits: those they were taken from, float32 [new, V].
        rendered: each conversation as text and ids, None where the template refuses it.
    """

    logits: list[np.ndarray]
    greedy: list[list[int]]
    greedy_logits: list[np.ndarray]
    rendered: list[tuple[str, list[int]] | None]


def location(name: str) -> tuple[str, dict[str, Any]]:
    """What their `from_pretrained` wants: a folder, and the GGUF file in it if it is one; never the network."""
    if name.startswith(PACKAGE) or name.endswith(".gguf"):
        path = packaged(name.removeprefix(PACKAGE)) if name.startswith(PACKAGE) else Path(name)
        return str(path.parent), {"gguf_file": path.name, "local_files_only": True}
    return name, {"local_files_only": True}


def run_theirs(name: str, rows: Sequence[Sequence[int]], new: int) -> Theirs:
    """Loads and runs a checkpoint in transformers, in float32.

    Args:
        rows: ids to run. new: tokens to add to each greedily.

    Raises:
        ImportError: transformers, or what it needs for this checkpoint, is not installed.
        ValueError, OSError: it cannot load the checkpoint.
    """
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, options = location(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    rendered = [_rendered(tokenizer, messages) for messages in CONVERSATIONS]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    logits, greedy, greedy_logits = [], [], []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the cache's next name
        for row in rows:
            tokens = torch.tensor([list(row)])
            logits.append(model(tokens, use_cache=False).logits[0].numpy())
            # By hand: `generate` heeds whatever the checkpoint's generation_config.json says of repetition and ends.
            cached, steps = None, []
            for _ in range(new):
                out = model(tokens, past_key_values=cached, use_cache=True)
                steps.append(out.logits[0, -1].numpy())
                cached, tokens = out.past_key_values, torch.tensor([[int(steps[-1].argmax())]])
            greedy_logits.append(np.stack(steps))
            greedy.append(greedy_logits[-1].argmax(-1).tolist())
    return Theirs(logits, greedy, greedy_logits, rendered)


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> tuple[str, list[int]] | None:
    try:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
    except Exception:  # of whatever kind the template's refusal is
        return None
    return text, tokenizer(text, add_special_tokens=False).input_ids
