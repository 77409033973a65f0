"""Timelines as trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from threadteam.outputs import writing
from threadteam.timeline import Activity, Timeline

__all__ = ["trace_events", "write"]

_PROCESS = 1
#: Names of Chrome's palette, so that dispatch and barrier look alike in every trace.
_COLOURS = {
    Activity.DISPATCH: "terrible",
    Activity.ENTRY: "yellow",
    Activity.BARRIER: "bad",
    Activity.SPIN: "grey",
    Activity.PARK: "white",
}
#: What takes no time, by the core's name, and what a reader sees.
_INSTANTS = {
    "wake": "wakes {}",
    "reserve": "claims {} workers",
    "release": "gives {} workers back",
    "refuse": "refused {} participants",
    "start": "worker starts",
    "stop": "worker ends",
}


def trace_events(timeline: Timeline) -> dict[str, Any]:
    """The trace-event object of a timeline: one thread a participant, one complete event an interval.

    Claims and wakes are instants, and an arrow leads from each waker to the one that it woke.

    Examples
    --------
    >>> from threadteam.timeline import Event, Timeline
    >>> events = [Event(0, 0, "publish", 1), Event(0, 100, "share_begin", 1), Event(0, 800, "share_end", 1)]
    >>> [entry["name"] for entry in trace_events(Timeline(events))["traceEvents"] if entry["ph"] == "X"]
    ['dispatch', 'section 1']
    """
    entries: list[dict[str, Any]] = [_metadata("process_name", 0, "threadteam")]
    for participant in range(timeline.participants):
        entries.append(_metadata("thread_name", participant, timeline.names[participant]))
        entries.append(_metadata("thread_sort_index", participant, participant))
    for interval in timeline.intervals:
        working = interval.activity is Activity.WORK
        entry = {
            "ph": "X",
            "pid": _PROCESS,
            "tid": interval.participant,
            "ts": interval.start / 1e3,
            "dur": (interval.end - interval.start) / 1e3,
            "name": (interval.label or f"section {interval.section}") if working else interval.activity.value,
            "cat": interval.activity.value,
            "args": {"section": interval.section, "label": interval.label},
        }
        if interval.activity in _COLOURS:
            entry["cname"] = _COLOURS[interval.activity]
        entries.append(entry)
    for event in timeline.events:
        if event.kind in _INSTANTS:
            common = {"ph": "i", "s": "t", "pid": _PROCESS, "tid": event.participant, "ts": event.ns / 1e3}
            name = _INSTANTS[event.kind].format(event.value)
            entries.append({**common, "name": name, "cat": event.kind})
    for number, wake in enumerate(timeline.wakes):
        arrow = {"pid": _PROCESS, "id": number, "name": "wake", "cat": "wake"}
        entries.append({**arrow, "ph": "s", "tid": wake.waker, "ts": wake.start / 1e3})
        entries.append({**arrow, "ph": "f", "bp": "e", "tid": wake.sleeper, "ts": wake.end / 1e3})
    return {"traceEvents": entries, "displayTimeUnit": "ns"}


def write(timeline: Timeline, path: str | Path) -> None:
    """Write the trace-event JSON of `timeline` to `path`."""
    with writing(path):
        Path(path).write_text(json.dumps(trace_events(timeline)), encoding="utf-8")


def _metadata(what: str, participant: int, value: str | int) -> dict[str, Any]:
    key = "name" if isinstance(value, str) else "sort_index"
    return {"ph": "M", "pid": _PROCESS, "tid": participant, "name": what, "args": {key: value}}
