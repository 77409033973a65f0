"""Fork: pools and idle teams work again in the child; tokens that were inside an entry are dead there."""

from __future__ import annotations

import os

import pytest
from script import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")

PREAMBLE = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import threadteam as tt

def in_child(check):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, status

def raises(error, call):
    try:
        call()
    except error as caught:
        print(type(caught).__name__, "forked" in str(caught))
    else:
        raise AssertionError("nothing raised")

pool = tt.Pool(3, acquire_timeout=10.0)
token = pool.exec()
token.broadcast(lambda index: None)

def works(token):
    assert token.map(abs, range(-50, 0)) == list(range(50, 0, -1))
    token.broadcast(lambda index: None)
"""


def outcome(code: str) -> list[str]:
    return run(PREAMBLE + code).splitlines()


def test_a_used_pool_works_in_the_child_and_in_the_parent() -> None:
    code = """
in_child(lambda: (works(token), works(pool.exec()), pool.close(), print("child")))
works(token)
print("parent")
"""
    assert outcome(code) == ["child", "parent"]


def test_an_unused_pool_works_in_the_child() -> None:
    code = """
fresh = tt.Pool(2, acquire_timeout=10.0)
in_child(lambda: (works(fresh.exec()), print("child")))
works(fresh.exec())
"""
    assert outcome(code) == ["child"]


def test_an_idle_team_works_in_the_child() -> None:
    code = """
team = pool.into_team()
def check():
    with team.exec() as led:
        works(led)
    works(team.into_pool().exec())
    print("child")
in_child(check)
with team.exec() as led:
    works(led)
"""
    assert outcome(code) == ["child"]


def test_the_root_token_of_the_forking_thread_works_in_the_child() -> None:
    code = """
team = pool.into_team()
led = team.exec()
in_child(lambda: (works(led), led.close(), works(team.exec()), print("child")))
works(led)
"""
    assert outcome(code) == ["child"]


def test_a_team_led_by_a_thread_of_the_parent_is_led_anew_in_the_child() -> None:
    code = """
team = pool.into_team()
inside, done = threading.Event(), threading.Event()
def lead():
    with team.exec() as led:
        led.external(lambda width: (inside.set(), done.wait()))
leader = threading.Thread(target=lead)
leader.start()
inside.wait()
in_child(lambda: (works(team.exec()), print("child")))
done.set()
leader.join()
works(team.exec())
"""
    assert outcome(code) == ["child"]


@pytest.mark.parametrize(
    "entry",
    [
        "external(lambda width: in_child(check))",
        "for_ranges(1, 1, lambda start, stop: in_child(check))",
        "team(lambda team: in_child(check))",
        "map(lambda item: in_child(check), [0])",
    ],
)
def test_a_token_inside_an_entry_is_dead_in_the_child(entry: str) -> None:
    code = f"""
def check():
    raises(tt.TokenExpired, lambda: token.for_ranges(1, 1, lambda start, stop: None))
    raises(tt.TokenExpired, token.reborrow)
    works(pool.exec())
token.{entry}
works(token)
"""
    assert outcome(code) == ["TokenExpired True", "TokenExpired True"]


def test_a_token_used_by_another_thread_is_dead_in_the_child() -> None:
    code = """
inside, done = threading.Event(), threading.Event()
user = threading.Thread(target=lambda: token.for_ranges(1, 1, lambda start, stop: (inside.set(), done.wait())))
user.start()
inside.wait()
def check():
    raises(tt.TokenExpired, lambda: token.fork(1, lambda job, child: None))
    works(pool.exec())
    pool.close()
    print("closed")
in_child(check)
done.set()
user.join()
works(token)
"""
    assert outcome(code) == ["TokenExpired True", "closed"]


def test_a_child_that_returns_from_the_entry_finds_the_token_dead() -> None:
    code = """
parent = os.getpid()
def fork_inside(width):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
token.external(fork_inside)
if os.getpid() != parent:
    try:
        token.fork(1, lambda job, child: None)
    except tt.TokenExpired:
        os._exit(0)
    os._exit(1)
works(token)
print("parent")
"""
    assert outcome(code) == ["parent"]


def test_a_child_that_returns_into_a_section_gets_an_error() -> None:
    code = """
parent = os.getpid()
main = threading.get_ident()
def fork_inside(index):
    if index == 0:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
try:
    token.broadcast(fork_inside)
except tt.TokenExpired as error:
    os._exit(0 if os.getpid() != parent else 1)
if os.getpid() != parent:
    os._exit(2)
works(token)
print("parent")
"""
    assert outcome(code) == ["parent"]


def test_processes_of_multiprocessing_use_their_own_workers() -> None:
    code = """
import multiprocessing
def work(number):
    return sum(pool.exec().map(abs, range(-number, 0)))
works(token)
with multiprocessing.get_context("fork").Pool(2) as processes:
    print(processes.map(work, [3, 4]))
"""
    assert outcome(code) == ["[6, 10]"]


def test_a_child_limits_other_libraries_though_a_thread_of_the_parent_was_doing_so() -> None:
    code = """
ended = False

def scopes():
    while not ended:
        with pool.exec().external():
            pass

def once():
    with pool.exec().external() as width:
        assert width == 3

threads = [threading.Thread(target=scopes) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(50):
    in_child(once)
ended = True
for thread in threads:
    thread.join()
print("done")
"""
    assert outcome(code) == ["done"]


FIRST_USES = {
    "threadteam.interop.limits": "pool.exec().external(int)",
    "threadteam.testing": "tt.testing",
    "threadteam.timeline": "tt.Trace.timeline(trace)",
    "cffi": "threadteam._bodies._ffi()",
}


@pytest.mark.parametrize("module", FIRST_USES)
def test_a_fork_waits_for_the_import_of_what_another_thread_uses_first(module: str) -> None:
    code = f"""
import importlib.abc, threadteam._bodies

class Halts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r} and threading.current_thread() is not threading.main_thread():
            events.append("import")
            begun.set()
            goes_on.wait(0.2)
            events.append("imported")

with tt.trace() as trace:
    token.broadcast(lambda index: None)
events = []
begun, goes_on = threading.Event(), threading.Event()
os.register_at_fork(after_in_child=lambda: events.append("child"))
def use():
    {FIRST_USES[module]}
assert {module!r} not in sys.modules
sys.meta_path.insert(0, Halts())
thread = threading.Thread(target=use)
thread.start()
begun.wait()
in_child(lambda: (use(), print(*events)))
thread.join()
"""
    assert outcome(code) == ["import imported child"]


def test_a_child_closes_a_pool_whose_members_a_thread_of_the_parent_waits_for() -> None:
    code = """
borrowed, goes_on = threading.Event(), threading.Event()

def borrow():
    def body(index):
        borrowed.set()
        goes_on.wait()
    pool.exec().broadcast(body)

def lend():
    with pool.exec().team() as team:
        with team.external():
            borrower = threading.Thread(target=borrow)
            borrower.start()
            borrowed.wait()
            leaves.set()
    borrower.join()

leaves = threading.Event()
lender = threading.Thread(target=lend)
lender.start()
leaves.wait()
threading.Event().wait(0.05)
in_child(pool.close)
goes_on.set()
lender.join()
works(token)
print("parent")
"""
    assert outcome(code) == ["parent"]
