"""Programs that break things, as data: what a judge of untrusted code has to survive, each with its right outcome.

All claim to solve one task: stdin has a number of numbers, then the numbers, and their sum is to be printed (or `f` is
called with two numbers). Families are crossed with variations, more than 500 programs in all. A program that tries to
get out of its sandbox prints the right sum only where it was kept in, so that `passed` is its right outcome.

Run them in a sandbox only.
"""
# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import dataclasses
import itertools
import signal
import textwrap
from collections.abc import Iterator

from hdl_jax.data.code_row import CodeRow, CodeTest

ROW = CodeRow("sum", "Print the sum.", (CodeTest("2\n3 4\n", "7\n"),), "", "", {})
CALL = CodeRow("sum", "Return the sum.", (CodeTest("[3, 4]", "7"),), "f", "", {})
GOOD = "n = int(input())\nprint(sum(map(int, input().split())))"
MARK = "86421.97531"  # seconds that a process sleeps which nobody is to find afterwards


@dataclasses.dataclass(frozen=True)
class Case:
    """Attributes:
    name: family and variation. source: the program.
    outcomes: of the judge, those that are right. row: the task.
    needs: the least isolation that makes them right.
    """

    name: str
    source: str
    outcomes: frozenset[str]
    row: CodeRow = ROW
    needs: str = "sandlock"

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]


def cases(port: int) -> list[Case]:
    """All of them. `port` is one of this machine's that something listens on, which no program may reach."""
    found = [
        *_good(), *_loops(), *_memory(), *_output(), *_bombs(), *_signals(), *_exits(), *_exceptions(), *_forgery(),
        *_files(), *_escapes(), *_network(port), *_daemons(), *_texts(), *_calls(),
    ]  # fmt: skip
    assert len({case.name for case in found}) == len(found)
    return found


def _case(name: str, source: str, *outcomes: str, row: CodeRow = ROW, needs: str = "sandlock") -> Case:
    return Case(name, textwrap.dedent(source).strip("\n"), frozenset(outcomes), row, needs)


def _crossed(family: str, bodies: dict[str, str], wrappers: dict[str, str]) -> Iterator[tuple[str, str]]:
    for (body, text), (wrapper, around) in itertools.product(bodies.items(), wrappers.items()):
        indent = next((line[: -len("BODY")] for line in around.splitlines() if line.strip() == "BODY"), "")
        yield f"{family}/{body}/{wrapper}", around.replace(indent + "BODY", textwrap.indent(text, indent))


# What a body runs in.
_PLAIN = "BODY"
_SWALLOWS = "while True:\n    try:\n        BODY\n    except BaseException:\n        pass"
_THREAD = "import threading\ndef run():\n    BODY\nthreading.Thread(target=run).start()"
_CHILD = "import os\nif os.fork() == 0:\n    BODY\nos.wait()"
_AROUND = {"plain": _PLAIN, "swallows": _SWALLOWS, "thread": _THREAD, "child": _CHILD}
_SOLVED = {"solved": f"{GOOD}\nBODY"}


def _good() -> Iterator[Case]:
    for name, source in {
        "plain": GOOD,
        "bytes": "import sys\nr = sys.stdin.buffer.readline\nr(); print(sum(map(int, r().split())))",
        "raw": "import os\nos.write(1, b'%d\\n' % sum(map(int, os.read(0, 99).split()[1:])))",
        "again": "print(sum(map(int, open(0).read().split()[1:])))",
        "thread": f"import threading\ndef run():\n{textwrap.indent(GOOD, '    ')}\nthreading.Thread(target=run).start()",
        "child": f"import os\nif os.fork() == 0:\n{textwrap.indent(GOOD, '    ')}\nelse:\n    os.wait()",
        "exits": f"{GOOD}\nexit()",
        "closes": f"{GOOD}\nimport sys\nsys.stdout.close()",
    }.items():
        yield _case(f"good/{name}", source, "passed")


def _loops() -> Iterator[Case]:
    bodies = {
        "busy": "while True: pass",
        "power": "x = 9**9**9",
        "range": "x = sum(range(10**13))",
        "sleep": "import time; time.sleep(10**6)",
        "pause": "import signal; signal.pause()",
        "regex": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
        "lock": "import threading; k = threading.Lock(); k.acquire(); k.acquire()",
        "queue": "import queue; queue.Queue().get()",
        "fifo": "import os; os.path.exists('p') or os.mkfifo('p'); open('p')",
        "calls": "import os\nwhile True: os.getpid()",
        "nothing": "[0 for _ in iter(int, 1) if False]",
        "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass",
    }
    wrappers = {
        **_AROUND,
        **_SOLVED,
        "at exit": "import atexit\ndef run():\n    BODY\natexit.register(run)",
        "deaf": (
            "import signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\nBODY"
        ),
        "blocks": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nBODY",
        "session": "import os\ntry: os.setsid()\nexcept OSError: pass\nBODY",
    }
    for name, source in _crossed("loop", bodies, wrappers):
        yield _case(name, source, "timeout")


def _memory() -> Iterator[Case]:
    bodies = {
        "block": "x = bytearray(6 * 10**9)",
        "list": "x = []\nwhile True: x.append(bytearray(10**6))",
        "text": "x = 'x' * 1000\nwhile True: x += x",
        "numbers": "x = [0]\nwhile True: x += x",
        "keys": "x = {}\nwhile True: x[len(x)] = str(len(x)) * 100",
        "integer": "x = 1 << (1 << 33)",
        "tuple": "x = ()\nwhile True: x += (0,) * 10**7",
    }
    for name, source in _crossed("memory", bodies, _AROUND):
        # In a thread or a child it is the thread or child that fails, and nothing is printed.
        loose = {"plain": (), "swallows": ("timeout",)}.get(name.rpartition("/")[2], ("wrong", "timeout", "error"))
        yield _case(name, source, "memory", *loose)
    held = {
        "unnamed files": "import os\nfor i in range(40): os.write(os.memfd_create(str(i)), bytes(20 << 20))",
        "shared pages": "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 20)); x[-1].write(bytes(1 << 20))",
        "files": "for i in range(99): open(str(i), 'wb').write(bytes(10 << 20))",
        "shm": "for i in range(99): open(f'/dev/shm/{i}', 'wb').write(bytes(10 << 20))",
        "children": "import os, time\nfor _ in range(20):\n    if os.fork() == 0: x = b'x' * (50 << 20); time.sleep(99)",
    }
    for name, body in held.items():
        for wrapper, after in {"waits": "import time; time.sleep(99)", "busy": "while True: pass"}.items():
            yield _case(f"memory/{name}/{wrapper}", f"{body}\n{after}", "memory", "error", needs="bubblewrap")


def _output() -> Iterator[Case]:
    bodies = {
        "lines": "while True: print('x' * 1000)",
        "one line": "while True: print('x' * 1000, end='')",
        "stderr": "import sys\nwhile True: sys.stderr.write('x' * 1000)",
        "raw": "import os\nwhile True: os.write(1, b'x' * 1000)",
        "zeros": "import os\nwhile True: os.write(1, bytes(1000))",
        "broken": "import os\nwhile True: os.write(1, b'\\xff' * 1000)",
        "copy": "import shutil\nshutil.copyfileobj(open('/dev/zero', 'rb'), open(1, 'wb'))",
    }
    for name, source in _crossed("output", bodies, {**_AROUND, **_SOLVED}):
        yield _case(name, source, "output")


def _bombs() -> Iterator[Case]:
    bodies = {
        "fork": "import os\nwhile True: os.fork()",
        "spawn": "import subprocess\nx = []\nwhile True: x.append(subprocess.Popen(['sleep', '60']))",
        "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        "daemons": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "processes": "import multiprocessing as m, time\nwhile True: m.Process(target=time.sleep, args=(60,)).start()",
        "orphans": "import os, time\nwhile True:\n    if os.fork() == 0:\n        os.setsid()\n        os.fork()\n        time.sleep(60)",
        "shell": "import subprocess\nsubprocess.run(['sh', '-c', 'b() { b | b & }; b; sleep 60'])",
        "files": "x = []\nwhile True: x.append(open('/dev/null'))",
        "pipes": "import os\nwhile True: os.pipe()",
        "sockets": "import socket\nx = []\nwhile True: x.append(socket.socketpair())",
    }
    for name, source in _crossed("bomb", bodies, {"plain": _PLAIN, "swallows": _SWALLOWS, **_SOLVED}):
        yield _case(name, source, "error", "timeout", "memory", "output")


_STOPS = ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")
_HARMLESS = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPIPE", "SIGXFSZ")


def _signals() -> Iterator[Case]:
    for number in sorted(signal.Signals):
        name = number.name
        right = ("passed", "timeout") if name in _STOPS else ("passed",) if name in _HARMLESS else ("error",)
        right = ("timeout",) if name == "SIGXCPU" else right
        if name == "SIGKILL":
            right = ("error", "memory")  # where a guard kills at the limit of memory, it cannot be told from that
        yield _case(f"signal/self {name}", f"import os\nos.kill(os.getpid(), {int(number)})\n{GOOD}", *right)
        yield _case(f"signal/group {name}", f"import os\nos.killpg(0, {int(number)})\n{GOOD}", *right)
        parent = f"import os\ntry: os.kill(os.getppid(), {int(number)})\nexcept PermissionError: pass\n{GOOD}"
        yield _case(f"signal/parent {name}", parent, "passed", needs="bubblewrap")
    for name, target in {"all": "-1", "first": "1"}.items():
        source = f"import os\ntry: os.kill({target}, 9)\nexcept OSError: pass\n{GOOD}"
        yield _case(f"signal/{name}", source, "passed", needs="bubblewrap")


def _exits() -> Iterator[Case]:
    for code in (1, 2, 3, 7, 42, 100, 126, 127, 128, 137, 255):
        yield _case(f"exit/{code}", f"{GOOD}\nimport sys\nsys.exit({code})", "error")
        yield _case(f"exit/at once {code}", f"{GOOD}\nimport os, sys\nsys.stdout.flush()\nos._exit({code})", "error")
    for name, source in {
        "text": f"{GOOD}\nimport sys\nsys.exit('passed')",
        "raised": f"{GOOD}\nraise SystemExit(9)",
        "hook": "import sys\nsys.excepthook = lambda *a: None\n1 / 0",
        "hook exits 0": f"{GOOD}\nimport sys, os\nsys.excepthook = lambda *a: None\n1 / 0",
        "abort": f"{GOOD}\nimport os\nos.abort()",
        "segfault": f"{GOOD}\nimport ctypes\nctypes.string_at(0)",
        "at exit": f"{GOOD}\nimport atexit, os\natexit.register(os._exit, 3)",
    }.items():
        yield _case(f"exit/{name}", source, "error")
    for name, source in {
        "nothing": "import os\nos._exit(0)",
        "before": f"import sys\nsys.exit(0)\n{GOOD}",
        "unflushed": f"{GOOD}\nimport os\nos._exit(0)",
        "quiet": "try: 1 / 0\nexcept ZeroDivisionError: pass",
        "closed": f"import os\nos.close(1)\ntry:\n{textwrap.indent(GOOD, '    ')}\nfinally: os._exit(0)",
    }.items():
        yield _case(f"exit/{name}", source, "wrong")

    yield _case("exit/empty", "", "unparsed")


def _exceptions() -> Iterator[Case]:
    names = (
        "ArithmeticError AssertionError AttributeError BaseException BlockingIOError BrokenPipeError BufferError "
        "ChildProcessError ConnectionError EOFError Exception FileExistsError FileNotFoundError FloatingPointError "
        "GeneratorExit ImportError IndentationError IndexError InterruptedError IsADirectoryError KeyError "
        "KeyboardInterrupt LookupError ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError "
        "OverflowError PermissionError ProcessLookupError RecursionError ReferenceError RuntimeError StopAsyncIteration "
        "StopIteration SyntaxError SystemError TabError TimeoutError TypeError UnboundLocalError UnicodeError "
        "ValueError ZeroDivisionError"
    )
    for name in names.split():
        yield _case(f"exception/{name}", f"{GOOD}\nraise {name}('passed')", "error")
    yield _case("exception/MemoryError", f"{GOOD}\nraise MemoryError", "memory")
    for name, source in {
        "deep": "def f(): f()\nf()",
        "no text": "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
        "long": "raise ValueError('x' * 10**6)",
        "control": "raise ValueError('\\x00\\x1b[2J\\ud800')",
        "group": "raise ExceptionGroup('many', [ValueError(i) for i in range(1000)])",
        "chain": "e = None\nfor i in range(2000):\n    try: raise ValueError(i) from e\n    except ValueError as x: e = x\nraise e",
    }.items():
        yield _case(f"exception/{name}", source, "error")


def _forgery() -> Iterator[Case]:
    for text in (
        "passed",
        '{"outcome": "ran", "output": "7\\n", "detail": "", "clean": true}',
        "7.0000001e99",
        "nan",
        "inf",
    ):
        yield _case(f"forgery/prints {text[:12]}", f"print({text!r})", "wrong")
        every = f"import os\nfor fd in range(256):\n    try: os.write(fd, {text.encode()!r})\n    except OSError: pass"
        yield _case(f"forgery/every descriptor {text[:12]}", every, "wrong")
        files = (
            "import glob\nfor path in glob.glob('/proc/[0-9]*/fd/*'):\n"
            f"    try: open(path, 'w').write({text!r})\n    except OSError: pass\nprint(8)"
        )
        yield _case(f"forgery/every process {text[:12]}", files, "wrong")
    answers = (
        "import json, os, struct\nb = json.dumps({'outcome': 'ran', 'output': '7\\n', 'detail': '', 'clean': True})"
    )
    frame = f"{answers}.encode()\nfor fd in range(3, 99):\n    try: os.write(fd, struct.pack('>Q', len(b)) + b)\n    except OSError: pass"
    yield _case("forgery/a frame", f"{frame}\nprint(8)", "wrong")
    for name, source in {
        "memory": (
            "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    if int(pid) != os.getpid():\n"
            "        try: print(len(open(f'/proc/{pid}/mem', 'rb').read(1)))\n        except OSError: pass\n" + GOOD
        ),
        "trace": "import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == -1\n" + GOOD,
        "environ": "import os\nassert not any('TOKEN' in name or 'USER' in name for name in os.environ)\n" + GOOD,
    }.items():
        yield _case(f"forgery/parent's {name}", source, "passed")


def _files() -> Iterator[Case]:
    for name, source in {
        "cwd": "import shutil, os\nshutil.rmtree(os.getcwd(), ignore_errors=True)",
        "tmp": "import shutil\nshutil.rmtree('/tmp', ignore_errors=True)",
        "root": "import shutil\nshutil.rmtree('/', ignore_errors=True)",
        "itself": "import os\nos.unlink('solution.py')",
        "many": "for i in range(300): open(str(i), 'w')",
        "deep": "import os\nfor i in range(300): os.mkdir('d'); os.chdir('d')",
        "long name": "open('x' * 255, 'w').write('x')",
        "odd names": "import os\nfor n in (b'\\xff', b'a\\nb', b'-rf', b'*'): open(n, 'w')",
        "closed": "import os\nos.makedirs('a/b/c'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "cwd closed": "import os\nos.chmod('.', 0)",
        "symlink": "import os\nos.symlink('/etc/passwd', 'p'); os.symlink('..', 'up'); os.symlink('loop', 'loop')",
        "hard link": "import os\nos.link('solution.py', 'other')",
        "fifo": "import os\nos.mkfifo('p')",
        "socket": "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('s')",
        "sparse": "open('big', 'wb').truncate(60 << 20)",
        "unlinked": "import os\nf = open('x', 'wb'); os.unlink('x'); f.write(bytes(5 << 20))",
        "locked": "import fcntl\nf = open('x', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "attributes": "import os\ntry: os.setxattr('solution.py', 'user.a', b'b')\nexcept OSError: pass",
        "input": "import os\nopen('/proc/self/fd/0').read()",
    }.items():
        # All of the machine takes a while to be refused.
        loose = ("timeout",) if name == "root" else ()
        yield _case(f"file/{name}", f"{GOOD}\n{source}", "passed", *loose)
    yield _case("file/too large", "open('big', 'wb').truncate(1 << 33)\n" + GOOD, "error")
    yield _case(
        "file/written too large", "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))", "error", "memory"
    )


def _kept_in(attempt: str) -> str:
    """A program that solves the task where an attempt raises or says False, and not where it succeeds."""
    return f"def attempt():\n{textwrap.indent(attempt, '    ')}\ntry: out = attempt()\nexcept (OSError, AttributeError, ValueError): out = False\nif out: print('out')\nelse:\n{textwrap.indent(GOOD, '    ')}"


def _escapes() -> Iterator[Case]:
    libc = "import ctypes, os\nc = ctypes.CDLL(None)\n"
    for name, attempt in {
        "setuid": "import os\nos.setuid(0)\nreturn True",
        "setgroups": "import os\nos.setgroups([0])\nreturn True",
        "root's home": "import os\nreturn os.listdir('/root')",
        "passwords": "return open('/etc/shadow').read()",
        "users": "return open('/etc/passwd').read()",
        "write usr": "return open('/usr/x', 'w')",
        "write root": "return open('/x', 'w')",
        "write etc": "return open('/etc/x', 'w')",
        "disk": "return open('/dev/vda', 'rb').read(1)",
        "memory": "return open('/dev/mem', 'rb').read(1)",
        "kernel": "return open('/proc/kcore', 'rb').read(1)",
        "settings": "return open('/proc/sys/kernel/hostname', 'w').write('x')",
        "reset": "return open('/proc/sysrq-trigger', 'w').write('b')",
        "chroot": "import os\nos.mkdir('r')\nos.chroot('r')\nreturn True",
        "node": "import os, stat\nos.mknod('n', stat.S_IFBLK | 0o600, os.makedev(254, 0))\nreturn True",
        "mount": libc + "return c.mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0",
        "unmount": libc + "return c.umount2(b'/usr', 2) == 0",
        "user namespace": libc + "return c.unshare(0x10000000) == 0",
        "mount namespace": libc + "return c.unshare(0x20000) == 0",
        "host name": libc + "return c.sethostname(b'x', 1) == 0",
        "clock": libc + "return c.settimeofday(ctypes.create_string_buffer(16), 0) == 0",
        "reboot": libc + "return c.reboot(0) == 0",
        "module": libc + "return c.syscall(175, 0, 0, 0) == 0",
        "swap": libc + "return c.swapoff(b'/dev/vda') == 0",
        "quota": libc + "return c.acct(b'/tmp/x') == 0",
        "limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn True",
        "processes": "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))\nreturn True",
        "priority": "import os\nos.nice(-5)\nreturn True",
        "real time": "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\nreturn True",
        "owner": "import os\nos.chown('solution.py', 0, 0)\nreturn True",
    }.items():
        yield _case(f"escape/{name}", _kept_in(attempt), "passed", needs="bubblewrap")


def _network(port: int) -> Iterator[Case]:
    tcp = f"import socket\nreturn socket.create_connection(('127.0.0.1', {port}), 0.3)"
    for name, attempt in {
        "tcp": tcp,
        "tcp 6": f"import socket\nreturn socket.create_connection(('::1', {port}), 0.3)",
        "any address": f"import socket\nreturn socket.create_connection(('0.0.0.0', {port}), 0.3)",
        "mapped": f"import socket\nreturn socket.create_connection(('::ffff:127.0.0.1', {port}), 0.3)",
        "non-blocking": (
            f"import socket, select\ns = socket.socket()\ns.setblocking(False)\ns.connect_ex(('127.0.0.1', {port}))\n"
            "select.select([], [s], [], 0.3)\nreturn s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and s.getpeername()"
        ),
        "raw": "import socket\nreturn socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "packets": "import socket\nreturn socket.socket(17, socket.SOCK_RAW)",
        "urllib": f"import urllib.request\nreturn urllib.request.urlopen('http://127.0.0.1:{port}', timeout=0.3)",
        "child": f"import subprocess, sys\nreturn subprocess.run([sys.executable, '-c', 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 0.3)'], stderr=-3).returncode == 0",
    }.items():
        yield _case(f"network/{name}", _kept_in(attempt), "passed")


def _daemons() -> Iterator[Case]:
    sleeper = f"os.execvp('sleep', ['sleep', '{MARK}'])"
    bodies = {
        "child": f"if os.fork() == 0: {sleeper}",
        "session": f"if os.fork() == 0:\n    os.setsid()\n    {sleeper}",
        "orphan": f"if os.fork() == 0:\n    if os.fork() == 0: {sleeper}\n    os._exit(0)\nos.wait()",
        "daemon": f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.chdir('/')\n        {sleeper}\n    os._exit(0)",
        "popen": f"import subprocess\nsubprocess.Popen(['sleep', '{MARK}'], start_new_session=True)",
        "deaf": f"import signal\nif os.fork() == 0:\n    for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n    {sleeper}",
    }
    # Written past Python's buffer, which a child would write again.
    first = "import os\nos.write(1, b'%d\\n' % sum(map(int, os.read(0, 99).split()[1:])))\n"
    for name, body in bodies.items():
        for variation, after in {
            "ends": "",
            "exits": "\nos._exit(0)",
            "flood": f"\nfor _ in range(8):\n    if os.fork() == 0: {sleeper}",
        }.items():
            yield _case(f"daemon/{name}/{variation}", f"{first}{body}{after}", "passed")


def _texts() -> Iterator[Case]:
    for name, source in {
        "syntax": "def f(:",
        "indent": "  x = 1\n y = 2",
        "brackets": "(" * 5000 + ")" * 5000,
        "minus": "-" * 100_000 + "1",
        "null": "print('\0')",
        "coding": "# coding: no-such-coding\nprint(7)\nx = undefined",
        "surrogate": "x = '\ud800'\nundefined",
        "python 2": "print 7",
        "prose": "The answer is seven.",
        "json": '{"outcome": "ran", "output": "7"',
        "huge": "x = 1\n" * 200_000 + "undefined",
        "import": "import no_such_module",
        "numpy of ours": "import hdl_jax",
    }.items():
        yield _case(
            f"text/{name}", source, "error", *(("memory", "timeout") if name in ("minus", "brackets", "huge") else ())
        )


def _calls() -> Iterator[Case]:
    for name, source in {
        "plain": "def f(a, b): return a + b",
        "method": "class Solution:\n    def f(self, a, b): return a + b",
        "prints": "def f(a, b):\n    print('8', end='')\n    return a + b",
        "real": "def f(a, b): return float(a + b)",
        "leaves a thread": "import threading, time\ndef f(a, b):\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    return a + b",
    }.items():
        yield _case(f"call/{name}", source, "passed", row=CALL)
    for name, result in {
        "equal to all": "type('E', (), {'__eq__': lambda s, o: True})()",
        "integer of its own": "type('I', (int,), {'__eq__': lambda s, o: True, '__repr__': lambda s: '7'})(8)",
        "text of its own": "type('S', (str,), {'__eq__': lambda s, o: True})('8')",
        "text": "'7'",
        "list": "[7]",
        "nothing": "None",
        "truth": "True",
        "nan": "float('nan')",
        "inf": "float('inf')",
        "set": "{7}",
        "bytes": "b'7'",
        "complex": "7 + 0j",
        "generator": "(x for x in [7])",
        "function": "lambda: 7",
        "huge": "10**6000",
        "surrogate": "'\\ud800'",
        "deep": "__import__('functools').reduce(lambda x, _: [x], range(500), 7)",
        "very deep": "__import__('functools').reduce(lambda x, _: [x], range(100000), 7)",
    }.items():
        yield _case(f"call/returns {name}", f"def f(a, b): return {result}", "wrong", "error", row=CALL)
    for name, source, right in (
        ("raises", "def f(a, b): raise ValueError(a + b)", "error"),
        ("exits", "import sys\ndef f(a, b): sys.exit(0)", "error"),
        ("exits at once", "import os\ndef f(a, b): os._exit(0)", "error"),
        ("is missing", "def g(a, b): return a + b", "error"),
        ("loops", "def f(a, b):\n    while True: pass", "timeout"),
        ("eats memory", "def f(a, b): return bytearray(6 * 10**9)", "memory"),
        ("returns much", "def f(a, b): return 'x' * (40 << 20)", "output"),
        ("patches json", "import json\njson.dumps = lambda *a, **k: '7'\ndef f(a, b): return 8", "wrong"),
        ("patches os", "import os\nos.write = lambda *a: len(a[1])\ndef f(a, b): return 8", "wrong"),
    ):
        yield _case(f"call/{name}", source, right, row=CALL)
