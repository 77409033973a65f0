"""Reserved members: scoped teams, persistent teams, participants and barriers."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import threadteam as tt


@pytest.fixture
def pool() -> Any:
    with tt.Pool(4, acquire_timeout=10.0) as pool:
        yield pool


def test_run_gives_every_participant_its_index(pool: tt.Pool) -> None:
    seen: list[tuple[int, int, int]] = []
    with pool.exec().team() as team:
        assert team.size == 4
        team.run(lambda index, size: seen.append((index, size, threading.get_ident())))
    assert min(seen)[2] == threading.get_ident()
    assert [(index, size) for index, size, _ in sorted(seen)] == [(i, 4) for i in range(4)]
    assert len({ident for _, _, ident in seen}) == 4


def test_a_team_callback_returns_its_result(pool: tt.Pool) -> None:
    token = pool.exec(2)
    assert token.team(lambda team: team.size) == 2
    with pytest.raises(KeyError):
        token.team(lambda team: {}["missing"])
    assert token.team(lambda team: None) is None


def test_the_team_of_a_callback_dies_with_it(pool: tt.Pool) -> None:
    kept: list[tt.TeamExec] = []
    pool.exec().team(kept.append)
    with pytest.raises(tt.TokenExpired):
        kept[0].run(lambda index, size: None)


def test_barriers_separate_phases(pool: tt.Pool) -> None:
    phases: list[int] = []
    with pool.exec().team() as team:

        def body(participant: tt.Participant) -> None:
            for phase in range(5):
                phases.append(phase)
                participant.barrier()

        team.run_with(body)
    assert phases == sorted(phases)
    assert Counter(phases) == dict.fromkeys(range(5), 4)


def test_a_participant_that_fails_cancels_its_peers(pool: tt.Pool) -> None:
    cancelled: list[int] = []
    meeting = threading.Barrier(4)

    def body(participant: tt.Participant) -> None:
        meeting.wait()
        if participant.index == 1:
            raise LookupError("one")
        try:
            participant.barrier()
        except tt.Cancelled:
            cancelled.append(participant.index)
            assert participant.is_cancelled
            raise

    with pool.exec().team() as team:
        with pytest.raises(LookupError, match="one") as caught:
            team.run_with(body)
        assert sorted(cancelled) == [0, 2, 3]
        assert not hasattr(caught.value, "__notes__")
        team.run(lambda index, size: None)


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize("before", [0, 2])
def test_a_barrier_that_a_peer_returned_without_fails_the_section(pool: tt.Pool, leaver: int, before: int) -> None:
    passed = []

    def body(participant: tt.Participant) -> None:
        for _ in range(before):
            participant.barrier()
        if participant.index == leaver:
            return
        participant.barrier()
        passed.append(participant.index)

    with pool.exec().team() as team:
        with pytest.raises(tt.ThreadteamError, match=f"after {before} calls .* call {before + 1}") as caught:
            team.run_with(body)
        assert not isinstance(caught.value, tt.Cancelled)
        assert passed == []
        team.run_with(lambda participant: participant.barrier())


def test_a_participant_ends_with_its_body(pool: tt.Pool) -> None:
    kept: list[tt.Participant] = []
    with pool.exec(2).team() as team:
        team.run_with(kept.append)
    here = next(participant for participant in kept if participant.index == 0)
    there = next(participant for participant in kept if participant.index == 1)
    assert (here.index, here.size) == (0, 2)
    with pytest.raises(tt.TokenExpired, match="ended with its body"):
        here.barrier()
    with pytest.raises(tt.TokenError, match="by another thread"):
        there.barrier()


def test_split_hands_out_contiguous_children(pool: tt.Pool) -> None:
    sizes: dict[int, int] = {}
    with pool.exec().team() as team:
        team.split([1, 3], lambda child, part: sizes.__setitem__(child, part.size))
    assert sizes == {0: 1, 1: 3}


def test_children_of_a_split_run_sections_of_their_own(pool: tt.Pool) -> None:
    seen: list[tuple[int, int]] = []
    with pool.exec().team() as team:
        team.split([2, 2], lambda child, part: part.run(lambda index, size: seen.append((child, index))))
    assert sorted(seen) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("sizes", [[], [0, 1], [-1], [5], [2, 3]])
def test_sizes_that_do_not_fit_are_refused(pool: tt.Pool, sizes: list[int]) -> None:
    with pool.exec().team() as team:
        with pytest.raises(tt.SplitError):
            team.split(sizes, lambda child, part: pytest.fail("called"))
        team.split([4], lambda child, part: None)


@pytest.mark.parametrize("children", [0, 1, 2, 3, 4, 11])
def test_fork_runs_every_child_once(pool: tt.Pool, children: int) -> None:
    seen: list[int] = []
    with pool.exec().team() as team:
        team.fork(children, lambda child, part: seen.append(child))
    assert sorted(seen) == list(range(children))


def test_members_that_are_busy_make_a_team_unavailable() -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        with pool.exec().team():
            with pytest.raises(tt.Refused) as refused, token.team():
                pytest.fail("entered")
            assert refused.value.reason is tt.RefusedReason.UNAVAILABLE
            with pytest.raises(tt.Refused):
                token.team(lambda team: pytest.fail("called"))
            token.for_ranges(10, 1, lambda start, stop: None)
        with token.team() as team:
            assert team.size == 2


def test_a_token_of_one_has_a_team_of_one() -> None:
    with tt.Exec.serial().team() as team:
        team.run_with(lambda participant: participant.barrier())
        assert team.size == 1


def test_a_waiting_policy_holds_for_its_scope(pool: tt.Pool) -> None:
    with pool.exec().team(wait=tt.WaitOverride(idle_spin=0.5)) as team:
        assert team.policy.idle_spin == 0.5
        with team.with_wait(tt.WaitPolicy(idle_spin=0.0)) as patient:
            assert patient.policy.idle_spin == 0.0
            patient.run(lambda index, size: None)
        assert team.policy.idle_spin == 0.5
    with pytest.raises(TypeError, match="wait must be"):
        pool.exec().team(wait=3)  # type: ignore[call-overload]


def test_a_pool_is_spent_until_its_team_gives_it_back(pool: tt.Pool) -> None:
    token = pool.exec()
    team = pool.into_team(3)
    assert (team.size, team.pool is pool) == (3, True)
    for spent in (pool.exec, pool.into_team, lambda: token.fork(1, lambda job, child: None)):
        with pytest.raises(tt.PoolClosed, match="moved into a Team of size 3"):
            spent()
    assert team.into_pool() is pool
    pool.exec().broadcast(lambda index: None)
    with pytest.raises(tt.PoolClosed):
        team.exec()
    with pytest.raises(tt.PoolClosed):
        team.into_pool()
    team.close()
    assert not pool.closed


def test_an_old_team_does_not_speak_for_a_new_one(pool: tt.Pool) -> None:
    old = pool.into_team()
    old.into_pool()
    new = pool.into_team()
    with pytest.raises(tt.PoolClosed):
        old.exec()
    new.exec().close()


def test_a_pool_whose_token_is_in_use_stays_a_pool(pool: tt.Pool) -> None:
    token = pool.exec()
    with token.reborrow(), pytest.raises(tt.IntoTeamError, match="lent or inside an entry; wait") as refused:
        pool.into_team()
    assert refused.value.reason is tt.RefusedReason.BUSY
    token.fork(1, lambda job, child: None)
    with pool.into_team():
        pass


def test_a_pool_whose_members_are_busy_stays_a_pool() -> None:
    with tt.Pool(2) as pool:
        meeting, go_on = threading.Barrier(3), threading.Event()

        def body(index: int) -> None:
            meeting.wait()
            go_on.wait()

        token = pool.exec()
        user = threading.Thread(target=lambda: token.broadcast(body))
        user.start()
        meeting.wait()
        with pytest.raises(tt.IntoTeamError):
            pool.into_team()
        go_on.set()
        user.join()
        token.fork(1, lambda job, child: None)


def test_team_tokens_carry_the_team(pool: tt.Pool) -> None:
    with pool.into_team() as team, team.exec() as token:
        assert token.carries_team
        with token.limit(1) as one:
            assert one.carries_team
        seen: list[bool] = []
        token.fork(2, lambda job, child: (seen.append(child.carries_team), child.broadcast(lambda index: None)))
        assert seen == [True, True]
        assert token.can_broadcast()


def test_the_root_token_of_a_team_is_waited_for(pool: tt.Pool) -> None:
    order: list[str] = []
    with pool.into_team() as team:
        first = team.exec()

        def use() -> None:
            with team.exec() as token:
                order.append("second")
                token.fork(4, lambda job, child: None)

        user = threading.Thread(target=use)
        user.start()
        order.append("first")
        first.close()
        user.join()
    assert order == ["first", "second"]


def test_a_thread_does_not_wait_for_its_own_root_token(pool: tt.Pool) -> None:
    with pool.into_team() as team:
        token = team.exec()
        with pytest.raises(tt.TokenBusy, match="would wait for itself"):
            team.exec()
        with pytest.raises(tt.Refused) as refused:
            team.try_exec()
        assert refused.value.reason is tt.RefusedReason.BUSY
        del token
        team.try_exec(2).close()


def test_closing_a_team_closes_its_pool(pool: tt.Pool) -> None:
    team = pool.into_team()
    token = team.exec()
    team.close()
    team.close()
    with pytest.raises(tt.PoolClosed):
        token.fork(1, lambda job, child: None)
    with pytest.raises(tt.PoolClosed):
        pool.exec()


def test_a_thread_that_waits_for_a_team_hears_of_its_end(pool: tt.Pool) -> None:
    team = pool.into_team()
    token = team.exec()
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            team.exec()
        except tt.PoolClosed as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    team.close()
    waiter.join()
    assert len(outcome) == 1
    assert token.budget == 4


def test_giving_back_a_pool_from_inside_a_body_is_refused(pool: tt.Pool) -> None:
    with pool.into_team() as team, team.exec() as token:
        with pytest.raises(tt.ThreadteamError, match="from inside a body"):
            token.fork(2, lambda job, child: team.into_pool())
        token.fork(2, lambda job, child: None)


def test_cost_methods_of_a_team(pool: tt.Pool) -> None:
    with pool.exec().team() as team:
        assert team.dispatch_cost(2) == pool.dispatch_costs.cost(tt.DispatchKind.TEAM, 2)
        assert team.pays(1.0)
        assert team.width_for(1.0) == 4
