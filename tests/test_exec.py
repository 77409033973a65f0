"""What each method of a token runs, and on what arguments."""

from __future__ import annotations

import contextvars
import decimal
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import threadteam as tt
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture(params=["serial", "pool 2", "pool 4", "team 3"])
def token(request: pytest.FixtureRequest) -> Any:
    kind = request.param
    if kind == "serial":
        yield tt.Exec.serial()
        return
    with tt.Pool(int(kind[-1])) as pool:
        if kind.startswith("team"):
            with pool.into_team() as team, team.exec() as token:
                yield token
        else:
            yield pool.exec()


@given(length=st.integers(0, 300), grain=st.integers(1, 400), budget=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_ranges_cover_every_item_once(length: int, grain: int, budget: int) -> None:
    ranges: list[tuple[int, int]] = []
    with tt.Pool(4) as pool:
        pool.exec(budget).for_ranges(length, grain, lambda start, stop: ranges.append((start, stop)))
    ranges.sort()
    assert [item for start, stop in ranges for item in range(start, stop)] == list(range(length))
    assert all(stop - start >= grain for start, stop in ranges[:-1])


def test_an_empty_range_calls_nothing(token: tt.Exec) -> None:
    token.for_ranges(0, 1, lambda start, stop: pytest.fail("called"))
    token.fork(0, lambda job, child: pytest.fail("called"))
    assert token.map(lambda item: pytest.fail("called"), []) == []


def test_a_huge_length_with_a_huge_grain_is_one_chunk(token: tt.Exec) -> None:
    seen = []
    token.for_ranges(2**63 - 1, 10**30, lambda start, stop: seen.append((start, stop)))
    assert seen == [(0, 2**63 - 1)]


def test_a_length_above_64_bits_overflows(token: tt.Exec) -> None:
    with pytest.raises(OverflowError, match="length must be at most"):
        token.for_ranges(2**63, 1, lambda start, stop: None)


@pytest.mark.parametrize(
    "call",
    [
        lambda token, n: token.for_ranges(n, 1, print),
        lambda token, n: token.fork(n, print),
        lambda token, n: token.reduce(n, 1, print, print, 0),
    ],
)
def test_a_negative_count_is_refused(call: Callable[[tt.Exec, int], object]) -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        call(tt.Exec.serial(), -1)
    with pytest.raises(TypeError, match=r"must be an integer, got 1\.5 of type float"):
        call(tt.Exec.serial(), 1.5)  # type: ignore[arg-type]


def test_a_grain_below_one_is_refused(token: tt.Exec) -> None:
    with pytest.raises(ValueError, match="grain must be at least 1, got 0"):
        token.for_ranges(1, 0, print)
    with pytest.raises(ValueError, match="max must be at least 1"):
        token.limit(0)


@pytest.mark.parametrize("jobs", [1, 2, 3, 7, 100])
def test_fork_runs_every_job_once(token: tt.Exec, jobs: int) -> None:
    seen: list[int] = []
    token.fork(jobs, lambda job, child: seen.append(job))
    assert sorted(seen) == list(range(jobs))


@pytest.mark.parametrize(("budget", "jobs"), [(4, 1), (4, 2), (4, 3), (4, 4), (3, 2), (4, 9)])
def test_the_shares_of_the_children_add_up_to_the_budget(budget: int, jobs: int) -> None:
    shares: dict[int, int] = {}
    with tt.Pool(4) as pool:
        pool.exec(budget).fork(jobs, lambda job, child: shares.__setitem__(job, child.budget))
    if jobs <= budget:
        assert sum(shares.values()) == budget
        assert max(shares.values()) - min(shares.values()) <= 1
    else:
        assert set(shares.values()) == {1}


def test_given_shares_are_handed_out() -> None:
    shares: dict[int, int] = {}
    with tt.Pool(4) as pool:
        pool.exec().fork_sized([2, 1], lambda job, child: shares.__setitem__(job, child.budget))
    assert shares == {0: 2, 1: 1}


@pytest.mark.parametrize("shares", [[0], [1, -1], [3, 2]])
def test_shares_that_do_not_fit_are_refused(shares: list[int]) -> None:
    with tt.Pool(4) as pool, pytest.raises(ValueError, match="shares must be at least 1"):
        pool.exec().fork_sized(shares, lambda job, child: pytest.fail("called"))


def test_map_keeps_the_order(token: tt.Exec) -> None:
    assert token.map(lambda x: x * x, range(100)) == [x * x for x in range(100)]
    assert token.map(str, (c for c in "abc"), grain=2) == ["a", "b", "c"]


def test_an_iterable_that_fails_raises_its_exception(token: tt.Exec) -> None:
    def items() -> Any:
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        token.map(abs, items())


@pytest.mark.parametrize(("length", "grain"), [(0, 1), (1, 1), (10, 3), (9, 3), (5, 100)])
def test_reduce_combines_fixed_chunks_in_order(token: tt.Exec, length: int, grain: int) -> None:
    chunks = [(start, min(start + grain, length)) for start in range(0, length, grain)]
    found = token.reduce(length, grain, lambda a, b: [(a, b)], lambda x, y: x + y, ["initial"])
    assert found == ["initial", *chunks]


def test_reduce_of_floats_does_not_depend_on_the_budget() -> None:
    values = [1.0 / (i + 1) ** 3 for i in range(1000)]

    def total(token: tt.Exec) -> float:
        return token.reduce(1000, 7, lambda a, b: sum(values[a:b]), lambda x, y: x + y, 0.0)

    with tt.Pool(4) as pool:
        assert {total(pool.exec(budget)) for budget in (1, 2, 3, 4)} == {total(tt.Exec.serial())}


def test_too_many_partial_results_are_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="use larger chunks"):
        tt.Exec.serial().reduce(2**62, 1, lambda a, b: 0, lambda x, y: 0, 0)


def test_broadcast_runs_all_participants_at_the_same_time() -> None:
    with tt.Pool(3, acquire_timeout=10.0) as pool:
        meeting = threading.Barrier(3)
        seen: set[int] = set()

        def body(index: int) -> None:
            meeting.wait()
            seen.add(threading.get_ident())

        pool.exec().broadcast(body)
        assert len(seen) == 3


def test_a_child_of_a_fork_is_refused_a_broadcast() -> None:
    with tt.Pool(4) as pool:
        reasons = []

        def body(job: int, child: tt.Exec) -> None:
            assert not child.can_broadcast()
            try:
                child.broadcast(lambda index: None)
            except tt.Refused as refused:
                reasons.append(refused.reason)

        pool.exec().fork(2, body)
        assert reasons == [tt.RefusedReason.FORK_CHILD] * 2


def test_a_worker_of_the_pool_is_refused_a_broadcast() -> None:
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        reasons = []
        caller = threading.get_ident()

        def body(index: int) -> None:
            if threading.get_ident() == caller:
                return
            try:
                pool.exec().broadcast(lambda index: None)
            except tt.Refused as refused:
                reasons.append(refused.reason)

        pool.exec().broadcast(body)
        assert reasons == [tt.RefusedReason.CALLER_IN_POOL]


def test_external_hands_out_the_budget() -> None:
    with tt.Pool(3) as pool:
        token = pool.exec(2)
        assert token.external(lambda width: width * 10) == 20
        with token.external() as width:
            assert width == 2
        assert token.external(lambda width: width) == 2


def test_the_properties_of_a_token() -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        assert (token.budget, token.is_serial, token.carries_team) == (2, False, False)
        assert pool.exec(1).is_serial
    assert tt.Exec.serial().budget == 1
    assert tt.Exec.serial().dispatch_cost(2) == float("inf")
    assert tt.Exec.serial().width_for(1.0) == 1


def test_a_token_knows_when_a_section_pays() -> None:
    with tt.Pool(2, dispatch_costs=tt.DispatchCosts(*[tt.WidthCosts.flat(1e-6)] * 3)) as pool:
        token = pool.exec()
        assert token.pays(3e-6)
        assert not token.pays(3e-6, sections=2)
        assert (token.width_for(1.0), token.width_for(1e-9)) == (2, 1)


def test_the_first_exception_reaches_the_caller_as_itself(token: tt.Exec) -> None:
    error = KeyError("mine")

    def body(start: int, stop: int) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        token.for_ranges(10, 10, body)
    assert caught.value is error
    assert any(entry.name == "body" for entry in caught.traceback)


def test_chunks_after_an_exception_are_dropped() -> None:
    calls = itertools.count()

    def body(job: int, child: tt.Exec) -> None:
        next(calls)
        raise ValueError(job)

    with tt.Pool(2) as pool:
        with pytest.raises(ValueError, match=r"\d+"):
            pool.exec().fork(10_000, body)
        assert next(calls) <= 3
        pool.exec().fork(2, lambda job, child: None)


def test_other_exceptions_are_kept_as_notes() -> None:
    meeting = threading.Barrier(2)

    def body(index: int) -> None:
        meeting.wait()
        raise RuntimeError(f"participant {index}")

    with tt.Pool(2, acquire_timeout=10.0) as pool, pytest.raises(RuntimeError) as caught:
        pool.exec().broadcast(body)
    notes = caught.value.__notes__
    assert len(notes) == 1
    assert notes[0].startswith("another participant raised RuntimeError: participant")


def test_an_exception_drops_the_chunks_of_nested_sections() -> None:
    inside, outcomes = threading.Event(), []

    def body(index: int) -> None:
        if index == 0:
            inside.wait()
            raise ZeroDivisionError
        token = tt.Exec.serial()

        def endless(start: int, stop: int) -> None:
            inside.set()

        try:
            while True:
                token.for_ranges(1, 1, endless)
        except tt.Cancelled as error:
            outcomes.append(str(error))
            raise

    with tt.Pool(2, acquire_timeout=10.0) as pool, pytest.raises(ZeroDivisionError) as caught:
        pool.exec().broadcast(body)
    assert len(outcomes) == 1
    assert not hasattr(caught.value, "__notes__")


def test_system_exit_in_a_body_reaches_the_caller(token: tt.Exec) -> None:
    def leave(start: int, stop: int) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        token.for_ranges(1, 1, leave)
    assert caught.value.code == 3


@pytest.mark.parametrize("body", [None, 3, "text", object()])
def test_a_body_that_is_none_is_refused(token: tt.Exec, body: Any) -> None:
    with pytest.raises(TypeError, match="must be callable or native code"):
        token.for_ranges(1, 1, body)
    with pytest.raises(TypeError, match="must be callable or native code"):
        token.fork(1, body)
    with pytest.raises(TypeError):
        token.external(5)  # type: ignore[call-overload]


def test_context_variables_of_the_caller_are_visible_in_its_bodies() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    def body(index: int) -> None:
        seen.append(variable.get())
        variable.set(f"changed by {index}")

    with tt.Pool(3, acquire_timeout=10.0) as pool:
        variable.set("of the caller")
        pool.exec().broadcast(body)
        assert seen == ["of the caller"] * 3
        with decimal.localcontext() as context:
            context.prec = 3
            assert set(pool.exec().map(lambda _: decimal.getcontext().prec, range(50))) == {3}
