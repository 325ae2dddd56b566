"""Worker processes: limits, every way for a call to go wrong, and nothing left behind whichever way it ends."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl_jax.worker_main import LARGEST
from hdl_jax.workers import WorkerDied, WorkerError, WorkerPool, WorkerTimeout

ROOT = Path(__file__).parents[1]
LINUX = sys.platform == "linux"
linux = pytest.mark.skipif(not LINUX, reason="the kernel keeps to this on Linux only, or it is read from /proc")

# One function that does whatever a test asks for. Its path is in the command line of every process of its pools.
SOURCE = """
import ctypes, dataclasses, os, pathlib, signal, subprocess, sys, threading, time

import neighbour

@dataclasses.dataclass
class Own:
    x: int

class Shy(Exception):
    def __str__(self):
        raise RuntimeError

def fail(error):
    raise error

def hang(started=None):
    if started:
        pathlib.Path(started).touch()
    return 9**9**9

def swallow():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

def offspring():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", __file__])
    time.sleep(600)

def scribble(text):
    for descriptor in range(3, 32):
        try:
            os.write(descriptor, text)
        except OSError:
            pass

def scribble_later(text):
    threading.Timer(0.2, scribble, [text]).start()
    return "answered"

def deep():
    found = []
    for _ in range(100_000):
        found = [found]
    return found

ACTIONS = {
    "echo": lambda *args: args, "pid": os.getpid, "parent": os.getppid, "sleep": lambda s: time.sleep(s) or True,
    "hang": hang, "swallow": swallow, "exit": os._exit, "sys.exit": sys.exit, "kill": lambda n: os.kill(os.getpid(), n),
    "segfault": lambda: ctypes.string_at(0), "fail": fail, "shy": lambda: fail(Shy()), "lambda": lambda: (lambda: 0),
    "bytes": bytes, "array": lambda n: len(bytearray(n)), "own": lambda: Own(3), "deep": deep,
    "offspring": offspring, "scribble": scribble, "scribble later": scribble_later, "print": print,
    "read": lambda: sys.stdin.read(), "hash": hash, "neighbour": lambda: neighbour.VALUE,
    "kill parent": lambda: os.kill(os.getppid(), signal.SIGKILL) or time.sleep(600),
    "group": lambda: os.getpgid(0), "modules": lambda: list(sys.modules),
}

def do(what, *args):
    return ACTIONS[what](*args)
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "neighbour.py").write_text("VALUE = 'beside it'\n")
    path = tmp_path / "functions.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def pool(file):
    """Two workers and a limit that only calls that never end reach."""
    with WorkerPool(f"{file}:do", workers=2, limit_s=20, memory_gb=0.5) as pool:
        yield pool


@pytest.fixture
def strict(file):
    """One worker, which is soon stopped."""
    with WorkerPool(f"{file}:do", workers=1, limit_s=0.5, memory_gb=0.5) as pool:
        yield pool


def processes(file: Path) -> set[int]:
    """Process ids of all pools of the file's function, and of what its calls started."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(file).encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            pass  # it has just ended
    return found - {os.getpid()}


def children(pid: int) -> set[int]:
    """Process ids of a process's children, those included that have ended and are not reaped."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                found.add(int(entry.name))
        except OSError:
            pass
    return found


def kill(pid: int) -> None:
    """Kills a process and waits until it has ended; whoever is its parent may not have reaped it yet."""
    os.kill(pid, signal.SIGKILL)
    stat = Path(f"/proc/{pid}/stat")
    assert eventually(lambda: not stat.exists() or ") Z " in stat.read_text())


def eventually(condition) -> bool:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ---- results --------------------------------------------------------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    (folder / "neighbour.py").write_text("VALUE = 1\n")
    (folder / "functions.py").write_text(SOURCE)
    with WorkerPool(f"{folder / 'functions.py'}:do", workers=1, limit_s=20) as pool:
        yield pool


@settings(max_examples=200, deadline=None)
@given(st.lists(PLAIN, max_size=4))
def test_arguments_and_results_arrive_as_they_are(echo, args):
    assert echo("echo", *args) == tuple(args)


def test_large_arguments_and_results(pool):
    content = random.Random(0).randbytes(20_000_000)
    assert pool("echo", content) == (content,)


def test_functions_are_found_as_this_process_finds_them(tmp_path, monkeypatch):
    with WorkerPool("hdl_jax.domains.words:classify", workers=1, limit_s=20) as pool:
        assert pool("3 apples") == [(0, 1, "argument"), (2, 8, "filler")]
    (tmp_path / "found_only_here.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    with WorkerPool("found_only_here:double", workers=1, limit_s=20) as pool:
        assert pool(21) == 42


def test_a_file_by_its_relative_path_with_modules_beside_it(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    with WorkerPool("functions.py:do", workers=1, limit_s=20) as pool:
        monkeypatch.chdir("/")
        assert pool("neighbour") == "beside it"


def test_the_modules_name_does_not_hide_another(tmp_path):
    """A reward in `random.py` or `json.py` is the reward, and the library's module is still itself."""
    path = tmp_path / "json.py"
    path.write_text(
        "import hashlib, sys\ndef f():\n    return 'json' in sys.modules, hashlib.sha1(b'').hexdigest()[:4]\n"
    )
    with WorkerPool(f"{path}:f", workers=1, limit_s=20) as pool:
        assert pool() == (False, "da39")


def test_many_threads_share_two_workers(pool):
    """16 threads, calls that return, raise and kill their worker: each gets its own outcome."""

    def one(i: int) -> str:
        kind = random.Random(i).choice(["echo"] * 6 + ["fail", "exit"])
        try:
            if kind == "fail":
                return pool("fail", KeyError(f"no {i}"))
            if kind == "exit":
                return pool("exit", i % 50 + 1)
            (answer,) = pool("echo", i)
            return "right" if answer == i else f"{i} was answered {answer}"
        except WorkerError as error:
            return "right" if kind == "fail" and f"KeyError: 'no {i}'" in str(error) else repr(error)
        except WorkerDied as error:
            return "right" if kind == "exit" and f"status {i % 50 + 1}" in str(error) else repr(error)

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(one, range(600))) == {"right"}
    assert len({pool("pid") for _ in range(50)}) <= 2


def test_hashes_do_not_depend_on_the_worker_or_the_pool(file, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = set()
    for _ in range(2):
        with WorkerPool(f"{file}:do", workers=1, limit_s=20) as pool:
            found.add(pool("hash", "text"))
            with pytest.raises(WorkerDied):
                pool("exit", 1)
            found.add(pool("hash", "text"))
    assert len(found) == 1


def test_jax_is_not_imported_for_a_function_that_does_not(pool):
    assert not any(name.partition(".")[0] in ("jax", "numpy") for name in pool("modules"))


def test_what_the_function_prints_is_no_output_of_ours(file, capfd):
    with WorkerPool(f"{file}:do", workers=1, limit_s=20) as pool:
        pool("print", "said by the function")
        assert pool("read") == "", "stdin is empty"
    out, err = capfd.readouterr()
    assert "said" not in out and "said by the function\n" in err


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_m3_waiting_for_a_worker_does_not_count(file):
    """40 calls of 0.2 s at once on one worker with a limit of 1 s: the last one waits 8 s and is as good as the first.

    M3 of the cases: verifiers PR#831 counted from submission.
    """
    with WorkerPool(f"{file}:do", workers=1, limit_s=1) as pool, ThreadPoolExecutor(40) as threads:
        assert [f.result() for f in [threads.submit(pool, "sleep", 0.2) for _ in range(40)]] == [True] * 40


@pytest.mark.parametrize("what", ["hang", "swallow", "sleep"])
def test_a_call_at_its_limit_is_stopped_whatever_it_does(strict, what):
    """Also from a thread that is not the main one, and the next call has a new worker."""
    before = strict("pid")
    args = (1,) if what == "sleep" else ()
    with ThreadPoolExecutor(1) as threads, pytest.raises(WorkerTimeout, match=r"stopped at its limit of 0\.5 s"):
        threads.submit(strict, what, *args).result()
    assert strict("echo", 1) == (1,) and strict("pid") != before


def test_sending_the_arguments_counts_too(file):
    """The limit is on the whole call: a worker that no longer reads them is stopped as well."""
    with WorkerPool(f"{file}:do", workers=1, limit_s=0.5) as pool:
        os.kill(pool("pid"), signal.SIGSTOP)
        with pytest.raises(WorkerTimeout):
            pool("echo", bytes(20_000_000))


@linux
def test_a_hundred_hanging_calls_leave_no_process(file):
    with WorkerPool(f"{file}:do", workers=1, limit_s=0.02) as pool:
        for _ in range(100):
            with pytest.raises(WorkerTimeout):
                pool("hang")
        (template,) = (pid for pid in processes(file) if pid in children(os.getpid()))
        assert len(children(template)) <= 1, "stopped workers are reaped"
        assert len(processes(file)) <= 2
    assert not processes(file)


# ---- what calls do to their workers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        pytest.param(["exit", 3], "ended by itself with status 3", id="os._exit"),
        pytest.param(["exit", 0], "ended by itself with status 0", id="os._exit(0)"),
        pytest.param(["segfault"], "ended by signal 11", id="segmentation fault"),
        pytest.param(["kill", 9], "ended by signal 9", id="killed"),
        pytest.param(["fail", MemoryError()], "ran out of memory", id="MemoryError"),
        pytest.param(["array", 10**9], r"ran out of memory \(memory_gb=0\.5\)", id="memory", marks=linux),
        pytest.param(["scribble", b"\xff" * 64], "ended", id="nonsense for an answer"),
    ],
)
def test_a_worker_that_dies_is_replaced_and_only_its_call_fails(file, call, message):
    with WorkerPool(f"{file}:do", workers=1, limit_s=20, memory_gb=0.5) as pool:
        for _ in range(2):
            with pytest.raises(WorkerDied, match=message):
                pool(*call)
            assert pool("echo", 1) == (1,)


@pytest.mark.parametrize(
    "call, message",
    [
        pytest.param(["fail", ValueError("not\nso")], "ValueError: not\nso", id="exception"),
        pytest.param(["fail", ValueError("\ud800")], "ValueError: \\ud800", id="text that is no text"),
        pytest.param(["fail", ValueError("x" * 10**6 + "end")], "xxxend", id="long exception"),
        pytest.param(["fail", KeyboardInterrupt()], "KeyboardInterrupt", id="KeyboardInterrupt"),
        pytest.param(["sys.exit", "gone"], "SystemExit: gone", id="sys.exit"),
        pytest.param(["shy"], "Shy", id="exception without a text"),
        pytest.param(["lambda"], "pickle", id="result that cannot be pickled"),
        pytest.param(["deep"], "RecursionError", id="result nested too deeply"),
        pytest.param(["own"], "cannot be read here", id="result of a class of the file's"),
        pytest.param(["bytes", LARGEST], f"more than {LARGEST}", id="huge result"),
        pytest.param(["nothing of this name"], "KeyError: 'nothing of this name'", id="exception of a builtin"),
    ],
)
def test_a_call_that_fails_says_why_and_leaves_its_worker(file, call, message):
    with WorkerPool(f"{file}:do", workers=1, limit_s=20) as pool:
        before = pool("pid")
        with pytest.raises(WorkerError) as error:
            pool(*call)
        assert message in str(error.value) and len(str(error.value)) < 30_000
        assert f"{file}:do" in str(error.value)
        assert pool("pid") == before


def test_the_traceback_shows_the_functions_lines_and_not_ours(pool):
    with pytest.raises(WorkerError) as error:
        pool("fail", ZeroDivisionError("by 0"))
    text = str(error.value)
    assert "raise error" in text and "functions.py" in text and "worker_main" not in text


def test_arguments_that_cannot_be_sent_are_the_callers_error(pool):
    with pytest.raises((AttributeError, TypeError, ValueError), match="pickle"):
        pool("echo", lambda: 0)
    assert pool("echo", 1) == (1,)


def test_an_answer_nobody_asked_for_is_not_taken_for_one(file):
    """What code of an earlier call writes to the connection later must not answer another call."""
    with WorkerPool(f"{file}:do", workers=1, limit_s=20) as pool:
        assert pool("scribble later", b"\1" + bytes(7) + b"\2N.") == "answered"  # a pickled None
        time.sleep(0.6)
        assert pool("echo", 1) == (1,)


@linux
def test_what_a_call_started_ends_with_its_worker(strict, file):
    with pytest.raises(WorkerTimeout):
        strict("offspring")
    assert eventually(lambda: len(processes(file)) == 1)


@linux
def test_an_idle_worker_that_was_killed_costs_no_call(pool):
    killed = {pool("pid") for _ in range(20)}
    for pid in killed:
        kill(pid)
    assert [pool("echo", i) for i in range(4)] == [(i,) for i in range(4)]
    assert not killed & {pool("pid") for _ in range(20)}


# ---- the template ---------------------------------------------------------------------------------------------------


@linux
def test_the_template_may_be_killed_between_calls_and_during_one(pool, file):
    kill(pool("parent"))
    assert [pool("echo", i) for i in range(5)] == [(i,) for i in range(5)]
    template = pool("parent")
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(pool, "sleep", 0.5) for _ in range(2)]
        assert eventually(lambda: children(template) and pool._slots.empty())
        os.kill(template, signal.SIGKILL)
        assert [call.result() for call in calls] == [True, True]
    assert pool("parent") != template
    assert eventually(lambda: len(processes(file)) == 3)


@linux
def test_a_call_that_kills_the_template_again_and_again_fails_alone(pool):
    with pytest.raises(WorkerDied, match="ended from outside"):
        pool("kill parent")
    assert pool("echo", 1) == (1,)


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, message",
    [
        pytest.param("import no_such_module", "No module named 'no_such_module'", id="missing module"),
        pytest.param("def f(:", "SyntaxError", id="syntax"),
        pytest.param("raise SystemExit('not here')", "SystemExit: not here", id="exits"),
        pytest.param("import os\nos._exit(7)", "ended by itself with status 7", id="dies"),
        pytest.param("g = 1", "has no 'f'", id="no such function"),
        pytest.param("f = 1", "'f'", id="not a function"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused_at_once(tmp_path, source, message):
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(ImportError) as error:
        WorkerPool(f"{path}:f", workers=1, limit_s=1)
    assert message in str(error.value) and f"{path}:f" in str(error.value)
    assert "importlib" not in str(error.value) and "worker_main" not in str(error.value)
    assert not LINUX or not processes(path)


@pytest.mark.parametrize(
    "function, error, message",
    [
        ("nowhere.py:f", FileNotFoundError, r"nowhere\.py:f: there is no file /"),
        ("no_such_package.module:f", ImportError, "No module named 'no_such_package'"),
        ("just_a_name", ValueError, "expected package.module:function"),
        ("module:", ValueError, "expected package.module:function"),
        ("module:a.b", ValueError, "expected package.module:function"),
    ],
)
def test_a_function_that_is_not_there(function, error, message):
    with pytest.raises(error, match=message):
        WorkerPool(function, workers=1, limit_s=1)


@pytest.mark.parametrize("change", [{"workers": 0}, {"limit_s": 0}, {"limit_s": float("nan")}, {"memory_gb": -1}])
def test_numbers_that_make_no_sense(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        WorkerPool("math:gcd", **{"workers": 1, "limit_s": 1, **change})


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_closed_pool_says_so_to_all_who_call_and_wait(file):
    pool = WorkerPool(f"{file}:do", workers=1, limit_s=600)
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(pool, "hang", file.parent / "started"), *(threads.submit(pool, "pid") for _ in "123")]
        assert eventually((file.parent / "started").exists)
        pool.close()
        assert all(isinstance(call.exception(30), RuntimeError) for call in calls)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool("echo", 1)
    assert not LINUX or not processes(file)


def test_a_call_to_a_pool_that_was_closed_while_idle_does_not_wait_for_ever(file):
    pool = WorkerPool(f"{file}:do", workers=2, limit_s=20)
    pool.close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="closed"):
            pool("echo", 1)


@linux
def test_a_pool_nobody_holds_ends_its_processes(file):
    pool = WorkerPool(f"{file}:do", workers=2, limit_s=20)
    assert pool("echo", 1) == (1,) and len(processes(file)) == 3
    del pool
    gc.collect()
    assert not processes(file)


PARENT = """
import os, sys, threading, time
from hdl_jax.workers import WorkerPool

pool = WorkerPool(sys.argv[1], workers=3, limit_s=600)
for call in (["hang", sys.argv[2]], ["sleep", 600]):
    threading.Thread(target=pool, args=call, daemon=True).start()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
print("started", flush=True)
"""
WAIT = "time.sleep(600)"


def start(file: Path, ending: str) -> subprocess.Popen[str]:
    """A process with a pool of three workers, one stuck in C code with the interpreter's lock, one asleep, one idle."""
    command = [sys.executable, "-c", PARENT + ending, f"{file}:do", str(file.parent / "started")]
    pipe = subprocess.PIPE
    parent = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    return parent


@linux
@pytest.mark.parametrize(
    "ending, by, status",
    [
        pytest.param("pool.close()", None, 0, id="close"),
        pytest.param("", None, 0, id="end"),
        pytest.param("raise ValueError", None, 1, id="exception"),
        pytest.param("sys.exit(3)", None, 3, id="exit"),
        pytest.param("os._exit(4)", None, 4, id="_exit"),
        pytest.param("os.abort()", None, -signal.SIGABRT, id="abort"),
        pytest.param(WAIT, signal.SIGINT, -signal.SIGINT, id="SIGINT"),
        pytest.param(WAIT, signal.SIGTERM, -signal.SIGTERM, id="SIGTERM"),
        pytest.param(WAIT, signal.SIGKILL, -signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_nothing_is_left_when_the_process_ends(file, ending, by, status):
    parent = start(file, ending)
    if by is not None:
        assert len(processes(file)) == 5
        parent.send_signal(by)
    parent.communicate(timeout=60)
    assert parent.returncode == status
    assert eventually(lambda: not processes(file))


@linux
def test_nothing_is_left_when_the_template_is_killed_and_then_the_process(file):
    parent = start(file, WAIT)
    (template,) = (pid for pid in processes(file) if pid in children(parent.pid))
    os.kill(template, signal.SIGKILL)
    parent.kill()
    parent.communicate(timeout=60)
    assert eventually(lambda: not processes(file))


@linux
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_process_ends_while_a_module_hangs_in_its_import(tmp_path, by):
    path = tmp_path / "hangs.py"
    path.write_text("import pathlib\npathlib.Path(__file__ + '.started').touch()\n9**9**9\n")
    command = [sys.executable, "-c", PARENT, f"{path}:f", "unused"]
    parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    assert eventually(Path(f"{path}.started").exists) and len(processes(path)) == 2
    parent.send_signal(by)
    assert parent.wait(30) == -by
    assert eventually(lambda: not processes(path))


INTERRUPTED = """
import signal, sys
from hdl_jax.workers import WorkerPool

pool = WorkerPool(sys.argv[1], workers=1, limit_s=60)
before = pool("pid")
if sys.argv[2] == "handled":
    signal.signal(signal.SIGINT, lambda *_: print("asked to stop"))
print("started", flush=True)
try:
    print(pool("sleep", 1))
except KeyboardInterrupt:
    print("stopped")
print(pool("echo", 1), pool("pid") == before)
"""


@linux
@pytest.mark.parametrize(
    "how, output",
    [("handled", "asked to stop\nTrue\n(1,) True\n"), ("raised", "stopped\n(1,) False\n")],
)
def test_ctrl_c_is_for_the_process_to_decide(file, how, output):
    """The terminal signals the whole process group: a call in progress goes on, or is dropped and answers no other."""
    command = [sys.executable, "-c", INTERRUPTED, f"{file}:do", how]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    time.sleep(0.2)
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.communicate(timeout=60)[0] == output
    assert eventually(lambda: not processes(file))
