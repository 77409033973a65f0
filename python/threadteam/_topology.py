"""The cores, caches and packages of the machine, as the kernel describes them below ``/sys``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from threadteam._files import parse_cpu_list, read_int, read_text


@dataclass(frozen=True)
class Cache:
    """One cache and the CPUs that share it.

    Examples
    --------
    >>> import threadteam as tt
    >>> all(cache.cpus for cache in tt.topology().caches)
    True
    """

    level: int
    kind: str
    """``"Data"``, ``"Instruction"`` or ``"Unified"``."""
    size: int | None
    """Bytes, or None when the kernel does not say."""
    cpus: frozenset[int]


@dataclass(frozen=True)
class Topology:
    """Cores, caches and packages of the machine.

    Examples
    --------
    >>> import threadteam as tt
    >>> machine = tt.topology()
    >>> frozenset().union(*machine.cores) == machine.cpus
    True
    """

    cpus: frozenset[int]
    """The CPUs that are online."""
    offline: frozenset[int]
    """The CPUs that the kernel names as offline: hot-unplugged, or switched off."""
    cores: tuple[frozenset[int], ...]
    """The CPUs of each physical core: more than one with simultaneous multithreading."""
    packages: tuple[frozenset[int], ...]
    """The CPUs of each socket."""
    domains: tuple[frozenset[int], ...]
    """The CPUs that share each last-level cache."""
    caches: tuple[Cache, ...]
    performance: frozenset[int]
    """The CPUs of the fastest kind of core; all of them on a machine with one kind."""

    def within(self, cpus: Iterable[int]) -> Topology:
        """Return the part of the machine that these CPUs see.

        Parameters
        ----------
        cpus : iterable of int
            CPU numbers.

        Returns
        -------
        Topology
            Every set cut to `cpus`, empty ones left out.

        Examples
        --------
        >>> import threadteam as tt
        >>> first = min(tt.topology().cpus)
        >>> len(tt.topology().within([first]).cores)
        1
        """
        keep = frozenset(cpus)
        caches = (Cache(c.level, c.kind, c.size, c.cpus & keep) for c in self.caches if c.cpus & keep)
        return Topology(
            cpus=self.cpus & keep,
            offline=self.offline & keep,
            cores=_cut(self.cores, keep),
            packages=_cut(self.packages, keep),
            domains=_cut(self.domains, keep),
            caches=tuple(caches),
            performance=self.performance & keep,
        )

    def __str__(self) -> str:
        kinds = "" if self.performance == self.cpus else f", {len(self.performance)} of them on the fastest cores"
        return (
            f"{len(self.cpus)} CPUs{kinds}; {len(self.cores)} cores, {len(self.packages)} packages, "
            f"{len(self.domains)} last-level caches"
        )


def read_topology(root: Path, fallback: frozenset[int] | None = None) -> Topology:
    """Read the machine's topology from the tree below `root`.

    Parameters
    ----------
    root : Path
        The directory that stands for ``/``.
    fallback : frozenset of int, optional
        The CPUs to assume when the kernel describes none; by default as many as `os.cpu_count` says.

    Returns
    -------
    Topology
        Where the kernel says nothing, each CPU is its own core and all share one package and one cache.
    """
    base = root / "sys/devices/system/cpu"
    offline = _offline(base)
    cpus = _online(base) - offline or fallback or frozenset(range(os.cpu_count() or 1))
    caches = _caches(base, cpus)
    return Topology(
        cpus=cpus,
        offline=offline,
        cores=_groups(cpus, (_siblings(base / f"cpu{cpu}", cpu) for cpu in sorted(cpus))),
        packages=_packages(base, cpus),
        domains=_last_level(cpus, caches),
        caches=caches,
        performance=_performance(root, base, cpus),
    )


def _online(base: Path) -> frozenset[int]:
    listed = parse_cpu_list(read_text(base / "online") or "")
    if listed:
        return listed
    try:
        names = os.listdir(base)
    except OSError:
        return frozenset()
    return frozenset(int(match[1]) for name in names if (match := re.fullmatch(r"cpu([0-9]{1,5})", name)))


def _offline(base: Path) -> frozenset[int]:
    return parse_cpu_list(read_text(base / "offline") or "")


def _siblings(directory: Path, cpu: int) -> frozenset[int]:
    for name in ("core_cpus_list", "thread_siblings_list"):
        cpus = parse_cpu_list(read_text(directory / "topology" / name) or "")
        if cpu in cpus:
            return cpus
    return frozenset({cpu})


def _packages(base: Path, cpus: frozenset[int]) -> tuple[frozenset[int], ...]:
    members: dict[int, set[int]] = {}
    for cpu in sorted(cpus):
        members.setdefault(read_int(base / f"cpu{cpu}/topology/physical_package_id") or 0, set()).add(cpu)
    return tuple(frozenset(group) for group in members.values())


def _caches(base: Path, cpus: frozenset[int]) -> tuple[Cache, ...]:
    found: dict[tuple[int, str, frozenset[int]], Cache] = {}
    for cpu in sorted(cpus):
        for directory in _indices(base / f"cpu{cpu}/cache"):
            level = read_int(directory / "level")
            shared = parse_cpu_list(read_text(directory / "shared_cpu_list") or "") & cpus
            if level is not None and cpu in shared:
                kind = (read_text(directory / "type") or "Unified").strip()
                size = _bytes(read_text(directory / "size") or "")
                found.setdefault((level, kind, shared), Cache(level, kind, size, shared))
    return tuple(sorted(found.values(), key=lambda cache: (cache.level, cache.kind, min(cache.cpus))))


def _indices(directory: Path) -> Iterator[Path]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith("index"))
    except OSError:
        return
    for name in names:
        yield directory / name


def _last_level(cpus: frozenset[int], caches: tuple[Cache, ...]) -> tuple[frozenset[int], ...]:
    """Group the CPUs by the highest cache each of them has: cores of one machine may end at different levels."""
    data = [cache for cache in caches if cache.kind != "Instruction"]
    last = (max((c for c in data if cpu in c.cpus), key=lambda c: c.level, default=None) for cpu in sorted(cpus))
    if not data:
        return (cpus,)
    return _groups(cpus, (frozenset() if cache is None else cache.cpus for cache in last))


def _performance(root: Path, base: Path, cpus: frozenset[int]) -> frozenset[int]:
    intel = parse_cpu_list(read_text(root / "sys/devices/cpu_core/cpus") or "") & cpus
    if intel:
        return intel
    capacities = {cpu: read_int(base / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
    known = [capacity for capacity in capacities.values() if capacity is not None]
    fastest = frozenset(cpu for cpu, capacity in capacities.items() if known and capacity == max(known))
    return fastest or cpus


def _groups(cpus: frozenset[int], sets: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return disjoint groups that cover `cpus`, in the order of their first member."""
    groups: list[frozenset[int]] = []
    left = set(cpus)
    for group in sets:
        inside = group & left
        if inside:
            groups.append(frozenset(inside))
            left -= inside
    groups += [frozenset({cpu}) for cpu in sorted(left)]
    return tuple(groups)


def _cut(groups: tuple[frozenset[int], ...], keep: frozenset[int]) -> tuple[frozenset[int], ...]:
    return tuple(group & keep for group in groups if group & keep)


def _bytes(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,18})([KMG]?)", text.strip())
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else None
