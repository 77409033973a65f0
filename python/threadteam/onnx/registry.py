"""The process-wide executors that sessions lease, so that a thousand sessions add one pool's workers."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from threadteam.errors import Fail

__all__ = ["ExecutorInfo", "Lease", "Policy", "Registry", "registry"]


@dataclass(frozen=True)
class Policy:
    """What sessions must agree on to share an executor.

    Parameters
    ----------
    width : int
        Participants, the caller included.
    spinning : bool
        Whether idle workers wait a bounded time before they park.
    """

    width: int
    spinning: bool = True


@dataclass(frozen=True)
class ExecutorInfo:
    """A row of the registry.

    Parameters
    ----------
    policy : Policy
        Width and waiting.
    leases : int
        Sessions that hold it.
    """

    policy: Policy
    leases: int


class Lease:
    """The right to run on an executor until `release`."""

    def __init__(self, owner: Registry, policy: Policy, pool: Any) -> None:
        self._owner = owner
        self.policy = policy
        self.pool = pool
        self._open = True

    def release(self) -> None:
        """Give the executor back; its threads end with its last lease. Idempotent."""
        self._owner._give_back(self)


class Registry:
    """At most `bound` executors, one for each policy, each alive while somebody leases it.

    Parameters
    ----------
    bound : int
        How many different policies may be in use at once.

    Examples
    --------
    >>> shared = Registry(bound=2)
    >>> first, second = shared.lease(Policy(1)), shared.lease(Policy(1))
    >>> first.pool is second.pool
    True
    >>> print(shared)
    1 of 2 executors: width 1, 2 leases
    >>> first.release()
    >>> second.release()
    >>> print(shared)
    0 of 2 executors
    """

    def __init__(self, bound: int = 16) -> None:
        self.bound = bound
        self._lock = threading.RLock()
        self._changes = 0
        self._pools: dict[Policy, tuple[Any, set[Lease]]] = {}
        self._ended: deque[Lease] = deque()

    def lease(self, policy: Policy) -> Lease:
        """An executor of this policy, shared with everyone who leased one like it.

        Raises
        ------
        Fail
            `bound` other policies are in use.
        """
        with self._table() as pools:
            if policy not in pools:
                if len(pools) >= self.bound:
                    raise Fail(
                        f"{self.bound} executors with different widths or waiting policies are in use"
                        f" ({text(pools)}); close sessions, or give the session a pool with on="
                    )
                pools.setdefault(policy, (make_pool(policy), set()))
            pool, leases = pools[policy]
            lease = Lease(self, policy, pool)
            leases.add(lease)
            return lease

    def executors(self) -> list[ExecutorInfo]:
        """All executors that are alive."""
        with self._table() as pools:
            return [ExecutorInfo(policy, len(leases)) for policy, (_, leases) in pools.items()]

    @contextmanager
    def _table(self) -> Iterator[dict[Policy, tuple[Any, set[Lease]]]]:
        """Give the executors to this thread alone.

        The collector may end a session at any moment, in the middle of this by the same thread too: such a lease waits
        in the queue until the table is whole again.
        """
        try:
            with self._lock:
                self._changes += 1
                try:
                    yield self._pools
                finally:
                    self._changes -= 1
        finally:
            self._take_back()

    def _give_back(self, lease: Lease) -> None:
        self._ended.append(lease)
        self._take_back()

    def _take_back(self) -> None:
        """Take ended leases away, and end the executors that nobody leases any more."""
        idle = []
        with self._lock:
            while self._ended and not self._changes:
                self._changes += 1
                try:
                    lease = self._ended.popleft()
                    if not lease._open:
                        continue
                    lease._open = False
                    pool, leases = self._pools[lease.policy]
                    leases.discard(lease)
                    if not leases:
                        del self._pools[lease.policy]
                        idle.append(pool)
                finally:
                    self._changes -= 1
        for pool in idle:
            pool.close()

    def __str__(self) -> str:
        with self._table() as pools:
            listed = text(pools)
            return f"{len(pools)} of {self.bound} executors" + (f": {listed}" if listed else "")

    __repr__ = __str__

    def _after_fork(self) -> None:
        """A lock that another thread held when the process was forked would never open in the child."""
        self._lock = threading.RLock()
        self._changes = 0


def text(pools: dict[Policy, tuple[Any, set[Lease]]]) -> str:
    """The executors in one line."""
    return "; ".join(
        f"width {policy.width}{'' if policy.spinning else ' without spinning'},"
        f" {len(leases)} lease{'s' * (len(leases) != 1)}"
        for policy, (_, leases) in pools.items()
    )


def make_pool(policy: Policy) -> Any:
    """A pool whose workers start at first use."""
    from threadteam import Pool, WaitPolicy

    wait = None if policy.spinning else WaitPolicy(idle_spin=0.0)
    return Pool(policy.width, name="threadteam-onnx", wait=wait)


_REGISTRY = Registry()
os.register_at_fork(after_in_child=_REGISTRY._after_fork)


def registry() -> Registry:
    """The registry of this process.

    Examples
    --------
    >>> registry() is registry()
    True
    """
    return _REGISTRY
