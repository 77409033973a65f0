"""How much faster a map of Python functions is on several threads than in a loop: on an interpreter without a lock.

The loop, `Exec.map` and `concurrent.futures` take turns round by round, and a ratio is formed inside a round. With an
interpreter lock every ratio is at most 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import threadteam as tt

CASES = ((10, 1024), (100, 256), (1_000, 64), (10_000, 16), (100_000, 8))
"""Turns of the function's own loop, and items of a map."""


def work(turns: int) -> int:
    """A function that touches nothing outside of itself."""
    total = 0
    for i in range(turns):
        total += i * i % 7
    return total


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    since = time.perf_counter()
    call()
    return time.perf_counter() - since


def quartiles(values: list[float]) -> str:
    """The median with the quartiles around it."""
    first, median, third = statistics.quantiles(values, n=4)
    return f"{median:.2f} ({first:.2f} to {third:.2f})"


def measure(turns: int, items: int, pool: tt.Pool, executor: ThreadPoolExecutor, seconds: float) -> dict[str, object]:
    """One case, for about so many seconds."""
    given = [turns] * items
    token = pool.exec()
    grain = max(1, items // (8 * pool.width))
    systems: dict[str, Callable[[], object]] = {
        "loop": lambda: [work(turns) for turns in given],
        "Exec.map": lambda: token.map(work, given),
        "Exec.map, grain": lambda: token.map(work, given, grain=grain),
        "ThreadPoolExecutor.map": lambda: list(executor.map(work, given)),
    }
    for call in systems.values():
        call()
    rounds: list[dict[str, float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 9 or time.perf_counter() < end:
        rounds.append({name: timed(call) for name, call in systems.items()})
    each = statistics.median(times["loop"] for times in rounds) / items
    ratios = {name: [times["loop"] / times[name] for times in rounds] for name in systems if name != "loop"}
    print(f"{items:5} functions of {each * 1e6:8.2f} us, {len(rounds)} rounds:")
    for name, values in ratios.items():
        print(f"    {name:24} {quartiles(values)} times as fast as the loop")
    return {"items": items, "seconds_each": each, "rounds": rounds}


def main() -> None:
    """Measure every case and print, or write, the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="participants")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each case")
    parser.add_argument("--json", help="where to write every figure")
    options = parser.parse_args()
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    how = "with" if locked else "without"
    print(f"Python {sys.version.split()[0]} {how} an interpreter lock, {options.threads} threads")
    with tt.Pool(options.threads) as pool, ThreadPoolExecutor(options.threads) as executor:
        cases = [measure(*case, pool, executor, options.seconds) for case in CASES]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"python": sys.version, "locked": locked, "threads": options.threads, "cases": cases}, file)


if __name__ == "__main__":
    main()
