"""KeyboardInterrupt: it reaches the main thread soon, drops what has not started, and leaves the pool usable.

Each process interrupts itself while a section runs that would never end by itself, so only the interrupt can end it.
"""

from __future__ import annotations

import pytest
from script import run

PREAMBLE = """
import ctypes, os, signal, threading, time
import threadteam as tt

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(section):
    try:
        section()
    except KeyboardInterrupt:
        print("interrupted")

pool = tt.Pool(2, acquire_timeout=10.0)
token = pool.exec()
"""

AFTER = """
assert token.map(abs, [-1, -2, -3]) == [1, 2, 3]
pool.exec().broadcast(lambda index: None)
print("usable")
"""


def outcome(code: str) -> list[str]:
    return run(PREAMBLE + code + AFTER).splitlines()


def test_a_map_is_interrupted_between_its_items() -> None:
    code = """
def item(number):
    if number == 3:
        interrupt()
    time.sleep(0.001)

interrupted(lambda: token.map(item, range(10_000_000)))
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_a_leader_that_waits_for_a_worker_is_interrupted() -> None:
    # The worker's body ends only after the main thread has seen the interrupt, which is when its nested sections stop.
    code = """
main = threading.get_ident()

def body(index):
    if threading.get_ident() == main:
        return
    interrupt()
    inner = tt.Exec.serial()
    while True:
        inner.for_ranges(1, 1, lambda start, stop: time.sleep(0.001))

interrupted(lambda: token.broadcast(body))
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_native_chunks_are_interrupted_between_them() -> None:
    code = """
sleep = ctypes.CDLL(None).usleep

@ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
def python(index, data):
    pass

import numba
from numba import types
usleep = numba.types.ExternalFunction("usleep", types.int32(types.uint32))

@numba.cfunc(types.void(types.int64, types.voidptr))
def nap(index, data):
    usleep(5000)

threading.Timer(0.1, interrupt).start()
interrupted(lambda: token.fork(100_000_000, nap))
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_nested_sections_are_interrupted_too() -> None:
    code = """
def inner(start, stop):
    time.sleep(0.001)

def body(job, child):
    if job == 0:
        interrupt()
    for _ in range(10_000_000):
        child.for_ranges(1, 1, inner)

interrupted(lambda: token.fork(2, body))
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_participants_at_a_barrier_are_interrupted() -> None:
    code = """
def body(participant):
    if participant.index == 0:
        interrupt()
    else:
        # Never comes to the barrier by itself.
        while not participant.is_cancelled:
            time.sleep(0.001)
    participant.barrier()

def section():
    with pool.exec().team() as team:
        team.run_with(body)

interrupted(section)
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_a_leader_that_left_its_peers_at_a_barrier_is_interrupted() -> None:
    code = """
def body(participant):
    if participant.index == 0:
        interrupt()
        return
    participant.barrier()

def section():
    with pool.exec().team() as team:
        team.run_with(body)

threading.Timer(0.2, interrupt).start()
interrupted(section)
"""
    assert outcome(code) == ["interrupted", "usable"]


HOLDING = """
held, done = threading.Event(), threading.Event()

def hold():
    with SCOPE:
        held.set()
        done.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
threading.Timer(0.1, interrupt).start()
"""

WAITING = f"""
other = tt.Pool(2, acquire_timeout=1e6)
{HOLDING.replace("SCOPE", "other.exec().team()")}
WAIT
done.set()
holder.join()
assert other.stats().refused_interrupted == 1
other.exec().broadcast(lambda index: None)
other.close()
"""


@pytest.mark.parametrize(
    "wait",
    [
        "interrupted(lambda: other.exec().broadcast(lambda index: None))",
        "interrupted(lambda: other.exec().team(lambda team: None))",
        "interrupted(other.exec().team().__enter__)",
    ],
)
def test_waiting_for_members_is_interrupted(wait: str) -> None:
    assert outcome(WAITING.replace("WAIT", wait)) == ["interrupted", "usable"]


def test_waiting_for_a_team_is_interrupted() -> None:
    code = f"""
other = tt.Pool(2)
team = other.into_team()
{HOLDING.replace("SCOPE", "team.exec()")}
interrupted(team.exec)
done.set()
holder.join()
team.close()
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_closing_a_busy_pool_is_interrupted_and_goes_on_later() -> None:
    code = """
other = tt.Pool(2)
inside, go_on = threading.Event(), threading.Event()

def body(start, stop):
    inside.set()
    go_on.wait()

user = threading.Thread(target=lambda: other.exec().for_ranges(1, 1, body))
user.start()
inside.wait()
threading.Timer(0.1, interrupt).start()
interrupted(other.close)
go_on.set()
other.close()
user.join()
"""
    assert outcome(code) == ["interrupted", "usable"]


def test_another_signal_handler_runs_while_the_leader_waits() -> None:
    code = """
handled = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: (print("handled"), handled.set()))
main = threading.get_ident()
started = threading.Barrier(2)

def body(index):
    started.wait()
    if threading.get_ident() != main:
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.wait()

token.broadcast(body)
"""
    assert outcome(code) == ["handled", "usable"]
