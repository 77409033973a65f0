"""A made-up trace of Gemm, Softmax, Gemm on two participants, in the form that the core records."""

from collections.abc import Iterator

from threadteam.timeline import Event

LABELS = {1: "Gemm 1", 2: "Softmax", 3: "Gemm 2"}
WORK = {1: 16_000, 2: 5_000, 3: 15_000}
DISPATCH = 150
ENTRY = 280
"""When the worker begins its share, after the publication."""
LATE = 320
"""How much longer the worker's share takes than the caller's."""


def runs(count: int = 4, gap: int = 2_000, park: bool = True) -> list[Event]:
    """`count` runs with `gap` nanoseconds between them; the worker parks before the first one."""
    return list(_events(count, gap, park))


def _events(count: int, gap: int, park: bool) -> Iterator[Event]:
    now, section = 1_000, 0
    if park:
        yield Event(1, 0, "park_begin", 0)
    for run in range(count):
        for label, work in WORK.items():
            section += 1
            yield Event(0, now, "label", label)
            begin = now + 100
            yield Event(0, begin, "publish", section)
            if park and section == 1:
                yield Event(0, begin + 50, "wake", 1)
                yield Event(1, begin + 200, "park_end", 0)
            yield Event(0, begin + DISPATCH, "share_begin", section)
            yield Event(1, begin + ENTRY, "share_begin", section)
            done = begin + DISPATCH + work
            yield Event(0, done, "share_end", section)
            yield Event(0, done, "join_begin", section)
            yield Event(1, done + LATE, "share_end", section)
            now = done + LATE + 130
            yield Event(0, now, "join_end", section)
        yield Event(0, now, "label", 0)
        now += gap * (run + 1)
