"""A first run on one GPU: Qwen3-0.6B on GSM8K with HDL. Checked by --dry_run and its tests; not run yet.

pip install -e '.[cuda,hf,math]'
hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B
hf download openai/gsm8k --repo-type dataset --local-dir downloads/gsm8k
python -m hdl_jax.data.prepare gsm8k_train --source=downloads/gsm8k/main/train-00000-of-00001.parquet
python -m hdl_jax.data.prepare gsm8k --source=downloads/gsm8k/main/test-00000-of-00001.parquet
python -m hdl_jax.train --config=configs/gsm8k.py --workdir=runs/gsm8k
python -m hdl_jax.train --config=configs/gsm8k.py:method=grpo --workdir=runs/gsm8k_grpo
python -m hdl_jax.compare runs/gsm8k runs/gsm8k_grpo

Non-thinking, answers of up to 1,024 tokens, 32 problems x 16 trajectories a step. --dry_run counts 22 GiB beside
activations, half of it cache: for a card of 40 GB; fewer engine.lanes and engine.rows for a smaller one.
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    config = get_run(**parse_arg(arg))
    config.total_steps = 100

    config.domain.name = "math"
    config.domain.data, config.domain.train = "data", "gsm8k_train"

    config.policy.source = "models/Qwen3-0.6B"
    config.policy.dtype = "bfloat16"

    config.rollout.problems_per_step = 32
    config.rollout.max_prompt_tokens = 512
    config.rollout.max_response_tokens = config.rollout.max_action_tokens = 1024
    config.branch.min_spacing = 16
    config.reflection.max_tokens = 192

    config.engine.rows, config.engine.lanes, config.engine.width = 16, 64, 64
    config.engine.context_tokens = 2304
    config.engine.block, config.engine.tile, config.engine.chunks, config.engine.steps = 128, 4, 32, 32

    config.learn.learning_rate = 1e-6
    config.learn.tokens_per_microbatch = 8192

    config.eval.every = 20
    config.eval.sets = ("gsm8k@1",)
    config.eval.problems = 0  # all 1,319
    config.oracle.problems = 0
    return config
