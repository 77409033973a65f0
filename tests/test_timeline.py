"""Timelines: intervals, decomposition, pictures, exports."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import synthetic_trace as synthetic
from threadteam import perfetto, picture
from threadteam.timeline import Activity, Event, Timeline, Wake


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


def of(found: Timeline, participant: int) -> list[tuple[str, int, int]]:
    """Each interval of a participant as (activity, section, length)."""
    mine = [part for part in found.intervals if part.participant == participant]
    return [(part.activity.value, part.section, part.end - part.start) for part in mine]


def test_a_worker_enters_works_and_leaves_between_its_start_and_its_stop() -> None:
    events = [
        Event(0, 0, "reserve", 1),
        Event(1, 20, "start", 0),
        Event(1, 25, "spin_begin", 0),
        Event(0, 30, "publish", 1),
        Event(1, 40, "enter", 1),
        Event(1, 45, "share_begin", 1),
        Event(1, 75, "share_end", 1),
        Event(1, 85, "leave", 1),
        Event(1, 90, "spin_begin", 0),
        Event(1, 100, "stop", 0),
        Event(0, 130, "join_end", 1),
    ]
    assert of(Timeline(events), 1) == [
        ("spin", 0, 5),
        ("spin", 0, 15),
        ("entry", 1, 5),
        ("work", 1, 30),
        ("entry", 1, 10),
        ("spin", 0, 5),
        ("spin", 0, 10),
    ]


def test_a_sleep_at_a_join_or_a_barrier_belongs_to_its_section_and_counts_as_barrier() -> None:
    events = [
        Event(0, 0, "publish", 1),
        Event(0, 10, "share_begin", 1),
        Event(0, 30, "share_end", 1),
        Event(0, 30, "join_begin", 1),
        Event(0, 50, "park_begin", 1),
        Event(0, 90, "park_end", 1),
        Event(0, 95, "join_end", 1),
    ]
    found = Timeline(events)
    assert of(found, 0)[2:] == [("barrier", 1, 20), ("park", 1, 40), ("barrier", 1, 5)]
    assert found.parts().barrier == pytest.approx(65e-9)


def test_a_wake_leads_to_the_sleepers_that_ran_next() -> None:
    events = [
        Event(1, 0, "park_begin", 0),
        Event(2, 0, "park_begin", 0),
        Event(3, 0, "park_begin", 0),
        Event(0, 10, "wake", 1),
        Event(2, 30, "park_end", 0),
        Event(2, 40, "wake", 2),
        Event(3, 60, "park_end", 0),
        Event(1, 90, "park_end", 0),
    ]
    assert Timeline(events).wakes == [Wake(0, 10, 2, 30), Wake(2, 40, 3, 60), Wake(2, 40, 1, 90)]


def test_a_sleeper_that_ran_long_after_a_wake_was_not_woken_by_it() -> None:
    events = [Event(1, 0, "park_begin", 0), Event(0, 10, "wake", 1), Event(1, 1_000_000_000, "park_end", 0)]
    assert Timeline(events).wakes == []


def test_further_callers_and_workers_have_rows_after_the_pools() -> None:
    events = [
        Event(0, 0, "publish", 1),
        Event(1, 5, "enter", 1),
        Event(9, 10, "publish", 2),
        Event(9, 20, "share_begin", 2),
        Event(9, 40, "share_end", 2),
        Event(10, 50, "spin_begin", 0),
        Event(0, 60, "join_end", 1),
    ]
    found = Timeline(events, further={9: "caller 2", 10: "other-0"})
    assert found.names == ["caller", "worker 1", "caller 2", "other-0"]
    # A caller outside of a section does what its program wants; a worker spins.
    assert of(found, 2) == [("dispatch", 2, 10), ("work", 2, 20)]
    assert of(found, 3)[-1] == ("spin", 0, 10)


def test_events_of_threads_that_shared_a_ring_make_no_row_and_are_counted() -> None:
    events = [Event(0, 0, "publish", 1), Event(5, 3, "publish", 2), Event(0, 9, "join_end", 1)]
    found = Timeline(events, further={5: "all others"}, lost={0: 7})
    assert (found.names, found.undrawn, found.lost) == (["caller"], 1, {"caller": 7})


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


def test_a_picture_names_every_row_says_what_was_lost_and_draws_wakes(tmp_path: Path) -> None:
    events = [
        Event(1, 0, "park_begin", 0),
        Event(0, 0, "publish", 1),
        Event(0, 50, "wake", 1),
        Event(1, 400, "park_end", 0),
        Event(1, 450, "enter", 1),
        Event(1, 500, "leave", 1),
        Event(7, 500, "publish", 2),
        Event(7, 600, "join_end", 2),
        Event(0, 700, "join_end", 1),
    ]
    Timeline(events, further={7: "caller 2"}, lost={1: 3}).draw(tmp_path / "timeline.svg")
    drawn = (tmp_path / "timeline.svg").read_text()
    for words in ["caller 2", "wake 350 ns", "arrow: a wake", "the oldest 3 events of worker 1 were overwritten"]:
        assert f"<!-- {words}" in drawn


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


def test_the_perfetto_json_has_claims_as_instants_and_wakes_as_arrows() -> None:
    events = [
        Event(1, 0, "park_begin", 0),
        Event(0, 10, "reserve", 1),
        Event(0, 20, "wake", 1),
        Event(1, 60, "park_end", 0),
        Event(0, 80, "release", 1),
        Event(0, 90, "refuse", 3),
    ]
    entries = perfetto.trace_events(Timeline(events))["traceEvents"]
    instants = [entry["name"] for entry in entries if entry["ph"] == "i"]
    assert instants == ["claims 1 workers", "wakes 1", "gives 1 workers back", "refused 3 participants"]
    arrows = [(entry["ph"], entry["tid"], entry["ts"]) for entry in entries if entry["ph"] in "sf"]
    assert arrows == [("s", 0, 0.02), ("f", 1, 0.06)]
