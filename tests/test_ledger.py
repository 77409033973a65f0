"""The ledger: no token has more tasks at once than its budget, at every depth."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import threadteam as tt


def spread(token: tt.Exec, depth: int) -> None:
    """Fork into more jobs than the budget, `depth` times."""
    if depth == 0:
        token.for_ranges(6, 1, lambda start, stop: None)
    else:
        token.fork(3, lambda job, child: spread(child, depth - 1))


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_nested_sections_stay_within_the_budget(width: int) -> None:
    with tt.testing.ledger() as seen, tt.Pool(width) as pool:
        spread(pool.exec(), 3)
    (root,) = seen.roots
    assert root.budget == width
    assert 1 <= root.most <= width
    assert root.tasks >= 3 + 9 + 27


def test_each_root_token_is_recorded_for_itself() -> None:
    with tt.testing.ledger() as seen, tt.Pool(3) as pool:
        pool.exec(1).map(abs, [-1])
        pool.exec(2).map(abs, [-1])
    assert [root.budget for root in seen.roots] == [1, 2]


def test_all_participants_of_a_gang_are_tasks_at_once() -> None:
    with tt.testing.ledger() as seen, tt.Pool(3, acquire_timeout=10.0) as pool, pool.exec().team() as team:
        team.run_with(lambda participant: participant.barrier())
    assert seen.most == 3


def test_children_of_a_team_stay_within_their_sizes() -> None:
    with tt.testing.ledger() as seen, tt.Pool(3, acquire_timeout=10.0) as pool, pool.exec().team() as team:
        team.split([2, 1], lambda child, part: part.run(lambda index, size: None))
    assert seen.tasks == 2 + 3


def test_native_bodies_are_tasks_too() -> None:
    body = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(lambda start, stop, data: None)
    with tt.testing.ledger() as seen, tt.Pool(2) as pool:
        pool.exec().for_ranges(4, 4, body)
    assert seen.tasks == 1


def test_a_body_and_its_nested_section_are_one_task_a_thread() -> None:
    with tt.testing.ledger() as seen:
        tt.Exec.serial().fork(2, lambda job, child: child.map(abs, [-1, -2]))
    assert (seen.tasks, seen.most) == (4, 1)


def test_running_tasks_are_visible() -> None:
    live = []
    with tt.testing.ledger() as seen:
        tt.Exec.serial().for_ranges(1, 1, lambda start, stop: live.append(seen.roots[0].live))
    assert (live, seen.roots[0].live) == ([1], 0)


def test_a_token_over_its_budget_is_named() -> None:
    """A body that hands its token to another thread, and works on meanwhile, is two tasks on a budget of one."""

    def body(job: int, child: tt.Exec) -> None:
        other = threading.Thread(target=child.map, args=(abs, [-1]))
        other.start()
        other.join()

    with pytest.raises(AssertionError, match=r"^2 tasks ran at once on Exec.serial\(\)$"), tt.testing.ledger():
        tt.Exec.serial().fork(1, body)


def test_tokens_minted_outside_the_block_are_not_recorded() -> None:
    token = tt.Exec.serial()
    with tt.testing.ledger() as seen:
        token.map(abs, [-1])
    tt.Exec.serial().map(abs, [-1])
    assert seen.roots == []


def test_of_nested_ledgers_the_innermost_records() -> None:
    with tt.testing.ledger() as outer:
        with tt.testing.ledger() as inner:
            tt.Exec.serial().map(abs, [-1])
        tt.Exec.serial().fork(2, lambda job, child: None)
    assert (inner.tasks, outer.tasks) == (1, 2)


def test_the_exception_of_a_block_is_not_hidden() -> None:
    with pytest.raises(KeyError), tt.testing.ledger():
        raise KeyError("mine")


def test_the_fixture_records_the_tokens_of_its_test(threadteam_ledger: tt.testing.Ledger) -> None:
    tt.Exec.serial().map(abs, [-1])
    assert threadteam_ledger.tasks == 1


def test_a_test_over_its_budget_is_failed_by_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_over.py").write_text(
        """
import threading, threadteam as tt

def body(job, child):
    other = threading.Thread(target=child.map, args=(abs, [-1]))
    other.start()
    other.join()

def test_over(threadteam_ledger):
    tt.Exec.serial().fork(1, body)

def test_within(threadteam_ledger):
    tt.Exec.serial().fork(1, lambda job, child: None)
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1
    assert "ERROR test_over.py::test_over - AssertionError: 2 tasks ran at once" in done.stdout
    assert "2 passed, 1 error" in done.stdout
