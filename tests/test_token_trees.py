"""Random trees of sections: every leaf runs once, shares conserve slots, no token exceeds its budget."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
import threadteam as tt
from hypothesis import given, settings
from hypothesis import strategies as st

LEAF: tuple[Any, ...] = ("leaf",)


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    subtrees = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        st.tuples(st.just("fork"), subtrees),
        st.tuples(st.just("shares"), subtrees),
        st.tuples(st.just("limit"), st.integers(1, 4), inner),
        st.tuples(st.just("reborrow"), inner),
        st.tuples(st.just("team"), inner),
        st.tuples(st.just("ranges"), st.integers(0, 9), st.integers(1, 4)),
    )


TREES = st.recursive(st.just(LEAF), branches, max_leaves=12)


class Visit:
    """Runs a tree on a token; counts what ran, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.leaves = 0

    def count(self, leaves: int) -> None:
        with self._lock:
            self.leaves += leaves

    def run(self, token: tt.Exec, tree: tuple[Any, ...]) -> None:
        match tree:
            case ("fork", trees):
                budgets: list[int] = []

                def job(index: int, child: tt.Exec) -> None:
                    budgets.append(child.budget)
                    self.run(child, trees[index])

                token.fork(len(trees), job)
                if len(trees) <= token.budget:
                    assert sum(budgets) == token.budget
                    assert max(budgets) - min(budgets) <= 1
            case ("shares", trees):
                # One slot each, and what is left to the first; those that do not fit run alone.
                count = min(len(trees), token.budget)
                shares = [1 + token.budget - count] + [1] * (count - 1)
                token.fork_sized(shares, lambda index, child: self.run(child, trees[index]))
                for left in trees[count:]:
                    self.run(tt.Exec.serial(), left)
            case ("limit", most, inner):
                with token.limit(most) as lent:
                    assert lent.budget == min(most, token.budget)
                    self.run(lent, inner)
            case ("reborrow", inner):
                with token.reborrow() as lent:
                    self.run(lent, inner)
            case ("team", inner):
                # Refused when siblings have the members.
                with contextlib.suppress(tt.Refused):
                    token.team(lambda team: team.run(lambda index, size: None))
                self.run(token, inner)
            case ("ranges", length, grain):
                token.for_ranges(length, grain, lambda start, stop: self.count(stop - start))
            case _:
                self.count(1)


def leaves(tree: tuple[Any, ...]) -> int:
    """How many leaves and items a tree has."""
    match tree:
        case ("fork" | "shares", trees):
            return sum(map(leaves, trees))
        case ("limit", _, inner) | ("reborrow" | "team", inner):
            return leaves(inner)
        case ("ranges", length, _):
            return int(length)
        case _:
            return 1


@settings(max_examples=150, deadline=None)
@given(tree=TREES, width=st.integers(1, 5), budget=st.integers(1, 6))
def test_random_trees_run_every_leaf_once_within_their_budgets(tree: Any, width: int, budget: int) -> None:
    with tt.testing.ledger(), tt.Pool(width) as pool:
        visit = Visit()
        visit.run(pool.exec(budget), tree)
        assert visit.leaves == leaves(tree)


#: Loans taken each of the one before: one ending inside the other would need more stack than a thread has.
CHAIN = 200_000


def chain_of(token: Any) -> Any:
    for _ in range(CHAIN):
        token = token.reborrow()
    return token


def test_the_last_reference_to_a_long_chain_of_loans_ends_all_of_them() -> None:
    with tt.Pool(2) as pool, pool.exec() as token:
        last = chain_of(token)
        assert last.map(abs, [-1]) == [1]
        assert repr(last) == '<the loan by Exec.reborrow() from Exec(budget=2, pool "threadteam" of width 2)>'
        del last
        assert token.map(abs, [-1]) == [1]


@pytest.mark.parametrize("ends", ["token", "pool", "loan"])
def test_a_long_chain_of_loans_ends_with_what_it_stems_from(ends: str) -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        second = token.reborrow()
        last = chain_of(second)
        {"token": token, "pool": pool, "loan": second}[ends].close()
        with pytest.raises((tt.TokenExpired, tt.PoolClosed)):
            last.map(abs, [-1])


def test_a_long_chain_of_loans_of_a_team_ends_with_its_block() -> None:
    with tt.Pool(2, acquire_timeout=30.0) as pool:
        with pool.exec().team() as team:
            last = chain_of(team)
            last.run(lambda index, size: None)
        with pytest.raises(tt.TokenExpired):
            last.run(lambda index, size: None)


def test_a_lone_chain_of_loans_ends_with_its_last_token() -> None:
    with tt.Pool(2) as pool:
        last = chain_of(pool.exec())
        assert last.map(abs, [-1]) == [1]
        del last
        pool.into_team().close()  # no token of the pool is left
