"""The systems that are compared: each runs the same native body on several parts, called from Python.

Every system lives in a process of its own, because a threading layer of numba is chosen once per process and because
the threads of one system must not disturb another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from twin import twin
from work import LINE, Bodies, Section, Unavailable, Work


@contextmanager
def serial(bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    call, parts, address = bodies.call_ranges, work.parts, work.address
    yield lambda: call(0, parts, address)


@contextmanager
def threadteam_serial(bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    body = tt.native(bodies.ranges, data=work.data)
    for_ranges, parts = tt.Exec.serial().for_ranges, work.parts
    yield lambda: for_ranges(parts, 1, body)


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


def task(item: int) -> int:
    """An empty Python function."""
    return item


@contextmanager
def tasks_loop(_bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    yield lambda: [task(item) for item in range(work.tasks)]


@contextmanager
def tasks_serial(_bodies: Bodies, work: Work, _threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    mapped = tt.Exec.serial().map
    yield lambda: mapped(task, range(work.tasks))


@contextmanager
def tasks_threadteam(_bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    tt = import_threadteam()
    with tt.Pool(threads) as pool, pool.exec() as token:
        mapped = token.map
        yield lambda: mapped(task, range(work.tasks))


@contextmanager
def tasks_futures(_bodies: Bodies, work: Work, threads: int) -> Iterator[Section]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as executor:
        run = executor.map
        yield lambda: list(run(task, range(work.tasks)))


@dataclass(frozen=True)
class System:
    """A way to run a section, what it is, the environment its process needs, and its native twin."""

    open: Callable
    about: str
    environment: tuple[tuple[str, str], ...] = ()
    twin: str | None = None
    tasks: bool = False
    """Whether a section calls Python functions and returns what they did, instead of running the native body."""


SYSTEMS = {
    "serial": System(serial, "one ctypes call of the native body for all parts"),
    "serial.njit": System(njit_serial, "the same loop as a numba.njit function"),
    # Each twin stands beside its call: the machine's clock moves, and neighbours see the same of it.
    "native.serial": System(twin("serial"), "Exec::for_ranges on the serial token, from Rust"),
    "threadteam.serial": System(threadteam_serial, "Exec.for_ranges, native body, serial token", twin="native.serial"),
    "native": System(twin("plain"), "Exec::for_ranges on a plain token, from Rust"),
    "threadteam": System(threadteam_ranges, "Exec.for_ranges, native body, plain token", twin="native"),
    "native.team": System(twin("team"), "Exec::for_ranges on a team token, from Rust"),
    "threadteam.team": System(threadteam_team, "Exec.for_ranges, native body, team token", twin="native.team"),
    "native.run": System(twin("run"), "TeamExec::run, from Rust"),
    "threadteam.run": System(threadteam_run, "TeamExec.run, native body", twin="native.run"),
    "threadteam.python": System(threadteam_ranges_python, "Exec.for_ranges, Python body that calls the native one"),
    "threadteam.run.python": System(threadteam_run_python, "TeamExec.run, Python body that calls the native one"),
    **{
        f"prange.{layer}": System(prange, f"numba.prange on {layer}", (("NUMBA_THREADING_LAYER", layer),))
        for layer in ("omp", "tbb", "workqueue")
    },
    "futures.submit": System(futures_submit, "ThreadPoolExecutor.submit, the caller runs one part itself"),
    "futures.map": System(futures_map, "ThreadPoolExecutor.map, the caller waits"),
    "tasks.loop": System(tasks_loop, "a list comprehension that calls the function", tasks=True),
    "tasks.serial": System(tasks_serial, "Exec.map, serial token", tasks=True),
    "tasks.threadteam": System(tasks_threadteam, "Exec.map, plain token", tasks=True),
    "tasks.futures": System(tasks_futures, "ThreadPoolExecutor.map", tasks=True),
}
