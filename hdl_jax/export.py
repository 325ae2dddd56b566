"""A run's policy as a Hugging Face folder: python -m hdl_jax.export WORKDIR OUT [--step=N|best|latest] [--dtype=...].

The weights are the checkpoint's; what lies beside them (tokenizer, chat template, generation config) is what lay beside
the weights that the run began with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.folder import DTYPES, save_folder
from hdl_jax.trained import trained_policy


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.export", description="Writes a run's policy as a folder.")
    parser.add_argument("workdir", type=Path, help="the run")
    parser.add_argument("out", type=Path, help="the folder to write: new, or empty")
    parser.add_argument("--step", default="best", help="a step that has a checkpoint, `best` by its score, or `latest`")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the weights written")
    args = parser.parse_args(argv)
    try:
        policy = trained_policy(args.workdir, args.step)
        params = policy.load(None)
        save_folder(args.out, params, policy.shape, files=policy.files(), dtype=args.dtype)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    count, size = tr.parameter_count(params), sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {policy.name}, {count:,} parameters in {args.dtype}, {size / 1e6:,.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
