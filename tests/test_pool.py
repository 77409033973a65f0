"""The pool: width, life, options, errors."""

from __future__ import annotations

import copy
import gc
import pickle
import shutil
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import threadteam as tt
from script import run
from threadteam import _native


def test_the_width_is_what_was_asked_for() -> None:
    with tt.Pool(3) as pool:
        assert pool.width == 3


def test_the_default_width_is_the_cpu_budget() -> None:
    with tt.Pool() as pool:
        assert pool.width == tt.cpu_budget().count


def test_an_explicit_width_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADTEAM_NUM_THREADS", "nonsense")
    with tt.Pool(2) as pool:
        assert pool.width == 2
    with pytest.raises(ValueError, match="THREADTEAM_NUM_THREADS is 'nonsense'"):
        tt.Pool()


@pytest.mark.parametrize("threads", [0, -1, 10**30])
def test_a_width_out_of_range_is_named(threads: int) -> None:
    with pytest.raises(ValueError, match="threads must be at"):
        tt.Pool(threads)


@pytest.mark.parametrize("threads", [2.0, "2", [2], object()])
def test_a_width_that_is_no_integer_is_refused(threads: Any) -> None:
    with pytest.raises(TypeError, match="threads must be an integer"):
        tt.Pool(threads)


def test_anything_with_an_index_is_an_integer() -> None:
    class Two:
        def __index__(self) -> int:
            return 2

    with tt.Pool(Two()) as pool:
        assert pool.width == 2


def test_a_budget_above_the_width_is_clamped() -> None:
    with tt.Pool(2) as pool:
        assert pool.exec(10**40).budget == 2
        assert pool.exec(1).budget == 1
        assert tt.Exec(pool, 2).budget == 2


@pytest.mark.parametrize("budget", [0, -5, -(10**40)])
def test_a_budget_below_one_is_refused(budget: int) -> None:
    with tt.Pool(2) as pool, pytest.raises(ValueError, match="budget must be at least 1"):
        pool.exec(budget)


def test_importing_starts_no_thread_and_loads_no_numpy() -> None:
    out = run("""
        import os, sys, warnings
        warnings.simplefilter("error")
        before = len(os.listdir("/proc/self/task"))
        import threadteam
        print(len(os.listdir("/proc/self/task")) - before, "numpy" in sys.modules)
    """)
    assert out.split() == ["0", "False"]


def test_importing_reads_nothing_below_sys() -> None:
    out = run("""
        import os, pathlib, sys
        opened = []
        def note(event, arguments):
            if event in ("open", "os.listdir") and str(arguments[0]).startswith("/sys"):
                opened.append(arguments[0])
        sys.addaudithook(note)
        import threadteam
        print(opened)
    """)
    assert out.strip() == "[]"


def test_native_code_reads_nothing_below_sys_and_starts_no_thread_at_import(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    calls = "trace=open,openat,clone,clone3"
    trace = [
        "strace",
        "-f",
        "-qq",
        "-e",
        calls,
        "-o",
        str(log),
        sys.executable,
        "-W",
        "error",
        "-c",
        "import threadteam",
    ]
    if shutil.which("strace") is None or subprocess.run(trace, capture_output=True, timeout=60).returncode != 0:
        pytest.skip("needs strace, and the right to use it")
    # A line is the thread's number and the call.
    made = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]
    assert any(f"/{Path(_native.__file__).name}" in call for call in made)
    assert [call for call in made if '"/sys/' in call or call.startswith("clone")] == []


def test_workers_start_at_the_first_section_and_end_with_the_pool() -> None:
    pool = tt.Pool(3, name="firstuse", acquire_timeout=10.0)
    assert tt.testing.workers(pool) == 0
    pool.exec().broadcast(lambda index: None)
    assert tt.testing.workers(pool) == 2
    pool.close()
    assert tt.testing.workers(pool) == 0


def test_a_pool_that_is_collected_ends_its_workers() -> None:
    pool = tt.Pool(3, name="collected", acquire_timeout=10.0)
    pool.exec().broadcast(lambda index: None)
    stand_in = tt.Pool(1, name="collected")
    del pool
    gc.collect()
    assert tt.testing.workers(stand_in) == 0


def test_closing_twice_is_harmless() -> None:
    pool = tt.Pool(2)
    pool.close()
    pool.close()
    assert pool.closed


HOOKS: dict[str, tuple[str, str]] = {
    "broadcast": ("pool.exec().broadcast(lambda index: None)", "Refused(CALLER_IN_POOL)"),
    "team": ("pool.exec().team(lambda team: team.run(lambda index, size: None))", "Refused(CALLER_IN_POOL)"),
    "into_team": ("pool.into_team()", "IntoTeamError(CALLER_IN_POOL)"),
    "close": ("pool.close()", "ThreadteamError"),
    "map": ("pool.exec().map(abs, [-1, -2])", "[1, 2]"),
}
"""What a start hook does with its own pool, and what it comes to: a gang would wait for the worker itself."""


@pytest.mark.parametrize("name", HOOKS)
def test_a_start_hook_never_waits_for_its_own_worker(name: str) -> None:
    action, expected = HOOKS[name]
    code = f"""
import threading
import threadteam as tt
found = []
ready, done = threading.Event(), threading.Event()
def hook(index):
    ready.wait()
    try:
        found.append(str({action}))
    except tt.ThreadteamError as error:
        reason = getattr(error, "reason", None)
        found.append(type(error).__name__ + (f"({{reason.name}})" if reason else ""))
    done.set()
with tt.Pool(2, on_start=hook, acquire_timeout=30.0) as pool:
    pool.exec().for_ranges(2, 1, lambda start, stop: None)
    ready.set()
    done.wait()
    pool.exec().broadcast(lambda index: None)
print(found)
"""
    assert run(code).strip() == str([expected])


def test_a_start_hook_is_refused_the_token_of_its_team() -> None:
    code = """
import threading
import threadteam as tt
found = []
moved, done = threading.Event(), threading.Event()
def hook(index):
    moved.wait()
    try:
        team.exec()
    except tt.Refused as error:
        found.append(error.reason.name)
    done.set()
pool = tt.Pool(2, on_start=hook, acquire_timeout=30.0)
pool.exec().for_ranges(2, 1, lambda start, stop: None)
with pool.into_team() as team:
    moved.set()
    done.wait()
    with team.exec() as token:
        token.broadcast(lambda index: None)
print(found)
"""
    assert run(code).strip() == "['CALLER_IN_POOL']"


def test_the_counters_of_a_closed_pool_are_its_last_ones() -> None:
    pool = tt.Pool(2)
    pool.exec().for_ranges(8, 1, lambda start, stop: None)
    before = pool.stats()
    pool.close()
    assert pool.stats() == pool.stats()
    assert (pool.stats().sections, pool.stats().chunks) == (before.sections, before.chunks) == (1, 8)


def test_the_counters_of_a_pool_outlive_its_team() -> None:
    with tt.Pool(2, acquire_timeout=30.0).into_team() as team:
        pool = team.pool
        with team.exec() as token:
            token.for_ranges(8, 1, lambda start, stop: None)
        assert pool.stats().chunks == 8
    assert pool.closed
    assert pool.stats().chunks == 8


def test_a_closed_pool_says_so() -> None:
    pool = tt.Pool(2)
    token = pool.exec()
    pool.close()
    with pytest.raises(tt.PoolClosed, match="is closed; make a new Pool"):
        pool.exec()
    with pytest.raises(tt.PoolClosed, match="is closed"):
        token.for_ranges(1, 1, lambda start, stop: None)
    with pytest.raises(tt.PoolClosed), pool:
        pass


def test_closing_waits_for_an_entry_on_another_thread() -> None:
    pool = tt.Pool(2)
    inside, go_on, done = threading.Event(), threading.Event(), []

    def body(start: int, stop: int) -> None:
        inside.set()
        go_on.wait()
        done.append(stop)

    user = threading.Thread(target=lambda: pool.exec().for_ranges(1, 1, body))
    user.start()
    inside.wait()
    threading.Timer(0.05, go_on.set).start()
    pool.close()
    assert done == [1]
    user.join()


def test_closing_from_inside_a_body_is_refused() -> None:
    with tt.Pool(2) as pool:
        with pytest.raises(tt.ThreadteamError, match="from inside a body"):
            pool.exec().fork(1, lambda job, token: pool.close())
        with pytest.raises(tt.ThreadteamError, match="from inside a body"):
            pool.exec().fork(2, lambda job, token: token.fork(1, lambda j, t: pool.close()))
        pool.exec().fork(2, lambda job, token: None)


def test_a_pool_cannot_be_copied_or_pickled() -> None:
    with tt.Pool(2) as pool:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="owns threads"):
                attempt(pool)


def test_a_pool_can_be_weakly_referenced() -> None:
    pool = tt.Pool(1)
    reference = weakref.ref(pool)
    del pool
    gc.collect()
    assert reference() is None


def test_statistics_count_what_happened() -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        ranges: list[tuple[int, int]] = []
        token.for_ranges(64, 1, lambda start, stop: ranges.append((start, stop)))
        token.broadcast(lambda index: None)
        stats = pool.stats()
        assert (stats.sections, stats.gangs) == (1, 1)
        assert stats.chunks == len(ranges)
        assert stats.as_dict()["gangs"] == 1
        assert "sections=1" in repr(stats)


def test_a_start_hook_runs_on_each_worker() -> None:
    seen: list[tuple[int, int]] = []
    with tt.Pool(3, on_start=lambda index: seen.append((index, threading.get_ident()))) as pool:
        pool.exec().broadcast(lambda index: None)
    assert sorted(index for index, _ in seen) == [0, 1]
    assert threading.get_ident() not in {ident for _, ident in seen}


def test_a_failing_start_hook_is_reported_and_the_pool_works() -> None:
    out = run("""
        import sys, threadteam as tt
        sys.unraisablehook = lambda what: print("reported", what.exc_value)
        def hook(index):
            raise RuntimeError(f"worker {index}")
        with tt.Pool(2, on_start=hook) as pool:
            pool.exec().broadcast(lambda index: None)
        print("works")
    """)
    assert out.splitlines() == ["reported worker 0", "works"]


def test_refused_threads_are_reported_once_and_the_pool_goes_on() -> None:
    out = run("""
        import resource, threadteam as tt
        pool = tt.Pool(4, stack_size=1 << 30)
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (5 << 28), resource.RLIM_INFINITY))
        token = pool.exec()
        try:
            token.for_ranges(8, 1, lambda start, stop: None)
        except tt.ThreadStartError as error:
            print(error.started, error.wanted, "of 3 pool workers" in str(error))
        print(token.map(abs, [-1, -2]))
    """)
    assert out.splitlines() == ["1 3 True", "[1, 2]"]


def test_options_are_read_back() -> None:
    costs = tt.DispatchCosts(*[tt.WidthCosts.flat(1e-6)] * 3)
    with tt.Pool(
        2, name="mine", wait=tt.WaitPolicy(idle_spin=0.0), dispatch_costs=costs, pin_participants=True
    ) as pool:
        assert (pool.name, pool.wait_policy.idle_spin, pool.pin_participants) == ("mine", 0.0, True)
        assert pool.dispatch_costs == costs
        assert pool.exec().dispatch_cost(2) == 1e-6


@pytest.mark.parametrize(
    ("value", "spin"), [("0", 0.0), ("200us", 0.0002), ("5ms", 0.005), ("0.1", 0.1), (" 1s ", 1.0)]
)
def test_the_environment_sets_the_spin_time(monkeypatch: pytest.MonkeyPatch, value: str, spin: float) -> None:
    monkeypatch.setenv("THREADTEAM_SPIN", value)
    with tt.Pool(1) as pool:
        assert pool.wait_policy.idle_spin == pytest.approx(spin)


def test_an_unusable_spin_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADTEAM_SPIN", "soon")
    with pytest.raises(ValueError, match='THREADTEAM_SPIN is "soon"'):
        tt.Pool(1)
    with tt.Pool(1, wait=tt.WaitOverride(idle_spin=0.5)) as pool:
        assert pool.wait_policy.idle_spin == 0.5


def test_the_environment_is_not_asked_when_a_wait_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADTEAM_SPIN", "5ms")
    with tt.Pool(1, wait=tt.WaitPolicy(idle_spin=0.25)) as pool:
        assert pool.wait_policy == tt.WaitPolicy(idle_spin=0.25)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="acquire_timeout must be a time in seconds"):
        tt.Pool(2, acquire_timeout=value)
    for name in ("spin", "park_after", "idle_spin"):
        with pytest.raises(ValueError, match=f"{name} must be a time in seconds"):
            tt.WaitPolicy(**{name: value})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"{name} must be a time in seconds"):
            tt.WaitOverride(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy",
    [
        tt.WaitPolicy(),
        tt.WaitPolicy(idle_spin=0.2),
        tt.WaitPolicy(0.001, 0.002),
        tt.WaitPolicy(park_after=0.5, idle_spin="adaptive"),
    ],
)
def test_a_waiting_policy_survives_pickling_and_says_what_makes_it(policy: tt.WaitPolicy) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert eval(repr(policy), {"WaitPolicy": tt.WaitPolicy}) == policy


def test_an_idle_time_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="idle_spin must be a time in seconds or \"adaptive\", got 'soon'"):
        tt.WaitPolicy(idle_spin="soon")  # type: ignore[arg-type]


def test_polls_yields_and_sleeps_are_counted_by_kind_of_wait() -> None:
    with tt.Pool(2, wait=tt.WaitPolicy(0.0, 0.002), acquire_timeout=10.0) as pool:
        pool.exec().broadcast(lambda index: None)
        while pool.stats().parks == 0:
            time.sleep(0.001)
        counted = pool.stats()
    assert counted.idle_spins >= 64
    assert counted.idle_yields > 0
    for kind in ("spins", "yields"):
        names = [f"{wait}_{kind}" for wait in ("idle", "join", "barrier", "acquire")]
        assert getattr(counted, kind) == sum(getattr(counted, name) for name in names)


def test_idle_workers_can_be_released() -> None:
    with tt.Pool(2, wait=tt.WaitPolicy(idle_spin=60.0)) as pool:
        pool.exec().broadcast(lambda index: None)
        pool.release_idle()


def test_cost_rows_follow_the_rule() -> None:
    row = tt.WidthCosts.from_anchors([(2, 1e-6), (4, 3e-6)])
    assert row.at(3) == pytest.approx(2e-6)
    assert row.at(8) == pytest.approx(6e-6)
    assert tt.pays_at(3e-6, 1, 1e-6)
    assert not tt.pays_at(2.9e-6, 1, 1e-6)
    assert not tt.pays_at(1e9, 1, float("inf"))
    assert tt.width_for_by(1.0, 1, 4, lambda width: 1e-6) == 4
    assert tt.PAYS == 3
    with pytest.raises(ValueError, match="anchors must be"):
        tt.WidthCosts.from_anchors([(4, 1.0), (2, 1.0)])
    with pytest.raises(ZeroDivisionError):
        tt.width_for_by(1.0, 1, 4, lambda width: 1 / 0)


def test_several_threads_use_one_pool_at_once() -> None:
    with tt.Pool(4) as pool:
        results: list[list[int]] = []

        def use() -> None:
            token = pool.exec(2)
            results.extend(token.map(lambda x: x + 1, range(20)) for _ in range(50))

        users = [threading.Thread(target=use) for _ in range(4)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert results == [list(range(1, 21))] * 200
