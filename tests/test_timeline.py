"""Timelines: intervals, decomposition, pictures, exports."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import synthetic_trace as synthetic
from threadteam import perfetto, picture
from threadteam.timeline import Activity, Event, Timeline


def timeline(**options: object) -> Timeline:
    return Timeline(synthetic.runs(**options), synthetic.LABELS)


def lengths(found: Timeline, participant: int, activity: Activity) -> list[int]:
    return [
        part.end - part.start
        for part in found.intervals
        if part.participant == participant and part.activity is activity
    ]


def test_the_callers_time_in_a_section_is_dispatch_then_work_then_barrier() -> None:
    found = timeline(count=1, park=False)
    section = [part for part in found.intervals if part.participant == 0 and part.section == 1]
    assert [part.activity for part in section] == [Activity.DISPATCH, Activity.WORK, Activity.BARRIER]
    assert [part.end - part.start for part in section] == [synthetic.DISPATCH, synthetic.WORK[1], synthetic.LATE + 130]


def test_a_workers_share_carries_the_label_of_the_step_that_published_it() -> None:
    work = [part for part in timeline(count=1).intervals if part.participant == 1 and part.activity is Activity.WORK]
    assert [part.label for part in work] == ["Gemm 1", "Softmax", "Gemm 2"]


def test_a_worker_between_its_shares_spins() -> None:
    assert len(lengths(timeline(count=1, park=False), 1, Activity.SPIN)) == 4


def test_a_worker_asleep_before_the_first_run_is_parked_until_it_is_woken() -> None:
    assert lengths(timeline(count=1, park=True), 1, Activity.PARK) == [1_000 + 100 + 200]


def test_a_worker_whose_first_event_is_waking_was_asleep_since_the_beginning() -> None:
    events = [Event(0, 0, "publish", 1), Event(1, 500, "park_end", 0), Event(0, 900, "join_end", 1)]
    assert lengths(Timeline(events), 1, Activity.PARK) == [500]


def test_a_participant_without_events_has_a_row() -> None:
    events = [Event(0, 0, "publish", 1), Event(0, 10, "share_begin", 1), Event(0, 50, "share_end", 1)]
    found = Timeline(events, participants=2)
    assert found.participants == 2
    assert lengths(found, 1, Activity.PARK) == [50]


def test_intervals_of_a_participant_do_not_overlap() -> None:
    found = timeline()
    for participant in range(found.participants):
        parts = [part for part in found.intervals if part.participant == participant]
        assert all(one.end <= other.start for one, other in pairwise(parts))


def test_a_barrier_inside_a_share_is_no_work() -> None:
    events = [
        Event(0, 0, "publish", 1),
        Event(0, 10, "share_begin", 1),
        Event(0, 40, "barrier_begin", 1),
        Event(0, 70, "barrier_end", 1),
        Event(0, 90, "share_end", 1),
        Event(0, 90, "join_begin", 1),
        Event(0, 95, "join_end", 1),
    ]
    found = Timeline(events)
    assert lengths(found, 0, Activity.WORK) == [30, 20]
    assert lengths(found, 0, Activity.BARRIER) == [30, 5]


def test_a_section_inside_a_share_gives_the_time_back_to_the_share() -> None:
    events = [
        Event(0, 0, "publish", 1),
        Event(0, 10, "share_begin", 1),
        Event(0, 30, "publish", 2),
        Event(0, 35, "share_begin", 2),
        Event(0, 60, "share_end", 2),
        Event(0, 60, "join_begin", 2),
        Event(0, 70, "join_end", 2),
        Event(0, 100, "share_end", 1),
    ]
    parts = [(part.activity.value, part.section, part.end - part.start) for part in Timeline(events).intervals]
    assert parts == [
        ("dispatch", 1, 10),
        ("work", 1, 20),
        ("dispatch", 2, 5),
        ("work", 2, 25),
        ("barrier", 2, 10),
        ("work", 1, 30),
    ]


def test_a_step_without_sections_is_work_of_the_caller() -> None:
    events = [Event(0, 0, "label", 1), Event(0, 80, "label", 2), Event(0, 100, "label", 0)]
    found = Timeline(events, {1: "Reshape", 2: "Gemm"})
    assert [(part.label, part.end - part.start) for part in found.intervals] == [("Reshape", 80), ("Gemm", 20)]


def test_the_parts_of_the_caller_add_up_to_the_runs() -> None:
    found = timeline()
    parts = found.parts()
    total = sum(end - start for start, end in found.runs) / 1e9
    assert sum(parts.operators.values()) + parts.dispatch + parts.barrier == pytest.approx(total)


def test_dispatch_and_barrier_are_counted_once_a_section() -> None:
    parts = timeline(count=4).parts()
    assert parts.sections == 12
    assert parts.dispatch == pytest.approx(12 * synthetic.DISPATCH / 1e9)
    assert parts.barrier == pytest.approx(12 * (synthetic.LATE + 130) / 1e9)


def test_interrupted_runs_are_not_typical() -> None:
    events = []
    for start, length in [(0, 50), (100, 55), (200, 900), (2000, 52), (3000, 20)]:
        events += [Event(0, start, "label", 1), Event(0, start + length, "label", 0)]
    assert Timeline(events).typical_runs() == [(0, 50), (100, 155), (2000, 2052)]


def test_an_idle_second_participant_makes_the_idle_share_a_half() -> None:
    events = [Event(0, 0, "label", 1), Event(0, 80, "label", 0)]
    assert Timeline(events, participants=2).parts().idle_share == pytest.approx(0.5)


def test_a_trace_without_events_has_no_intervals_and_no_parts() -> None:
    found = Timeline([])
    assert found.intervals == []
    assert found.parts().idle_share == 0.0
    assert str(found) == "nothing was recorded"


def test_the_typical_run_has_the_most_shares_and_the_median_length() -> None:
    events = []
    for number, (start, length, shares) in enumerate([(0, 50, 1), (100, 90, 1), (200, 70, 1), (300, 60, 0)]):
        events += [Event(0, start, "label", 1), Event(0, start + length, "label", 0)]
        events += [Event(0, start + 10, "share_begin", number + 1)] * shares
    assert Timeline(events).typical_run == 2
    assert Timeline([]).typical_run is None


def test_a_label_that_says_its_operator_twice_is_shortened() -> None:
    events = [Event(0, 0, "label", 1), Event(0, 10, "label", 2), Event(0, 20, "label", 0)]
    assert Timeline(events, {1: "Gemm 1 (Gemm)", 2: "scores (MatMul)"}).labels == ["Gemm 1", "scores (MatMul)"]


def test_the_text_shows_dispatch_barrier_and_every_operator() -> None:
    text = str(timeline())
    caller = text.splitlines()[0]
    assert caller.startswith("caller   |D")
    assert all(mark in caller for mark in "DBabc")
    assert "a: Gemm 1, b: Softmax, c: Gemm 2" in text


def test_pictures_are_written_as_png_and_svg(tmp_path: Path) -> None:
    png, svg = tmp_path / "timeline.png", tmp_path / "timeline.svg"
    timeline().draw(png, svg, title="made up")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_drawing_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        picture.draw(Timeline([]), [tmp_path / "timeline.png"])


def test_the_perfetto_json_names_every_participant_and_keeps_every_interval(tmp_path: Path) -> None:
    found = timeline()
    perfetto.write(found, tmp_path / "trace.json")
    entries = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"]
    assert names == ["caller", "worker 1"]
    assert len([entry for entry in entries if entry["ph"] == "X"]) == len(found.intervals)
    assert [entry["name"] for entry in entries if entry["ph"] == "i"] == ["wakes 1"]
