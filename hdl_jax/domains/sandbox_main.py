"""Runs the tests of one program, inside the sandbox: the text of this module is given to the sandbox's interpreter.

It knows the standard library only, and any Python from 3.9. The interpreter starts once a program; every test is a fork
of it as it was before the program ran. Tests come one by one, so that none finds the input of a later one, and expected
outputs never come at all. The process itself runs nothing of the program and cannot be read or traced by it.

Requests come in on stdin, answers leave on stdout: frames of a length (8 bytes, big-endian) and as much JSON.

  {"source", "entry", "prelude", "limits": fields of Limits}  ->  {"ready": version of Python}
  {"input", "wall_s"}  ->  {"outcome", "output", "detail", "clean": whether nothing of the test is left}
"""

import ctypes
import errno
import gc
import json
import os
import re
import resource
import select
import signal
import stat
import struct
import sys
import time
import types

TICK_S = 0.05  # between two looks at memory
DETAIL = 2000  # bytes of stderr that are kept for its last line
LEFT_FILES = 100  # that are removed after a test; a program that leaves more gets a new sandbox for its next test
INODE = 1 << 10  # bytes that the kernel holds for a file, at least
STACK = 120 << 20  # what a main thread can grow to: Linux keeps at least 128 MiB free for it
SCRATCH = os.environ.get("SANDBOX_SCRATCH", "/tmp")
ALONE = os.getpid() == 1  # whether everything in sight is the program's: the process is the first of its namespace
DUMPABLE, SUBREAPER, PARENT_DEATH = 4, 36, 1  # prctl's
LIBC = ctypes.CDLL(None)


def prctl(option, value):
    LIBC.prctl(option, value, 0, 0, 0)


def read_frame(fd):
    """The next request; None when there will be none."""
    head = read_exactly(fd, 8)
    body = head and read_exactly(fd, struct.unpack(">Q", head)[0])
    return None if not body else json.loads(body)


def read_exactly(fd, size):
    parts = bytearray()
    while len(parts) < size:
        part = os.read(fd, min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def write_frame(fd, value):
    body = json.dumps(value).encode()
    left = memoryview(struct.pack(">Q", len(body)) + body)
    while left:
        left = left[os.write(fd, left) :]


class Test:
    """One test: the process that runs it, and what it has written so far."""

    def __init__(self, program, text):
        self.program, self.limits = program, program["limits"]
        self.stdin = input_file(text)
        self.parts = {}  # what each pipe gave: reading end -> bytearray
        self.ends = [os.pipe() for _ in range(3)]  # stdout, stderr, what a call returned
        self.status = None
        self.limit = None  # the outcome of the limit that ended it

    def child(self):
        """In the new process: becomes a plain interpreter of the program, with nothing open but its own three."""
        prctl(PARENT_DEATH, signal.SIGKILL)
        prctl(DUMPABLE, 1)  # so that what it holds can be counted
        os.setsid()
        returned = self.ends[2][1]
        for number, fd in enumerate((self.stdin, self.ends[0][1], self.ends[1][1])):
            os.dup2(fd, number)
        os.dup2(returned, 3)
        os.closerange(4, max_fd())
        os.set_inheritable(3, False)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(SCRATCH)
        set_limits(self.limits)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
        vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)

    def watch(self, pid, wall_s):
        """In the first process: reads along until the test's process has ended or a limit is met; ends all of it."""
        os.close(self.stdin)
        poll = select.poll()
        for reading, writing in self.ends:
            os.close(writing)
            os.set_blocking(reading, False)
            poll.register(reading, select.POLLIN)
            self.parts[reading] = bytearray()
        poll.register(WAKE[0], select.POLLIN)
        begin = time.monotonic()
        look = begin + TICK_S
        while self.status is None and self.limit is None:
            now = time.monotonic()
            if now >= begin + wall_s:
                self.limit = "timeout"
                break
            if now >= look:
                look = now + TICK_S
                if memory_used() > self.limits["memory_mb"] << 20:
                    self.limit = "memory"
                    break
            for fd, _ in poll.poll(max(0.0, min(look, begin + wall_s) - now) * 1000 + 1):
                if fd == WAKE[0]:
                    drain(fd)
                elif not self.read(fd):
                    poll.unregister(fd)
            self.status = reap(pid)
        end_all()
        for fd in self.parts:
            while self.limit != "output" and self.read(fd):
                pass
            os.close(fd)

    def read(self, fd):
        """Takes what a pipe has now; whether there may be more."""
        try:
            part = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        room = self.limits["output_bytes"] - len(self.parts[fd])
        self.parts[fd] += part[:room]
        if len(part) > room:
            self.limit = self.limit or "output"
            return False
        return bool(part)

    def answer(self):
        stdout, stderr, returned = (bytes(part) for part in self.parts.values())
        call = bool(self.program["entry"])
        output = stdout.decode("utf-8", "replace")
        if call:
            output = returned[1:].decode("ascii", "replace") if returned[:1] == b"=" else ""
        outcome, detail = self.outcome(stderr, returned)
        if outcome == "ran" and call and not output:
            outcome, detail = "error", "ended before the call returned"
        return {"outcome": outcome, "output": output, "detail": detail}

    def outcome(self, stderr, returned):
        if self.limit:
            return self.limit, {
                "timeout": "ran into the time limit",
                "memory": f"used more than {self.limits['memory_mb']} MiB of memory",
                "output": f"wrote more than {self.limits['output_bytes']} bytes",
            }[self.limit]
        if self.status is None:
            return "error", "its process was lost"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            if number == signal.SIGXCPU:
                return "timeout", "ran into the limit of processor time"
            if number == signal.SIGKILL and not ALONE:
                return "memory", "killed by SIGKILL, as its guard does at the limit of memory"
            return "error", "killed by " + signal_name(number)
        code = os.WEXITSTATUS(self.status)
        if code == 0:
            return "ran", ""
        lines = stderr[-DETAIL:].decode("utf-8", "replace").strip().splitlines()
        return (
            "memory" if returned[:1] == b"m" else "error",
            (lines[-1] if lines else "") or f"ended with exit status {code}",
        )


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def input_file(text):
    """A file with the text that only this process can write: a program may open it again, or seek in it."""
    writing = os.memfd_create("stdin") if hasattr(os, "memfd_create") else os.open(SCRATCH, os.O_TMPFILE | os.O_RDWR)
    left = memoryview(text.encode("utf-8", "surrogatepass"))
    while left:
        left = left[os.write(writing, left) :]
    reading = os.open(f"/proc/self/fd/{writing}", os.O_RDONLY)
    os.close(writing)
    return reading


def max_fd():
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)


def set_limits(limits):
    wanted = {
        resource.RLIMIT_AS: limits["memory_mb"] << 20,
        resource.RLIMIT_CPU: int(limits["wall_s"]) + 2,
        resource.RLIMIT_NPROC: limits["processes"] + 1 + (0 if ALONE else tasks_of_user()),
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_FSIZE: limits["file_mb"] << 20,
        resource.RLIMIT_STACK: STACK,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def reap(pid):
    """Takes in every process that has ended; the status of `pid` if it is among them, else None."""
    status = None
    while True:
        try:
            ended, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if ended == 0:
            return status
        if ended == pid:
            status = code


def end_all():
    """Kills every process of the test, and waits until they are gone: what forks meanwhile is found the next time."""
    while True:
        # Alone, all at once: none can fork away.
        for pid in [-1] if ALONE else descendants(os.getpid()):
            kill(pid)
        try:
            ended, _ = os.waitpid(-1, 0 if ALONE else os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(0.001)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def proc(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has ended
        return b""


def children(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []
    return [int(child) for task in tasks for child in proc(pid, f"task/{task}/children").split()]


def descendants(pid):
    """All processes that one is an ancestor of; orphans come to the first subreaper above them."""
    found, left = [], [pid]
    while left:
        below = children(left.pop())
        found += below
        left += below
    return found


def tasks_of_user():
    """Processes and threads of this user, which a limit on their number counts."""
    total = 0
    for pid in processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            pass
    return total


def memory_used():
    """Bytes that the test's processes hold, whether mapped or in files that are in memory."""
    pids = [pid for pid in processes() if pid != 1] if ALONE else descendants(os.getpid())
    total = sum(memory_of(pid) for pid in pids)
    if ALONE:
        for folder in (SCRATCH, "/dev/shm"):
            use = os.statvfs(folder)
            total += (use.f_blocks - use.f_bfree) * use.f_frsize + (use.f_files - use.f_ffree) * INODE
        for line in proc("", "sysvipc/shm").splitlines()[1:]:
            total += int(line.split()[14])
    return total


def memory_of(pid):
    """Of one process: its own pages and those it shares, and files without a name that it may have filled."""
    held = re.findall(rb"^Rss(?:Anon|Shmem):\s+(\d+) kB", proc(pid, "status"), re.MULTILINE)
    if not held:  # it has ended
        return 0
    total = sum(int(size) << 10 for size in held)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                    total += os.stat(f"/proc/{pid}/fd/{name}").st_blocks * 512
            except FileNotFoundError:  # closed meanwhile
                pass
    except PermissionError:  # it has hidden what it holds, which counts as too much
        return sys.maxsize if ALONE else total
    except OSError:
        pass
    return total


def drain(fd):
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def clean():
    """Removes the files of a test. Whether nothing is left of it."""
    for folder in (SCRATCH, "/dev/shm") if ALONE else (SCRATCH,):
        try:
            with os.scandir(folder) as entries:
                for number, entry in enumerate(entries):
                    if number >= LEFT_FILES or entry.is_dir(follow_symlinks=False):
                        return False
                    os.unlink(entry.path)
        except OSError:
            return False
        if stat.S_IMODE(os.stat(folder).st_mode) != MODES[folder]:
            return False
    return not ALONE or all(proc("", f"sysvipc/{kind}").count(b"\n") == 1 for kind in ("shm", "sem", "msg"))


def serve():
    """Answers requests. Returns in the process of a test, with what it is to run; else None."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    program = read_frame(requests)
    if program is None:
        return None
    program["prelude"] = compile(program["prelude"], "prelude.py", "exec")
    exec(program["prelude"], {})  # what it imports is then there for every test
    for number in range(3):
        os.dup2(null, number)
    prctl(DUMPABLE, 0)
    prctl(SUBREAPER, 1)
    os.chdir("/")
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(WAKE[1], warn_on_full_buffer=False)
    gc.collect()
    gc.freeze()
    write_frame(answers, {"ready": sys.version.split()[0]})
    while True:
        request = read_frame(requests)
        if request is None:
            return None
        with open(os.path.join(SCRATCH, "solution.py"), "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(program["source"])
        test = Test(program, request["input"])
        pid = os.fork()
        if pid == 0:
            test.child()
            return program, request["input"]
        test.watch(pid, request["wall_s"])
        write_frame(answers, dict(test.answer(), clean=clean()))


def run(program, text):
    """Runs the program as an interpreter would that was started with it; a call's result goes to descriptor 3."""
    sys.argv = ["solution.py"]
    sys.path.insert(0, SCRATCH)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__="solution.py", __builtins__=__builtins__)
    sys.modules["__main__"] = main
    names = main.__dict__
    sys.excepthook = show
    entry, source = program["entry"], program["source"]
    loads, dumps, write = json.loads, json.dumps, os.write
    exec(program["prelude"], names)
    if entry:
        names["__name__"] = "solution"
    exec(compile(source, "solution.py", "exec", dont_inherit=True), names)
    if entry:
        owner = names.get("Solution")
        function = names.get(entry) if owner is None or not hasattr(owner, entry) else getattr(owner(), entry)
        if function is None:
            raise NameError(f"the program defines no {entry}")
        left = memoryview(b"=" + dumps(function(*loads(text))).encode())
        while left:
            left = left[write(3, left) :]


def ended(program, text):
    """Runs the program to its end, threads and exit functions included; its exit status.

    An interpreter's own end takes down every module, which is half of what a small test costs.
    """
    import atexit

    status = 0
    try:
        run(program, text)
    except SystemExit as error:
        if isinstance(error.code, int):
            status = error.code
        elif error.code is not None:
            print(error.code, file=sys.stderr)
            status = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            status = status or 120  # what an interpreter ends with then
    return status & 0xFF


def show(kind, error, trace):
    """Prints an exception as an interpreter does, without the frames of this module."""
    import traceback

    # Files are in memory, too: no space for them is none of it.
    if issubclass(kind, MemoryError) or getattr(error, "errno", None) in (errno.ENOMEM, errno.ENOSPC):
        try:
            os.write(3, b"m")
        except OSError:
            pass
    while trace is not None and trace.tb_frame.f_code.co_filename != "solution.py":
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace, limit=-10)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path]
    sys.setrecursionlimit(50_000)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    WAKE = os.pipe()
    for end in WAKE:
        os.set_blocking(end, False)
    MODES = {folder: stat.S_IMODE(os.stat(folder).st_mode) for folder in (SCRATCH, "/dev/shm") if os.path.isdir(folder)}
    job = serve()
    if job is not None:
        status = ended(*job)
        os._exit(status)
