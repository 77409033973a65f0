"""The rules of tokens: no copies, one entry at a time, loans, death with the body."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import pytest
import threadteam as tt


@pytest.fixture
def pool() -> Any:
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        yield pool


def nothing(*_: object) -> None:
    pass


USES = {
    "for_ranges": lambda token: token.for_ranges(1, 1, nothing),
    "fork": lambda token: token.fork(1, nothing),
    "fork_sized": lambda token: token.fork_sized([1], nothing),
    "map": lambda token: token.map(nothing, [1]),
    "reduce": lambda token: token.reduce(1, 1, nothing, nothing, 0),
    "external": lambda token: token.external(nothing),
    "external scope": lambda token: token.external().__enter__(),
    "broadcast": lambda token: token.broadcast(nothing),
    "can_broadcast": lambda token: token.can_broadcast(),
    "team": lambda token: token.team(nothing),
    "team scope": lambda token: token.team().__enter__(),
    "reborrow": lambda token: token.reborrow(),
    "limit": lambda token: token.limit(1),
    "dispatch_cost": lambda token: token.dispatch_cost(2),
    "pays": lambda token: token.pays(1.0),
    "width_for": lambda token: token.width_for(1.0),
    "with": lambda token: token.__enter__(),
}


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_token_cannot_be_duplicated(pool: tt.Pool, attempt: Any) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        attempt(pool.exec())
    with pool.exec().team() as team, pytest.raises(TypeError, match="cannot be copied or pickled"):
        attempt(team)


@pytest.mark.parametrize("use", USES)
def test_a_token_that_is_inside_an_entry_is_busy(pool: tt.Pool, use: str) -> None:
    token = pool.exec()
    with pytest.raises(tt.TokenBusy, match="an entry is running on") as caught:
        token.for_ranges(1, 1, lambda start, stop: USES[use](token))
    assert "Exec(budget=2" in str(caught.value)
    token.for_ranges(1, 1, nothing)


def test_a_token_in_use_by_another_thread_is_busy(pool: tt.Pool) -> None:
    token = pool.exec()
    inside, go_on = threading.Event(), threading.Event()

    def body(start: int, stop: int) -> None:
        inside.set()
        go_on.wait()

    user = threading.Thread(target=lambda: token.for_ranges(1, 1, body))
    user.start()
    inside.wait()
    with pytest.raises(tt.TokenBusy):
        token.fork(1, nothing)
    with pytest.raises(tt.TokenBusy):
        token.close()
    go_on.set()
    user.join()
    token.fork(1, nothing)


@pytest.mark.parametrize("use", USES)
def test_a_lent_token_says_so(pool: tt.Pool, use: str) -> None:
    token = pool.exec()
    with token.reborrow(), pytest.raises(tt.TokenLent, match=r"is lent by Exec\.reborrow\(\)"):
        USES[use](token)
    token.for_ranges(1, 1, nothing)


@pytest.mark.parametrize("use", USES)
def test_a_closed_token_is_expired(pool: tt.Pool, use: str) -> None:
    token = pool.exec()
    token.close()
    token.close()
    with pytest.raises(tt.TokenExpired, match="was closed"):
        USES[use](token)


@pytest.mark.parametrize("use", USES)
def test_the_token_of_a_body_dies_with_it(pool: tt.Pool, use: str) -> None:
    kept: list[tt.Exec] = []
    pool.exec().fork(1, lambda job, child: kept.append(child))
    with pytest.raises(tt.TokenExpired, match="died when the body"):
        USES[use](kept[0])
    assert repr(kept[0]).endswith(", dead>")
    assert kept[0].budget == 2


def test_all_token_errors_have_one_base() -> None:
    for error in (tt.TokenBusy, tt.TokenLent, tt.TokenExpired):
        assert issubclass(error, tt.TokenError)
    assert issubclass(tt.TokenError, tt.ThreadteamError)


def test_a_loan_ends_by_with_by_close_and_by_collection(pool: tt.Pool) -> None:
    token = pool.exec()
    with token.reborrow() as loan:
        loan.fork(2, nothing)
    loan = token.limit(1)
    assert loan.budget == 1
    loan.close()
    loan = token.reborrow()
    del loan
    gc.collect()
    token.fork(1, nothing)


def test_closing_a_loan_closes_the_loans_taken_from_it(pool: tt.Pool) -> None:
    token = pool.exec()
    first = token.reborrow()
    second = first.limit(1)
    third = second.reborrow()
    first.close()
    for loan in (first, second, third):
        with pytest.raises(tt.TokenExpired):
            loan.fork(1, nothing)
    token.fork(1, nothing)


def test_a_loan_keeps_its_token_alive(pool: tt.Pool) -> None:
    loan = pool.exec().reborrow().limit(2)
    gc.collect()
    assert sorted(loan.map(abs, [-1, -2])) == [1, 2]


def test_a_loan_of_a_body_token_dies_with_the_body(pool: tt.Pool) -> None:
    kept: list[tt.Exec] = []
    pool.exec().fork(1, lambda job, child: kept.append(child.reborrow()))
    with pytest.raises(tt.TokenExpired):
        kept[0].fork(1, nothing)


def test_a_scope_left_open_by_a_body_is_closed_with_it(pool: tt.Pool) -> None:
    kept: list[Any] = []

    def body(job: int, child: tt.Exec) -> None:
        scope = child.external()
        scope.__enter__()
        kept.append(scope)

    pool.exec().fork(1, body)
    kept[0].__exit__(None, None, None)


def test_a_body_waits_for_the_entry_of_another_thread_on_its_token(pool: tt.Pool) -> None:
    order: list[str] = []
    users: list[threading.Thread] = []

    def body(job: int, child: tt.Exec) -> None:
        inside = threading.Event()

        def slow(start: int, stop: int) -> None:
            inside.set()
            released.wait()
            order.append("entry")

        released = threading.Event()
        user = threading.Thread(target=lambda: child.for_ranges(1, 1, slow))
        user.start()
        users.append(user)
        inside.wait()
        threading.Timer(0.05, released.set).start()

    pool.exec().fork(1, body)
    order.append("returned")
    users[0].join()
    assert order == ["entry", "returned"]


def test_an_external_scope_lends_the_token(pool: tt.Pool) -> None:
    token = pool.exec()
    with token.external(), pytest.raises(tt.TokenLent, match=r"with Exec\.external\(\)"):
        token.fork(1, nothing)
    token.fork(1, nothing)


def test_a_team_scope_lends_the_token(pool: tt.Pool) -> None:
    token = pool.exec()
    with token.team() as team:
        with pytest.raises(tt.TokenLent, match=r"with Exec\.team\(\)"):
            token.fork(1, nothing)
        with team.reborrow() as lent:
            lent.run(nothing)
            with pytest.raises(tt.TokenLent):
                team.run(nothing)
    with pytest.raises(tt.TokenExpired):
        team.run(nothing)
    token.fork(1, nothing)


def test_a_root_token_is_a_context_manager(pool: tt.Pool) -> None:
    with pool.exec() as token:
        token.fork(1, nothing)
    with pytest.raises(tt.TokenExpired):
        token.fork(1, nothing)


def test_misuse_leaves_the_pool_usable(pool: tt.Pool) -> None:
    for _ in range(100):
        token = pool.exec()
        loan = token.reborrow()
        with pytest.raises(tt.TokenLent):
            token.fork(1, nothing)
        loan.close()
    pool.exec().broadcast(nothing)


def test_many_tokens_do_not_pile_up(pool: tt.Pool) -> None:
    for _ in range(10_000):
        pool.exec()
    pool.exec().broadcast(nothing)


def test_tokens_are_hashed_by_identity(pool: tt.Pool) -> None:
    first, second = pool.exec(), pool.exec()
    assert len({first, second, first}) == 2
    assert first != second
