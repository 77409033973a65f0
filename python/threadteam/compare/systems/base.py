"""The contract of an execution system in the comparison."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from threadteam.compare.case import Array, Case

__all__ = ["Decomposition", "Loaded", "System", "Unavailable"]


class Unavailable(Exception):
    """The system cannot take part, or not in this case; the message says why and what would change it."""


@dataclass(frozen=True)
class Decomposition:
    """Where the time of one run goes, per run in seconds: means over the middle half of the traced runs by length.

    Parameters
    ----------
    operators : dict of str to float
        Wall time of each operator by its name in the graph, in execution order, without dispatch and barrier.
    dispatch : float
        Time the calling thread spends publishing sections.
    barrier : float
        Time the calling thread waits at the ends of sections.
    idle_share : float
        The part of the participants' time between the first dispatch and the last join in which they do no work.
    sections : float
        Parallel sections per run.
    """

    operators: dict[str, float]
    dispatch: float
    barrier: float
    idle_share: float
    sections: float


@dataclass(frozen=True)
class Loaded:
    """A case made ready by a system.

    Parameters
    ----------
    run : callable
        Runs the case once and returns its outputs; everything else was done before.
    close : callable
        Releases what the case holds; the system stays usable.
    """

    run: Callable[[], list[Array]]
    close: Callable[[], None]


class System(abc.ABC):
    """One way to run a model on a number of threads, in a process of its own.

    A subclass names itself in `name` and implements `version` and `load`. The process calls the constructor once, with
    the variables of `environment` in place, before anything of the system is imported. `decompose` is implemented by
    systems that can say where the time goes.
    """

    name: ClassVar[str]
    #: Whether the threads exist once the system is imported; otherwise they are counted from the first case on.
    threads_at_import: ClassVar[bool] = False

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @classmethod
    def environment(cls, threads: int) -> dict[str, str]:
        """The variables that a process of this system starts with: libraries that are not measured stay serial."""
        del threads
        return dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

    @abc.abstractmethod
    def version(self) -> str:
        """Import the system and describe it.

        Raises
        ------
        Unavailable
            When it cannot run here.
        """

    @abc.abstractmethod
    def load(self, case: Case) -> Loaded:
        """Make `case` ready to run on `threads` threads.

        Raises
        ------
        Unavailable
            When the system cannot run this case.
        """

    def decompose(self, case: Case, runs: int) -> Decomposition | None:
        """Where the time of `runs` runs of `case` goes; None when the system cannot tell."""
        del case, runs
        return None
