"""The process of one arm: it loads cases, runs them when told to, and reports times over a pipe."""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from threadteam.compare.case import Array, Case
from threadteam.compare.systems import Decomposition, Loaded, Unavailable, system

__all__ = ["FirstRun", "Opened", "Skipped", "Turn", "Worker", "main", "serve"]


@dataclass(frozen=True)
class Opened:
    """The system is ready."""

    version: str


@dataclass(frozen=True)
class Skipped:
    """The system, or this case on it, cannot be had; `reason` says why."""

    reason: str


@dataclass(frozen=True)
class FirstRun:
    """A case was loaded and run once; `threads` counts the participants found in /proc (None: not Linux)."""

    load_seconds: float
    first_seconds: float
    outputs: list[Array]
    threads: int | None


@dataclass(frozen=True)
class Turn:
    """The wall time of each run of a turn and the process's CPU time over all of them, in seconds."""

    seconds: list[float]
    cpu_seconds: float


class Worker:
    """One system at one width, holding at most one loaded case."""

    def __init__(self, name: str, threads: int) -> None:
        self._system = system(name)(threads)
        self._baseline: int | None = None
        self._loaded: tuple[Case, Loaded] | None = None

    def open(self) -> Opened | Skipped:
        """Import the system."""
        try:
            version = self._system.version()
        except Unavailable as error:
            return Skipped(str(error))
        # A Python process begins with one thread; some systems' imports start threads that run none of their work.
        self._baseline = 1 if self._system.threads_at_import else _thread_count()
        return Opened(version)

    def load(self, case: Case) -> FirstRun | Skipped:
        """Load `case` and run it for the first time."""
        self.unload()
        start = time.perf_counter()
        try:
            loaded = self._system.load(case)
        except Unavailable as error:
            return Skipped(str(error))
        ready = time.perf_counter()
        outputs = loaded.run()
        done = time.perf_counter()
        self._loaded = case, loaded
        count = _thread_count()
        threads = None if count is None or self._baseline is None else count - self._baseline + 1
        return FirstRun(ready - start, done - ready, [output.copy() for output in outputs], threads)

    def time(self, runs: int, warm_up: int) -> Turn:
        """Run the loaded case `warm_up` times, then `runs` times under the clock."""
        run = self._held()[1].run
        clock = time.perf_counter_ns
        stamps = [0] * runs
        gc.collect()
        gc.disable()
        try:
            for _ in range(warm_up):
                run()
            cpu = time.process_time_ns()
            for index in range(runs):
                start = clock()
                run()
                stamps[index] = clock() - start
            cpu = time.process_time_ns() - cpu
        finally:
            gc.enable()
        return Turn([stamp / 1e9 for stamp in stamps], cpu / 1e9)

    def decompose(self, runs: int) -> Decomposition | None:
        """Where the time of the loaded case goes; it is not loaded any more afterwards."""
        case = self._held()[0]
        self.unload()
        return self._system.decompose(case, runs)

    def unload(self) -> None:
        """Release the loaded case."""
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None
            gc.collect()

    def _held(self) -> tuple[Case, Loaded]:
        if self._loaded is None:
            raise RuntimeError("no case is loaded")
        return self._loaded


def _thread_count() -> int | None:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else None


def serve(worker: Worker, pipe: Connection) -> None:
    """Answer requests, each the name of a method of `Worker` and its arguments, until the other end closes."""
    with suppress(EOFError, ConnectionError):
        while True:
            name, arguments = pipe.recv()
            answer: Any
            try:
                answer = getattr(worker, name)(*arguments)
            except Exception as error:  # the controller reports it; this process goes on with the next case
                answer = RuntimeError(f"{type(error).__name__}: {error}")
            pipe.send(answer)


def main() -> None:
    """Serve one arm; the arguments are the system, its threads and the descriptor of the pipe."""
    _, name, threads, descriptor = sys.argv
    serve(Worker(name, int(threads)), Connection(int(descriptor)))
