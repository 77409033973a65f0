"""What ends without a crash or a hang: deep nesting, huge counts, closing from within, forks on workers."""

from __future__ import annotations

from typing import Any

import pytest
import threadteam as tt
from script import run

NESTINGS = {
    "fork": "def nest(*_): pool.exec().fork(2, nest)",
    "for_ranges": "def nest(*_): pool.exec().for_ranges(2, 1, nest)",
    "map": "def nest(*_): return pool.exec().map(nest, [1, 2])",
    "reduce": "def nest(*_): return pool.exec().reduce(2, 1, nest, max, 0)",
    "child": "def nest(_, token): token.fork(1, nest)",
}


@pytest.mark.parametrize("limit", [1000, 1_000_000])
@pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS)
def test_sections_nested_without_end_raise_recursion_error_on_any_thread(nesting: str, limit: int) -> None:
    printed = run(f"""
        import sys
        import threadteam as tt
        sys.setrecursionlimit({limit})
        pool = tt.Pool(2)
        {nesting}
        try:
            pool.exec().fork(2, nest)
        except RecursionError:
            print("ended")
        print(pool.exec().map(abs, [-1, -2]))
    """)
    assert printed.split("\n")[:2] == ["ended", "[1, 2]"]


def test_team_sections_nested_without_end_raise_recursion_error() -> None:
    printed = run("""
        import threadteam as tt
        def nest(_, team):
            team.fork(1, nest)
        with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
            try:
                team.fork(2, nest)
            except RecursionError:
                print("ended")
    """)
    assert printed == "ended\n"


def test_a_stack_too_small_for_python_or_too_large_for_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stack_size must be at least 524288 bytes for Python bodies, got 4096"):
        tt.Pool(2, stack_size=4096)
    with pytest.raises(ValueError, match=r"stack_size must be at most 1099511627776 bytes, got 1099511627777"):
        tt.Pool(2, stack_size=(1 << 40) + 1)


@pytest.mark.parametrize("owner", ["pool", "team"])
def test_closing_from_a_function_that_holds_an_entry_raises_instead_of_waiting_for_itself(owner: str) -> None:
    printed = run(f"""
        import threadteam as tt
        owner = tt.Pool(2) if "{owner}" == "pool" else tt.Pool(2).into_team()
        calls = [
            lambda token: token.external(lambda width: owner.close()),
            lambda token: token.reduce(4, 1, lambda a, b: 0, lambda a, b: owner.close(), 0),
        ]
        for call in calls:
            token = owner.exec()
            try:
                call(token)
            except tt.ThreadteamError as error:
                print("from inside a body" in str(error))
            token.close()
        owner.close()
    """)
    assert printed == "True\nTrue\n"


def test_a_failure_among_very_many_jobs_ends_the_section() -> None:
    printed = run("""
        import threadteam as tt
        def fail(*_):
            raise ZeroDivisionError
        with tt.Pool(2, acquire_timeout=10.0) as pool:
            for jobs in (2**40, 2**63 - 1):
                try:
                    pool.exec().fork(jobs, fail)
                except ZeroDivisionError:
                    print("fork")
                with pool.exec().team() as team:
                    try:
                        team.fork(jobs, fail)
                    except ZeroDivisionError:
                        print("team")
    """)
    assert printed == "fork\nteam\nfork\nteam\n"


def test_more_jobs_than_one_wave_each_run_once() -> None:
    ctypes = pytest.importorskip("ctypes")
    seen = bytearray((2 << 20) + 7)

    def note(job: int, _: Any) -> None:
        seen[job] += 1

    body = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(note)
    with tt.Pool(2) as pool:
        pool.exec().fork(len(seen), body)
    assert set(seen) == {1}


def test_what_an_index_method_raises_reaches_the_caller() -> None:
    class Index:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tt.Exec.serial().for_ranges(Index(), 1, print)


def test_a_fork_on_a_worker_leaves_a_child_that_ends_with_the_body() -> None:
    printed = run("""
        import os, threading
        import threadteam as tt
        leader = threading.get_ident()
        def body(index):
            if threading.get_ident() != leader:
                child = os.fork()
                if child:
                    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with tt.Pool(2, acquire_timeout=10.0) as pool:
            pool.exec().broadcast(body)
    """)
    assert printed == "0\n"


def test_a_fork_inside_a_team_prints_nothing_of_the_native_code() -> None:
    printed = run("""
        import os, warnings
        import threadteam as tt
        os.dup2(1, 2)
        warnings.simplefilter("ignore", DeprecationWarning)  # the interpreter's own: there are threads
        with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
            child = os.fork()
            if child == 0:
                try:
                    team.run(lambda index, size: None)
                except tt.TokenExpired:
                    os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert printed == "7\n"
