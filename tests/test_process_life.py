"""The life of the process: status, threads and messages, whatever bodies, tokens and the system do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from script import run

PREAMBLE = """
import gc, os, signal, sys, threading, time, warnings, weakref
warnings.simplefilter("ignore", DeprecationWarning)
import threadteam as tt
main = threading.get_ident()

def on_a_worker(pool, action):
    "Call `action` once, on a worker of `pool`; return what it returned."
    results = []
    def body(index):
        if index == 1:
            assert threading.get_ident() != main
            results.append(action())
    pool.exec().broadcast(body)
    return results[0]

def works(pool):
    assert pool.exec().map(abs, range(-50, 0)) == list(range(50, 0, -1))
    pool.exec().broadcast(lambda index: None)

def status_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

pool = tt.Pool(3, acquire_timeout=10.0)
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")


def lines(code: str, *, status: int = 0, silent: bool = True) -> list[str]:
    return run(PREAMBLE + code, status=status, silent=silent).splitlines()


@forks
def test_a_child_of_a_worker_has_pools_that_work() -> None:
    code = """
other = tt.Pool(2, acquire_timeout=10.0)
works(other)
def fork():
    child = os.fork()
    if child == 0:
        status = 1
        try:
            works(pool)
            works(other)
            works(tt.Pool(2, acquire_timeout=10.0))
            status = 0
        finally:
            os._exit(status)
    return status_of(child)
print(on_a_worker(pool, fork))
works(pool)
"""
    assert lines(code) == ["0"]


@forks
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers outlive the thread, as other threads do")
@pytest.mark.parametrize("forker", ["a thread", "a worker"])
def test_a_child_ends_with_its_first_thread_though_it_has_workers_of_its_own(forker: str) -> None:
    code = f"""
other = tt.Pool(2, acquire_timeout=10.0)
children = []
def fork():
    child = os.fork()
    if child == 0:
        works(other)
        return
    children.append(child)
if {forker!r} == "a worker":
    on_a_worker(pool, fork)
else:
    forking = threading.Thread(target=fork)
    forking.start()
    forking.join()
print(status_of(children[0]))
"""
    assert lines(code) == ["0"]


#: What needs room for as many items as it is given, which a limit of the address space takes away.
LARGE = {
    "map": "pool.exec().map(abs, items)",
    "fork_sized": "pool.exec().fork_sized(items, print)",
    "split": "pool.exec().team(lambda team: team.split(items, print))",
    "reduce": "pool.exec().reduce(len(items), 1, lambda start, stop: 1, lambda so_far, _: 0, 0)",
    "from_anchors": "tt.WidthCosts.from_anchors(items)",
    "trace": "tt.trace(capacity=1 << 20).__enter__()",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is read from /proc")
@pytest.mark.parametrize("call", LARGE)
def test_a_call_without_the_memory_for_its_items_is_a_memory_error(call: str) -> None:
    code = f"""
import resource
works(pool)
items = [1] * 2_000_000
def room(share):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + int(share * 8 * len(items))
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
for share in (0.2, 0.5, 1.2, 1.7, 2.2, 2.7, 3.2, 3.7, 4.2, 5.2):
    room(share)
    try:
        {LARGE[call]}
    except (MemoryError, ValueError, TypeError):
        pass
works(pool)
"""
    assert lines(code) == []


SECTIONS = {
    "for_ranges": "token.for_ranges(8, 1, lambda start, stop: item(start))",
    "fork": "token.fork(8, lambda job, child: item(job))",
    "map": "token.map(item, range(8))",
    "reduce": "token.reduce(8, 1, lambda start, stop: item(start) or 0, lambda a, b: 0, 0)",
}


@forks
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("forker", ["leader", "worker"])
def test_a_body_that_forks_and_returns_runs_no_other_body_in_the_child(section: str, forker: str) -> None:
    # Every body writes one byte with its process: the child writes the one that it was in, and no other.
    code = f"""
parent, forker = os.getpid(), {forker!r}
reader, writer = os.pipe()
forked = threading.Event()
children = []
def item(number):
    own = (threading.get_ident() == main) == (forker == "leader")
    if own and not forked.is_set():
        forked.set()
        child = os.fork()
        if child:
            children.append(child)
    elif not own:
        forked.wait()
    os.write(writer, b"p" if os.getpid() == parent else b"c")
token = tt.Pool(2, acquire_timeout=10.0).exec()
token.broadcast(lambda index: None)
try:
    {SECTIONS[section]}
except tt.TokenExpired:
    os._exit(5 if os.getpid() != parent else 1)
if os.getpid() != parent:
    os._exit(1)
print(status_of(children[0]))
os.close(writer)
written = b""
while part := os.read(reader, 4096):
    written += part
print(written.count(b"p"), written.count(b"c"))
"""
    # The child of a leader comes back to the application, that of a worker ends with its only thread.
    assert lines(code) == ["5" if forker == "leader" else "0", "8 1"]


@forks
def test_a_fork_while_other_threads_run_sections_and_close_pools_leaves_a_child_that_works() -> None:
    code = """
stop = threading.Event()
def churn():
    while not stop.is_set():
        with tt.Pool(2, acquire_timeout=10.0) as own:
            own.exec().for_ranges(8, 1, lambda start, end: None)
            with own.exec().limit(1) as loan:
                loan.for_ranges(2, 1, lambda start, end: None)
users = [threading.Thread(target=churn) for _ in range(3)]
[user.start() for user in users]
for _ in range(20):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            works(pool)
            pool.close()
            status = 0
        finally:
            os._exit(status)
    assert status_of(child) == 0
stop.set()
[user.join() for user in users]
works(pool)
print("done")
"""
    assert lines(code) == ["done"]


BUSY = """
started = threading.Barrier(4)
def spin(index):
    started.wait()
    while True:
        pass
threading.Thread(target=lambda: pool.exec().broadcast(spin), daemon=True).start()
started.wait()
"""


def test_os_exit_ends_the_process_at_once_with_its_status() -> None:
    assert lines(BUSY + "os._exit(7)", status=7) == []


def test_sys_exit_ends_the_process_with_its_status_while_a_section_runs() -> None:
    assert lines(BUSY + "sys.exit(8)", status=8) == []


@pytest.mark.parametrize("thread", ["leader", "worker"])
def test_sys_exit_in_a_body_ends_the_process_with_its_status(thread: str) -> None:
    code = f"""
def body(index):
    if (threading.get_ident() == main) == ({thread!r} == "leader"):
        sys.exit(9)
pool.exec().broadcast(body)
"""
    assert lines(code, status=9) == []


def test_an_exception_that_nobody_catches_ends_the_process_while_a_section_runs() -> None:
    assert lines(BUSY + "raise ValueError('expected')", status=1, silent=False) == []


def test_a_signal_that_kills_ends_a_process_with_busy_workers() -> None:
    assert lines(BUSY + "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", status=-15) == []


def test_workers_leave_the_signals_that_the_process_is_sent_to_its_other_threads() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    code = """
works(pool)
def blocked():
    status = open("/proc/thread-self/status").read()
    return int(status.split("SigBlk:")[1].split()[0], 16)
mask = on_a_worker(pool, blocked)
sent = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD)
own = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
print(all(mask >> (number - 1) & 1 for number in sent), any(mask >> (number - 1) & 1 for number in own), blocked())
"""
    assert lines(code) == ["True False 0"]


REFUSED = """
import ctypes, resource
if os.getuid() == 0:
    # Another user, and without the capabilities that exempt from the limit.
    os.setresuid(54321, 0, 0)
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << 21 | 1 << 24)
    assert libc.capset(header, sets) == 0
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
before = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
token = pool.exec()
try:
    token.for_ranges(8, 1, lambda start, stop: None)
except tt.ThreadStartError as error:
    print(error.started, error.wanted, "ulimit" in str(error))
print(token.map(abs, [-1, -2]), tt.testing.workers(pool))
try:
    token.broadcast(lambda index: None)
except tt.Refused as error:
    print(error.reason.name)
print(token.limit(1).broadcast(lambda index: None))
pool.close()
resource.setrlimit(resource.RLIMIT_NPROC, before)
with tt.Pool(3, acquire_timeout=10.0) as later:
    works(later)
    print(tt.testing.workers(later))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of processes counts threads on Linux")
def test_a_pool_works_on_with_the_threads_that_a_limit_of_processes_leaves_it() -> None:
    assert lines(REFUSED) == ["0 2 True", "[1, 2] 0", "UNAVAILABLE", "None", "2"]


def test_a_body_that_recurses_without_end_raises_on_a_worker_as_on_any_thread() -> None:
    code = """
def endless(depth):
    return endless(depth + 1)
def caught():
    try:
        endless(0)
    except RecursionError as error:
        return "maximum recursion depth" in str(error)
print(on_a_worker(pool, caught))
works(pool)
"""
    assert lines(code) == ["True"]


def test_a_body_that_closes_its_pool_is_told_so_on_every_thread() -> None:
    code = """
def close():
    try:
        pool.close()
    except tt.ThreadteamError as error:
        return "from inside a body" in str(error)
print(on_a_worker(pool, close), pool.exec().external(lambda width: close()))
with pool.exec().team() as team:
    told = []
    team.run(lambda index, size: told.append(close()))
    print(told)
works(pool)
pool.close()
"""
    assert lines(code) == ["True True", "[True, True, True]"]


def test_a_body_may_close_another_pool_and_drop_one() -> None:
    code = """
def close_others():
    other = tt.Pool(2, acquire_timeout=10.0)
    works(other)
    other.close()
    dropped = tt.Pool(2, acquire_timeout=10.0)
    works(dropped)
    del dropped
    gc.collect()
    return True
print(on_a_worker(pool, close_others))
works(pool)
"""
    assert lines(code) == ["True"]


def test_a_pool_whose_last_reference_goes_on_its_own_worker_ends_its_workers() -> None:
    code = """
names = {}
def drop_the_pool():
    del names["pool"]
    gc.collect()
names["pool"] = tt.Pool(3, name="dropped", acquire_timeout=10.0)
team = names["pool"].exec().team()
with team as members:
    members.run(lambda index, size: drop_the_pool() if index == 1 else None)
del team, members
gc.collect()
stand_in = tt.Pool(1, name="dropped")
assert tt.testing.workers(stand_in) == 0
works(pool)
print("done")
"""
    assert lines(code) == ["done"]


def test_tokens_are_collected_in_any_order() -> None:
    code = """
import random
shuffle = random.Random(7).shuffle
def everything():
    own = tt.Pool(3, acquire_timeout=10.0)
    root = own.exec()
    loan = root.limit(2)
    borrowed = loan.reborrow()
    scope = borrowed.external()
    scope.__enter__()
    other = own.exec(2)
    reservation = other.team()
    members = reservation.__enter__()
    spent = tt.Pool(2, acquire_timeout=10.0)
    team = spent.into_team()
    lead = team.exec()
    lead.broadcast(lambda index: None)
    ring = [own, root, spent]
    ring.append(ring)
    return [own, root, loan, borrowed, scope, other, reservation, members, spent, team, lead, ring]
before = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
for round in range(200):
    objects = everything()
    shuffle(objects)
    while objects:
        objects.pop()
    if round % 20 == 0:
        gc.collect()
gc.collect()
works(pool)
pool.close()
if before:
    kept = tt.cpu_budget().count - 1
    assert len(os.listdir("/proc/self/task")) <= before + kept
print("done")
"""
    assert lines(code) == ["done"]


@pytest.mark.parametrize("started", [False, True])
def test_a_pool_in_a_cycle_with_its_start_hook_is_collected(started: bool) -> None:
    code = f"""
class Owner:
    def __init__(self):
        self.pool = tt.Pool(2, name="cycle", on_start=self.started, acquire_timeout=10.0)
    def started(self, index):
        pass
owner = Owner()
if {started}:
    works(owner.pool)
gone = weakref.ref(owner)
del owner
gc.collect()
stand_in = tt.Pool(1, name="cycle")
print(gone() is None, tt.testing.workers(stand_in))
"""
    assert lines(code) == ["True 0"]


def test_a_pool_in_a_cycle_that_a_token_keeps_alive_keeps_its_hook() -> None:
    code = """
class Owner:
    def __init__(self):
        self.pool = tt.Pool(2, on_start=self.started, acquire_timeout=10.0)
        self.seen = []
    def started(self, index):
        self.seen.append(index)
owner = Owner()
token, seen = owner.pool.exec(), owner.seen
del owner
gc.collect()
token.broadcast(lambda index: None)
print(seen)
del token
"""
    assert lines(code) == ["[0]"]


def test_pools_made_and_dropped_leave_no_thread_memory_or_descriptor() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    code = """
def used():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")
def some(count):
    for number in range(count):
        own = tt.Pool(2 + number % 3, acquire_timeout=10.0)
        own.exec().for_ranges(8, 1, lambda start, stop: None)
        if number % 2:
            own.close()
some(200)
before = used()
some(1000)
after = used()
print(after[0] <= before[0], after[1] == before[1], after[2] - before[2] < 4 << 20)
"""
    assert lines(code) == ["True True True"]


LATE = {
    "a module's object": "last = Last()",
    "a cycle": "last = Last(); last.itself = last; del last",
    "a daemon thread's object": """
held, rest = threading.Event(), threading.Event()
def hold():
    last = Last()
    held.set()
    rest.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
""",
    "a worker's thread-local object": """
local = threading.local()
def hold():
    local.last = Last()
on_a_worker(pool, hold)
""",
    "a module that is removed last": """
import types
sys.modules["kept"] = types.ModuleType("kept")
sys.modules["kept"].last = Last()
sys.kept = Last()
""",
    "a registered exit handler": "import atexit; atexit.register(lambda kept: None, Last())",
}


@pytest.mark.parametrize("holder", LATE)
def test_finalisers_at_the_end_of_the_interpreter_print_nothing(holder: str) -> None:
    code = f"""
class Last:
    def __init__(self):
        self.pool = tt.Pool(3, acquire_timeout=10.0)
        self.token = self.pool.exec()
        self.token.broadcast(lambda index: None)
        self.loan = self.token.limit(2)
        self.scope = self.loan.external()
        self.scope.__enter__()
        self.team = tt.Pool(2, acquire_timeout=10.0).into_team()
        self.lead = self.team.exec()
        self.lead.broadcast(lambda index: None)
        self.reservation = self.pool.exec(1).team()
        self.members = self.reservation.__enter__()
        self.errors = (tt.ThreadteamError, ImportError)
    def __del__(self):
        for close in (self.scope.__exit__, self.loan.close, self.lead.close, self.team.close, self.pool.close):
            try:
                close()
            except self.errors:
                pass
{LATE[holder]}
print("end")
"""
    assert lines(code) == ["end"]


def test_a_short_soak_of_exits_forks_and_pools_leaves_nothing(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    program = Path(__file__).parent.parent / "benchmarks" / "process_life" / "process_life.py"
    done = subprocess.run(
        [sys.executable, program, "--quick", "--json", tmp_path / "soak.json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads((tmp_path / "soak.json").read_text())["parts"]
    assert {name: part["failed"] for name, part in parts.items()} == dict.fromkeys(
        ["exits", "forks", "pools", "threads"], 0
    )


@pytest.mark.parametrize("module", ["threadteam", "threadteam._native"])
def test_a_subinterpreter_is_refused_with_what_to_do_instead(module: str) -> None:
    code = f"""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
code = "try:\\n import {module}\\nexcept ImportError as error:\\n print(error, flush=True)"
interpreters.run_string(other, code)
interpreters.destroy(other)
works(pool)
"""
    printed = "\n".join(lines(code))
    assert "subinterpreters" in printed
