"""Reading the small text files of ``/proc`` and ``/sys``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """Return the text of a file, or None when it cannot be read: kernels and containers hide any of them."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # a path with a zero byte is a ValueError
        return None


def read_int(path: Path) -> int | None:
    """Return the decimal number in a file, or None."""
    return parse_int((read_text(path) or "").strip())


def parse_int(text: str) -> int | None:
    """Return the decimal number, or None for anything else and for numbers that no kernel writes.

    Examples
    --------
    >>> parse_int("12"), parse_int("-1"), parse_int("9" * 5000)
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse the kernel's list format.

    Parameters
    ----------
    text : str
        Numbers and ranges, ``0-3,8,10-11``.

    Returns
    -------
    frozenset of int
        Empty for anything malformed.

    Examples
    --------
    >>> sorted(parse_cpu_list("0-2,5"))
    [0, 1, 2, 5]
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        begin, end = parse_int(first), parse_int(last or first)
        if begin is None or end is None:
            return frozenset()
        cpus.update(range(begin, min(end, MAX_CPU) + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Write CPU numbers in the kernel's list format.

    Examples
    --------
    >>> format_cpu_list({0, 1, 2, 5})
    '0-2,5'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1] = [runs[-1][0], cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


MOST_DIGITS = 18
"""Of numbers that fit a kernel's 64 bits; Python refuses to read thousands of digits."""

MAX_CPU = 1 << 16
"""No kernel numbers CPUs above this; it bounds what a malformed range can allocate."""
