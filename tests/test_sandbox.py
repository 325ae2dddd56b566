"""Programs in the sandbox: what each test finds, every limit, every way to end, and what is left afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_fixtures import in_turn, open_level  # noqa: F401 - a fixture of every test here

from hdl_jax.domains import sandbox_levels, sandbox_local, sandbox_remote
from hdl_jax.domains.sandbox import LEVELS, Limits, Program, Run, Sandbox, SandboxFailure, open_sandbox
from hdl_jax.domains.sandbox_server import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are run on Linux only")

# A test that ends by itself is given time: others run beside it.
LIMITS = Limits(wall_s=15, budget_s=60, memory_mb=256, output_bytes=1 << 20, processes=16, file_mb=8)
HASTY = dataclasses.replace(LIMITS, wall_s=1)
SUM = "n = int(input()); print(sum(map(int, input().split())))"


def offered() -> list[str]:
    found = []
    for level in LEVELS if sys.platform == "linux" else ():
        with contextlib.suppress(sandbox_levels.Unavailable):
            open_level(level, LIMITS).close()
            found.append(level)
    return found


OFFERED = offered()
ISOLATED = [level for level in OFFERED if level != "rlimits"]


@pytest.fixture(params=OFFERED)
def sandbox(request):
    with open_level(request.param, LIMITS) as opened:
        yield opened


@pytest.fixture
def strongest():
    with open_sandbox("rlimits", LIMITS, workers=2) as opened:
        yield opened


def hasty(sandbox: sandbox_local.LocalSandbox) -> sandbox_local.LocalSandbox:
    """The same, for programs that are to run into their limit of time."""
    sandbox._limits = HASTY
    return sandbox


def ran(sandbox: Sandbox, source: str, text: str = "", entry: str = "") -> Run:
    (run,) = sandbox.run(Program(source, entry), [text])
    return run


def outputs(sandbox: Sandbox, source: str, inputs: list[str], entry: str = "") -> list[str]:
    runs = sandbox.run(Program(source, entry), inputs)
    assert [run.outcome for run in runs] == ["ran"] * len(inputs), runs
    return [run.output for run in runs]


# ---- stdin and stdout -----------------------------------------------------------------------------------------------


def test_rlimits_are_offered_everywhere():
    assert "rlimits" in OFFERED


@pytest.mark.parametrize(
    "source",
    [
        SUM,
        "import sys\nr = sys.stdin.buffer.readline; n = int(r()); print(sum(map(int, r().split())))",
        "import sys\nd = sys.stdin.read().split(); sys.stdout.buffer.write(b'%d\\n' % sum(map(int, d[1:])))",
        "d = open(0).read().split(); print(sum(map(int, d[1:])))",
        "input(); import sys; sys.stdin.seek(0); input(); print(sum(map(int, input().split())))",
        "print(sum(map(int, open('/dev/stdin').read().split()[1:])))",
        "import os; d = os.read(0, 100).split(); os.write(1, b'%d\\n' % sum(map(int, d[1:])))",
        "import subprocess; subprocess.run(['awk', 'NR == 2 { print $1 + $2 }'])",
        "import threading as t\nt.Thread(target=lambda: (input(), print(sum(map(int, input().split()))))).start()",
        "import atexit; input(); a = input(); atexit.register(lambda: print(sum(map(int, a.split()))))",
        "if __name__ == '__main__':\n    input(); print(sum(map(int, input().split()))); exit()",
        "import sys; input(); print(sum(map(int, input().split()))); sys.exit(0)",
        "def main():\n    input(); print(sum(map(int, input().split())))\nmain()\nquit()",
    ],
)
def test_a_program_reads_and_writes_as_it_likes(strongest, source):
    assert outputs(strongest, source, ["2\n3 4\n", "2\n30 40"]) == ["7\n", "70\n"]


def test_every_level_runs_a_program(sandbox):
    assert outputs(sandbox, SUM, ["2\n3 4\n", "1\n5\n", "3\n1 2 3\n"]) == ["7\n", "5\n", "6\n"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(10**5000)", "1" + "0" * 5000 + "\n"),
        ("def f(n): return n and 1 + f(n - 1)\nprint(f(40_000))", "40000\n"),
        (
            "import sys, functools\nsys.setrecursionlimit(10**6)\n@functools.lru_cache(None)\n"
            "def f(n): return n and 1 + f(n - 1)\nprint(f(60_000))",
            "60000\n",
        ),
        ("print(input() * 3)", "żółw" * 3 + "\n"),
        ("print(hash('a') == hash('a'), __name__, __file__)", "True __main__ solution.py\n"),
        ("import __main__; x = 3; print(__main__.x)", "3\n"),
        ("import sys; print(sys.argv)", "['solution.py']\n"),
        ("open('helper.py', 'w').write('y = 5'); import helper; print(helper.y)", "5\n"),
        ("import multiprocessing as m\ndef f(x): return x * x\nprint(m.Pool(2).map(f, [1, 2, 3]))", "[1, 4, 9]\n"),
    ],
    ids=lambda value: None if value.endswith("\n") else value[:20],
)
def test_a_program_finds_what_it_expects_of_an_interpreter(strongest, source, expected):
    if "multiprocessing" in source and strongest.isolation == "sandlock":
        pytest.skip("sandlock keeps programs out of /dev/shm")
    assert outputs(strongest, source, ["żółw"]) == [expected]


def test_the_same_program_gives_the_same_output_every_time(strongest):
    source = "print(list({'a', 'b', 'c', 'd', 'e', 'f'}), hash('x'))"
    assert len(set(outputs(strongest, source, [""] * 3) + outputs(strongest, source, [""]))) == 1


def test_large_input_and_output_come_through_whole(strongest):
    text = "x" * 700_000 + "\n"
    assert outputs(strongest, "print(input())", [text] * 3) == [text] * 3


def test_bytes_that_are_no_text_are_marked(strongest):
    assert outputs(strongest, "import sys; sys.stdout.buffer.write(b'a\\xffb')", [""]) == ["a\ufffdb"]


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_a_call_gives_json(sandbox):
    source = "def f(a, b):\n    print('not the result')\n    return {'sum': a + b, 'both': (a, b), 'none': None}"
    (first, second) = outputs(sandbox, source, ["[1, 2]", "[0.5, 4]"], entry="f")
    assert json.loads(first) == {"sum": 3, "both": [1, 2], "none": None}
    assert json.loads(second) == {"sum": 4.5, "both": [0.5, 4], "none": None}


def test_a_method_of_solution_is_called_on_a_fresh_object_in_a_fresh_process(strongest):
    source = "class Solution:\n    s = []\n    def f(self, a):\n        self.s.append(a); return len(self.s)"
    assert outputs(strongest, source, ["[7]", "[8]"], entry="f") == ["1", "1"]


def test_what_stands_under_main_does_not_run_in_a_call(strongest):
    source = "def f(): return 1\nif __name__ == '__main__':\n    raise SystemExit(3)"
    assert outputs(strongest, source, ["[]"], entry="f") == ["1"]


def test_a_prelude_is_there_and_does_not_count_in_line_numbers(strongest):
    program = Program(
        "def f(x: List[int]):\n    return sqrt(x[0])", "f", "from typing import List\nfrom math import sqrt"
    )
    assert [run.output for run in strongest.run(program, ["[[9]]"])] == ["3.0"]
    program = Program("import sys\nprint(sys._getframe().f_lineno)", "", "import math\n" * 9)
    assert [run.output for run in strongest.run(program, [""])] == ["2\n"]


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("def g(): pass", "NameError: the program defines no f"),
        ("def f(): return {1, 2}", "TypeError: Object of type set is not JSON serializable"),
        ("class E:\n    def __eq__(self, o): return True\ndef f(): return E()", "TypeError: Object of type E"),
        ("def f():\n    a = []; a.append(a); return a", "ValueError: Circular reference"),
        ("import os\ndef f(): os._exit(0)", "ended before the call returned"),
        ("import sys\ndef f(): sys.exit(0)", "ended before the call returned"),
        ("def f(x): return x", "TypeError: f() missing 1 required positional argument"),
        ("import os\ndef f(): os.close(3); return 1", "OSError"),
    ],
)
def test_a_call_without_a_json_value_is_an_error(strongest, source, detail):
    run = ran(strongest, source, "[]", entry="f")
    assert (run.outcome, run.output) == ("error", "")
    assert detail in run.detail


def test_a_value_that_a_program_writes_itself_is_only_what_it_claims(strongest):
    run = ran(strongest, "import os\ndef f():\n    os.write(3, b'=42'); os._exit(0)", "[]", entry="f")
    assert run == Run("ran", "42", "")


# ---- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "outcome", "detail"),
    [
        ("print(7)\n1 / 0", "error", "ZeroDivisionError: division by zero"),
        ("print(7); import sys; sys.exit(3)", "error", "ended with exit status 3"),
        ("import sys; sys.exit('no way')", "error", "no way"),
        ("def f(:", "error", "SyntaxError"),
        ("print('a\0b')", "error", "null bytes"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("import os; os.abort()", "error", "killed by SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "error", "killed by SIGSEGV"),
        ("def f(): f()\nf()", "error", "RecursionError"),
        ("import sys; sys.excepthook = lambda *a: None; 1 / 0", "error", "ended with exit status 1"),
        ("while True: pass", "timeout", "time limit"),
        ("while True:\n try:\n  while True: pass\n except BaseException: pass", "timeout", "time limit"),
        ("import time; time.sleep(99)", "timeout", "time limit"),
        ("9**9**9", "timeout", "time limit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "timeout", "time limit"),
        ("a = bytearray(6 * 10**9)", "memory", "MemoryError"),
        ("a = []\nwhile True: a.append(bytearray(10**6))", "memory", ""),
        ("while True: print('x' * 1000)", "output", "wrote more than 1048576 bytes"),
        ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", "output", "wrote more than"),
    ],
)
def test_each_way_to_end_has_its_outcome(sandbox, source, outcome, detail):
    run = ran(hasty(sandbox) if outcome == "timeout" else sandbox, source)
    assert run.outcome == outcome, run
    assert detail in run.detail, run


def test_what_was_printed_before_the_end_is_kept(strongest):
    assert ran(strongest, "print(7)\n1 / 0").output == "7\n"
    assert ran(hasty(strongest), "print(7, flush=True)\nwhile True: pass").output == "7\n"


def test_many_processes_are_one_program_to_the_limit_of_memory(sandbox):
    source = (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        held = b'x' * (60 << 20); time.sleep(60)\ntime.sleep(60)"
    )
    assert ran(sandbox, source).outcome == "memory"


@pytest.mark.skipif("bubblewrap" not in OFFERED, reason="counted in a namespace of processes only")
@pytest.mark.parametrize(
    "source",
    [
        "import os\nfor i in range(40):\n    os.write(os.memfd_create(str(i)), bytes(7 << 20))\nwhile True: pass",
        "import mmap\nheld = []\nwhile True:\n    held.append(mmap.mmap(-1, 8 << 20)); held[-1].write(bytes(8 << 20))",
        "for i in range(60): open(str(i), 'wb').write(bytes(7 << 20))",
        "for i in range(60): open('/dev/shm/' + str(i), 'wb').write(bytes(7 << 20))",
        (
            "import ctypes\nc = ctypes.CDLL(None)\n"
            "c.shmat.restype = ctypes.c_void_p; c.shmdt.argtypes = [ctypes.c_void_p]\n"
            "while True:\n    p = c.shmat(c.shmget(0, 50 << 20, 0o1600), None, 0)\n"
            "    ctypes.memset(p, 1, 50 << 20); c.shmdt(p)"
        ),
        "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # hides what it holds\ntime.sleep(60)",
    ],
    ids=["unnamed files", "shared pages", "files", "files in memory", "system v", "hidden"],
)
def test_memory_counts_wherever_it_is_held(source):
    with open_level("bubblewrap", LIMITS) as sandbox:
        assert ran(sandbox, source).outcome == "memory"
        assert ran(sandbox, SUM, "1\n5").output == "5\n"


def test_a_bomb_of_forks_goes_off_in_its_sandbox_only(sandbox):
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert ran(hasty(sandbox), source).outcome == "timeout"
    sandbox._limits = LIMITS
    assert ran(sandbox, SUM, "1\n5").output == "5\n"


def test_all_tests_of_a_program_share_a_budget():
    with open_sandbox("rlimits", Limits(wall_s=1, budget_s=2.5, memory_mb=256), workers=1) as sandbox:
        begin = time.monotonic()
        runs = sandbox.run(Program("while True: pass"), [""] * 30)
        assert time.monotonic() - begin < 10
    assert [run.outcome for run in runs] == ["timeout"] * 30
    assert "not run" in runs[-1].detail and "not run" not in runs[0].detail


def test_a_program_that_waits_for_a_worker_does_not_spend_its_budget():
    with open_sandbox("rlimits", Limits(wall_s=5, budget_s=5, memory_mb=256), workers=1) as sandbox:
        with ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(lambda _: ran(sandbox, "import time; time.sleep(1.5); print(1)"), range(4)))
    assert [run.output for run in runs] == ["1\n"] * 4


# ---- isolation ------------------------------------------------------------------------------------------------------


def test_a_test_finds_nothing_of_the_one_before(sandbox):
    source = (
        "import os, sys\nprint(sorted(os.listdir('.')), len(sys.modules['__main__'].__dict__), 'x' in globals())\n"
        "x = 1; open('left', 'w').write(input()); os.makedirs('deep/deeper'); os.symlink('/', 'link')\n"
        "os.chmod('deep', 0)"
    )
    first, second = outputs(sandbox, source, ["secret 1", "secret 2"])
    assert first == second and "left" not in first


def test_a_test_finds_nothing_of_a_later_one(strongest):
    source = (
        "import gc\ninput()\n"
        "print([type(o) for o in gc.get_objects() if isinstance(o, (dict, list)) and 'sec' + 'ond' in str(o)[:99]])"
    )
    assert outputs(strongest, source, ["first\n", "sec" + "ond\n"])[0] == "[]\n"


def test_a_program_has_no_environment_and_no_descriptors_of_ours(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    with open(__file__, "rb") as file:
        os.set_inheritable(file.fileno(), True)
        source = "import os\nprint([n for n in os.environ if 'SECRET' in n])\nprint(os.listdir('/proc/self/fd'))"
        environment, descriptors = outputs(sandbox, source, [""])[0].splitlines()
    assert environment == "[]"
    assert descriptors == "['0', '1', '2', '3', '4']"  # stdin, stdout, stderr, where a call returns, the folder itself


def test_a_program_does_not_run_as_root(sandbox):
    assert outputs(sandbox, "import os; print(os.getuid() == 0 or os.geteuid() == 0)", [""]) == ["False\n"]


@pytest.mark.parametrize("level", ISOLATED)
def test_a_program_reaches_neither_files_nor_network(level, tmp_path):
    (tmp_path / "mine").write_text("x")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o777)
    source = (
        "import os, socket, sys\nport, mine = input().split()\n"
        "def tries(f):\n    try: f(); return 'reached'\n    except OSError: return 'kept out'\n"
        "print(tries(lambda: open(mine)), tries(lambda: open(mine + '2', 'w')), tries(lambda: os.listdir('/root')))\n"
        "print(tries(lambda: open('/etc/passwd')), tries(lambda: os.unlink(mine)))\n"
        "print(tries(lambda: socket.create_connection(('127.0.0.1', int(port)), 1)))"
    )
    connections = []
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.get_request = lambda: connections.append(1) or http.server.HTTPServer.get_request(server)  # type: ignore
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open_level(level, LIMITS) as sandbox:
            (said,) = outputs(sandbox, source, [f"{server.server_address[1]} {tmp_path / 'mine'}"])
        server.shutdown()
    assert "reached" not in said and said.count("kept out") == 6
    assert not connections and (tmp_path / "mine").read_text() == "x"


@pytest.mark.parametrize("level", ISOLATED)
def test_a_program_cannot_signal_other_processes(level):
    with subprocess.Popen(["sleep", "60"]) as bystander, open_level(level, LIMITS) as sandbox:
        ran(sandbox, "import os\nfor p in (int(input()), os.getppid(), -1):\n os.kill(p, 9)", str(bystander.pid))
        assert bystander.poll() is None
        assert ran(sandbox, SUM, "1\n5").output == "5\n"
        bystander.kill()


def test_a_program_that_kills_its_sandbox_gains_an_error(sandbox):
    source = "import os, signal\nfor p in (os.getppid(), -1):\n    os.kill(p, signal.SIGKILL)\nprint(7)"
    runs = sandbox.run(Program(source), ["", ""])
    assert all(run.outcome in ("error", "memory", "timeout") for run in runs), runs
    assert ran(sandbox, SUM, "1\n5").output == "5\n"


# ---- what is left ---------------------------------------------------------------------------------------------------


def strays(mark: str) -> list[str]:
    """Command lines of processes with the mark or of this test's sandboxes, and folders of these: see `alone`."""
    found = []
    scratch = f"{tempfile.gettempdir()}/hdl_jax-sandbox-"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if mark.encode() in line or scratch.encode() in (entry / "environ").read_bytes():
                    found.append(line.decode(errors="replace")[:200])
    return found + [str(path) for path in Path(tempfile.gettempdir()).glob("hdl_jax-sandbox-*")]


def gone(mark: str) -> bool:
    end = time.monotonic() + 10
    while strays(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not strays(mark)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Scratch folders of this test only: others may run beside it."""
    tmp_path.chmod(0o711)
    for folder in tmp_path.parents[:-2]:
        folder.chmod(folder.stat().st_mode | 0o011)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


DAEMON = (
    "import os, subprocess\nprint('left', flush=True)\n"
    "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.execvp('sleep', ['sleep', '{mark}'])\n"
    "    os._exit(0)\nos.wait()"
)


def test_a_child_that_is_left_running_is_ended(sandbox, alone):
    mark = f"7{os.getpid()}.{time.monotonic_ns()}"
    assert outputs(sandbox, DAEMON.format(mark=mark), [""]) == ["left\n"]
    sandbox.close()
    assert gone(mark), strays(mark)


def test_closing_ends_what_runs(sandbox, alone):
    mark = f"7{os.getpid()}.{time.monotonic_ns()}"
    source = f"import os; os.execvp('sleep', ['sleep', '{mark}'])"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sandbox.run, Program(source), [""] * 9)
        end = time.monotonic() + 10
        while not any(mark in line for line in strays(mark)) and time.monotonic() < end:
            time.sleep(0.01)
        sandbox.close()
        with contextlib.suppress(SandboxFailure):
            assert all(run.outcome != "ran" for run in future.result(20))
    assert gone(mark), strays(mark)
    sandbox.close()
    with pytest.raises(SandboxFailure, match="closed"):
        sandbox.run(Program("print(1)"), [""])


@pytest.mark.parametrize("level", OFFERED)
def test_nothing_outlives_a_killed_owner(level, alone):
    mark = f"7{os.getpid()}.{time.monotonic_ns()}"
    owner = (
        "import sys\nfrom hdl_jax.domains.sandbox import Limits, Program\n"
        "from hdl_jax.domains.sandbox_local import LocalSandbox\n"
        "s = LocalSandbox(sys.argv[1], sys.argv[2], Limits(60, 60, 256), 1)\n"
        f"s.run(Program(\"import os; os.execvp('sleep', ['sleep', '{mark}'])\"), [''])"
    )
    for python in sandbox_levels.interpreters():
        process = subprocess.Popen([sys.executable, "-c", owner, level, python], stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(line.startswith("sleep") for line in strays(mark)):
            time.sleep(0.01)
        if process.poll() is None:
            break
    assert process.poll() is None, "the program never ran"
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while any(line.startswith("sleep") for line in strays(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(line.startswith("sleep") for line in strays(mark))


def test_many_threads_use_one_sandbox(strongest):
    with ThreadPoolExecutor(8) as pool:
        runs = pool.map(lambda n: outputs(strongest, SUM, [f"2\n{n} 1\n", f"2\n{n} 2\n"]), range(24))
        assert list(runs) == [[f"{n + 1}\n", f"{n + 2}\n"] for n in range(24)]


# ---- opening --------------------------------------------------------------------------------------------------------


def test_the_strongest_that_the_machine_offers_is_used(strongest):
    assert strongest.isolation == OFFERED[0]
    assert "python" in strongest.description


def test_less_than_is_asked_for_is_refused(monkeypatch):
    monkeypatch.setattr(sandbox_levels.shutil, "which", lambda name: None if name == "bwrap" else f"/usr/bin/{name}")
    sandbox_levels._bubblewrap_options.cache_clear()
    try:
        with pytest.raises(
            ValueError, match=r"(?s)domain\.isolation='bubblewrap'.*bubblewrap is not installed.*sandlock"
        ):
            open_sandbox("bubblewrap", LIMITS, workers=1)
    finally:
        sandbox_levels._bubblewrap_options.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("docker", LIMITS, 1), r"domain\.isolation='docker': must be one of bubblewrap, sandlock, rlimits, or http"),
        (("rlimits", LIMITS, 0), r"domain\.workers=0"),
        (("rlimits", LIMITS, 1, "/no/such/python"), r"(?s)offers no such sandbox.*/no/such/python"),
        (("http://127.0.0.1:9", LIMITS, 1), r"domain\.isolation='http://127\.0\.0\.1:9'.*refused"),
        (("http://127.0.0.1:9", LIMITS, 1, "/usr/bin/python3"), r"domain\.python"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        open_sandbox(*arguments)


@pytest.mark.parametrize("field", ["wall_s", "budget_s", "memory_mb", "processes"])
def test_limits_are_positive(field):
    with pytest.raises(ValueError, match=f"{field}=0"):
        Limits(**{"wall_s": 1, "budget_s": 1, "memory_mb": 1, field: 0})


def test_a_sandbox_that_does_not_start_is_no_outcome_of_the_program(strongest, monkeypatch):
    broken = sandbox_levels.Start(("false",), scratch=False)
    monkeypatch.setattr(strongest, "_start", broken)
    with pytest.raises(SandboxFailure, match="did not start"):
        strongest.run(Program("print(1)"), [""])
    monkeypatch.setattr(strongest, "_start", sandbox_levels.Start(("/no/such/command",), scratch=False))
    with pytest.raises(SandboxFailure, match="did not start.*No such file"):
        strongest.run(Program("print(1)"), [""])


# ---- remote ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address():
    server = Server(("127.0.0.1", 0), "rlimits", workers=2)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_remote_sandbox_is_a_sandbox(address):
    sandbox = open_sandbox(address, LIMITS, workers=2)
    assert sandbox.isolation == address and OFFERED[0][:4] in sandbox.description
    assert outputs(sandbox, SUM, ["2\n3 4\n", "1\n5"]) == ["7\n", "5\n"]
    assert outputs(sandbox, "def f(x): return x + 1", ["[1]"], entry="f") == ["2"]
    assert ran(sandbox, "a = bytearray(6 * 10**9)").outcome == "memory"
    assert ran(open_sandbox(address, HASTY, workers=1), "while True: pass").outcome == "timeout"
    sandbox.close()
    with pytest.raises(SandboxFailure, match="closed"):
        sandbox.run(Program("print(1)"), [""])


@pytest.mark.parametrize(
    "body", [b"{}", b"not json", b'{"program": {"source": 3}, "inputs": [], "limits": {}}', b"[1]"]
)
def test_a_request_that_is_none_is_refused(address, body):
    with pytest.raises(SandboxFailure, match="400"):
        sandbox_remote.RemoteSandbox(address, LIMITS, 1)._get("/run", body, 10)


class Odd(http.server.BaseHTTPRequestHandler):
    """Describes itself as a sandbox does, and answers with whatever its server holds."""

    def do_GET(self):
        self.answer(200, b'{"isolation": "odd", "description": "odd"}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.answer(*self.server.holds)

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("holds", "message"),
    [
        ((503, b'{"error": "full"}'), "503.*full"),
        ((200, b"<html>"), "JSON|Expecting"),
        ((200, b"{}"), "no runs"),
        ((200, b'{"runs": []}'), "2 tests were asked for"),
        ((200, b'{"runs": [{"outcome": "passed", "output": "", "detail": ""}]}'), "2 tests were asked for"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_of_the_sandbox(holds, message):
    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        server.holds, server.asked = holds, 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sandbox = open_sandbox(f"http://127.0.0.1:{server.server_address[1]}", LIMITS, workers=1)
        with pytest.raises(SandboxFailure, match=message):
            sandbox.run(Program("print(1)"), ["", ""])
        server.shutdown()


def test_a_service_that_has_gone_is_asked_again_and_then_a_failure(address):
    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sandbox = open_sandbox(f"http://127.0.0.1:{server.server_address[1]}", LIMITS, workers=1)
        server.shutdown()
    with pytest.raises(SandboxFailure, match="refused"):
        sandbox.run(Program("print(1)"), [""])
