"""How many CPUs this process may use, and why."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from threadteam._cgroup import read_limits
from threadteam._files import format_cpu_list
from threadteam._native import MOST_THREADS
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
    """CPUs to use, 1 to 1025: the width of a pool made without an explicit one."""
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
    note: str = ""
    """What a reader should know besides: the mask changed since the import, an OpenMP setting may have narrowed it."""

    def __str__(self) -> str:
        quota = "no quota" if self.quota is None else f"a quota of {self.quota:g}"
        cpus, cores, caches = (
            f"{count} {noun}{'s' * (count != 1)}"
            for count, noun in ((self.count, "CPU"), (self.physical, "core"), (len(self.domains), "last-level cache"))
        )
        rule = ", one a core" if self.source == "machine" and self.physical < len(self.affinity) else ""
        allowed = f"{len(self.affinity)} allowed on {cores} and {caches}"
        note = f"; {self.note}" if self.note else ""
        return f"{cpus}, decided by {self.source}{rule} ({allowed}, {quota}){note}"


def cpu_budget(
    *,
    root: str | os.PathLike[str] = "/",
    affinity: Iterable[int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> CpuBudget:
    """Return how many CPUs this process may use, and why.

    ``THREADTEAM_NUM_THREADS`` decides alone. Otherwise it is the number of CPUs in the affinity mask or the control
    group's quota, rounded up, whichever is smaller, capped by ``OMP_NUM_THREADS``.

    A mask that leaves out some CPUs is taken at its word: two CPUs are two, even if they are one core. When it has all
    of them, simultaneous multithreading does not count: one CPU a core, since a second thread on a core does not speed
    up compute-bound work. ``threads=len(tt.cpu_budget().affinity)`` asks for the siblings too.

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
        The variable that decides holds something that is no positive integer, or `affinity` is empty.

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
    environ = os.environ if environ is None else environ
    if affinity is not None:
        mask: frozenset[int] | None = frozenset(affinity)
        if not mask:
            raise ValueError("affinity must name at least one CPU, got none; leave it out to read the process's mask")
        return _budget(Path(root), environ, mask)
    change = _mask_change()
    if change:
        _warn(change)
    return _budget(Path(root), environ, _process_mask(), change)


def detected_width() -> int:
    """Return the count of `cpu_budget` without the environment's say: how many CPUs there are to measure."""
    return _budget(Path("/"), {}, _process_mask()).count


def most_kept_workers() -> int:
    """Return how many worker threads may sleep for later pools: one fewer than the budget's count."""
    return _budget(Path("/"), os.environ, _process_mask()).count - 1


def _budget(root: Path, environ: Mapping[str, str], mask: frozenset[int] | None, note: str = "") -> CpuBudget:
    machine = read_topology(root, fallback=mask)
    limits = read_limits(root)
    allowed = machine.cpus if mask is None else mask - machine.offline or mask
    allowed = (allowed & limits.cpus if limits.cpus else allowed) or allowed
    seen = machine.within(allowed)
    # The mask is the kernel's word. A container may show less of the machine below /sys than it allows.
    unseen = allowed - machine.cpus
    cores = len(seen.cores) + len(unseen)
    count, source = _decide(environ, allowed, machine.cpus, cores, limits.quota)
    return CpuBudget(
        count=count,
        source=source,
        affinity=allowed,
        quota=limits.quota,
        physical=cores,
        domains=seen.domains + ((unseen,) if unseen else ()),
        note=note or (_narrowing_setting(environ) if source == "affinity" else ""),
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
    environ: Mapping[str, str], allowed: frozenset[int], machine: frozenset[int], cores: int, quota: float | None
) -> tuple[int, str]:
    explicit = _variable(environ, "THREADTEAM_NUM_THREADS", a_list=False)
    if explicit is not None:
        if explicit > MOST_THREADS:
            raise _unusable(environ, "THREADTEAM_NUM_THREADS", f"a positive integer, {MOST_THREADS} at most")
        return explicit, "THREADTEAM_NUM_THREADS"
    count, source = (cores, "machine") if allowed >= machine else (len(allowed), "affinity")
    if quota is not None and math.ceil(quota) < count:
        count, source = math.ceil(quota), "cgroup quota"
    cap = _variable(environ, "OMP_NUM_THREADS", a_list=True)
    if cap is not None and cap < count:
        count, source = cap, "OMP_NUM_THREADS"
    # No pool is wider.
    return min(count, MOST_THREADS), source


def _variable(environ: Mapping[str, str], name: str, *, a_list: bool) -> int | None:
    """Return the number in a variable; None when it is unset or blank. OpenMP's lists count by their first level."""
    value = environ.get(name, "").strip()
    if not value:
        return None
    levels = [level.strip() for level in value.split(",")] if a_list else [value]
    if not all(level.isascii() and level.isdigit() and level.strip("0") for level in levels):
        raise _unusable(environ, name, "a positive integer")
    # Python refuses to read thousands of digits, and a number of ten is beyond all that counts here.
    return int(levels[0].lstrip("0")[:10])


def _unusable(environ: Mapping[str, str], name: str, expected: str) -> ValueError:
    value = environ[name] if len(environ[name]) <= 60 else f"{environ[name][:57]}..."
    return ValueError(
        f"the environment variable {name} is {value!r}, expected {expected}; "
        f"set it to the number of threads, or unset it to detect the CPUs"
    )


def _mask_change() -> str:
    mask = _process_mask()
    if mask is None or _MASK_AT_IMPORT is None or mask == _MASK_AT_IMPORT:
        return ""
    before, now = (f"{len(cpus)} ({format_cpu_list(cpus)})" for cpus in (_MASK_AT_IMPORT, mask))
    return f"the affinity mask of this process changed from {before} to {now} CPUs since threadteam was imported"


def _warn(change: str) -> None:
    warnings.warn(
        f"{change} (some OpenMP settings do that); pools made from now on use the new mask, pass threads= to decide "
        "yourself",
        RuntimeWarning,
        stacklevel=3,
    )


def _narrowing_setting(environ: Mapping[str, str]) -> str:
    """Name the OpenMP setting that may have narrowed the mask before threadteam was imported."""
    for name in ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"):
        if environ.get(name, "").strip().lower() not in ("", "false", "disabled", "none"):
            return f"{name} is set, with which an OpenMP runtime that is loaded first narrows the mask"
    return ""
