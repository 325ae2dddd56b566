"""The paper's code run: DeepCoder and rStar-Coder in, LiveCodeBench v5 and v6 out. Not run yet: it wants several large
accelerators, and beside them cores for the sandbox.

hf download Qwen/Qwen3-8B --local-dir models/Qwen3-8B
python -m hdl_jax.data.prepare --list             # the downloads of the three sets below
python -m hdl_jax.data.prepare deepcoder_rstar --source=downloads
python -m hdl_jax.data.prepare livecodebench_v5 --source=downloads/livecodebench
python -m hdl_jax.data.prepare livecodebench_v6 --source=downloads/livecodebench
python -m hdl_jax.data.overlap deepcoder_rstar livecodebench_v5 livecodebench_v6
python -m hdl_jax.filter --config=configs/code.py:model=qwen3-8b --out=data/kept/code-qwen3-8b
python -m hdl_jax.train --config=configs/code.py:model=qwen3-8b,method=hdl,branch=2x2 --workdir=runs/code_hdl \
    --config.domain.kept=data/kept/code-qwen3-8b/kept.json

The paper's filter keeps 4,063 problems. Its averages over the two sets, with Qwen3-8B: GRPO 55.42, DAPO 54.88, HDL
55.56. Every test of a problem is run, in training too; the budget of a program bounds what that takes.
"""

from hdl_jax.paper import BRANCHES, MODELS, single_turn

__all__ = ["BRANCHES", "MODELS", "get_config"]


def get_config(arg=None):
    config = single_turn(arg)
    config.domain.name = "code"
    config.domain.data, config.domain.train = "data", "deepcoder_rstar"
    config.domain.workers = 16
    # The paper does not give its limits. LiveCodeBench's own judge allows 6 seconds a test.
    config.domain.limit_s, config.domain.budget_s, config.domain.memory_mb = 6.0, 120.0, 4096

    config.rollout.max_prompt_tokens = 4096

    config.eval.sets = ("livecodebench_v5@8", "livecodebench_v6@8")
    return config
