"""Helpers for tests of code that takes tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from threadteam._native import Pool

__all__ = ["Ledger", "ledger", "workers"]


class Ledger:
    """Counts the tasks that run at the same time through bodies that it wraps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live = 0
        self.most = 0
        """The most tasks that ran at once."""
        self.tasks = 0
        """Tasks in all."""

    def watch(self, body: Callable[..., object]) -> Callable[..., None]:
        """Return `body`, counted while it runs.

        Parameters
        ----------
        body : callable
            A body of any section.

        Returns
        -------
        callable
            A body for the same section.
        """

        def counted(*arguments: Any) -> None:
            with self._lock:
                self.tasks += 1
                self._live += 1
                self.most = max(self.most, self._live)
            try:
                body(*arguments)
            finally:
                with self._lock:
                    self._live -= 1

        return counted

    @property
    def live(self) -> int:
        """The tasks that run now."""
        return self._live


@contextmanager
def ledger(budget: int | None = None) -> Iterator[Ledger]:
    """Record how many tasks run at once, and assert at the end that none is left and no budget was exceeded.

    Parameters
    ----------
    budget : int, optional
        The most tasks that may run at once.

    Yields
    ------
    Ledger
        Wrap bodies with its `watch`.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2) as pool, tt.testing.ledger(budget=2) as seen:
    ...     pool.exec().fork(8, seen.watch(lambda job, token: None))
    >>> seen.tasks
    8
    """
    seen = Ledger()
    yield seen
    assert seen.live == 0, f"{seen.live} tasks are still running"
    assert budget is None or seen.most <= budget, f"{seen.most} tasks ran at once on a budget of {budget}"


def workers(pool: Pool) -> int:
    """Return how many threads of this process are workers of `pool`, by their names (Linux only; 0 elsewhere).

    Parameters
    ----------
    pool : Pool
        Any pool, closed ones included.

    Returns
    -------
    int
        Threads.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2, name="example") as pool:
    ...     tt.testing.workers(pool)  # none before the first section
    0
    """
    from pathlib import Path

    # The kernel keeps 15 characters of a thread's name.
    prefix = f"{pool.name}-"[:15]
    names = (path.read_text().rstrip("\n") for path in Path("/proc/self/task").glob("*/comm"))
    return sum(name.startswith(prefix) for name in names)
