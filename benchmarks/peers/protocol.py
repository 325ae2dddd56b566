"""How a benchmark talks to another process: a JSON line in, a JSON line out. Runs in the peers' environments too.

The other side waits, asleep, until it is asked; so several can be measured in turn, each alone on the machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class Channel:
    """This process's line to whoever started it. Made before anything that prints: stdout is stderr from then on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, message: Answer) -> None:
        print(json.dumps(message), file=self._out, flush=True)

    def hear(self) -> dict[str, Any] | None:
        """The next request, {"do": name, ...arguments}; None when there will be no more."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def serve(self, handlers: Mapping[str, Callable[..., Answer]]) -> None:
        """Answers every request with what handlers[do](**arguments) returns."""
        while (request := self.hear()) is not None:
            self.say(handlers[request.pop("do")](**request))


def specification() -> dict[str, Any]:
    """What the process was told when it was started."""
    return json.loads(sys.argv[1])


def peak_rss_bytes() -> int:
    """The most memory this process has had resident since it began to run its own program."""
    # Not getrusage where /proc is there: what a child inherits of that begins with its parent's peak.
    status = Path("/proc/self/status")
    if status.is_file():
        return next(int(s.split()[1]) for s in status.read_text().splitlines() if s.startswith("VmHWM")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
