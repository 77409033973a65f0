"""The systems that are compared: each runs the same native body on several parts, called from Python.

Every system lives in a process of its own, because a threading layer of numba is chosen once per process and because
the threads of one system must not disturb another.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def serial(bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    call, parts, address = bodies.call_ranges, work.parts, work.address
    yield lambda: call(0, parts, address)


@contextmanager
def threadteam_ranges(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    body = tt.native(bodies.ranges, data=work.data)
    with tt.Pool(threads) as pool, pool.exec() as token:
        for_ranges, parts = token.for_ranges, work.parts
        yield lambda: for_ranges(parts, 1, body)


@contextmanager
def threadteam_team(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    body = tt.native(bodies.ranges, data=work.data)
    with tt.Pool(threads).into_team() as team, team.exec() as token:
        for_ranges, parts = token.for_ranges, work.parts
        yield lambda: for_ranges(parts, 1, body)


@contextmanager
def threadteam_run(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    body = tt.native(bodies.index, data=work.data)
    with tt.Pool(threads) as pool, pool.exec() as token, token.team() as team:
        run = team.run
        yield lambda: run(body)


@contextmanager
def threadteam_ranges_python(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    call, address = bodies.call_ranges, work.address

    def body(start: int, stop: int) -> None:
        call(start, stop, address)

    with tt.Pool(threads) as pool, pool.exec() as token:
        for_ranges, parts = token.for_ranges, work.parts
        yield lambda: for_ranges(parts, 1, body)


@contextmanager
def threadteam_run_python(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    call, address = bodies.call_ranges, work.address

    def body(index: int, _size: int) -> None:
        call(index, index + 1, address)

    with tt.Pool(threads) as pool, pool.exec() as token, token.team() as team:
        run = team.run
        yield lambda: run(body)


def import_threadteam():
    try:
        import threadteam
    except ImportError as error:
        raise Unavailable(f"threadteam cannot be imported: {error}") from error
    if not hasattr(threadteam, "Pool"):
        raise Unavailable("threadteam has no Pool: the extension module is not built")
    return threadteam


@contextmanager
def prange(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    import numba

    layer = os.environ["NUMBA_THREADING_LAYER"]
    line, chain = LINE, bodies.chain

    @numba.njit(parallel=True)
    def section(parts, words):
        for part in numba.prange(parts):
            words[(part + 1) * line] = chain(words[0], part)

    parts, data = work.parts, work.data
    try:
        section(parts, data)
    except ValueError as error:
        raise Unavailable(f"numba cannot load its layer {layer}: {' '.join(str(error).split())}") from error
    if numba.threading_layer() != layer:
        raise Unavailable(f"numba chose {numba.threading_layer()}, not {layer}")
    if numba.get_num_threads() != threads:
        raise Unavailable(f"numba uses {numba.get_num_threads()} threads, not {threads}")
    yield lambda: section(parts, data)


@contextmanager
def njit_serial(bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    import numba

    line, chain = LINE, bodies.chain

    @numba.njit(nogil=True)
    def section(parts, words):
        for part in range(parts):
            words[(part + 1) * line] = chain(words[0], part)

    parts, data = work.parts, work.data
    section(parts, data)
    yield lambda: section(parts, data)


@contextmanager
def futures_map(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    from concurrent.futures import ThreadPoolExecutor

    call, address, parts = bodies.call_ranges, work.address, work.parts

    def body(part: int) -> None:
        call(part, part + 1, address)

    with ThreadPoolExecutor(threads) as executor:
        run = executor.map
        yield lambda: list(run(body, range(parts)))


@contextmanager
def futures_submit(bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    from concurrent.futures import ThreadPoolExecutor

    call, address, parts = bodies.call_ranges, work.address, work.parts

    with ThreadPoolExecutor(threads - 1) as executor:
        submit = executor.submit

        def section() -> None:
            others = [submit(call, part, part + 1, address) for part in range(1, parts)]
            call(0, 1, address)
            for other in others:
                other.result()

        yield section


@dataclass(frozen=True)
class System:
    """A way to run a section, what it is, and the environment its process needs."""

    open: Callable
    about: str
    environment: tuple[tuple[str, str], ...] = ()


SYSTEMS = {
    "serial": System(serial, "one ctypes call of the native body for all parts"),
    "serial.njit": System(njit_serial, "the same loop as a numba.njit function"),
    "threadteam": System(threadteam_ranges, "Exec.for_ranges, native body, plain token"),
    "threadteam.team": System(threadteam_team, "Exec.for_ranges, native body, team token"),
    "threadteam.run": System(threadteam_run, "TeamExec.run, native body"),
    "threadteam.python": System(threadteam_ranges_python, "Exec.for_ranges, Python body that calls the native one"),
    "threadteam.run.python": System(threadteam_run_python, "TeamExec.run, Python body that calls the native one"),
    **{
        f"prange.{layer}": System(prange, f"numba.prange on {layer}", (("NUMBA_THREADING_LAYER", layer),))
        for layer in ("omp", "tbb", "workqueue")
    },
    "futures.submit": System(futures_submit, "ThreadPoolExecutor.submit, the caller runs one part itself"),
    "futures.map": System(futures_map, "ThreadPoolExecutor.map, the caller waits"),
}
