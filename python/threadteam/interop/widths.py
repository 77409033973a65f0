"""A table of the thread pools that are loaded in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from threadteam.cpus import cpu_budget
from threadteam.interop import tbb
from threadteam.interop.limits import controller

Scope = Literal["thread", "process", "fixed"]


@dataclass(frozen=True)
class Row:
    """One thread pool of another library.

    Examples
    --------
    >>> Row("OpenBLAS", 4, "process", "threadpoolctl").width
    4
    """

    library: str
    """OpenBLAS, MKL, libgomp, numba, torch, ..."""
    width: int
    """Threads that it would use now, called from this thread."""
    scope: Scope
    """Whom a limit affects: the calling ``"thread"``, the whole ``"process"``, or nobody (``"fixed"``)."""
    limited_by: str | None
    """What `Exec.external` limits it through, or None when it cannot."""
    path: str | None = None
    """The shared library, where there is one."""


@dataclass(frozen=True)
class Widths:
    """The pools found; iterates over its rows and prints as a table.

    Examples
    --------
    >>> found = Widths((Row("numba", 2, "thread", "numba.set_num_threads"),))
    >>> [row.library for row in found]
    ['numba']
    """

    rows: tuple[Row, ...]
    note: str | None = None
    """What could not be looked at, and why."""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        lines = [("library", "width", "a limit affects", "limited through")]
        scopes = {"thread": "its thread", "process": "the process", "fixed": "nothing"}
        lines += [(row.library, str(row.width), scopes[row.scope], row.limited_by or "-") for row in self.rows]
        sizes = [max(len(line[column]) for line in lines) for column in range(4)]
        table = ["  ".join(cell.ljust(size) for cell, size in zip(line, sizes, strict=True)).rstrip() for line in lines]
        return "\n".join([*table, *([self.note] if self.note else [])])


_NAMES = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "flexiblas": "FlexiBLAS"}
# Whom a limit affects, which threadpoolctl does not say: OpenMP keeps its setting per thread, BLAS libraries globally.
_PER_THREAD = {"openmp"}


def widths() -> Widths:
    """Return the thread pools of other libraries that are loaded in this process.

    Only libraries that are loaded already are looked at. The shared libraries are found by ``threadpoolctl`` when it is
    installed.

    Returns
    -------
    Widths
        One row for each pool; `print` shows a table.

    Examples
    --------
    >>> import threadteam as tt
    >>> print(tt.interop.widths())  # doctest: +SKIP
    library   width  a limit affects  limited through
    OpenBLAS  2      the process      threadpoolctl
    """
    rows, note = _shared_libraries()
    rows += [row for probe in (_tbb, _numba, _torch, _onnxruntime) if (row := probe()) is not None]
    return Widths(tuple(rows), note)


def _shared_libraries() -> tuple[list[Row], str | None]:
    found = controller()
    if found is None:
        return [], "BLAS and OpenMP libraries were not looked at: pip install threadpoolctl"
    rows = []
    for library in found.lib_controllers:
        info = library.info()
        name = _NAMES.get(info["internal_api"], info.get("prefix") or info["internal_api"])
        scope: Scope = "thread" if info["user_api"] in _PER_THREAD else "process"
        rows.append(Row(str(name), int(info["num_threads"] or 1), scope, "threadpoolctl", info["filepath"]))
    return rows, None


def _tbb() -> Row | None:
    found = tbb.loaded()
    return None if found is None else Row("TBB", found.width(), "process", "tbb::global_control")


def _numba() -> Row | None:
    numba = sys.modules.get("numba")
    if numba is None:
        return None
    return Row("numba", int(numba.get_num_threads()), "thread", "numba.set_num_threads")


def _torch() -> Row | None:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    return Row("torch", int(torch.get_num_threads()), "process", "torch.set_num_threads")


def _onnxruntime() -> Row | None:
    if "onnxruntime" not in sys.modules:
        return None
    # Each session has its own pool, as wide as its SessionOptions said when it was made; this is their default.
    return Row("ONNX Runtime (each session)", cpu_budget(environ={}).physical, "fixed", None)
