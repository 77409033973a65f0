"""What users of thread pools report about slots that others could use, as properties."""

import threading

import pytest
import threadteam as tt

PATIENCE = 30.0
"""Seconds after which something that should happen counts as missing."""


@pytest.mark.parametrize(("jobs", "shares"), [(1, [4]), (2, [2, 2]), (3, [1, 1, 2]), (4, [1, 1, 1, 1])])
def test_property_17_idle_slots_of_an_outer_level_go_to_inner_work(jobs: int, shares: list[int]) -> None:
    budgets: list[int] = []
    with tt.Pool(4, acquire_timeout=PATIENCE) as pool, pool.exec() as token:
        token.fork(jobs, lambda job, child: budgets.append(child.budget))
    assert sorted(budgets) == shares


def test_property_17_the_slots_of_a_lone_outer_job_meet_in_its_inner_section() -> None:
    meeting = threading.Barrier(4)
    met: list[int] = []

    def inner(index: int, size: int) -> None:
        meeting.wait(PATIENCE)
        met.append(index)

    with tt.Pool(4, acquire_timeout=PATIENCE) as pool, pool.exec() as token:
        token.fork(1, lambda job, child: child.team(lambda team: team.run(inner)))
    assert sorted(met) == [0, 1, 2, 3]


def participants(token: tt.Exec) -> int:
    """Return how many threads meet in a section of `token`."""
    meeting = threading.Barrier(token.budget)
    met: set[int] = set()

    def body(index: int) -> None:
        meeting.wait(PATIENCE)
        met.add(threading.get_ident())

    token.broadcast(body)
    return len(met)


def test_property_29_the_width_of_a_token_goes_down_and_up() -> None:
    with tt.Pool(4, acquire_timeout=PATIENCE) as pool, pool.exec() as token:
        for width in (4, 2, 3, 1, 4):
            with token.limit(width) as narrow:
                assert participants(narrow) == width
        assert participants(token) == 4


def test_property_29_the_width_of_a_team_goes_down_and_up() -> None:
    pool = tt.Pool(4, acquire_timeout=PATIENCE)
    for width in (2, 4, 3):
        with pool.into_team(width) as team:
            assert participants(team.exec()) == width
            pool = team.into_pool()
    assert participants(pool.exec()) == 4
    pool.close()


def test_property_29_a_wider_pool_follows_a_narrower_one() -> None:
    for width in (2, 5, 3):
        with tt.Pool(width, acquire_timeout=PATIENCE) as pool:
            assert participants(pool.exec()) == width
