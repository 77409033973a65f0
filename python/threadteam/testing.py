"""Helpers for tests of code that takes tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from threadteam import _native
from threadteam._native import Pool

__all__ = ["Ledger", "LedgerEntry", "ledger", "workers"]


class LedgerEntry(NamedTuple):
    """What a ledger recorded of one root token and of all tokens derived from it.

    Attributes
    ----------
    token : str
        What the token calls itself.
    budget : int
        How many tasks may run at once.
    tasks : int
        Calls of bodies, at every depth: ranges, jobs and shares.
    most : int
        The most tasks that ran at once. A body that leads a section is one task with its share of that section.
    live : int
        The tasks that run now.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.testing.ledger() as seen:
    ...     tt.Exec.serial().fork(3, lambda job, child: None)
    >>> seen.roots[0]
    LedgerEntry(token='Exec.serial()', budget=1, tasks=3, most=1, live=0)
    """

    token: str
    budget: int
    tasks: int
    most: int
    live: int


class Ledger:
    """How many tasks of each root token run at once; made by `ledger`.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.testing.ledger() as seen:
    ...     tt.Exec.serial().map(abs, [-1])
    [1]
    >>> seen.tasks, seen.most
    (1, 1)
    """

    def __init__(self) -> None:
        self._native = _native.Ledger()

    @property
    def roots(self) -> list[LedgerEntry]:
        """The root tokens minted so far, in that order."""
        return [LedgerEntry(*row) for row in self._native.roots()]

    @property
    def tasks(self) -> int:
        """Calls of bodies, of all tokens."""
        return sum(entry.tasks for entry in self.roots)

    @property
    def most(self) -> int:
        """The most tasks of one root token that ran at once."""
        return max((entry.most for entry in self.roots), default=0)

    def check(self) -> None:
        """Assert that no token, root or derived, exceeded its budget.

        Raises
        ------
        AssertionError
            Names each token that did.
        """
        exceeded = [f"{tasks} tasks ran at once on {token}" for token, tasks in self._native.exceeded()]
        if exceeded:
            raise AssertionError("; ".join(exceeded))


@contextmanager
def ledger() -> Iterator[Ledger]:
    """Record the tasks of every token minted in the block, and assert at its end that none exceeded its budget.

    The budget holds at every depth: for root tokens, for loans, and for the tokens of bodies. Sections inside native
    code, such as the steps of an ONNX session, count as part of the body around them. Of nested ledgers the innermost
    records.

    Yields
    ------
    Ledger
        The record, for further assertions.

    Raises
    ------
    AssertionError
        Names each token of which more tasks ran at once than its budget allows.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.testing.ledger() as seen, tt.Pool(2) as pool:
    ...     pool.exec().fork(2, lambda job, token: token.for_ranges(3, 1, lambda start, stop: None))
    >>> [(root.budget, root.tasks, root.live) for root in seen.roots]
    [(2, 4, 0)]
    """
    seen = Ledger()
    seen._native.open()
    try:
        yield seen
    finally:
        seen._native.close()
    seen.check()


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
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has ended meanwhile
            names.append(path.read_text().rstrip("\n"))
    return sum(name.startswith(prefix) for name in names)
