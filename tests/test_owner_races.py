"""Threads that move, close and drop one pool at once: each call succeeds or is refused, and what is left is usable."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import threadteam as tt
from together import REFUSALS, THREADS, together

ROUNDS = 60

pytestmark = pytest.mark.usefixtures("hasty_threads")


def test_threads_move_one_pool_to_and_fro_while_others_use_it() -> None:
    pool = tt.Pool(2, acquire_timeout=10.0)
    ran = itertools.count()

    def body(start: int, stop: int) -> None:
        for _ in range(start, stop):
            next(ran)

    def use() -> str:
        with pool.exec() as token:
            token.for_ranges(4, 1, body)
        return "section"

    def use_and_drop() -> str:
        token = pool.exec()
        token.for_ranges(4, 1, body)
        del token
        return "section"

    def there_and_back() -> str:
        team = pool.into_team()
        with team.exec() as token:
            token.for_ranges(4, 1, body)
        team.into_pool()
        return "team"

    def there_and_dropped() -> str:
        team = pool.into_team()
        token = team.try_exec()
        del team
        token.for_ranges(4, 1, body)
        return "team"

    counted = together([use, there_and_back, use_and_drop, there_and_dropped], rounds=ROUNDS, ended=str)
    assert sum(counted.values()) == THREADS * ROUNDS * 4
    assert min(counted["section"], counted["team"]) > 0
    assert next(ran) >= 4 * (counted["section"] + counted["team"])
    # Whatever the order was: nobody has a team any more, so the pool has its workers.
    assert pool.exec().map(abs, [-1, -2]) == [1, 2]
    pool.close()
    assert pool.closed


def test_threads_share_one_team_until_one_gives_it_back() -> None:
    for _ in range(20):
        pool = tt.Pool(2, acquire_timeout=10.0)
        team = pool.into_team()

        def lead(team: tt.Team = team) -> str:
            with team.exec() as token:
                return f"led by {token.budget}"

        def give_back(team: tt.Team = team) -> str:
            team.into_pool()
            return "given back"

        counted = together([lead, lead, lead, give_back], rounds=ROUNDS, ended=str)
        assert counted["given back"] == 1
        assert set(counted) <= {"given back", "led by 2", "PoolClosed", "TokenExpired"}
        pool.exec().broadcast(lambda index: None)
        pool.close()


def test_threads_close_a_pool_that_others_use() -> None:
    for _ in range(50):
        pool = tt.Pool(2)
        running = threading.Semaphore(0)

        def body(start: int, stop: int, running: threading.Semaphore = running) -> None:
            running.release()
            running.acquire()

        def use(pool: tt.Pool = pool, body: Callable[[int, int], None] = body) -> str:
            pool.exec().for_ranges(8, 1, body)
            return "section"

        def close(pool: tt.Pool = pool) -> str:
            pool.close()
            return "closed"

        start = threading.Barrier(4)

        def work(step: Callable[[], str], start: threading.Barrier = start) -> str:
            start.wait()
            try:
                return step()
            except REFUSALS as refusal:
                return type(refusal).__name__

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(work, [use, close, use, close]))
        assert results[1] == results[3] == "closed"
        assert {results[0], results[2]} <= {"section", "PoolClosed"}
        with pytest.raises(tt.PoolClosed, match="is closed"):
            pool.exec()


def test_every_thread_that_closes_a_pool_returns_after_its_workers_have_left() -> None:
    left: list[int] = []
    kept = threading.local()

    class Mark:
        def __del__(self) -> None:
            left.append(1)

    for count in range(1, 40):
        pool = tt.Pool(2, acquire_timeout=10.0)

        def mark(index: int) -> None:
            if index:
                kept.mark = Mark()

        pool.exec().broadcast(mark)
        start = threading.Barrier(3)

        def close(pool: tt.Pool = pool, start: threading.Barrier = start) -> int:
            start.wait()
            pool.close()
            return len(left)

        with ThreadPoolExecutor(3) as threads:
            closers = [threads.submit(close) for _ in range(3)]
            assert [closer.result() for closer in closers] == [count] * 3


def test_a_team_that_nobody_bound_gives_its_pool_back() -> None:
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        with pytest.raises(ZeroDivisionError):
            print(pool.into_team(), 1 // 0)
        assert not pool.closed
        pool.exec().broadcast(lambda index: None)
        assert pool.into_team().into_pool() is pool


def test_a_dropped_team_lasts_as_long_as_its_token() -> None:
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        token = pool.into_team().exec()
        assert pool.closed
        with pytest.raises(tt.PoolClosed, match="moved into a Team"):
            pool.exec()
        token.broadcast(lambda index: None)
        token.close()
        assert not pool.closed
        pool.exec().broadcast(lambda index: None)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
def test_an_interrupt_anywhere_around_into_team_leaves_the_pool_usable() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    moved, interrupted = 0, 0
    earlier = signal.signal(signal.SIGALRM, interrupt)
    pool = tt.Pool(2, acquire_timeout=10.0)
    try:
        for delay in itertools.islice(itertools.cycle(range(1, 60)), 600):
            try:
                # Again after a second: an exception that a callback of the collector happened to raise is lost.
                signal.setitimer(signal.ITIMER_REAL, delay * 1e-6, 1.0)
                team = pool.into_team()
                team.into_pool()
                moved += 1
                while True:
                    pass
            except Interrupted:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupted += 1
            team = None
            assert pool.exec().map(abs, [-1]) == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        pool.close()
    assert interrupted == 600
    assert moved < 600 or moved == interrupted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_threads_move_and_close_pools_can_use_and_close_them() -> None:
    pools: list[tt.Pool] = []
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            pool = tt.Pool(2, acquire_timeout=10.0)
            pools[:] = [*pools[-3:], pool]
            pool.exec().map(abs, [-1, -2])
            team = pool.into_team()
            with team.exec() as token:
                with token.external():
                    pass
                token.external().__enter__()  # its end comes with the last reference
            team.into_pool()
            pool.close()

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    statuses = Counter[int]()
    try:
        for _ in range(60):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(10)
                    for pool in pools:
                        with contextlib.suppress(*REFUSALS):
                            pool.exec().map(abs, [-1, -2])
                        pool.close()
                        assert pool.closed
                    status = 0
                finally:
                    os._exit(status)
            statuses[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == {0: 60}
