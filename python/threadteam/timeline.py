"""From trace events to intervals: what each participant did, from when to when, and where a run's time goes."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from os import PathLike
from typing import NamedTuple

__all__ = ["Activity", "Event", "Interval", "RunParts", "Timeline", "Wake"]

#: What only a pool's own threads record.
_OF_WORKERS = {"start", "stop", "enter", "leave", "spin_begin"}
#: Threads that came when every ring was taken record into one: their events do not make intervals.
_SHARED = "all others"
#: Who ran later than this after a wake, in nanoseconds, is not taken for the one that was woken.
_LONGEST_WAKE = 10_000_000


class Event(NamedTuple):
    """One event of a trace.

    `participant` is 0 for the calling thread and ``i + 1`` for worker ``i``; `ns` counts from the start of the trace;
    `kind` is the core's name of what happened; `value` is the number of the section, of the label, or a count.
    """

    participant: int
    ns: int
    kind: str
    value: int


class Activity(enum.Enum):
    """What a participant does during an interval."""

    DISPATCH = "dispatch"
    """The caller publishes a section to the workers."""
    ENTRY = "entry"
    """A worker comes into a section, where it may post and wake for others, or leaves it and wakes the caller."""
    WORK = "work"
    """A share of a section, or a step that runs on the caller alone."""
    BARRIER = "barrier"
    """Waiting for the others: at the end of a section, or at a barrier inside it."""
    SPIN = "spin"
    """Awake without work."""
    PARK = "park"
    """Asleep, using no CPU: without work, or, in a section, while it waits for the others of that section."""


class Interval(NamedTuple):
    """What one participant did from `start` to `end`, in nanoseconds since the start of the trace.

    `label` names the step of the program, or is empty outside of one; `section` is 0 outside of a section.
    """

    participant: int
    start: int
    end: int
    activity: Activity
    label: str
    section: int


class Wake(NamedTuple):
    """A participant that slept was woken: `waker` did it at `start`, and `sleeper` ran again at `end`."""

    waker: int
    start: int
    sleeper: int
    end: int


@dataclass(frozen=True)
class RunParts:
    """Where the time of the recorded runs goes, in seconds, summed over them.

    `operators` is the wall time of each step on the calling thread, in order of appearance, without the time it spends
    on dispatching (`dispatch`) and waiting (`barrier`); `idle_share` is the part of all participants' time, during the
    runs, in which they neither work nor dispatch.
    """

    operators: dict[str, float]
    dispatch: float
    barrier: float
    idle_share: float
    sections: int


class _Lane:
    """One participant's state while its events are read: a stack, because sections nest inside shares."""

    def __init__(self, participant: int, is_worker: bool) -> None:
        self._participant = participant
        self._is_worker = is_worker
        self._stack: list[tuple[Activity, int]] = []
        self._labels: list[str] = []
        self._since: int | None = None
        self.step = ""
        self.lives = True
        self.intervals: list[Interval] = []

    def push(self, ns: int, activity: Activity, section: int, label: str) -> None:
        self.flush(ns)
        self._stack.append((activity, section))
        self._labels.append(label)

    def pop(self, ns: int, activity: Activity, section: int | None = None) -> None:
        """Leave the innermost `activity` (of `section`); what was overwritten is assumed."""
        self.flush(ns)
        for depth in reversed(range(len(self._stack))):
            if self._stack[depth][0] is activity and section in (None, self._stack[depth][1]):
                del self._stack[depth:], self._labels[depth:]
                return

    def flush(self, ns: int) -> None:
        """Close the interval that ends at `ns`."""
        start, self._since = self._since, ns
        if start is None or ns <= start:
            return
        if self._stack:
            (activity, section), label = self._stack[-1], self._labels[-1]
        elif self.step:
            activity, section, label = Activity.WORK, 0, self.step
        elif not self._is_worker or not self.lives:
            return  # outside of a run the calling thread does what its program wants
        else:
            activity, section, label = Activity.SPIN, 0, ""
        self.intervals.append(Interval(self._participant, start, ns, activity, label, section))


class Timeline:
    """The intervals of a trace.

    Parameters
    ----------
    events : iterable of Event
        What was recorded, in any order between participants.
    labels : mapping of int to str, optional
        Names of the label numbers that the events carry; 0 always means "outside of a step".
    participants : int, optional
        How many participants there were, when some may have left no event.
    further : mapping of int to str, optional
        The names of participants beyond one pool's: callers after the first, and workers of other pools. They follow
        the others without a gap.
    lost : mapping of int to int, optional
        How many of a participant's oldest events were overwritten.

    Attributes
    ----------
    names : list of str
        What each participant is called, by its number in the intervals.
    wakes : list of Wake
        Who woke whom.
    lost : dict of str to int
        Overwritten events by the participant's name.
    undrawn : int
        Events of threads that had to share a ring.

    Examples
    --------
    >>> events = [
    ...     Event(0, 0, "label", 1), Event(0, 10, "publish", 1), Event(0, 30, "share_begin", 1),
    ...     Event(1, 40, "share_begin", 1), Event(0, 130, "share_end", 1), Event(0, 130, "join_begin", 1),
    ...     Event(1, 150, "share_end", 1), Event(0, 160, "join_end", 1), Event(0, 160, "label", 0),
    ... ]
    >>> timeline = Timeline(events, {1: "Gemm"})
    >>> [(part.activity.value, part.end - part.start) for part in timeline.intervals if part.participant == 0]
    [('work', 10), ('dispatch', 20), ('work', 100), ('barrier', 30)]
    """

    def __init__(
        self,
        events: Iterable[Event],
        labels: Mapping[int, str] | None = None,
        participants: int = 1,
        further: Mapping[int, str] | None = None,
        lost: Mapping[int, int] | None = None,
    ) -> None:
        self._labels = {number: _short(label) for number, label in (labels or {}).items()}
        # Nanosecond stamps tie; sorting by time alone keeps the recorded order of equal stamps.
        ordered = sorted(events, key=lambda event: event.ns)
        named = dict(sorted((further or {}).items()))
        shared = {number for number, name in named.items() if name == _SHARED}
        own = [event.participant for event in ordered if event.participant not in named]
        self._own = max(participants, 1 + max(own, default=0))
        others = [number for number in named if number not in shared]
        rows = {**{number: number for number in range(self._own)}, **dict(zip(others, count(self._own), strict=False))}
        self.events = [
            event._replace(participant=rows[event.participant]) for event in ordered if event.participant in rows
        ]
        self.undrawn = len(ordered) - len(self.events)
        self.names = [
            "caller",
            *(f"worker {row}" for row in range(1, self._own)),
            *(named[number] for number in others),
        ]
        self.lost = {self.names[rows[number]]: events for number, events in (lost or {}).items() if number in rows}
        self.intervals = self._read()
        self.wakes = self._match_wakes()

    @property
    def participants(self) -> int:
        """How many rows there are: the caller, the workers, further callers and workers."""
        return len(self.names)

    @property
    def start(self) -> int:
        """When the first interval begins."""
        return min((interval.start for interval in self.intervals), default=0)

    @property
    def end(self) -> int:
        """When the last interval ends."""
        return max((interval.end for interval in self.intervals), default=0)

    @property
    def labels(self) -> list[str]:
        """The steps, in the order in which they first ran."""
        return list(dict.fromkeys(interval.label for interval in self.intervals if interval.label))

    @property
    def runs(self) -> list[tuple[int, int]]:
        """From when to when each run of a program took: from a step outside of which there was none to the next end."""
        found: list[tuple[int, int]] = []
        start: int | None = None
        for event in self.events:
            if event.kind != "label":
                continue
            if event.value != 0 and start is None:
                start = event.ns
            elif event.value == 0 and start is not None:
                found.append((start, event.ns))
                start = None
        return found

    @property
    def typical_run(self) -> int | None:
        """The number of a run of median length, among those whose sections had most participants; None without runs."""
        runs = self.runs
        shares = [event.ns for event in self.events if event.kind == "share_begin"]
        counts = [bisect_right(shares, end) - bisect_left(shares, start) for start, end in runs]
        full = [number for number, count in enumerate(counts) if count == max(counts)]
        full.sort(key=lambda number: runs[number][1] - runs[number][0])
        return full[len(full) // 2] if full else None

    def between(self, start: int, end: int) -> Sequence[Interval]:
        """The intervals of a stretch of time, cut to it."""
        return [
            interval._replace(start=max(start, interval.start), end=min(end, interval.end))
            for interval in self.intervals
            if interval.start < end and interval.end > start
        ]

    def draw(self, *paths: str | PathLike[str], title: str = "") -> None:
        """Write pictures: some runs, one run, and one join with the dispatch after it.

        Parameters
        ----------
        *paths : path
            One file each, its format chosen by the suffix (``.png``, ``.svg``, ``.pdf``).
        title : str, optional
            What ran; the figures are added to it.

        Raises
        ------
        MissingExtra
            When matplotlib is not installed.
        ValueError
            When nothing was recorded.
        """
        from threadteam import picture

        picture.draw(self, paths, title)

    def __str__(self) -> str:
        from threadteam import picture

        return picture.text(self)

    def typical_runs(self) -> list[tuple[int, int]]:
        """The middle half of the runs by length: the others were interrupted, or met no one."""
        ordered = sorted(self.runs, key=lambda run: run[1] - run[0])
        quarter = len(ordered) // 4
        return sorted(ordered[quarter : len(ordered) - quarter])

    def parts(self, runs: Sequence[tuple[int, int]] | None = None) -> RunParts:
        """Where the time of `runs` goes, all recorded ones by default; without any, from the first section to the last.

        The figures are sums over the runs.
        """
        stretches = (self.runs if runs is None else runs) or [(self.start, self.end)]
        operators: dict[str, int] = defaultdict(int)
        spent: dict[Activity, int] = defaultdict(int)
        useful = 0
        for start, end in stretches:
            for interval in self.between(start, end):
                length = interval.end - interval.start
                if interval.activity in (Activity.WORK, Activity.DISPATCH):
                    useful += length
                if interval.participant == 0:
                    asleep_at_a_barrier = interval.activity is Activity.PARK and interval.section
                    spent[Activity.BARRIER if asleep_at_a_barrier else interval.activity] += length
                    if interval.activity is Activity.WORK:
                        operators[interval.label or "work"] += length
        total = sum(end - start for start, end in stretches) * self.participants
        sections = {event.value for event in self.events if event.kind == "publish" and _inside(event.ns, stretches)}
        return RunParts(
            operators={label: length / 1e9 for label, length in operators.items()},
            dispatch=spent[Activity.DISPATCH] / 1e9,
            barrier=spent[Activity.BARRIER] / 1e9,
            idle_share=max(0.0, 1.0 - useful / total) if total else 0.0,
            sections=len(sections),
        )

    def _read(self) -> list[Interval]:
        workers = {event.participant for event in self.events if event.kind in _OF_WORKERS} - {0}
        workers.update(range(1, self._own))
        lanes = [_Lane(participant, participant in workers) for participant in range(self.participants)]
        self._assume_beginnings(lanes)
        section_labels: dict[int, str] = {}
        for event in self.events:
            self._apply(event, lanes[event.participant], section_labels)
        last = self.events[-1].ns if self.events else 0
        for lane in lanes:
            lane.flush(last)
        return [interval for lane in lanes for interval in lane.intervals]

    def _assume_beginnings(self, lanes: list[_Lane]) -> None:
        """A worker that was asleep or awake before its first event was so since the trace began."""
        if not self.events:
            return
        begin = self.events[0].ns
        first = {event.participant: event for event in reversed(self.events)}
        for participant, lane in enumerate(lanes[1:], start=1):
            lane.flush(begin)
            event = first.get(participant)
            if event is None or event.kind == "park_end":
                lane.push(begin, Activity.PARK, 0, "")
            elif event.kind == "start":
                lane.lives = False

    def _apply(self, event: Event, lane: _Lane, section_labels: dict[int, str]) -> None:
        ns, section = event.ns, event.value
        label = section_labels.get(section, lane.step)
        match event.kind:
            case "label":
                lane.flush(ns)
                lane.step = self._labels.get(event.value, f"step {event.value}") if event.value else ""
            case "publish":
                section_labels[section] = lane.step
                lane.push(ns, Activity.DISPATCH, section, lane.step)
            case "share_begin":
                lane.pop(ns, Activity.DISPATCH, section)
                lane.push(ns, Activity.WORK, section, label)
            case "share_end":
                lane.pop(ns, Activity.WORK, section)
            case "join_begin":
                lane.pop(ns, Activity.DISPATCH, section)
                lane.push(ns, Activity.BARRIER, section, label)
            case "join_end":
                lane.pop(ns, Activity.DISPATCH, section)
                lane.pop(ns, Activity.BARRIER, section)
            case "barrier_begin":
                lane.push(ns, Activity.BARRIER, section, label)
            case "barrier_end":
                lane.pop(ns, Activity.BARRIER)
            case "park_begin":
                lane.push(ns, Activity.PARK, section, label if section else "")
            case "park_end":
                lane.pop(ns, Activity.PARK)
            case "enter":
                lane.push(ns, Activity.ENTRY, section, label)
            case "leave":
                lane.pop(ns, Activity.ENTRY, section)
            case "start" | "stop":
                lane.flush(ns)
                lane.lives = event.kind == "start"
            case _:  # wakes, claims and what later versions record change no participant's activity
                lane.flush(ns)

    def _match_wakes(self) -> list[Wake]:
        """Each wake with the sleepers that ran next after it: an event says how many were woken, not who."""
        asleep: dict[int, int] = {}
        sleeps: list[tuple[int, int, int]] = []
        for event in self.events:
            if event.kind == "park_begin":
                asleep[event.participant] = event.ns
            elif event.kind == "park_end":
                sleeps.append((event.ns, asleep.pop(event.participant, self.events[0].ns), event.participant))
        ends = [end for end, _, _ in sleeps]
        woken: set[int] = set()
        found = []
        for event in self.events:
            if event.kind != "wake":
                continue
            later = range(bisect_right(ends, event.ns), bisect_right(ends, event.ns + _LONGEST_WAKE))
            own = [at for at in later if at not in woken and sleeps[at][1] <= event.ns][: event.value]
            woken.update(own)
            found += [Wake(event.participant, event.ns, sleeps[at][2], sleeps[at][0]) for at in own]
        return found


def _inside(ns: int, stretches: Sequence[tuple[int, int]]) -> bool:
    return any(start <= ns <= end for start, end in stretches)


def _short(label: str) -> str:
    """A step's label without the operator's name in parentheses where the name of the node begins with it."""
    name, found, operator = label.removesuffix(")").rpartition(" (")
    return name if found and label.endswith(")") and name.startswith(operator) else label
