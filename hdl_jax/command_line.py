"""What the mains with a config on the command line share: some flags, and refusals without a traceback."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from absl import app, flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file("config", None, "The config file.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "The folder of a run.")
OUT = flags.DEFINE_string("out", None, "Where results go.")


class Refused(ValueError):
    """Work that cannot start as it is asked for; the message says what to change."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Tells a refusal, which needs no traceback, from an error in mid-run, which does."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise Refused(str(error)) from error


def parse_flags(argv: list[str]) -> list[str]:
    """Flags as absl parses them; what ml_collections refuses in a config is told without a traceback."""
    try:
        return app.parse_flags_with_usage(argv)
    except (AttributeError, KeyError) as error:
        sys.exit(f"error: the config has no field {str(error).strip(chr(34))}: hdl_jax/config.py has them all")
    except (TypeError, ValueError, OSError) as error:
        sys.exit(f"error: {error}")
