"""Reading the small text files of ``/proc`` and ``/sys``."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """Return the text of a file, or None when it cannot be read: kernels and containers hide any of them."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """Return the decimal number in a file, or None."""
    text = (read_text(path) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


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
        last = last or first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
            return frozenset()
        cpus.update(range(int(first), min(int(last), MAX_CPU) + 1))
    return frozenset(cpus)


MAX_CPU = 1 << 16
"""No kernel numbers CPUs above this; it bounds what a malformed range can allocate."""
