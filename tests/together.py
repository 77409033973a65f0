"""Several threads that take the same steps at once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import threadteam as tt

THREADS = 4
"""How many there are unless a test says so."""

REFUSALS = (tt.PoolClosed, tt.IntoTeamError, tt.Refused, tt.TokenError)
"""What a call may raise that comes too late, or while others are at it."""


def done(_result: object) -> str:
    """Any result is the end of its step."""
    return "done"


def together(
    steps: Sequence[Callable[[], object]],
    *,
    rounds: int,
    threads: int = THREADS,
    ended: Callable[[object], str] = done,
) -> Counter[str]:
    """Run `steps` in turn on each thread, each starting with another one; count how they `ended`.

    A step that is refused counts by the class of the refusal; any other exception is the test's.
    """
    start = threading.Barrier(threads)

    def work(number: int) -> Counter[str]:
        counted: Counter[str] = Counter()
        order = itertools.islice(itertools.cycle(steps), number, number + rounds * len(steps))
        start.wait()
        for step in order:
            try:
                counted[ended(step())] += 1
            except REFUSALS as refusal:
                counted[type(refusal).__name__] += 1
        return counted

    with ThreadPoolExecutor(threads) as workers:
        return sum(workers.map(work, range(threads)), Counter[str]())
