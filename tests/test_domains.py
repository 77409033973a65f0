"""Pools over cache domains: masks are read by the bodies themselves."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
import threadteam as tt
from hypothesis import given
from hypothesis import strategies as st
from script import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="masks of threads are Linux's")

PATIENCE = 30.0
"""Seconds after which something that should happen counts as missing."""
ALL = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset({0})
CPUS = sorted(ALL)[:2]
DOMAINS = [{cpu} for cpu in CPUS]
EXPECTED = [ALL, *map(frozenset, DOMAINS[1:])]
"""What participants of a pool over `DOMAINS` may run on: the caller where it could before, each worker on its CPU."""


def mask() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


def masks(token: tt.Exec) -> list[frozenset[int]]:
    """Return the mask of each participant."""
    seen: dict[int, frozenset[int]] = {}
    token.broadcast(lambda index: seen.update({index: mask()}))
    return [seen[index] for index in sorted(seen)]


def over(domains: Iterable[Iterable[int]] = DOMAINS, **options: Any) -> tt.Pool:
    return tt.Pool(domains=domains, acquire_timeout=PATIENCE, **options)


def test_each_worker_keeps_to_the_cpus_of_its_domain_and_the_caller_where_it_was() -> None:
    with over() as pool, pool.exec() as token:
        assert pool.width == token.budget == len(DOMAINS)
        assert masks(token) == masks(token) == EXPECTED
        assert mask() == ALL


def test_a_job_for_each_domain_and_what_it_forks_run_there() -> None:
    seen: defaultdict[int, set[frozenset[int]]] = defaultdict(set)

    def job(number: int, child: tt.Exec) -> None:
        seen[number].add(mask())
        child.fork(3, lambda _job, _child: seen[number].add(mask()))
        child.for_ranges(8, 1, lambda _start, _stop: seen[number].add(mask()))

    with over() as pool, pool.exec() as token:
        for _ in range(20):
            token.fork(len(DOMAINS), job)
            token.fork_sized([1] * len(DOMAINS), job)
    assert [seen[number] for number in range(len(DOMAINS))] == [{own} for own in EXPECTED]


def test_teams_span_the_domains_and_their_children_do_not() -> None:
    seen: dict[int, frozenset[int]] = {}
    with over() as pool, pool.exec().team() as team:
        assert team.size == len(DOMAINS)
        team.fork(len(DOMAINS), lambda child, part: seen.update({child: mask()}))
    assert [seen[child] for child in range(len(DOMAINS))] == EXPECTED


def test_a_persistent_team_is_cut_at_the_domains_too() -> None:
    seen: dict[int, frozenset[int]] = {}
    with over().into_team() as team, team.exec() as token:
        assert masks(token) == EXPECTED
        token.fork(len(DOMAINS), lambda job, child: seen.update({job: mask()}))
    assert [seen[job] for job in range(len(DOMAINS))] == EXPECTED


@pytest.mark.parametrize("form", ["call", "scope"])
def test_a_worker_has_its_own_mask_inside_external_and_is_back_in_its_domain_after_its_job(form: str) -> None:
    inside: set[frozenset[int]] = set()

    def job(_number: int, child: tt.Exec) -> None:
        if form == "call":
            inside.add(child.external(lambda _width: mask()))
        else:
            with child.external():
                inside.add(mask())

    with over() as pool, pool.exec() as token:
        for _ in range(3):
            token.fork(len(DOMAINS), job)
            assert masks(token) == EXPECTED
    assert inside == {ALL}


def test_members_are_pinned_to_cpus_of_their_own_domain() -> None:
    with over([CPUS], pin_participants=True) as pool, pool.exec() as token:
        seen: dict[int, frozenset[int]] = {}
        token.team(lambda team: team.run(lambda index, size: seen.update({index: mask()})))
        assert [seen[index] for index in range(len(CPUS))] == EXPECTED
        assert masks(token) == [ALL, *[frozenset(CPUS)] * (len(CPUS) - 1)]


def test_workers_have_their_own_masks_in_the_next_pool() -> None:
    for _ in range(3):
        with over() as pool:
            assert masks(pool.exec()) == EXPECTED
        with tt.Pool(2, acquire_timeout=PATIENCE) as plain:
            assert masks(plain.exec()) == [ALL, ALL]


def test_the_pool_says_its_domains_and_has_one_participant_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADTEAM_NUM_THREADS", "1")
    with over(iter([range(cpu, cpu + 1) for cpu in CPUS])) as pool:
        assert pool.domains == tuple(map(frozenset, DOMAINS))
        assert pool.width == len(CPUS)
    assert pool.domains == tuple(map(frozenset, DOMAINS))
    with over(threads=1) as narrow, tt.Pool(2) as plain:
        assert (narrow.width, narrow.domains, plain.domains) == (1, pool.domains, None)


def test_cpus_outside_of_the_mask_do_not_count() -> None:
    with over([{*CPUS, 100_000}]) as pool:
        assert (pool.domains, pool.width) == ((frozenset(CPUS),), len(CPUS))
    with pytest.raises(ValueError, match="affinity mask has no CPU of domain 1; leave the domain out"):
        over([CPUS, {100_000}])


@pytest.mark.parametrize(
    ("domains", "error", "message"),
    [
        (1, TypeError, "domains must be an iterable of sets of CPU ids, as cpu_budget().domains is, got 1 of type int"),
        (
            [0],
            TypeError,
            "domains must be an iterable of sets of CPU ids, as cpu_budget().domains is, got 0 of type int",
        ),
        ("all", TypeError, "a CPU id in domains must be an integer, got 'a' of type str"),
        ([{0.5}], TypeError, "a CPU id in domains must be an integer, got 0.5 of type float"),
        ([{-1}], ValueError, "a CPU id in domains must be an integer from 0 to 4294967295, got -1"),
        ([{10**30}], ValueError, "a CPU id in domains must be an integer from 0 to 4294967295, got 1000"),
        ([], ValueError, "there are none; give at least one, or leave them out"),
        ([CPUS, ()], ValueError, "domain 1 has no CPU; leave it out"),
        ([CPUS, CPUS], ValueError, f"CPU {CPUS[0]} is in domains 0 and 1; put it in one"),
    ],
)
def test_what_are_no_domains_is_refused_with_the_way_out(domains: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refused:
        over(domains)
    assert message in str(refused.value)


def test_more_participants_than_cpus_are_refused() -> None:
    with pytest.raises(
        ValueError, match=f"1000 participants were requested over cache domains of {len(CPUS)} usable CPU"
    ):
        over(threads=1000)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        over(threads=0)


@given(st.lists(st.sets(st.integers(0, 5), max_size=3), max_size=4))
def test_disjoint_sets_of_usable_cpus_make_a_pool_and_nothing_else_does(domains: list[set[int]]) -> None:
    union = set().union(*domains)
    disjoint = sum(map(len, domains)) == len(union)
    if not domains or not disjoint or any(not domain & ALL for domain in domains):
        with pytest.raises(
            ValueError, match="the cache domains are not disjoint sets of CPUs that this process may use"
        ):
            tt.Pool(domains=domains)
        return
    with tt.Pool(domains=domains) as pool:
        assert (pool.width, pool.domains) == (len(union & ALL), tuple(frozenset(domain & ALL) for domain in domains))


def test_workers_of_a_forked_child_keep_to_the_domains() -> None:
    code = """
        import os
        import threadteam as tt

        cpus = sorted(os.sched_getaffinity(0))[:2]
        pool = tt.Pool(domains=[{cpu} for cpu in cpus], acquire_timeout=30.0)

        def look(process):
            seen = {}
            pool.exec().fork(len(cpus), lambda job, child: seen.update({job: os.sched_getaffinity(0)}))
            print(process, all(seen[job] == {cpus[job]} for job in range(1, len(cpus))), flush=True)

        look("parent")
        child = os.fork()
        if child == 0:
            look("child")
            os._exit(0)
        print("status", os.waitpid(child, 0)[1], flush=True)
        look("parent")
    """
    assert run(code).split("\n")[:-1] == ["parent True", "child True", "status 0", "parent True"]
