"""OpenMP: our session and kernels, their sections dispatched by whichever OpenMP runtime is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from threadteam.compare.systems.base import Unavailable
from threadteam.compare.systems.threadteam import Session

__all__ = ["OpenMp"]


class OpenMp(Session):
    """`GOMP_parallel` in the place of our workers, so that only the execution system differs."""

    name: ClassVar[str] = "openmp"

    @classmethod
    def environment(cls, threads: int) -> dict[str, str]:
        """The width for the runtime's own spinning policy; NumPy's BLAS stays serial."""
        return {**super().environment(threads), "OMP_NUM_THREADS": str(threads)}

    def version(self) -> str:
        """The runtime that was found."""
        from threadteam.openmp import find

        found = find()
        if found is None:
            raise Unavailable("no libgomp, libomp or libiomp5 was found (on Debian: apt install libgomp1)")
        self._path = found
        return f"{found} through GOMP_parallel, with threadteam's kernels"

    def place(self, trace: Any = None) -> tuple[Any, Callable[[], None]]:
        """The runtime with teams of `threads` threads."""
        from threadteam import _native

        return _native.OpenMp(self._path, self.threads, trace), lambda: None
