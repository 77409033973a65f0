"""What the processes of the soak do. Each function runs in a process of its own and yields one record a step."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import threadteam as tt

PATIENCE = 30.0
"""Seconds after which waiting for members is a failure."""

EXITS = {
    "idle workers": "token.broadcast(lambda index: None)",
    "workers in endless loops": """
def body(index):
    started.wait()
    while True:
        pass
""",
    "workers asleep in a call": """
def body(index):
    started.wait()
    time.sleep(3600)
""",
    "workers that wake up all the time": """
def body(index):
    started.wait()
    while True:
        time.sleep(0.0005)
""",
    "endless sections of small bodies": """
def body(index):
    started.wait()
    while True:
        tt.Exec.serial().for_ranges(10, 1, lambda start, stop: None)
""",
}
"""What a process does when its main thread comes to the end of the program."""

EXIT_PREAMBLE = """
import threading, time
import threadteam as tt
token = tt.Pool(3, acquire_timeout=30.0).exec()
started = threading.Barrier(4)
"""

EXIT_START = """
threading.Thread(target=lambda: token.broadcast(body), daemon=True).start()
started.wait()
"""


def exit_program(state: str) -> str:
    """The program that ends in `state`."""
    code = EXITS[state]
    return EXIT_PREAMBLE + code + (EXIT_START if "def body" in code else "")


def held() -> dict[str, int]:
    """What this process holds: threads, descriptors, resident bytes."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "resident": resident,
    }


def nothing(*_: object) -> None:
    """Do nothing: a body, or a start hook."""


def use(pool: tt.Pool) -> None:
    """Run two sections, and check one of them."""
    token = pool.exec()
    if token.map(abs, range(-20, 0)) != list(range(20, 0, -1)):
        raise AssertionError("a map gave wrong results")
    token.broadcast(nothing)


def fork(in_child: Callable[[], object]) -> bool:
    """Fork; whether the child did what it should and ended with status 0."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            in_child()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def forks(count: int) -> Iterator[dict[str, Any]]:
    """`count` forks: of an idle process, from a leader's body, from a worker's, and beside threads that use pools."""
    warnings.simplefilter("ignore", DeprecationWarning)
    pool = tt.Pool(3, acquire_timeout=PATIENCE)
    use(pool)

    def in_child() -> None:
        use(pool)
        with tt.Pool(2, acquire_timeout=PATIENCE) as own:
            use(own)

    def and_close() -> None:
        in_child()
        pool.close()

    def from_body(of: int) -> bool:
        outcomes: list[bool] = []
        pool.exec().broadcast(lambda index: outcomes.append(fork(in_child)) if index == of else None)
        return outcomes == [True]

    def beside_users() -> bool:
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                with tt.Pool(2, acquire_timeout=PATIENCE) as own:
                    use(own)

        user = threading.Thread(target=churn)
        user.start()
        try:
            return fork(in_child)
        finally:
            stop.set()
            user.join()

    states: list[tuple[str, Callable[[], bool]]] = [
        ("idle", lambda: fork(and_close)),
        ("from the leader's body", lambda: from_body(0)),
        ("from a worker's body", lambda: from_body(1)),
        ("beside a thread that makes pools", beside_users),
    ]
    for step in range(count):
        name, state = states[step % len(states)]
        well = state()
        use(pool)
        yield {"state": name, "well": well, **(held() if step % 20 == 19 else {})}


def pools(count: int) -> Iterator[dict[str, Any]]:
    """`count` pools of changing width: made, used and closed or dropped, each timed."""
    for step in range(count):
        begin = time.perf_counter_ns()
        pool = tt.Pool(2 + step % 3, acquire_timeout=PATIENCE)
        made = time.perf_counter_ns()
        pool.exec().for_ranges(2, 1, nothing)
        used = time.perf_counter_ns()
        if step % 2:
            pool.close()
        del pool
        end = time.perf_counter_ns()
        record = {"well": True, "make": made - begin, "first": used - made, "end": end - used}
        yield {**record, **(held() if step % 200 == 199 else {})}


def threads(count: int) -> Iterator[dict[str, Any]]:
    """The same with pools whose threads are their own (they have a start hook), as the price without kept threads."""
    for step in range(count):
        begin = time.perf_counter_ns()
        pool = tt.Pool(2 + step % 3, acquire_timeout=PATIENCE, on_start=nothing)
        made = time.perf_counter_ns()
        pool.exec().for_ranges(2, 1, nothing)
        used = time.perf_counter_ns()
        pool.close()
        end = time.perf_counter_ns()
        yield {"well": True, "make": made - begin, "first": used - made, "end": end - used}


def idle(seconds: float) -> Iterator[dict[str, Any]]:
    """CPU time and switches of all threads of this process but the main one, for `seconds` after a pause of 0.2."""
    for width in (2, 4, 16, 64):
        with tt.Pool(width, acquire_timeout=PATIENCE) as pool:
            pool.exec().broadcast(nothing)
            time.sleep(0.2)
            before = _worked()
            time.sleep(seconds)
            after = _worked()
            nanoseconds, switches = (last - first for last, first in zip(after, before, strict=True))
        well = nanoseconds == 0 and switches == 0
        yield {"state": f"width {width}", "well": well, "nanoseconds": nanoseconds, "switches": switches}


def _worked() -> tuple[int, int]:
    """Nanoseconds on a CPU and times scheduled of the other threads."""
    sums = [0, 0]
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            ran, _, times = (task / "schedstat").read_text().split()
            sums[0] += int(ran)
            sums[1] += int(times)
    return sums[0], sums[1]


PARTS: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
    "forks": forks,
    "pools": pools,
    "threads": threads,
    "idle": idle,
}

if __name__ == "__main__":
    for each in PARTS[sys.argv[1]](json.loads(sys.argv[2])):
        print(json.dumps(each), flush=True)
