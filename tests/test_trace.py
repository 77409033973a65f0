"""Recording: what a trace sees, of which pools."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import threadteam as tt


def kinds(recorded: tt.Trace) -> set[str]:
    return {kind for _, _, kind, _ in recorded.events}


def test_a_trace_records_every_share_of_a_gang() -> None:
    with tt.Pool(3, acquire_timeout=10.0) as pool, tt.trace() as recorded:
        pool.exec().broadcast(lambda index: None)
    begun = [participant for participant, _, kind, _ in recorded.events if kind == "share_begin"]
    assert sorted(begun) == [0, 1, 2]
    assert recorded.overwritten == 0


def test_events_are_plain_tuples_in_order_of_time() -> None:
    with tt.Pool(2) as pool, tt.trace() as recorded:
        pool.exec().for_ranges(100, 1, lambda start, stop: None)
    assert all(type(event) is tuple for event in recorded.events)
    leader = [ns for participant, ns, _, _ in recorded.events if participant == 0]
    assert leader == sorted(leader)


def test_pools_made_inside_the_block_are_recorded_too() -> None:
    with tt.trace() as recorded, tt.Pool(2) as pool:
        pool.exec().for_ranges(100, 1, lambda start, stop: None)
    assert "publish" in kinds(recorded)


def test_nothing_is_recorded_after_the_block() -> None:
    with tt.Pool(2) as pool:
        with tt.trace() as recorded:
            pass
        pool.exec().broadcast(lambda index: None)
    assert "publish" not in kinds(recorded)


def test_barriers_are_recorded() -> None:
    with tt.Pool(2, acquire_timeout=10.0) as pool, tt.trace() as recorded, pool.exec().team() as team:
        team.run_with(lambda participant: participant.barrier())
    assert {"barrier_begin", "barrier_end"} <= kinds(recorded)


def test_a_worker_is_recorded_from_its_start_to_its_leave() -> None:
    with tt.trace() as recorded, tt.Pool(2, acquire_timeout=10.0, wait=tt.WaitPolicy(idle_spin=100.0)) as pool:
        pool.exec().broadcast(lambda index: None)
    # A worker also wakes the caller when that sleeps at the end of the section.
    worker = [kind for participant, _, kind, _ in recorded.events if participant == 1 and kind != "wake"]
    assert worker[:6] == ["start", "spin_begin", "enter", "share_begin", "share_end", "leave"]


def test_claims_and_refusals_are_recorded_with_their_counts() -> None:
    with tt.Pool(3, acquire_timeout=0.0) as pool, tt.trace() as recorded:
        with pool.exec().team() as team, pytest.raises(tt.Refused):
            pool.exec().broadcast(lambda index: None)
        assert team.size == 3
    counts = [(kind, value) for _, _, kind, value in recorded.events if kind in ("reserve", "release", "refuse")]
    assert counts == [("reserve", 2), ("refuse", 2), ("release", 2)]


def test_each_calling_thread_has_a_ring_of_its_own() -> None:
    with tt.Pool(2) as pool, tt.trace() as recorded:
        pool.exec().for_ranges(8, 1, lambda start, stop: None)
        other = threading.Thread(target=lambda: pool.exec().for_ranges(8, 1, lambda start, stop: None))
        other.start()
        other.join()
    assert list(recorded.further.values()) == ["caller 2"]
    assert recorded.timeline().names[-1] == "caller 2"


def test_traces_leave_no_rings_behind() -> None:
    with tt.Pool(2) as pool:

        def record(times: int) -> None:
            for _ in range(times):
                with tt.trace(capacity=4096):
                    pool.exec().for_ranges(2, 1, lambda start, stop: None)

        record(20)
        before = resident_pages()
        record(300)
        # A trace of two rings takes 48 pages.
        assert resident_pages() - before < 300 * 48 // 4


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_a_full_ring_says_what_it_lost() -> None:
    with tt.Pool(2) as pool, tt.trace(capacity=4) as recorded:
        token = pool.exec()
        for _ in range(100):
            token.for_ranges(2, 1, lambda start, stop: None)
    assert recorded.overwritten > 0


def test_a_path_gets_json_for_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with tt.Pool(2) as pool, tt.trace(path):
        pool.exec().for_ranges(100, 1, lambda start, stop: None)
    assert json.loads(path.read_text())["traceEvents"]


def test_a_capacity_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"capacity must be at least 1, got 0"), tt.trace(capacity=0):
        pass
    with pytest.raises(ValueError, match=r"1 to \d+ events"), tt.trace(capacity=10**9):
        pass


def test_the_trace_of_a_block_that_raises_is_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with pytest.raises(ZeroDivisionError), tt.Pool(2) as pool, tt.trace(path):
        pool.exec().for_ranges(100, 1, lambda start, stop: 1 // 0)
    assert json.loads(path.read_text())["traceEvents"]


def test_what_is_no_path_is_refused_before_anything_is_recorded() -> None:
    ran = False
    with pytest.raises(TypeError, match="int"), tt.trace(5):  # type: ignore[arg-type]
        ran = True
    assert not ran


def sections_in(recorded: tt.Trace) -> int:
    return sum(kind == "publish" for _, _, kind, _ in recorded.events)


def test_an_outer_trace_goes_on_after_an_inner_one() -> None:
    with tt.Pool(2) as pool, tt.trace() as outer:
        pool.exec().for_ranges(2, 1, lambda start, stop: None)
        with tt.trace() as inner:
            pool.exec().for_ranges(2, 1, lambda start, stop: None)
        pool.exec().for_ranges(2, 1, lambda start, stop: None)
    assert (sections_in(outer), sections_in(inner)) == (2, 1)


def test_a_trace_that_ends_first_leaves_a_newer_one_recording() -> None:
    older, newer = tt.trace(), tt.trace()
    with tt.Pool(2) as pool:
        first = older.__enter__()
        second = newer.__enter__()
        older.__exit__(None, None, None)
        pool.exec().for_ranges(2, 1, lambda start, stop: None)
        newer.__exit__(None, None, None)
        pool.exec().for_ranges(2, 1, lambda start, stop: None)
    assert (sections_in(first), sections_in(second)) == (0, 1)
