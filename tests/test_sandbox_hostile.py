"""A fresh sample of the hostile suite at every level that isolates; all of it with HOSTILE=all."""

from __future__ import annotations

import dataclasses
import os
import random
import secrets
import sys
import time
from pathlib import Path

import pytest
from sandbox_fixtures import in_turn, open_level  # noqa: F401 - a fixture of every test here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are run on Linux only")

from benchmarks.hostile import GOOD, MARK, cases  # noqa: E402
from benchmarks.sandbox import LIMITS, Machine, within, wrong_outcomes  # noqa: E402
from hdl_jax.domains.sandbox import Program  # noqa: E402
from hdl_jax.domains.sandbox_levels import Unavailable  # noqa: E402

SAMPLED = 4  # of each family
PATIENT = dataclasses.replace(LIMITS, wall_s=20.0, budget_s=20.0)  # other tests run beside these


def test_the_suite_has_hundreds_of_programs_of_every_kind():
    suite = cases(port=1)
    assert len(suite) >= 500
    families = {case.family for case in suite}
    assert families >= {"loop", "memory", "output", "bomb", "signal", "forgery", "file", "escape", "network", "daemon"}
    # What is right for a hostile program is right for no good one, but where it is to be kept in.
    gains = {case.family for case in suite if "passed" in case.outcomes}
    assert gains <= {"good", "signal", "forgery", "file", "escape", "network", "daemon", "call"}


@pytest.mark.parametrize("level", ["bubblewrap", "sandlock"])
def test_every_program_gets_its_outcome_and_leaves_nothing(level):
    try:
        hasty, patient = open_level(level, LIMITS), open_level(level, PATIENT)
    except Unavailable as error:
        pytest.skip(f"this machine has no {level}: {error}")
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    machine = Machine(signs=[MARK])
    with hasty, patient as sandbox:
        suite = within(cases(machine.port), level)
        if os.environ.get("HOSTILE") != "all":
            draw = random.Random(seed)
            families = sorted({case.family for case in suite})
            of_family = {name: [case for case in suite if case.family == name] for name in families}
            suite = [c for of in of_family.values() for c in draw.sample(of, min(SAMPLED, len(of)))]
        assert wrong_outcomes(hasty, [case for case in suite if "timeout" in case.outcomes]) == []
        assert wrong_outcomes(sandbox, [case for case in suite if "timeout" not in case.outcomes]) == []
        assert [run.output for run in sandbox.run(Program(GOOD), ["2\n3 4\n"])] == ["7\n"]
    # Other tests run beside this one, and have files and sandboxes of their own.
    left = [line for line in machine.left_behind() if not line.startswith("file /tmp")]
    machine.close()
    assert left == []


def test_a_listener_and_a_process_that_are_reached_are_seen():
    """The check itself: what it looks for is found when it is there."""
    import socket
    import subprocess

    machine = Machine(signs=[MARK])
    with subprocess.Popen(["sleep", MARK]) as process, socket.create_connection(("127.0.0.1", machine.port)):
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # it is between the start of a program and its arguments
        seen = machine.left_behind(patience_s=5.0)
        process.kill()
    assert any(MARK in line for line in seen) and "connection" in seen
    machine.close()
