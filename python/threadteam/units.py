"""Times for people: three significant digits and a unit."""

from __future__ import annotations

import math

__all__ = ["duration"]

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def duration(seconds: float | None) -> str:
    """A time with three significant digits, or a dash for None.

    Examples
    --------
    >>> duration(0.00001234), duration(0.25), duration(3e-7), duration(None), duration(math.inf)
    ('12.3 us', '250 ms', '300 ns', '-', 'inf s')
    """
    if seconds is None:
        return "-"
    if seconds == 0.0:
        return "0 us"
    if not abs(seconds) < 1e6:  # not a number, either
        return f"{seconds:.3g} s"
    rounded = float(f"{seconds:.3g}")
    scale, unit = next((entry for entry in _UNITS if abs(rounded) >= entry[0] * 0.9999), _UNITS[-1])
    value = rounded / scale
    digits = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    return f"{value:.{digits}f} {unit}"
