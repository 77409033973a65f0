"""Finding an OpenMP runtime to compare with."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from threadteam import _native

__all__ = ["candidates", "find"]

_LOADED = re.compile(r"/\S*/lib(?:gomp|omp|iomp5)\b[^/\s]*\.so[^/\s]*$", re.MULTILINE)
_NAMES = {
    "linux": ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"),
    "darwin": (
        "libomp.dylib",
        "/opt/homebrew/opt/libomp/lib/libomp.dylib",
        "/usr/local/opt/libomp/lib/libomp.dylib",
        "libiomp5.dylib",
    ),
}
#: Where wheels keep their own copies, below a folder of packages.
_BUNDLED = (
    "*.libs/libgomp*.so*",
    "*.libs/libomp*.so*",
    "*/lib/libgomp*.so*",
    "*/lib/libiomp5*.so*",
    "*/.dylibs/libomp.dylib",
)


def find() -> str | None:
    """The first OpenMP runtime that can be used, as a path or as a name that the loader knows; None without one.

    One that this process has loaded already comes first: two runtimes in a process compete for the CPUs.

    Examples
    --------
    >>> from threadteam.openmp import find
    >>> found = find()
    >>> found is None or "omp" in found
    True
    """
    for candidate in candidates():
        try:
            _native.OpenMp(candidate, 1)
        except OSError:
            continue
        return candidate
    return None


def candidates(maps: Path = Path("/proc/self/maps")) -> Iterator[str]:
    """What may be an OpenMP runtime: the loaded ones, the system's by name, those inside installed packages.

    Parameters
    ----------
    maps : Path
        The file that lists this process's mapped files.
    """
    with suppress(OSError):
        yield from dict.fromkeys(_LOADED.findall(maps.read_text(encoding="utf-8", errors="replace")))
    yield from _NAMES.get(sys.platform, ())
    for folder in dict.fromkeys(sys.path):
        for pattern in _BUNDLED:
            yield from sorted(str(path) for path in Path(folder or ".").glob(pattern))
    yield from sorted(str(path) for path in (Path(sys.prefix) / "lib").glob("libiomp5*"))
