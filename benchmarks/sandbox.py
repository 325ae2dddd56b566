"""The sandbox under fire, and how fast it is. python -m benchmarks.sandbox [--isolation=bubblewrap]

* `sandbox/right_outcomes`: the share of the hostile suite (hostile.py, more than 500 programs) that is judged as it
  should be, goal 100 %. Others are named on stderr.
* `sandbox/left_behind`: processes, files, mounts, System V objects and connections to a listener of this machine that
  were not there before, goal 0.
* `sandbox/programs_per_s`: small programs of 20 tests each, on two workers; `sandbox/startup_ms`: a program with one
  test; `sandbox/test_ms`: each test more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from benchmarks import common
from benchmarks.hostile import GOOD, Case, cases
from hdl_jax.domains.code_judge import judge
from hdl_jax.domains.sandbox import LEVELS, Limits, Program, Sandbox, SandboxFailure, open_sandbox
from hdl_jax.domains.sandbox_levels import NOBODY

LIMITS = Limits(wall_s=0.8, budget_s=10, memory_mb=256, output_bytes=1 << 20)
PROGRAMS, TESTS = 40, 20  # of the rate


class Machine:
    """What is on the machine that a program could leave there, and a listener that none should reach.

    Args:
        signs: what the command line of a process has that is looked for; the machine has others that come and go.
    """

    def __init__(self, signs: Sequence[str] = ("sandbox", "bwrap", "sleep ", "python3 -s -B", "setpriv")) -> None:
        self._signs = signs
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections = 0
        threading.Thread(target=self._listen, daemon=True).start()
        self._before = self._present()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._listener.accept()[0].close()
                self._connections += 1

    def _present(self) -> set[str]:
        """Processes by id and command, scratch folders, files in shared places, mounts, System V objects."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
                    if any(sign in line for sign in self._signs):
                        found.add(f"process {entry.name} {line}")
        for folder in (Path(tempfile.gettempdir()), Path("/dev/shm"), Path("/")):
            found |= {f"file {path}" for path in folder.iterdir()}
        user = str(NOBODY if os.geteuid() == 0 else os.geteuid())  # whom programs run as
        for kind, owner in (("shm", 7), ("sem", 4), ("msg", 7)):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
                found |= {f"{kind} {line}" for line in lines if line.split()[owner] == user}
        found |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        return found

    def left_behind(self, patience_s: float = 5.0) -> list[str]:
        """What is there now and was not before; those that are being ended are given a moment."""
        end = time.monotonic() + patience_s
        while (new := self._present() - self._before) and time.monotonic() < end:
            time.sleep(0.1)
        return sorted(new) + ["connection"] * self._connections

    def close(self) -> None:
        self._listener.close()


def outcome(sandbox: Sandbox, case: Case) -> str:
    """What the judge says of a case."""
    try:
        judged = judge(sandbox, case.row, f"```python\n{case.source}\n```")
        return "unparsed" if judged.unparsed else judged.outcomes[0]
    except SandboxFailure as failure:
        return f"sandbox failed: {failure}"


def wrong_outcomes(sandbox: Sandbox, suite: Sequence[Case], workers: int = 2) -> list[str]:
    """Runs a suite; a line for each case that is not judged as it should be."""
    with ThreadPoolExecutor(workers) as pool:
        said = tqdm(pool.map(lambda case: outcome(sandbox, case), suite), total=len(suite), unit="program")
        pairs = list(zip(suite, said, strict=True))
    return [
        f"{case.name}: {got}, not {' or '.join(sorted(case.outcomes))}"
        for case, got in pairs
        if got not in case.outcomes
    ]


def within(suite: Sequence[Case], isolation: str) -> list[Case]:
    """Those whose outcomes are right at a level of isolation."""
    return [case for case in suite if LEVELS.index(case.needs) >= LEVELS.index(isolation)]


def speed(sandbox: Sandbox, repeats: int) -> Iterator[tuple[str, float, str]]:
    """Programs a second, milliseconds of a program with one test, and of one more test; medians."""
    program, inputs = Program(GOOD), ["2\n3 4\n"] * TESTS

    def seconds(function: Callable[[], object]) -> float:
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin

    def several() -> None:
        with ThreadPoolExecutor(2) as pool:
            for runs in pool.map(lambda _: sandbox.run(program, inputs), range(PROGRAMS)):
                assert all(run.output == "7\n" for run in runs)

    several()
    yield "programs_per_s", PROGRAMS / statistics.median(seconds(several) for _ in range(repeats)), "programs/s"
    one = statistics.median(seconds(lambda: sandbox.run(program, inputs[:1])) for _ in range(4 * repeats))
    yield "startup_ms", 1e3 * one, "ms"
    more = statistics.median(seconds(lambda: sandbox.run(program, inputs * 5)) for _ in range(repeats))
    yield "test_ms", 1e3 * (more - one) / (5 * TESTS - 1), "ms"


def main(argv: Sequence[str]) -> int:
    parser = common.arguments(__doc__, repeats=5)
    parser.add_argument(
        "--isolation", default=LEVELS[0], choices=LEVELS[:2], help="the least that will do (%(default)s)"
    )
    parser.add_argument("--families", default="", help="of the hostile suite, with commas between (all of them)")
    args = parser.parse_args(argv)
    wanted = set(filter(None, ("good,text" if args.tiny else args.families).split(",")))
    machine = Machine()
    try:
        sandbox = open_sandbox("rlimits" if args.tiny else args.isolation, LIMITS, workers=2)
    except ValueError as error:
        sys.exit(f"error: {error}")
    common.start("sandbox")
    print(f"programs run in {sandbox.description}", file=sys.stderr)
    suite = [case for case in within(cases(machine.port), sandbox.isolation) if not wanted or case.family in wanted]
    wrong = wrong_outcomes(sandbox, suite)
    for line in wrong:
        print(line, file=sys.stderr)
    right = 100 * (1 - len(wrong) / len(suite))
    common.figure("sandbox/right_outcomes", right, "%", programs=len(suite), isolation=sandbox.isolation)
    for name, value, unit in speed(sandbox, args.repeats):
        common.figure(f"sandbox/{name}", value, unit, isolation=sandbox.isolation, repeats=args.repeats)
    sandbox.close()
    left = machine.left_behind()
    for line in left:
        print(line, file=sys.stderr)
    common.figure("sandbox/left_behind", len(left), "things", isolation=sandbox.isolation)
    machine.close()
    common.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
