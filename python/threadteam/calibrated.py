"""The measured costs of this machine: where they are kept, and whether they still hold.

`DispatchCosts.host_default` asks here at first use. Nothing is read when the package is imported.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from threadteam import _forks
from threadteam._files import read_text
from threadteam._native import DispatchCosts, DispatchKind, HostClass, WidthCosts, __version__
from threadteam.cpus import detected_width
from threadteam.units import duration

__all__ = ["KINDS", "MOST_COST", "Host", "Kept", "cache_directory", "cpu_model", "forget", "host_row", "kept", "store"]

KINDS: Mapping[str, DispatchKind] = {
    "team": DispatchKind.TEAM,
    "in_pool": DispatchKind.IN_POOL,
    "outside": DispatchKind.OUTSIDE,
}
"""The kinds of dispatch by the names that the file gives them."""

MOST_COST = 0.01
"""Seconds, for a row to be believed. Putting a thread to sleep and waking it costs a hundredth of that."""

_FORMAT = 1
#: A row of three kinds with twelve widths each takes about 2 KB.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Host:
    """What measured costs hold for.

    Examples
    --------
    >>> from threadteam.calibrated import Host
    >>> Host("x86_64-avx2", "AMD EPYC 7702P", 64, "0.4.0").file_name
    'dispatch-costs-x86_64-avx2-amd-epyc-7702p-64.json'
    """

    host_class: str
    """The name of the `HostClass`."""
    cpu: str
    """The CPU's model, as the system names it."""
    width: int
    """CPUs that the process may use, whatever the environment variables say."""
    version: str
    """The version of this package."""

    @classmethod
    def here(cls) -> Host:
        """The machine and the package that ask."""
        return cls(HostClass.detect().name, cpu_model(), detected_width(), __version__)

    @property
    def file_name(self) -> str:
        """The name of the file: a home directory may serve several machines."""
        cpu = re.sub(r"[^a-z0-9]+", "-", self.cpu.lower()).strip("-")[:60] or "unknown"
        return f"dispatch-costs-{self.host_class}-{cpu}-{self.width}.json"


@dataclass(frozen=True)
class Kept:
    """What was found on this machine: a row of costs, or why there is none."""

    file: Path | None
    """The file that holds a row, usable or not; None when there is none."""
    costs: DispatchCosts | None
    """The row, when it is usable."""
    problem: str = ""
    """Why the file is not used."""


def host_row() -> DispatchCosts | None:
    """Return the costs that `threadteam calibrate` measured on this machine, or None.

    Returns
    -------
    DispatchCosts or None
        None without a usable file. The first call reads it, the others remember.

    Warns
    -----
    RuntimeWarning
        Once, when there is a file that cannot be used; it names the file and the reason.

    Examples
    --------
    >>> import threadteam as tt
    >>> from threadteam.calibrated import host_row
    >>> (host_row() or tt.DispatchCosts.for_class(tt.HostClass.detect())) == tt.DispatchCosts.host_default()
    True
    """
    # One thread looks, the others wait: so the warning comes once.
    with _forks.lock:
        return _remembered().costs


@functools.cache
def _remembered() -> Kept:
    found = kept()
    if found.problem:
        warnings.warn(
            f"the measured costs in {found.file} are not used: {found.problem}; run `threadteam calibrate` to measure "
            "again, or delete the file",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def forget() -> None:
    """Read the file again at the next use."""
    _remembered.cache_clear()


def kept(directory: Path | None = None, host: Host | None = None) -> Kept:
    """Look for the measured costs of a machine.

    Parameters
    ----------
    directory : Path, optional
        Where they are kept; `cache_directory()` by default.
    host : Host, optional
        The machine; by default this one.

    Returns
    -------
    Kept
        A file that is stale or damaged is named with its problem. Nothing is raised.

    Examples
    --------
    >>> from pathlib import Path
    >>> from threadteam.calibrated import kept
    >>> kept(Path("/no/such/directory"))
    Kept(file=None, costs=None, problem='')
    """
    directory = directory or cache_directory()
    # Almost nobody has such a directory; they should not pay for reading the machine's topology.
    if directory is None or not os.path.isdir(directory):
        return Kept(None, None)
    host = host or Host.here()
    file = directory / host.file_name
    if not os.path.lexists(file):
        return Kept(None, None)
    try:
        return Kept(file, _parse(_read(file), host))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return Kept(file, None, " ".join(str(error).split()) or type(error).__name__)


def store(costs: DispatchCosts, host: Host, directory: Path | None = None) -> Path:
    """Keep measured costs, for the pools that this user's processes make from now on.

    Parameters
    ----------
    costs : DispatchCosts
        The row.
    host : Host
        What it holds for.
    directory : Path, optional
        Where to keep it, made when missing; `cache_directory()` by default.

    Returns
    -------
    Path
        The file. It is replaced in one step: readers see the old one or the new one.

    Raises
    ------
    OSError
        The directory cannot be written; nothing is left behind.
    ValueError
        A cost is none that `kept` would believe.

    Examples
    --------
    >>> import tempfile, threadteam as tt
    >>> from pathlib import Path
    >>> from threadteam.calibrated import Host, kept, store
    >>> costs = tt.DispatchCosts(*[tt.WidthCosts.flat(1e-6)] * 3)
    >>> host = Host("generic", "A model", 4, "0.4.0")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = store(costs, host, Path(directory))
    ...     kept(Path(directory), host).costs == costs
    True
    """
    rows = {name: _plausible(costs.row(kind)).anchors for name, kind in KINDS.items()}
    directory = directory or cache_directory()
    if directory is None:
        raise OSError("this user has no home directory to keep the costs in: set XDG_CACHE_HOME to a directory")
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": _FORMAT, **asdict(host), "costs": rows}, indent=1)
    file = directory / host.file_name
    handle, temporary = tempfile.mkstemp(prefix=".dispatch-costs-", suffix=".tmp", dir=directory)
    try:
        with open(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    forget()
    return file


def cache_directory(environ: Mapping[str, str] | None = None, system: str = sys.platform) -> Path | None:
    """Return the directory for this user's measured costs, made or not.

    Parameters
    ----------
    environ : mapping, optional
        The environment; by default `os.environ`.
    system : str, optional
        The platform, as `sys.platform` names it.

    Returns
    -------
    Path or None
        Below ``XDG_CACHE_HOME`` (when it is absolute, as its specification asks) or ``~/.cache``; below
        ``~/Library/Caches`` on macOS and ``LOCALAPPDATA`` on Windows. None for a user without a home.

    Examples
    --------
    >>> from threadteam.calibrated import cache_directory
    >>> cache_directory({"XDG_CACHE_HOME": "/var/tmp/cache"}, "linux").as_posix()
    '/var/tmp/cache/threadteam'
    """
    environ = os.environ if environ is None else environ
    given = environ.get("LOCALAPPDATA" if system == "win32" else "XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "threadteam"
    below = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(system, ".cache")
    home = environ.get("HOME", "") or os.path.expanduser("~")
    return Path(home) / below / "threadteam" if os.path.isabs(home) else None


def cpu_model(root: Path = Path("/")) -> str:
    """Return the CPU's model, as the system names it.

    Parameters
    ----------
    root : Path, default "/"
        The directory that stands for ``/``.

    Returns
    -------
    str
        On Linux from ``/proc/cpuinfo``: the model's name, or the implementer's and the part's number, which is all that
        Arm processors say.

    Examples
    --------
    >>> from threadteam.calibrated import cpu_model
    >>> cpu_model() != ""
    True
    """
    fields: dict[str, str] = {}
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, separator, value = line.partition(":")
        if separator and value.strip():
            fields.setdefault(name.strip().lower(), value.strip())
    arm = " ".join(fields[name] for name in ("cpu implementer", "cpu part", "cpu variant") if name in fields)
    return fields.get("model name") or arm or platform.processor() or platform.machine() or "unknown"


def _read(file: Path) -> Any:
    with open(file, "rb") as source:
        content = source.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    try:
        return json.loads(content)
    except ValueError as error:
        raise ValueError(f"it is damaged ({error})") from None


def _parse(found: Any, host: Host) -> DispatchCosts:
    """The row in the content of a file, when it is whole and this machine's."""
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ValueError(f"it is damaged, or of another format than {_FORMAT}")
    for name, wanted in asdict(host).items():
        if found.get(name) != wanted:
            what = {"version": "version of threadteam", "host_class": "host class", "cpu": "CPU"}.get(name, name)
            raise ValueError(f"it was measured with another {what} ({found.get(name)!r}, here {wanted!r})")
    rows = found.get("costs")
    if not isinstance(rows, dict) or set(rows) != set(KINDS):
        raise ValueError(f"it is damaged: the costs of {', '.join(KINDS)} are expected")
    try:
        team, in_pool, outside = (_row(rows[name]) for name in KINDS)
    except (ValueError, TypeError) as error:
        raise ValueError(f"it is damaged ({error})") from None
    return DispatchCosts(team, in_pool, outside)


def _row(anchors: Any) -> WidthCosts:
    if not isinstance(anchors, list):
        raise ValueError("a row must be a list of pairs")
    return _plausible(WidthCosts.from_anchors((width, cost) for width, cost in anchors))


def _plausible(row: WidthCosts) -> WidthCosts:
    for width, cost in row.anchors:
        if not 0 < cost <= MOST_COST:
            raise ValueError(
                f"a section of {width} participants costs more than nothing and {duration(MOST_COST)} at most, got "
                f"{duration(cost)}"
            )
    return row
