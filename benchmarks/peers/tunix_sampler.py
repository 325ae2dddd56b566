"""google-tunix's sampler, in its own environment; see protocol.py for how it is asked."""

from __future__ import annotations

import functools
import time
from typing import Any

from tunix.generate.sampler import CacheConfig, Sampler

from benchmarks.peers import tunix_model
from benchmarks.peers.protocol import Channel, specification


def main() -> None:
    channel, spec = Channel(), specification()
    model, shape = tunix_model.load(spec), spec["shape"]

    @functools.cache
    def sampler(length: int) -> Sampler:
        # As large as the lanes get, and no larger: decoding attends to the whole cache.
        cache = CacheConfig(length, shape["n_layers"], shape["n_kv_heads"], shape["head_dim"])
        return Sampler(model, tunix_model.Ids(), cache)

    def sample(prompts: list[list[int]], new_tokens: int, seed: int) -> dict[str, Any]:
        length = len(prompts[0])
        texts = [" ".join(map(str, p)) for p in prompts]
        begun = time.perf_counter()
        out = sampler(length + new_tokens)(
            texts, max_generation_steps=new_tokens, max_prompt_length=length, temperature=1.0, top_p=1.0, seed=seed
        )
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "new_tokens": sum(len(t) for t in out.tokens)}

    how = {"cache": "prompt + new tokens, exactly", "top_p": 1.0, "top_k": None, "return_logprobs": False}
    channel.say({"versions": tunix_model.versions(), "settings": how, "rope_theta": tunix_model.ROPE_THETA})
    channel.serve({"sample": sample, "log_probs": functools.partial(tunix_model.log_probs, model)})


if __name__ == "__main__":
    main()
