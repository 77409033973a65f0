"""What every system is given: the native bodies, and the memory that they work on."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Section = Callable[[], object]
"""One call of it runs one parallel section."""

LINE = 16
"""Words of 8 bytes between the results of two parts, so that no two share a cache line or its neighbour."""


class Unavailable(Exception):
    """The system cannot run here; the message says why."""


@dataclass
class Work:
    """What one section does: ``parts`` bodies of ``steps`` dependent multiplications each.

    The first word of ``data`` is the number of steps; the result of part ``i`` goes to word ``(i + 1) * LINE``.
    """

    parts: int
    data: np.ndarray
    tasks: int = 0
    """Python functions that a section of tasks calls."""

    @classmethod
    def of(cls, parts: int) -> Work:
        """Work without steps."""
        return cls(parts, np.zeros((parts + 1) * LINE, dtype=np.int64))

    @property
    def address(self) -> int:
        return self.data.ctypes.data

    def set_steps(self, steps: int) -> None:
        self.data[0] = steps

    def results(self) -> list[int]:
        return self.data[LINE::LINE].tolist()

    def forget(self) -> None:
        self.data[LINE:] = 0


class Bodies:
    """The native bodies, compiled by numba."""

    def __init__(self) -> None:
        import numba
        from numba import types

        @numba.njit(nogil=True)
        def chain(steps, seed):
            # Every multiplication needs the one before; the shift keeps a compiler from regrouping them. The result is
            # never zero, so a part that did not run is seen.
            state = np.uint64(0x2545F4914F6CDD1D) + np.uint64(seed)
            for _ in range(steps):
                state = (state ^ (state >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
            return np.int64(state | np.uint64(1))

        line = LINE

        @numba.cfunc(types.void(types.int64, types.int64, types.voidptr))
        def ranges(start, stop, data):
            words = numba.carray(data, (1 << 20,), np.int64)
            for part in range(start, stop):
                words[(part + 1) * line] = chain(words[0], part)

        @numba.cfunc(types.void(types.int64, types.voidptr))
        def index(part, data):
            words = numba.carray(data, (1 << 20,), np.int64)
            words[(part + 1) * line] = chain(words[0], part)

        self.chain = chain
        self.ranges = ranges
        self.index = index
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.call_ranges = prototype(ranges.address)
        """The range body as a plain ``ctypes`` function, which releases the interpreter lock while it runs."""


def steps_lasting(bodies: Bodies, nanoseconds: float) -> int:
    """The number of steps that take so long: from the fastest of twenty long chains."""
    if nanoseconds == 0:
        return 0
    trial = 200_000
    bodies.chain(1, 0)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter_ns()
        bodies.chain(trial, 0)
        best = min(best, time.perf_counter_ns() - start)
    return max(1, round(nanoseconds * trial / best))
