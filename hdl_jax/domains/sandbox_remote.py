"""A sandbox on another machine, behind a small protocol, so that a site's own service can be used.

`POST ADDRESS/run` with a JSON object: `program` (fields of Program), `inputs` and `limits` (fields of Limits). The
answer is a JSON object: `runs`, a list of objects with the fields of Run, one an input. Anything else is a failure of
the sandbox. `GET ADDRESS/` describes it: `isolation` and `description`. sandbox_server.py is such a service.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, get_args

from hdl_jax.domains.sandbox_types import Limits, Outcome, Program, Run, SandboxFailure

GRACE_S = 120.0  # beyond a program's budget: a service has others to run, too
TRIES = 3


class RemoteSandbox:
    """Programs run where an address says.

    Args:
        workers: requests that are open at the same time; others wait.

    Raises:
        ValueError: nothing that speaks the protocol answers at the address.
    """

    def __init__(self, address: str, limits: Limits, workers: int):
        self.isolation = address.rstrip("/")
        self._limits = limits
        self._workers = threading.BoundedSemaphore(workers)
        self._closed = False
        try:
            said = self._get("/", None, 30.0)
            self.description = f"{self.isolation}: {said['description']}"
        except (SandboxFailure, KeyError, TypeError) as error:
            raise ValueError(f"domain.isolation={address!r}: {error}") from error

    def run(self, program: Program, inputs: Sequence[str]) -> list[Run]:
        """See `Sandbox.run`."""
        request = {
            "program": dataclasses.asdict(program),
            "inputs": list(inputs),
            "limits": dataclasses.asdict(self._limits),
        }
        with self._workers:
            if self._closed:
                raise SandboxFailure("the sandbox is closed")
            answer = self._get("/run", json.dumps(request).encode(), self._limits.budget_s + GRACE_S)
        try:
            runs = [Run(run["outcome"], run["output"], run["detail"]) for run in answer["runs"]]
        except (KeyError, TypeError) as error:
            raise SandboxFailure(f"{self.isolation}: its answer has no runs: {str(answer)[:200]}") from error
        if len(runs) != len(inputs) or not all(run.outcome in get_args(Outcome) for run in runs):
            raise SandboxFailure(f"{self.isolation}: {len(inputs)} tests were asked for: {str(answer)[:200]}")
        return runs

    def _get(self, path: str, body: bytes | None, limit_s: float) -> Any:
        """The JSON of an answer. Raises SandboxFailure."""
        request = urllib.request.Request(self.isolation + path, body, {"Content-Type": "application/json"})
        for tries_left in reversed(range(TRIES)):
            try:
                with urllib.request.urlopen(request, timeout=limit_s) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                raise SandboxFailure(
                    f"{self.isolation}: {error}: {error.read(500).decode(errors='replace')}"
                ) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not tries_left:
                    raise SandboxFailure(f"{self.isolation}: {error}") from error
        raise AssertionError

    def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
