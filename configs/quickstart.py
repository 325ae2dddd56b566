"""HDL on the embedded `errands` game with the embedded policy, on a CPU.

    python -m hdl_jax.train --config=configs/quickstart.py --workdir=runs/quickstart
    python -m hdl_jax.train --config=configs/quickstart.py:method=grpo,seed=1 --workdir=runs/grpo_1

TIME_AND_RESULT
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    return get_run(**parse_arg(arg))
