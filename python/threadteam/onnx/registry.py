"""The process-wide executors that sessions lease, so that a thousand sessions add one pool's workers."""

from __future__ import annotations

import os
import threading
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
        self._lock = threading.Lock()
        self._pools: dict[Policy, tuple[Any, set[Lease]]] = {}

    def lease(self, policy: Policy) -> Lease:
        """An executor of this policy, shared with everyone who leased one like it.

        Raises
        ------
        Fail
            `bound` other policies are in use.
        """
        with self._lock:
            if policy not in self._pools:
                if len(self._pools) >= self.bound:
                    raise Fail(
                        f"{self.bound} executors with different widths or waiting policies are in use"
                        f" ({self._text()}); close sessions, or give the session a pool with on="
                    )
                self._pools[policy] = (make_pool(policy), set())
            pool, leases = self._pools[policy]
            lease = Lease(self, policy, pool)
            leases.add(lease)
            return lease

    def executors(self) -> list[ExecutorInfo]:
        """All executors that are alive."""
        with self._lock:
            return [ExecutorInfo(policy, len(leases)) for policy, (_, leases) in self._pools.items()]

    def _give_back(self, lease: Lease) -> None:
        with self._lock:
            if not lease._open:
                return
            lease._open = False
            pool, leases = self._pools[lease.policy]
            leases.discard(lease)
            if leases:
                return
            del self._pools[lease.policy]
        pool.close()

    def _text(self) -> str:
        return "; ".join(
            f"width {policy.width}{'' if policy.spinning else ' without spinning'},"
            f" {len(leases)} lease{'s' * (len(leases) != 1)}"
            for policy, (_, leases) in self._pools.items()
        )

    def __str__(self) -> str:
        with self._lock:
            listed = self._text()
            return f"{len(self._pools)} of {self.bound} executors" + (f": {listed}" if listed else "")

    __repr__ = __str__

    def _after_fork(self) -> None:
        """A lock that another thread held when the process was forked would never open in the child."""
        self._lock = threading.Lock()


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
