"""Offers this machine's sandbox to others: python -m hdl_jax.domains.sandbox_server [--port=8799] [--workers=N].

The protocol is in sandbox_remote.py; `--config.domain.isolation=http://HOST:8799` uses it. It has no passwords: whoever
reaches the port can run programs, inside the sandbox. By default it listens on this machine only.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import http.server
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hdl_jax.domains.sandbox import LEVELS, Limits, Program, Sandbox, SandboxFailure, open_sandbox

LARGEST = 1 << 28  # bytes of a request
MOST_LIMITS = 16  # different ones that a server can be asked for


class Server(http.server.ThreadingHTTPServer):
    """A service on a port, until `shutdown`.

    Args:
        address: host and port; port 0: one that is free, see `server_address`.
        isolation, python: as in `open_sandbox`. workers: programs that run at the same time, whoever asks.

    Raises:
        ValueError: as `open_sandbox`. OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], isolation: str, workers: int, python: str = ""):
        self._open: Callable[[Limits], Sandbox] = functools.lru_cache(MOST_LIMITS)(
            lambda limits: open_sandbox(isolation, limits, workers, python)
        )
        self._workers = threading.BoundedSemaphore(workers)
        self._opening = threading.Lock()
        first = self._open(Limits(wall_s=10, budget_s=60, memory_mb=1024))
        self.offer = {"isolation": first.isolation, "description": first.description}
        super().__init__(address, _Handler)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            ValueError, TypeError, KeyError: it is none. SandboxFailure: as `Sandbox.run`.
        """
        program, limits = Program(**request["program"]), Limits(**request["limits"])
        inputs = request["inputs"]
        texts = (*dataclasses.astuple(program), *inputs)
        if not isinstance(inputs, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("program and inputs must be texts")
        with self._workers:
            with self._opening:
                sandbox = self._open(limits)
            return {"runs": [dataclasses.asdict(run) for run in sandbox.run(program, inputs)]}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer(200, self.server.offer)

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", ""))
            if self.path != "/run" or not 0 <= size <= LARGEST:
                raise ValueError(f"only POST /run, of at most {LARGEST} bytes")
            answer = self.server.run(json.loads(self.rfile.read(size)))
        except SandboxFailure as failure:
            self._answer(503, {"error": str(failure)})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._answer(400, {"error": repr(error)})
        else:
            self._answer(200, answer)

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hdl_jax.domains.sandbox_server", description="Runs untrusted programs for other machines."
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=int, default=8799)
    parser.add_argument("--isolation", default=LEVELS[0], choices=LEVELS, help=f"the least that will do ({LEVELS[0]})")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="programs at the same time")
    parser.add_argument("--python", default="", help="the interpreter of programs")
    args = parser.parse_args(argv)
    try:
        server = Server((args.host, args.port), args.isolation, args.workers, args.python)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"http://{args.host}:{server.server_address[1]} runs {args.workers} programs at a time: {server.offer}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
