"""The native twins of the Python calls: the same sections of the same runtime, led from Rust and timed there."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from work import Bodies, Unavailable, Work

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "target" / "python_call"
LIBRARY = TARGET / "release" / f"libpython_call_native.{'dylib' if sys.platform == 'darwin' else 'so'}"

KINDS = {"serial": 0, "plain": 1, "team": 2, "run": 3}
"""What a section runs on, as the library numbers it."""


def build() -> None:
    """Build the library; the systems that need it are skipped without."""
    manifest = HERE / "native" / "Cargo.toml"
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(manifest), "--target-dir", str(TARGET)]
    try:
        subprocess.run(command, check=False)
    except OSError as error:
        print(f"python_call: the native twins are skipped: {error}", file=sys.stderr)


class Request(ctypes.Structure):
    """What to run and for how long."""

    _fields_ = [
        ("body", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("parts", ctypes.c_size_t),
        ("warm_up_ns", ctypes.c_uint64),
        ("gap_ns", ctypes.c_uint64),
        ("sections", ctypes.c_size_t),
        ("limit_ns", ctypes.c_uint64),
        ("batch", ctypes.c_size_t),
    ]


class Twin:
    """A section that is timed in Rust."""

    def __init__(self, library: ctypes.CDLL, system: int, body: int, work: Work) -> None:
        self._library, self._system, self._body, self._work = library, system, body, work

    def __call__(self) -> None:
        """Run one section."""
        self.sample(1, 1.0, 0, 1, warm_up=0.0)

    def sample(self, sections: int, seconds: float, gap_ns: int, batch: int, *, warm_up: float) -> list[float]:
        """Time sections as `server.sample` does (batches as a whole), with the cost of a time stamp taken off."""
        times = (ctypes.c_double * sections)()
        work = self._work
        request = Request(
            self._body, work.address, work.parts, int(warm_up * 1e9), gap_ns, sections, int(seconds * 1e9), batch
        )
        count = self._library.system_sample(self._system, ctypes.byref(request), times)
        return times[:count]


def twin(kind: str) -> Callable[[Bodies, Work, int], AbstractContextManager[Twin]]:
    """Return what opens the twin of a kind of section."""

    @contextmanager
    def opened(bodies: Bodies, work: Work, threads: int) -> Iterator[Twin]:
        try:
            library = ctypes.CDLL(os.fspath(LIBRARY))
        except OSError as error:
            raise Unavailable(f"its library is not built: {error}") from error
        library.system_open.restype = ctypes.c_void_p
        library.system_close.argtypes = [ctypes.c_void_p]
        library.system_sample.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        library.system_sample.restype = ctypes.c_size_t
        system = library.system_open(KINDS[kind], threads)
        if not system:
            raise Unavailable(f"no pool of {threads} threads could be had")
        body = bodies.index if kind == "run" else bodies.ranges
        try:
            yield Twin(library, system, body.address, work)
        finally:
            library.system_close(system)

    return opened
