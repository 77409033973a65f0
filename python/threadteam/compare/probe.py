"""The round trip of a cache line between two CPUs: the machine's unit of dispatch cost, printed beside the figures."""

from __future__ import annotations

from threadteam import _native

__all__ = ["round_trip"]

#: Batches of a hundred trips: about two milliseconds.
_BATCHES = 50


def round_trip() -> float | None:
    """Measure how long a cache line takes to another CPU and back.

    Returns
    -------
    float or None
        The fastest tenth of a few thousand trips, in seconds; None when two threads cannot run at the same time.

    Examples
    --------
    >>> trip = round_trip()
    >>> trip is None or 0.0 < trip < 1.0
    True
    """
    return _native.round_trip(_BATCHES)
