"""The dispatch / barrier / idle picture of a timeline, for matplotlib and for terminals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from os import PathLike
from typing import Any

from threadteam.extras import require
from threadteam.outputs import writing
from threadteam.timeline import Activity, Interval, Timeline
from threadteam.units import duration

__all__ = ["draw", "text"]

#: Runs in the first panel: enough to see what happens between them.
_RUNS = 3
#: The zoomed panel shows the narrowest stretch around a join and the next dispatch, with this margin in nanoseconds.
_MARGIN = 1500
_WIDEST_ZOOM = 30_000

_DISPATCH = "#d62728"
_ENTRY = "#f7941d"
_BARRIER = "#f2b134"
_SPIN = "#d9d9d9"
_PARK = "#ffffff"
#: Work, a colour an operator; blues, greens and purples stay apart from dispatch and barrier for colour-blind readers.
_OPERATORS = ("#1f77b4", "#2a9d8f", "#6a51a3", "#17becf", "#8c6d31", "#393b79", "#74a35b", "#9e7bb5")
_WAKE = "#000000"
#: More wakes in one panel are not drawn: their arrows would hide the rest.
_MOST_WAKES = 16
_HATCHES = {Activity.BARRIER: "////", Activity.PARK: "...."}
_NAMES = {
    Activity.DISPATCH: "D: dispatch, the caller publishes a section",
    Activity.ENTRY: "E: entry, a worker comes into a section or leaves it",
    Activity.BARRIER: "B: barrier, waiting for the others",
    Activity.SPIN: "idle, spinning",
    Activity.PARK: "parked: asleep, no CPU",
}
_TEXT = {Activity.DISPATCH: "D", Activity.ENTRY: "E", Activity.BARRIER: "B", Activity.SPIN: ".", Activity.PARK: " "}
#: How much a dispatch or barrier counts for against work in the same character: short ones must stay visible.
_FAVOUR = 3


def draw(timeline: Timeline, paths: Sequence[str | PathLike[str]], title: str = "") -> None:
    """Write pictures of a timeline, as `Timeline.draw` describes."""
    if not timeline.intervals:
        raise ValueError("the trace holds no section and no step, so there is nothing to draw; run something inside it")
    figures = require("matplotlib.figure", "plot", "a timeline picture")
    windows = _windows(timeline)
    height = 1.5 + len(windows) * (1.1 + 0.42 * timeline.participants)
    figure = figures.Figure(figsize=(13, height), layout="constrained")
    colours = {label: _OPERATORS[index % len(_OPERATORS)] for index, label in enumerate(timeline.labels)}
    axes = figure.subplots(len(windows), 1, squeeze=False)[:, 0]
    for axis, (caption, window) in zip(axes, windows, strict=True):
        _panel(axis, timeline, window, colours, caption)
    axes[-1].set_xlabel("time in us since the left edge of each panel")
    figure.suptitle(_headline(timeline, title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.legend(handles=_legend(timeline, colours), loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    for path in paths:
        with writing(path):
            figure.savefig(path, dpi=150)


def text(timeline: Timeline, width: int = 100) -> str:
    """One typical run as text: D dispatch, E entry, B barrier, dots for spinning, blanks for parked.

    Examples
    --------
    >>> from threadteam.timeline import Event, Timeline
    >>> events = [Event(0, 0, "publish", 1), Event(0, 100, "share_begin", 1), Event(1, 200, "share_begin", 1),
    ...           Event(0, 800, "share_end", 1), Event(0, 800, "join_begin", 1), Event(1, 900, "share_end", 1),
    ...           Event(0, 1000, "join_end", 1)]
    >>> print(text(Timeline(events), width=20))
    caller   |DDaaaaaaaaaaaaaaBBBB|
    worker 1 |....aaaaaaaaaaaaaa..|
    1.00 us; a: section
    """
    number = timeline.typical_run
    window = (timeline.start, timeline.end) if number is None else timeline.runs[number]
    start, end = window
    if end <= start:
        return "nothing was recorded"
    letters = _letters(timeline.labels)
    rows = []
    for participant in range(timeline.participants):
        cells = _cells(
            [part for part in timeline.between(start, end) if part.participant == participant], window, width
        )
        rows.append(f"{timeline.names[participant]:<9}|{''.join(_character(cell, letters) for cell in cells)}|")
    key = ", ".join(f"{letter}: {label or 'section'}" for label, letter in letters.items())
    return "\n".join([*rows, f"{duration((end - start) / 1e9)}; {key}"])


def _windows(timeline: Timeline) -> list[tuple[str, tuple[int, int]]]:
    """The panels: captions and stretches, from wide to narrow."""
    runs, number = timeline.runs, timeline.typical_run
    if number is None:
        one = (timeline.start, timeline.end)
        windows = [("everything that was recorded", one)]
    else:
        one = runs[number]
        # The shortest stretch of runs around it: an interrupted neighbour would dwarf everything.
        firsts = range(max(0, number - _RUNS + 1), max(0, min(number, len(runs) - _RUNS)) + 1)
        first = min(firsts, key=lambda at: runs[min(at + _RUNS, len(runs)) - 1][1] - runs[at][0])
        several = runs[first : first + _RUNS]
        windows = [("the run", one)]
        if len(several) > 1:
            all_of_them = (several[0][0], several[-1][1])
            windows = [
                (f"{len(several)} runs in a row, their ends dashed", all_of_them),
                (f"number {number - first + 1} of them", one),
            ]
    zoom = _narrowest_join(timeline, one)
    if zoom is not None and (zoom[1] - zoom[0]) * 3 < one[1] - one[0]:
        windows.append(("zoomed to the end of one section and the dispatch of the next", zoom))
    return windows


def _narrowest_join(timeline: Timeline, window: tuple[int, int]) -> tuple[int, int] | None:
    """The narrowest stretch from a worker's end of work, over the caller's barrier, to its next share."""
    caller = [interval for interval in timeline.between(*window) if interval.participant == 0]
    found = [
        (barrier.start - _MARGIN, dispatch.end + _MARGIN)
        for barrier in caller
        if barrier.activity is Activity.BARRIER
        for dispatch in caller
        if dispatch.activity is Activity.DISPATCH and 0 <= dispatch.start - barrier.end < _WIDEST_ZOOM
    ]
    stretch = min(found, key=lambda bounds: bounds[1] - bounds[0], default=None)
    return None if stretch is None else (max(stretch[0], window[0]), min(stretch[1], window[1]))


def _panel(axis: Any, timeline: Timeline, window: tuple[int, int], colours: dict[str, str], caption: str) -> None:
    start, end = window
    span = (end - start) / 1e3
    whole = set(timeline.intervals)
    for interval in timeline.between(start, end):
        left, length = (interval.start - start) / 1e3, (interval.end - interval.start) / 1e3
        axis.broken_barh(
            [(left, length)],
            (timeline.participants - 1 - interval.participant - 0.4, 0.8),
            facecolor=_colour(interval, colours),
            edgecolor="#555555" if interval.activity in _HATCHES else "none",
            linewidth=0.3 if length > span / 400 else 0.0,
            hatch=_HATCHES.get(interval.activity) if length > span / 200 else None,
        )
        time = duration((interval.end - interval.start) / 1e9) if interval in whole else ""
        _annotate(axis, timeline, interval, time, left, length, span)
    _arrows(axis, timeline, window)
    for left, right in timeline.runs:
        for edge in (left, right):
            if start < edge < end:
                axis.axvline((edge - start) / 1e3, color="#000000", linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_yticks(range(timeline.participants))
    axis.set_yticklabels(list(reversed(timeline.names)))
    axis.set_ylim(-0.6, timeline.participants - 0.4)
    axis.set_xlim(0, span)
    axis.set_title(f"{caption} ({duration((end - start) / 1e9)})", loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.minorticks_on()
    axis.tick_params(axis="y", which="both", left=False)


def _arrows(axis: Any, timeline: Timeline, window: tuple[int, int]) -> None:
    """An arrow from each wake to the moment in which the sleeper ran, and how long that took."""
    start, end = window
    inside = [wake for wake in timeline.wakes if start <= wake.start and wake.end <= end]
    if len(inside) > _MOST_WAKES:
        return
    top = timeline.participants - 1
    for wake in inside:
        tail, head = (wake.start - start) / 1e3, (wake.end - start) / 1e3
        style = {"arrowstyle": "-|>", "color": _WAKE, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", xy=(head, top - wake.sleeper), xytext=(tail, top - wake.waker), arrowprops=style)
        if (head - tail) * 1e3 > (end - start) * 0.05:
            words = f"wake {duration((wake.end - wake.start) / 1e9)}"
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
            middle = ((tail + head) / 2, top - (wake.waker + wake.sleeper) / 2)
            axis.text(*middle, words, fontsize=7, ha="center", va="center", bbox=box, clip_on=True)


def _annotate(
    axis: Any, timeline: Timeline, interval: Interval, time: str, left: float, length: float, span: float
) -> None:
    """Write what an interval is, and how long when it is not cut off, where there is room for it."""
    row = timeline.participants - 1 - interval.participant
    share = length / span
    if interval.activity is Activity.WORK:
        words, colour = (interval.label or "section", "white")
    elif interval.activity is Activity.DISPATCH:
        words, colour = ("D", "white")
    elif interval.activity is Activity.ENTRY:
        words, colour = ("E", "black")
    elif interval.activity is Activity.BARRIER:
        words, colour = ("B", "black")
    else:
        asleep = "B, parked" if interval.section else "parked"
        words, colour = ("spin" if interval.activity is Activity.SPIN else asleep, "#444444")
    # A character takes about 0.7 % of the panel's width at this size.
    room = share / 0.007
    lines = words if room > len(words) + 0.5 else ""
    if time and room > max(len(words), len(time)) + 1:
        lines = f"{words}\n{time}"
    hatched = interval.activity in _HATCHES
    box = {"facecolor": _colour(interval, {}), "edgecolor": "none", "pad": 1.0} if hatched else None
    if lines:
        axis.text(
            left + length / 2, row, lines, ha="center", va="center", fontsize=8, color=colour, bbox=box, clip_on=True
        )


def _colour(interval: Interval, colours: dict[str, str]) -> str:
    match interval.activity:
        case Activity.DISPATCH:
            return _DISPATCH
        case Activity.ENTRY:
            return _ENTRY
        case Activity.BARRIER:
            return _BARRIER
        case Activity.SPIN:
            return _SPIN
        case Activity.PARK:
            return _PARK
        case Activity.WORK:
            return colours.get(interval.label, _OPERATORS[0])


def _legend(timeline: Timeline, colours: dict[str, str]) -> list[Any]:
    patch = require("matplotlib.patches", "plot", "a timeline picture").Patch
    present = {interval.activity for interval in timeline.intervals}
    steps = list(colours.items())[: len(_OPERATORS)] or [("work: a share of a section", _OPERATORS[0])]
    handles = [patch(facecolor=colour, label=label) for label, colour in steps]
    for activity, colour in (
        (Activity.DISPATCH, _DISPATCH),
        (Activity.ENTRY, _ENTRY),
        (Activity.BARRIER, _BARRIER),
        (Activity.SPIN, _SPIN),
        (Activity.PARK, _PARK),
    ):
        if activity in present:
            hatch = _HATCHES.get(activity)
            handles.append(
                patch(facecolor=colour, hatch=hatch, edgecolor="#555555", label=_NAMES[activity], linewidth=0.3)
            )
    if timeline.wakes:
        line = require("matplotlib.lines", "plot", "a timeline picture").Line2D
        arrow = "arrow: a wake, until the woken participant runs"
        handles.append(line([], [], color=_WAKE, marker=">", linewidth=1.0, label=arrow))
    return handles


def _headline(timeline: Timeline, title: str) -> str:
    typical = timeline.typical_runs()
    parts, runs = timeline.parts(typical), max(1, len(typical))
    total = sum(parts.operators.values()) + parts.dispatch + parts.barrier
    what, means = "work", "of all that was recorded"
    if typical:
        what, means = "per run: operators", f"means of the middle {runs} of {len(timeline.runs)} runs"
    figures = (
        f"{what} {duration(sum(parts.operators.values()) / runs)}, "
        f"dispatch {duration(parts.dispatch / runs)}, "
        f"barrier {duration(parts.barrier / runs)}, together {duration(total / runs)}; "
        f"participants idle {parts.idle_share:.0%} ({means})"
    )
    return "\n".join([*([title] if title else []), figures, *_missing(timeline)])


def _missing(timeline: Timeline) -> list[str]:
    """What the picture does not show, if anything."""
    lines = [f"the oldest {events} events of {name} were overwritten" for name, events in timeline.lost.items()]
    if timeline.undrawn:
        lines.append(f"{timeline.undrawn} events of threads that shared a ring are not drawn")
    return lines


def _letters(labels: Sequence[str]) -> dict[str, str]:
    """A lower-case letter an operator, by order of appearance; those beyond the alphabet share the last."""
    return {label: chr(ord("a") + min(index, 25)) for index, label in enumerate(labels or [""])}


def _cells(intervals: Sequence[Interval], window: tuple[int, int], width: int) -> list[Interval | None]:
    """For each of `width` characters, the interval that takes most of its time, with dispatch and barrier favoured."""
    start, end = window
    edges = [start + (end - start) * column // width for column in range(width + 1)]
    best: list[tuple[int, Interval | None]] = [(0, None)] * width
    for interval in intervals:
        weight = _FAVOUR if interval.activity in (Activity.DISPATCH, Activity.BARRIER) else 1
        first = max(0, bisect_right(edges, interval.start) - 1)
        for column in range(first, min(width, bisect_left(edges, interval.end))):
            share = min(interval.end, edges[column + 1]) - max(interval.start, edges[column])
            best[column] = max(best[column], (share * weight, interval), key=lambda entry: entry[0])
    return [interval for _, interval in best]


def _character(cell: Interval | None, letters: dict[str, str]) -> str:
    if cell is None:
        return " "
    return _TEXT.get(cell.activity) or letters.get(cell.label, "a")
