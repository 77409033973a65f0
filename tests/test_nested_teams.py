"""Teams inside teams, their failures, and several of them on one pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import threadteam as tt

PATIENCE = 60.0
"""Seconds that only a hang reaches."""


@pytest.fixture
def pool() -> Iterator[tt.Pool]:
    with tt.Pool(4, acquire_timeout=10.0) as pool:
        yield pool


def nobody_is_missing(pool: tt.Pool) -> None:
    """Every participant of the pool can be had: nobody kept one."""
    meeting = threading.Barrier(pool.width, timeout=PATIENCE)
    pool.exec().broadcast(lambda index: meeting.wait())


def test_children_of_a_split_split_and_fork_again_down_to_single_participants(pool: tt.Pool) -> None:
    meeting = threading.Barrier(4, timeout=PATIENCE)
    threads: list[int] = []

    def single(child: int, team: tt.TeamExec) -> None:
        assert team.size == 1
        threads.append(threading.get_ident())
        meeting.wait()  # four participants that run at once can all be here

    def half(child: int, team: tt.TeamExec) -> None:
        assert team.size == 2
        team.run_with(lambda participant: participant.barrier())
        team.fork(2, single)

    with pool.exec().team() as team:
        team.split([2, 2], half)
    assert len(set(threads)) == 4


def test_tokens_of_a_team_nest_every_kind_of_section_within_their_members(pool: tt.Pool) -> None:
    meeting = threading.Barrier(4, timeout=PATIENCE)
    threads: list[int] = []

    def share(index: int) -> None:
        threads.append(threading.get_ident())
        meeting.wait()

    def child(job: int, token: tt.Exec) -> None:
        assert token.carries_team
        assert token.can_broadcast()
        token.for_ranges(9, 1, lambda start, stop: None)
        with token.team() as team:
            assert team.size == [3, 1][job]
        token.broadcast(share)

    with pool.into_team() as team, team.exec() as token:
        token.fork_sized([3, 1], child)
    assert len(set(threads)) == 4


class Fault(Exception):
    """Raised on purpose."""


def descend(token: tt.Exec, depth: int, fails_at: int) -> None:
    """Go down a tree of every kind of section and fail at one depth."""
    if depth == fails_at:
        raise Fault(f"depth {depth}")

    def below(_: int, child: tt.Exec) -> None:
        descend(child, depth + 1, fails_at)

    def half(_: int, team: tt.TeamExec) -> None:
        team.fork(1, lambda index, single: descend(tt.Exec.serial(), depth + 1, fails_at))

    levels: list[Callable[[], object]] = [
        lambda: token.fork(2, below),
        lambda: token.team(lambda team: team.split([1, 1], half)),
        lambda: token.fork_sized([1], below),
        lambda: token.external(lambda width: descend(tt.Exec.serial(), depth + 1, fails_at)),
        lambda: token.map(lambda item: descend(tt.Exec.serial(), depth + 1, fails_at), [0]),
    ]
    if depth < len(levels):
        levels[depth]()


@pytest.mark.parametrize("fails_at", range(6))
def test_an_exception_at_any_depth_reaches_the_caller_and_frees_every_member(pool: tt.Pool, fails_at: int) -> None:
    with pytest.raises(Fault, match=f"depth {fails_at}"):
        descend(pool.exec(), 0, fails_at)
    nobody_is_missing(pool)


@pytest.mark.parametrize("fails_at", range(6))
def test_an_exception_at_any_depth_gives_the_leadership_of_a_team_back(pool: tt.Pool, fails_at: int) -> None:
    with pool.into_team() as team:
        with team.exec() as token, pytest.raises(Fault, match=f"depth {fails_at}"):
            descend(token, 0, fails_at)
        meeting = threading.Barrier(4, timeout=PATIENCE)
        with team.try_exec() as token:
            token.broadcast(lambda index: meeting.wait())


def test_several_teams_and_plain_tokens_of_one_pool_run_at_once_on_disjoint_workers() -> None:
    meeting = threading.Barrier(7, timeout=PATIENCE)
    threads: list[int] = []

    def here(*_: object) -> None:
        threads.append(threading.get_ident())
        meeting.wait()

    with tt.Pool(7, acquire_timeout=10.0) as pool:

        def scoped(budget: int) -> None:
            with pool.exec(budget).team() as scope:
                scope.run(here)

        callers = [
            threading.Thread(target=scoped, args=(3,)),
            threading.Thread(target=scoped, args=(2,)),
            threading.Thread(target=lambda: pool.exec(2).broadcast(here)),
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert len(set(threads)) == 7


def test_a_plain_section_beside_a_team_that_holds_everybody_runs_on_its_caller(pool: tt.Pool) -> None:
    threads: list[int] = []
    with pool.exec().team() as team:
        pool.exec().fork(8, lambda job, token: threads.append(threading.get_ident()))
        assert team.size == 4
    assert threads == [threading.get_ident()] * 8


def test_callers_that_each_want_everybody_are_served_or_refused(pool: tt.Pool) -> None:
    outcomes: list[str] = []

    def attempt() -> str:
        ran: list[int] = []
        try:
            pool.exec().team(lambda team: team.run(lambda index, size: ran.append(size)))
        except tt.Refused as refused:
            return f"{refused.reason.name}, {len(ran)} bodies"
        return f"served, {len(ran)} bodies"

    def caller() -> None:
        outcomes.extend(attempt() for _ in range(50))

    callers = [threading.Thread(target=caller) for _ in range(3)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert len(outcomes) == 150
    assert set(outcomes) <= {"served, 4 bodies", "UNAVAILABLE, 0 bodies"}
    nobody_is_missing(pool)
