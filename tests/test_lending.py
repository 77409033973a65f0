"""`external` of tokens that carry a team: the members serve the pool's other tokens meanwhile, and come back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import threadteam as tt

PATIENCE = 60.0


@pytest.fixture
def pool() -> Iterator[tt.Pool]:
    with tt.Pool(3, acquire_timeout=PATIENCE) as pool:
        yield pool


def members_of(team: tt.TeamExec) -> dict[int, int]:
    """Return the system's number of the thread of every participant."""
    threads: dict[int, int] = {}
    team.run(lambda index, size: threads.update({index: threading.get_native_id()}))
    return threads


def borrowed_by_another_thread(pool: tt.Pool) -> dict[int, int]:
    """Return the threads of a broadcast over the whole pool that another thread leads."""
    threads: dict[int, int] = {}

    def borrow() -> None:
        pool.exec().broadcast(lambda index: threads.update({index: threading.get_native_id()}))

    borrower = threading.Thread(target=borrow)
    borrower.start()
    borrower.join()
    return threads


def scope(team: tt.TeamExec, use: Callable[[int], Any]) -> Any:
    """Use the width inside a ``with`` block."""
    with team.external() as width:
        return use(width)


FORMS: dict[str, Callable[[tt.TeamExec, Callable[[int], Any]], Any]] = {
    "call": lambda team, use: team.external(use),
    "with": scope,
}


@pytest.mark.parametrize("form", FORMS)
def test_another_threads_token_gets_the_lent_members_and_they_come_back(pool: tt.Pool, form: str) -> None:
    with pool.exec().team() as team:
        own = members_of(team)
        for _ in range(3):
            others = FORMS[form](team, lambda width: (int(width), borrowed_by_another_thread(pool)))
            assert others[0] == 3
            assert {others[1][1], others[1][2]} == {own[1], own[2]}
            assert others[1][0] != own[0]
            assert members_of(team) == own


def test_without_external_nobody_gets_a_members_of_a_team() -> None:
    with tt.Pool(3, acquire_timeout=0.0) as pool, pool.exec().team() as team:
        other = pool.exec()
        with pytest.raises(tt.Refused):
            other.broadcast(lambda index: None)
        with team.external():
            other.broadcast(lambda index: None)
        with pytest.raises(tt.Refused):
            other.broadcast(lambda index: None)


@pytest.mark.parametrize("form", FORMS)
def test_the_end_waits_for_a_borrower_whose_body_needs_the_interpreter(pool: tt.Pool, form: str) -> None:
    order: list[str] = []
    inside, ends = threading.Event(), threading.Event()

    def hold(index: int) -> None:
        if index == 1:
            inside.set()
            assert ends.wait(PATIENCE)
            order.append("given back")

    borrower = threading.Thread(target=lambda: pool.exec().broadcast(hold))

    def use(_width: int) -> None:
        borrower.start()
        assert inside.wait(PATIENCE)
        threading.Timer(0.05, ends.set).start()

    with pool.exec().team() as team:
        FORMS[form](team, use)
        order.append("returned")
        members_of(team)
    borrower.join()
    assert order == ["given back", "returned"]


def test_a_signal_handler_runs_while_the_end_waits_and_its_exception_comes_after() -> None:
    inside, ends = threading.Event(), threading.Event()

    def hold(index: int) -> None:
        if index == 1:
            inside.set()
            assert ends.wait(PATIENCE)

    def handler(_number: int, _frame: object) -> None:
        ends.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        with tt.Pool(2, acquire_timeout=PATIENCE) as pool:
            borrower = threading.Thread(target=lambda: pool.exec().broadcast(hold))
            with pool.exec().team() as team:
                scope = team.external()
                scope.__enter__()
                borrower.start()
                assert inside.wait(PATIENCE)
                main = threading.main_thread().ident
                assert main is not None
                threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
                with pytest.raises(KeyboardInterrupt):
                    scope.__exit__(None, None, None)
                assert len(members_of(team)) == 2
            borrower.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_failing_function_gets_the_members_back(pool: tt.Pool) -> None:
    with pool.exec().team() as team:
        own = members_of(team)
        with pytest.raises(ZeroDivisionError):
            team.external(lambda width: 1 / 0)
        with pytest.raises(ZeroDivisionError), team.external():
            raise ZeroDivisionError
        assert members_of(team) == own
        with pytest.raises(TypeError, match=r"function of TeamExec\.external\(\) must be callable, got 5 of type int"):
            team.external(5)  # type: ignore[call-overload]


def test_a_teams_token_is_lent_while_its_members_are(pool: tt.Pool) -> None:
    lent = pytest.raises(tt.TokenLent, match=r"with TeamExec\.external\(\)")
    with pool.exec().team() as team, team.external(), lent:
        members_of(team)


def test_a_teams_token_is_busy_while_a_function_has_its_width(pool: tt.Pool) -> None:
    with pool.exec().team() as team, pytest.raises(tt.TokenBusy):
        team.external(lambda width: members_of(team))


def test_a_scope_left_open_ends_with_its_team(pool: tt.Pool) -> None:
    with pool.exec().team() as team:
        left_open = team.external()
        assert left_open.__enter__() == 3
    assert len(borrowed_by_another_thread(pool)) == 3
    left_open.__exit__(None, None, None)
    with pool.exec().team() as team:
        assert len(members_of(team)) == 3


def test_a_forgotten_scope_gives_its_members_back(pool: tt.Pool) -> None:
    with pool.exec().team() as team:
        own = members_of(team)
        team.external().__enter__()
        assert members_of(team) == own


def test_children_lend_their_own_members_while_their_siblings_work() -> None:
    with tt.Pool(4, acquire_timeout=PATIENCE) as pool, pool.exec().team() as team:
        lent, kept = threading.Barrier(2, timeout=PATIENCE), threading.Barrier(2, timeout=PATIENCE)

        def child(index: int, part: tt.TeamExec) -> None:
            if index == 0:
                part.external(lambda width: pool.exec(width).broadcast(lambda index: lent.wait()))
            else:
                part.run(lambda index, size: kept.wait())

        team.split([2, 2], child)
        assert len(members_of(team)) == 4


def test_a_token_of_a_persistent_team_hands_out_its_width_and_has_its_members_afterwards(pool: tt.Pool) -> None:
    with pool.into_team() as team, team.exec() as token:
        for _ in range(3):
            assert token.external(int) == 3
            with token.external() as width, pytest.raises(tt.PoolClosed):
                pool.exec(width)
            token.broadcast(lambda index: None)


@pytest.mark.skipif(len(tt.cpu_budget().affinity) < 2, reason="to place a member takes two CPUs")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the platform has no affinity masks")
@pytest.mark.parametrize("form", FORMS)
def test_a_placed_member_has_its_own_mask_while_it_is_lent(form: str) -> None:
    mine = os.sched_getaffinity(0)
    with tt.Pool(2, pin_participants=True, acquire_timeout=PATIENCE) as pool, pool.exec().team() as team:
        member = members_of(team)[1]
        assert len(os.sched_getaffinity(member)) == 1
        assert FORMS[form](team, lambda width: os.sched_getaffinity(member)) == mine
