"""How many CPUs this process may use, and why."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from threadteam._cgroup import read_limits
from threadteam._topology import Cache, Topology, read_topology

__all__ = ["Cache", "CpuBudget", "Topology", "cpu_budget", "topology"]


def _process_mask() -> frozenset[int] | None:
    """Return the mask of the main thread: a worker's own mask may be a single CPU that the pool pinned it to."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return frozenset(os.sched_getaffinity(os.getpid()))
    except OSError:
        return None


_MASK_AT_IMPORT = _process_mask()


@dataclass(frozen=True)
class CpuBudget:
    """How many CPUs this process may use, and which rule decided.

    Examples
    --------
    >>> import threadteam as tt
    >>> budget = tt.cpu_budget()
    >>> budget.count >= 1
    True
    """

    count: int
    """CPUs to use: the width of a pool made without an explicit one."""
    source: str
    """The rule that decided: ``"THREADTEAM_NUM_THREADS"``, ``"OMP_NUM_THREADS"``, ``"cgroup quota"``, ``"affinity"``
    or ``"machine"``."""
    affinity: frozenset[int]
    """The CPUs the process may run on: its mask, cut to its control group's CPU set."""
    quota: float | None
    """CPUs' worth of time that the control group grants, or None without a quota."""
    physical: int
    """Cores behind the allowed CPUs."""
    domains: tuple[frozenset[int], ...]
    """The allowed CPUs, grouped by the last-level cache they share."""

    def __str__(self) -> str:
        quota = "no quota" if self.quota is None else f"a quota of {self.quota:g}"
        cpus, cores, caches = (
            f"{count} {noun}{'s' * (count != 1)}"
            for count, noun in ((self.count, "CPU"), (self.physical, "core"), (len(self.domains), "last-level cache"))
        )
        return f"{cpus}, decided by {self.source} ({len(self.affinity)} allowed on {cores} and {caches}, {quota})"


def cpu_budget(
    *,
    root: str | os.PathLike[str] = "/",
    affinity: Iterable[int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> CpuBudget:
    """Return how many CPUs this process may use, and why.

    ``THREADTEAM_NUM_THREADS`` decides alone. Otherwise it is the number of CPUs in the affinity mask or the control
    group's quota, rounded up, whichever is smaller, capped by ``OMP_NUM_THREADS``.

    Parameters
    ----------
    root : path, default "/"
        The directory that stands for ``/``: tests pass a tree of their own.
    affinity : iterable of int, optional
        The CPUs of the process's mask; by default the mask itself.
    environ : mapping, optional
        The environment; by default `os.environ`.

    Returns
    -------
    CpuBudget
        `str()` of it explains the number in one line.

    Raises
    ------
    ValueError
        The variable that decides holds something that is no positive integer.

    Warns
    -----
    RuntimeWarning
        The process's mask changed since threadteam was imported, as some OpenMP settings do.

    Examples
    --------
    >>> import threadteam as tt
    >>> tt.cpu_budget(environ={"THREADTEAM_NUM_THREADS": "3"}).count
    3
    """
    base = Path(root)
    environ = os.environ if environ is None else environ
    mask = _checked_mask() if affinity is None else frozenset(affinity)
    machine = read_topology(base, fallback=mask)
    limits = read_limits(base)
    allowed = machine.cpus if mask is None else mask
    allowed = (allowed & limits.cpus if limits.cpus else allowed) or allowed
    seen = machine.within(allowed)
    count, source = _decide(environ, allowed, machine.cpus, limits.quota)
    return CpuBudget(
        count=count,
        source=source,
        affinity=allowed,
        quota=limits.quota,
        physical=len(seen.cores) or len(allowed),
        domains=seen.domains or (allowed,),
    )


def topology(*, root: str | os.PathLike[str] = "/") -> Topology:
    """Return the cores, caches and packages of the machine.

    Parameters
    ----------
    root : path, default "/"
        The directory that stands for ``/``.

    Returns
    -------
    Topology
        All online CPUs, whatever this process's mask; `Topology.within` cuts it.

    Examples
    --------
    >>> import threadteam as tt
    >>> len(tt.topology().cpus) >= 1
    True
    """
    return read_topology(Path(root))


def _decide(
    environ: Mapping[str, str], allowed: frozenset[int], machine: frozenset[int], quota: float | None
) -> tuple[int, str]:
    explicit = _variable(environ, "THREADTEAM_NUM_THREADS", a_list=False)
    if explicit is not None:
        return explicit, "THREADTEAM_NUM_THREADS"
    count, source = max(len(allowed), 1), "affinity" if allowed < machine else "machine"
    if quota is not None and math.ceil(quota) < count:
        count, source = max(math.ceil(quota), 1), "cgroup quota"
    cap = _variable(environ, "OMP_NUM_THREADS", a_list=True)
    if cap is not None and cap < count:
        count, source = cap, "OMP_NUM_THREADS"
    return count, source


def _variable(environ: Mapping[str, str], name: str, *, a_list: bool) -> int | None:
    """Return the number in a variable; None when it is unset or blank. OpenMP's lists count by their first level."""
    value = environ.get(name, "").strip()
    if not value:
        return None
    levels = [level.strip() for level in value.split(",")] if a_list else [value]
    if not all(level.isascii() and level.isdigit() and int(level) > 0 for level in levels):
        raise ValueError(
            f"the environment variable {name} is {environ[name]!r}, expected a positive integer; "
            f"set it to the number of threads, or unset it to detect the CPUs"
        )
    return int(levels[0])


def _checked_mask() -> frozenset[int] | None:
    mask = _process_mask()
    if mask is not None and _MASK_AT_IMPORT is not None and mask != _MASK_AT_IMPORT:
        warnings.warn(
            f"the affinity mask of this process changed from {len(_MASK_AT_IMPORT)} to {len(mask)} CPUs since "
            "threadteam was imported (some OpenMP settings do that); pools made from now on use the new mask, pass "
            "threads= to decide yourself",
            RuntimeWarning,
            stacklevel=3,
        )
    return mask
