"""Hugging Face `generate`, in its own environment; see protocol.py for how it is asked."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers

from benchmarks.peers.protocol import Channel, specification


def main() -> None:
    channel, spec = Channel(), specification()
    torch.set_num_threads(spec["threads"])
    model = transformers.LlamaForCausalLM.from_pretrained(
        spec["weights"], dtype=torch.float32, attn_implementation="sdpa"
    ).eval()

    def sample(prompts: list[list[int]], new_tokens: int, seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        # The whole vocabulary, and no token that ends a row.
        chosen = transformers.GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new_tokens, use_cache=True,
            cache_implementation="static", pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            begun = time.perf_counter()
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=chosen)
            seconds = time.perf_counter() - begun
        return {"seconds": seconds, "new_tokens": (out.shape[1] - ids.shape[1]) * out.shape[0]}

    def log_probs(tokens: list[int]) -> dict[str, Any]:
        with torch.inference_mode():
            z = model(torch.tensor([tokens])).logits[0, :-1].double().log_softmax(-1)
        return {"log_probs": z[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].tolist()}

    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    how = {"threads": torch.get_num_threads(), "attention": "sdpa", "cache": "static", "inference_mode": True}
    channel.say({"versions": versions, "settings": how})
    channel.serve({"sample": sample, "log_probs": log_probs})


if __name__ == "__main__":
    main()
