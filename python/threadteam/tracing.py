"""Recording what every participant does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from threadteam import _forks, _native
from threadteam.cpus import cpu_budget

if TYPE_CHECKING:
    from threadteam.timeline import Timeline

__all__ = ["Trace", "trace"]

EVENTS = 1 << 16
"""Events kept for each participant: a ring of 1.5 MiB."""


class Trace:
    """What was recorded while a `trace` block ran.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2) as pool, tt.trace() as recorded:
    ...     pool.exec().for_ranges(8, 1, lambda start, stop: None)
    >>> {kind for _, _, kind, _ in recorded.events} >= {"publish", "share_begin", "share_end"}
    True
    """

    def __init__(self, rings: _native.Trace) -> None:
        self._rings = rings

    @property
    def events(self) -> list[tuple[int, int, str, int]]:
        """The events by participant and time: (participant, nanoseconds, kind, value).

        Participant 0 stands for the first caller from outside the pools, ``i + 1`` for worker ``i``, and those in
        `further` for who came when these were taken. `kind` is ``"publish"``, ``"share_begin"``, ``"share_end"``,
        ``"join_begin"``, ``"join_end"``, ``"barrier_begin"``, ``"barrier_end"``, ``"park_begin"``, ``"park_end"``,
        ``"wake"``, ``"label"``; of workers ``"start"``, ``"spin_begin"``, ``"enter"``, ``"leave"``, ``"stop"``; of
        callers ``"reserve"``, ``"release"``, ``"refuse"``. `value` is a section's number, a label, or a count.
        """
        return self._rings.events()

    @property
    def overwritten(self) -> int:
        """Events that were lost because a ring was full."""
        return self._rings.overwritten

    @property
    def further(self) -> dict[int, str]:
        """The names of participants beyond one pool's: callers after the first, and workers of other pools."""
        return self._rings.further()

    def timeline(self) -> Timeline:
        """Return the intervals of dispatch, work, barrier, spin and park that the events mean.

        Returns
        -------
        Timeline
            What pictures and the Perfetto export are made from.
        """
        timeline = _forks.load("threadteam.timeline")
        rings = self._rings
        events = (timeline.Event(*event) for event in self.events)
        made: Timeline = timeline.Timeline(events, rings.labels(), 1, rings.further(), rings.overwritten_by())
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON that Perfetto (ui.perfetto.dev) reads.

        Parameters
        ----------
        path : path
            The file to write.
        """
        _forks.load("threadteam.perfetto").write(self.timeline(), os.fspath(path))


_open: list[_native.Trace] = []
"""The rings of the blocks that run, the newest last. Guarded by `_forks.lock`."""


def _begin(rings: _native.Trace) -> None:
    """Record into these rings from now on."""
    with _forks.lock:
        _open.append(rings)
        _native._trace_all(rings)


def _end(rings: _native.Trace) -> None:
    """Record into the newest of the other rings from now on."""
    with _forks.lock:
        _open.remove(rings)
        _native._trace_all(_open[-1] if _open else None)


@contextmanager
def trace(path: str | os.PathLike[str] | None = None, *, capacity: int = EVENTS) -> Iterator[Trace]:
    """Record every transition of every participant of all pools while the block runs.

    Of several blocks that run at a time, nested or on other threads, the newest records.

    Parameters
    ----------
    path : path, optional
        Where to write the trace at the end of the block, also of one that raises, as JSON that Perfetto reads.
    capacity : int, default 65536
        Events kept for each participant; later ones overwrite the oldest.

    Yields
    ------
    Trace
        Read its `events` after the block, when nothing records any more.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2) as pool, tt.trace() as recorded:
    ...     pool.exec().for_ranges(1000, 10, lambda start, stop: None)
    >>> any(kind == "publish" for _, _, kind, _ in recorded.events)
    True
    """
    file = None if path is None else os.fspath(path)  # what is no path is refused before the work
    rings = _native.Trace(max(_native._widest(), cpu_budget().count), capacity)
    recorded = Trace(rings)
    _begin(rings)
    try:
        yield recorded
    finally:
        _end(rings)
        if file is not None:
            recorded.save(file)
