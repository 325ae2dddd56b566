"""HDL on the embedded `errands` game with the embedded policy, on a CPU.

    python -m hdl_jax.train --config=configs/quickstart.py --workdir=runs/quickstart
    python -m hdl_jax.train --config=configs/quickstart.py:method=grpo --workdir=runs/grpo_0

About 6 minutes on 2 idle cores after the install (376 s measured), a quarter of it for the oracle. Held-out score from
0.39 to about 0.66 at step 30, whichever of the two methods; over three seeds HDL gains 0.279 +- 0.038 (95 %).
"""

from hdl_jax.config import get_run, parse_arg


def get_config(arg=None):
    return get_run(**parse_arg(arg))
