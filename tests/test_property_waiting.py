"""What users of thread pools report about idle threads and small work, as properties."""

import sys
import threading
import time
from pathlib import Path

import pytest
import threadteam as tt
from script import run

PATIENCE = 30.0
"""Seconds after which something that should happen counts as missing."""

FOREVER = tt.WaitPolicy(idle_spin=1000.0)
AT_ONCE = tt.WaitPolicy(idle_spin=0.0)

reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/task")


def worker(name: str) -> Path:
    """Return the folder of the only worker of the pool of this name."""
    folders = [task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text().startswith(name)]
    assert len(folders) == 1
    return folders[0]


def state(folder: Path) -> str:
    """Return how the kernel sees a thread: R while it runs, S while it sleeps."""
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def switches(folder: Path) -> list[str]:
    """Return the lines that count how often a thread left its CPU, as it does after each time that it wakes."""
    return [line for line in (folder / "status").read_text().splitlines() if "ctxt_switches" in line]


def until(condition: object) -> None:
    """Wait until `condition()` is true."""
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@reads_proc
def test_property_6_an_idle_pool_uses_no_cpu() -> None:
    with tt.Pool(2, name="idle6", wait=AT_ONCE, acquire_timeout=PATIENCE) as pool:
        pool.exec().broadcast(lambda index: None)
        folder = worker("idle6")
        until(lambda: state(folder) == "S")
        before = switches(folder), (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        # The main thread works for a while; the worker never wakes to look whether there is something to do.
        busy = time.process_time()
        while time.process_time() - busy < 0.3:
            pass
        assert (switches(folder), (folder / "stat").read_text().rpartition(")")[2].split()[11:13]) == before


@reads_proc
@pytest.mark.parametrize("spin", [0.0, 1000.0])
def test_property_7_the_spin_limit_is_a_time(spin: float) -> None:
    with tt.Pool(2, name="spin7", wait=tt.WaitPolicy(idle_spin=spin), acquire_timeout=PATIENCE) as pool:
        assert pool.wait_policy.idle_spin == spin
        pool.exec().broadcast(lambda index: None)
        if spin == 0.0:
            until(lambda: pool.resident_members == 0)
        else:
            # Longer than any count of polls would last on a fast processor.
            busy = time.thread_time()
            while time.thread_time() - busy < 0.2:
                assert pool.resident_members == 1


def test_property_7_the_environment_gives_the_spin_limit_as_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, seconds in {"0": 0.0, "150us": 150e-6, "3ms": 3e-3, "0.25": 0.25}.items():
        monkeypatch.setenv("THREADTEAM_SPIN", value)
        with tt.Pool(2) as pool:
            assert pool.wait_policy.idle_spin == pytest.approx(seconds)


def test_property_8_sections_one_after_the_other_pay_no_wake_up() -> None:
    with tt.Pool(2, wait=FOREVER, acquire_timeout=PATIENCE) as pool, pool.exec() as token:
        token.broadcast(lambda index: None)
        before = pool.stats()
        for _ in range(2000):
            token.for_ranges(8, 1, lambda start, stop: None)
        after = pool.stats()
        # Where another process keeps the worker off its CPU, sections leave it out and are none of the pool's.
        assert after.sections - before.sections + after.left_out - before.left_out == 2000
        # Other processes may take a worker's CPU, which it then leaves; that is not once a section.
        assert after.wakes - before.wakes < 200


def test_property_11_a_worker_without_a_cpu_does_not_hold_a_section_up() -> None:
    # Its start hook keeps the worker away, as a process that took its CPU would: sections end without it.
    gate = threading.Event()
    ran: list[int] = []
    with tt.Pool(2, on_start=lambda index: gate.wait(PATIENCE)) as pool, pool.exec() as token:
        for _ in range(100):
            token.for_ranges(8, 1, lambda start, stop: ran.extend(range(start, stop)))
        assert sorted(ran) == sorted(list(range(8)) * 100)
        assert pool.stats().entered == 0
        gate.set()
        # It takes part as soon as it is back.
        pool.exec().map(abs, range(8))
    out = run("""
        import threading, threadteam as tt
        with tt.Pool(2, acquire_timeout=30.0) as pool:
            meeting = threading.Barrier(2)
            pool.exec().broadcast(lambda index: meeting.wait(30))
            print("met")
    """)
    assert out == "met\n"
