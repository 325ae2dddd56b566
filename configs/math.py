"""The paper's maths run: DeepMath-103K in, six benchmarks out. Not run yet: it wants several large accelerators.

hf download Qwen/Qwen3-8B --local-dir models/Qwen3-8B
hf download zwhe99/DeepMath-103K --repo-type dataset --local-dir downloads/deepmath
python -m hdl_jax.data.prepare deepmath --source=downloads/deepmath/data     # and the six sets below: docs/data.md
python -m hdl_jax.filter --config=configs/math.py:model=qwen3-8b --out=data/kept/qwen3-8b
python -m hdl_jax.train --config=configs/math.py:model=qwen3-8b,method=hdl,branch=2x2 --workdir=runs/math_hdl \
    --config.domain.kept=data/kept/qwen3-8b/kept.json

Add --dry_run to see what a device would have to hold; with --config.policy.source=qwen3-8b that needs no weights. The
paper's averages over the six sets, with Qwen3-8B: GRPO 53.17, DAPO 53.47, HDL 54.16, at 0.39 of GRPO's tokens a step.
"""

from hdl_jax.paper import BRANCHES, MODELS, single_turn

__all__ = ["BRANCHES", "MODELS", "get_config"]


def get_config(arg=None):
    config = single_turn(arg)
    config.domain.name = "math"
    config.domain.data, config.domain.train = "data", "deepmath"
    config.domain.workers = 8

    config.rollout.max_prompt_tokens = 2048

    config.eval.sets = ("aime24@16", "aime25@16", "aime26@16", "hmmt26@16", "minerva@8", "olympiadbench@4")
    return config
