"""What the control groups of this process allow it: a CPU quota and a CPU set.

Every reader takes the root of the file tree, so that a test feeds it a directory instead of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from threadteam._files import parse_cpu_list, parse_int, read_text


@dataclass(frozen=True)
class CgroupLimits:
    """The tightest limits found on the way from this process's groups to the roots of their hierarchies."""

    quota: float | None
    """CPUs' worth of time per period, or None without a quota."""
    cpus: frozenset[int] | None
    """CPUs the group may run on, or None when no CPU set is readable."""


@dataclass(frozen=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    root: PurePosixPath
    point: PurePosixPath


def read_limits(root: Path) -> CgroupLimits:
    """Read the limits of the calling process from the tree below `root`.

    Parameters
    ----------
    root : Path
        The directory that stands for ``/``.

    Returns
    -------
    CgroupLimits
        Unreadable and malformed files count as "no limit": a container may hide any of them.
    """
    mounts = list(_mounts(root))
    quotas: list[float] = []
    cpu_sets: list[frozenset[int]] = []
    for version, controllers, path in _memberships(root):
        for mount in mounts:
            if mount.version != version or (version == 1 and not controllers & mount.controllers):
                continue
            directories = list(_directories(root, mount, path))
            if version == 2 or "cpu" in controllers:
                quotas += [quota for directory in directories if (quota := _quota(directory, version)) is not None]
            if version == 2 or "cpuset" in controllers:
                # The first set on the way up is the effective one: each group's set lies within its parent's.
                cpu_sets += next(([cpus] for directory in directories if (cpus := _cpu_set(directory, version))), [])
    cpus = frozenset.intersection(*cpu_sets) if cpu_sets else None
    return CgroupLimits(quota=min(quotas, default=None), cpus=cpus or None)


def _memberships(root: Path) -> Iterator[tuple[int, frozenset[str], PurePosixPath]]:
    """Yield (version, controllers, path) for each hierarchy that ``/proc/self/cgroup`` names."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            number, controllers, path = fields
            version = 2 if number == "0" and not controllers else 1
            yield version, frozenset(controllers.split(",")), PurePosixPath(path)


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if separator and len(fields) >= 5 and len(rest) >= 3 and rest[0] in ("cgroup", "cgroup2"):
            point = PurePosixPath(_unescape(fields[4]))
            if point.is_absolute():
                yield _Mount(
                    version=2 if rest[0] == "cgroup2" else 1,
                    controllers=frozenset(rest[2].split(",")),
                    root=PurePosixPath(_unescape(fields[3])),
                    point=point,
                )


def _directories(root: Path, mount: _Mount, path: PurePosixPath) -> Iterator[Path]:
    """Yield the group's directory and its ancestors, up to the mount point.

    A container often sees only its own part of the hierarchy: the mount's root is then a prefix of the path, or, when
    the path is the host's and hidden from here, the mount point itself is the group.
    """
    point = root / mount.point.relative_to("/")
    parts: tuple[str, ...] = ()
    if path.is_relative_to(mount.root) and ".." not in path.parts:
        parts = path.relative_to(mount.root).parts
    for depth in range(len(parts), -1, -1):
        yield point.joinpath(*parts[:depth])


def _quota(directory: Path, version: int) -> float | None:
    if version == 2:
        fields = (read_text(directory / "cpu.max") or "").split()
    else:
        fields = [(read_text(directory / name) or "").strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    # "max" (version 2) and -1 (version 1) mean no quota; anything else that is no positive number means the same here.
    quota, period = map(parse_int, fields) if len(fields) == 2 else (None, None)
    return quota / period if quota and period else None


def _cpu_set(directory: Path, version: int) -> frozenset[int] | None:
    names = ("cpuset.cpus.effective",) if version == 2 else ("cpuset.effective_cpus", "cpuset.cpus")
    for name in names:
        cpus = parse_cpu_list(read_text(directory / name) or "")
        if cpus:
            return cpus
    return None


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
