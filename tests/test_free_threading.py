"""Real threads on one object of each kind at once: no call relies on the interpreter lock, where there is one."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import queue
import re
import sysconfig
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
import threadteam as tt
from script import run
from threadteam import _native, calibrated
from together import THREADS, together

ROOT = Path(__file__).parent.parent
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
ROUNDS = 40

pytestmark = pytest.mark.usefixtures("hasty_threads")


# -- what the module says of itself ------------------------------------------------------------------------------------


def test_importing_every_part_leaves_a_free_threaded_interpreter_without_a_lock() -> None:
    printed = run(
        """
        import sys
        import threadteam, threadteam.interop, threadteam.testing, threadteam.timeline, threadteam.perfetto
        import threadteam.calibrate, threadteam.openmp, threadteam.pytest_plugin
        with threadteam.Pool(2) as pool:
            pool.exec().map(abs, [-1, -2])
        print(getattr(sys, "_is_gil_enabled", lambda: True)())
        """,
        silent=True,
    )
    assert printed.strip() == str(not FREE_THREADED)


def test_no_class_of_the_extension_has_a_borrow_that_another_thread_could_find_taken() -> None:
    classes = [
        (file.name, options)
        for file in sorted((ROOT / "crates" / "python" / "src").rglob("*.rs"))
        for options in re.findall(r"#\[pyclass\(([^)]*)\)\]", file.read_text())
    ]
    assert len(classes) > 15
    assert [name for name, options in classes if "frozen" not in options or "unsendable" in options] == []


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_used_by_several_threads_runs_one_entry_at_a_time() -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        inside, most = itertools.count(), []
        sections = []

        def section() -> None:
            seen = [0] * 8

            def body(start: int, stop: int) -> None:
                for index in range(start, stop):
                    seen[index] += 1

            token.for_ranges(8, 1, body)
            sections.append(seen)

        def one_task() -> None:
            def body(job: int, child: tt.Exec) -> None:
                most.append(next(inside))

            token.fork(1, body)

        def lend() -> None:
            with token.limit(1) as lent:
                assert lent.map(abs, [-3]) == [3]

        def look() -> None:
            token.pays(1.0)
            token.can_broadcast()
            repr(token)

        counted = together([section, one_task, lend, look], threads=6, rounds=ROUNDS)
        assert set(counted) <= {"done", "TokenBusy", "TokenLent"}
        assert sections
        assert all(seen == [1] * 8 for seen in sections)
        assert most == sorted(most)
        assert token.map(abs, [-1, -2]) == [1, 2]


def test_a_token_closed_while_other_threads_use_it_ends_once() -> None:
    with tt.Pool(2) as pool:
        for _ in range(100):
            token = pool.exec()
            lent: list[tt.Exec] = []

            def lend(token: tt.Exec = token, lent: list[tt.Exec] = lent) -> None:
                lent.append(token.reborrow())
                lent[-1].map(abs, [-1])

            def use(token: tt.Exec = token) -> None:
                token.map(abs, [-1])

            counted = together([token.close, use, lend, lambda token=token: token.external(int)], rounds=2)
            assert set(counted) <= {"done", "TokenBusy", "TokenLent", "TokenExpired"}
            token.close()
            with pytest.raises(tt.TokenExpired):
                use()


def test_tokens_that_other_threads_drop_give_back_what_they_held() -> None:
    dropped: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def drop() -> None:
        while dropped.get() is not None:
            pass  # the reference of the loop before was the last one

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        kept = pool.exec()
        for number in range(300):
            root = pool.exec()
            dropped.put(root.limit(1))
            dropped.put(root)
            dropped.put(pool.exec().external())
            del root
            if number % 20 == 0:
                # The next one waits for the member of this one.
                dropped.put(pool.exec().team().__enter__())
        for _ in threads:
            dropped.put(None)
        for thread in threads:
            thread.join()
        gc.collect()
        # A token of which a loan was alive would be lent still, and its pool could not move.
        assert kept.map(abs, [-1]) == [1]
        pool.into_team().into_pool()
        pool.exec().broadcast(lambda index: None)


def test_a_team_is_free_for_the_thread_that_waits_when_another_drops_its_token() -> None:
    with tt.Pool(2, acquire_timeout=10.0).into_team() as team:
        for _ in range(3):
            handed: queue.SimpleQueue[Any] = queue.SimpleQueue()
            handed.put(team.exec())
            # Taken and dropped there; the thread that made it waits here.
            thread = threading.Thread(target=handed.get)
            thread.start()
            thread.join()
            with team.exec() as token:
                token.broadcast(lambda index: None)


def test_a_team_is_free_for_its_next_token_when_a_worker_made_the_last_one() -> None:
    with tt.Pool(2, acquire_timeout=10.0).into_team() as team, tt.Pool(2, acquire_timeout=10.0) as pool:
        made: list[tt.Exec] = []

        def body(index: int) -> None:
            if index == 1:
                made.append(team.exec())

        pool.exec().broadcast(body)
        assert made[0].carries_team
        made.clear()  # on this thread, while the one that made it sleeps
        with team.exec() as token:
            token.broadcast(lambda index: None)


# -- pools -------------------------------------------------------------------------------------------------------------


def test_threads_use_every_part_of_one_pool_at_once() -> None:
    pool = tt.Pool(2, acquire_timeout=10.0)
    ran = itertools.count()

    def count(*_: object) -> None:
        next(ran)

    def gang() -> None:
        with pool.exec().team() as team:
            team.run_with(lambda participant: participant.barrier())

    def fail() -> None:
        with contextlib.suppress(ZeroDivisionError):
            pool.exec().map(lambda item: 1 // item, [1, 0, 1])

    def lend_members() -> None:
        with pool.exec().team() as team, team.external():
            pool.exec().map(abs, [-1])

    steps = [
        lambda: pool.exec().for_ranges(4, 1, count),
        lambda: pool.exec().fork(3, count),
        lambda: pool.exec().reduce(6, 2, lambda start, stop: stop - start, int.__add__, 0),
        lambda: pool.exec().broadcast(count),
        gang,
        fail,
        lend_members,
        lambda: pool.exec().external(int),
        lambda: (pool.stats(), pool.resident_members, repr(pool), pool.closed),
        pool.release_idle,
        gc.collect,
        tt.interop.widths,
        lambda: pool.into_team().into_pool(),
    ]
    counted = together(steps, rounds=10)
    assert sum(counted.values()) == THREADS * 10 * len(steps)
    assert set(counted) <= {"done", "PoolClosed", "IntoTeamError", "Refused", "TokenExpired"}
    gc.collect()
    with tt.testing.ledger() as ledger:
        assert pool.exec().map(abs, [-1, -2]) == [1, 2]
    assert ledger.roots[0].live == 0
    pool.close()


def test_sections_whose_pool_is_closed_meanwhile_end_or_are_refused() -> None:
    def native(pool: tt.Pool, body: tt.NativeBody) -> None:
        pool.exec().for_ranges(64, 1, body)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    body = tt.native(kind(lambda start, stop, data: None), np.zeros(1, np.int64))
    for number in range(60):
        pool = tt.Pool(2, acquire_timeout=10.0)
        steps: list[Callable[[], object]] = [
            lambda pool=pool: native(pool, body),
            lambda pool=pool: pool.exec().map(abs, range(-8, 0)),
            lambda pool=pool: pool.exec().team(lambda team: team.run(lambda index, size: None)),
            pool.close,
        ]
        counted = together(steps[number % 4 :] + steps[: number % 4], rounds=1)
        assert set(counted) <= {"done", "PoolClosed", "TokenExpired", "Refused"}
        assert pool.closed


def test_pools_are_made_and_dropped_on_all_threads_at_once() -> None:
    def use_and_drop() -> None:
        pool = tt.Pool(2)
        assert pool.exec().map(abs, [-1, -2]) == [1, 2]

    def cycle() -> None:
        pools: list[Any] = []

        def hook(index: int) -> None:
            pools.append(index)

        # A cycle through the hook, which only the collector ends.
        pools.append(tt.Pool(2, acquire_timeout=10.0, on_start=hook))
        pools[0].exec().broadcast(lambda index: None)

    def close() -> None:
        with tt.Pool(2, acquire_timeout=10.0) as pool:
            pool.exec().broadcast(lambda index: None)

    counted = together([use_and_drop, cycle, close, gc.collect], rounds=15)
    assert counted == {"done": THREADS * 15 * 4}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_threads_use_one_pool_has_a_whole_one() -> None:
    stop = threading.Event()
    with tt.Pool(2, acquire_timeout=10.0) as pool:

        def churn() -> None:
            kept: list[object] = []
            while not stop.is_set():
                kept = [pool.exec().map(lambda item: [item], range(4)), pool.exec().limit(1), tt.Pool(1)]
                with contextlib.suppress(tt.Refused):
                    pool.exec().team(lambda team: team.run_with(lambda participant: participant.barrier()))
                with tt.testing.ledger():
                    pool.exec().external(int)
            kept.clear()

        threads = [threading.Thread(target=churn) for _ in range(3)]
        for thread in threads:
            thread.start()
        statuses = Counter[int]()
        try:
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        assert pool.exec().map(abs, [-1, -2]) == [1, 2]
                        gc.collect()
                        pool.exec().broadcast(lambda index: None)
                        status = 0
                    finally:
                        os._exit(status)
                statuses[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert statuses == {0: 20}


# -- what is handed in -------------------------------------------------------------------------------------------------


def test_lists_that_other_threads_change_are_read_as_they_were_at_some_moment() -> None:
    items = [1] * 50
    shares = [1, 1]
    anchors = [(2, 1e-6), (4, 2e-6)]
    stop = threading.Event()

    def change() -> None:
        for turn in itertools.cycle(range(50)):
            if stop.is_set():
                return
            items[:] = [1] * turn
            items.append(1)
            shares[:] = [1] * (turn % 3)
            anchors[:] = [(2, 1e-6 * (turn + 1))] * (turn % 2) + [(4, 2e-6)]

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with tt.Pool(2) as pool:

            def each() -> None:
                assert set(pool.exec().map(lambda item: item + 1, items)) <= {2}

            def sized() -> None:
                with contextlib.suppress(ValueError):
                    pool.exec().fork_sized(shares, lambda job, child: None)

            def costs() -> None:
                with contextlib.suppress(ValueError):
                    tt.WidthCosts.from_anchors(anchors)

            def split() -> None:
                with contextlib.suppress(tt.SplitError), pool.exec().team() as team:
                    team.split(shares, lambda child, part: None)

            assert set(together([each, sized, costs, split], rounds=ROUNDS)) <= {"done", "Refused"}
    finally:
        stop.set()
        changer.join()


def test_a_program_whose_arguments_other_threads_change_reads_whole_arrays() -> None:
    ports = ("input", 0, 0, "float32", (64,), (1,)), ("output", 0, 0, "float32", (64,), (1,))
    program = _native.Program(
        list(ports),
        [],
        [("x", "float32", (64,))],
        [("y", "float32", (64,))],
        [("unary", [0], [1], {"op": "neg"}, "")],
        0,
    )
    x = np.ones(64, np.float32)
    inputs: list[Any] = [x]
    stop = threading.Event()

    def change() -> None:
        for turn in itertools.count():
            if stop.is_set():
                return
            x[:] = turn % 7
            inputs[:] = [np.full(64, turn % 7, np.float32)] * (turn % 3)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with tt.Pool(2) as pool:

            def read_list() -> None:
                with contextlib.suppress(ValueError):  # of another length at that moment
                    (y,) = program.run(inputs, on=pool)
                    assert len(set(y.tolist())) == 1

            def read_array() -> None:
                (y,) = program.run([x], on=pool)
                assert set(y.tolist()) <= {-float(value) for value in range(7)}

            def look() -> None:
                program.run([np.ones(64, np.float32)], profile=True)
                assert len(program.profile()) == len(program.spans()) == len(program.steps()) == 1
                program.release_idle()

            assert together([read_list, read_array, look], rounds=ROUNDS) == {"done": THREADS * ROUNDS * 3}
    finally:
        stop.set()
        changer.join()


# -- the rest of the package -------------------------------------------------------------------------------------------


def test_ledgers_and_traces_are_opened_and_closed_while_threads_run_sections(tmp_path: Path) -> None:
    with tt.Pool(2, acquire_timeout=10.0) as pool:

        def section() -> None:
            pool.exec().fork(3, lambda job, child: child.for_ranges(2, 1, lambda start, stop: None))

        def ledger() -> None:
            # Of threads at once, the last to open one records for all: what counts is that no token exceeds its budget.
            with tt.testing.ledger() as seen:
                section()
            assert all(entry.most <= entry.budget for entry in seen.roots)

        def trace() -> None:
            with tt.trace(capacity=64) as recorded:
                section()
            assert recorded.overwritten >= 0

        counted = together([section, ledger, trace, pool.stats], rounds=ROUNDS)
        assert counted == {"done": THREADS * ROUNDS * 4}
        with tt.testing.ledger() as seen:
            section()
        assert seen.roots[0].tasks == 6
        with tt.trace() as recorded:
            # A gang: a worker that lost its CPU a moment ago is left out of a fork, which then begins no share.
            pool.exec().broadcast(lambda index: None)
        assert {kind for _, _, kind, _ in recorded.events} >= {"share_begin", "share_end"}


def test_widths_are_what_they_were_when_scopes_of_many_threads_have_ended() -> None:
    with threadpoolctl.threadpool_limits(3, user_api="blas"), tt.Pool(2) as pool:
        np.dot(np.ones(1), np.ones(1))

        def widths() -> list[int]:
            return [row.width for row in tt.interop.widths() if row.scope == "process" and row.limited_by]

        before = widths()

        def scope() -> None:
            with pool.exec().external() as width:
                assert 1 <= width <= 2

        def dropped() -> None:
            pool.exec(1).external().__enter__()

        counted = together([scope, dropped, lambda: pool.exec().external(int), tt.interop.widths, gc.collect], rounds=6)
        assert counted == {"done": THREADS * 6 * 5}
        gc.collect()
        with pool.exec().external():
            pass
        assert widths() == before


def test_the_row_of_this_machine_is_read_by_one_of_the_threads_that_ask_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadteam.calibrated.cache_directory", lambda: tmp_path)
    reads = itertools.count()
    kept = calibrated.kept

    def counting() -> calibrated.Kept:
        next(reads)
        return calibrated.Kept(tmp_path, kept().costs, "it is a test")

    monkeypatch.setattr("threadteam.calibrated.kept", counting)
    calibrated.forget()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            together([calibrated.host_row, lambda: tt.Pool(1).close()], threads=8, rounds=2)
    finally:
        calibrated.forget()
    assert next(reads) == 1


LAZY = """
import sys, threading
import threadteam as tt
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
failures = []
def use(number):
    try:
        start.wait()
        parts = [
            lambda: tt.testing.workers(tt.Pool(1)),
            lambda: tt.interop.widths(),
            lambda: tt.Exec.serial().external(int),
            lambda: tt.Pool(),
            lambda: tt.DispatchCosts.host_default(),
            lambda: tt.trace().__enter__().timeline(),
            lambda: tt.Exec.serial().map(abs, [-1]),
            lambda: tt.native(lambda start, stop: None),
        ]
        for part in parts[number:] + parts[:number]:
            try:
                part()
            except TypeError:
                pass
    except BaseException as failure:
        failures.append(failure)
threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    raise failures[0]
print("well")
"""


@pytest.mark.parametrize("attempt", range(5))
def test_parts_that_are_imported_at_first_use_are_imported_by_many_threads_at_once(attempt: int) -> None:
    assert run(LAZY) == "well\n"


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Any:
    """`y = softmax(a w) + b`, of which the first dimension is free."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["p"]),
        helper.make_node("Softmax", ["p"], ["s"], axis=-1),
        helper.make_node("Add", ["s", "b"], ["y"]),
    ]
    shape = helper.make_tensor_value_info
    weights = [
        onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"),
        onnx.numpy_helper.from_array(np.ones(8, np.float32), "b"),
    ]
    graph = helper.make_graph(nodes, "g", [shape("a", 1, ["n", 8])], [shape("y", 1, ["n", 8])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def expected(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shares: np.ndarray[Any, Any] = np.exp(a) / np.exp(a).sum(1, keepdims=True) + 1
    return shares


def test_one_session_runs_from_eight_threads_and_is_closed_meanwhile(model: Any) -> None:
    for round_ in range(8):
        session = tt.onnx.InferenceSession(model)
        started = threading.Barrier(9)
        ended = Counter[str]()

        def work(
            seed: int,
            session: Any = session,
            started: threading.Barrier = started,
            ended: Counter[str] = ended,
            round_: int = round_,
        ) -> Counter[str]:
            random = np.random.default_rng(seed)
            ended = Counter[str]()
            started.wait()
            for _ in range(30):
                a = random.standard_normal((random.integers(1, 20), 8)).astype(np.float32)
                try:
                    (y,) = session.run(None, {"a": a})
                except tt.onnx.Fail:
                    ended["closed"] += 1
                    continue
                assert np.allclose(y, expected(a), atol=1e-5)
                ended["ran"] += 1
                if round_ % 2 and ended["ran"] == 5 and seed == 0:
                    session.close()
            return ended

        with ThreadPoolExecutor(8) as threads:
            working = [threads.submit(work, seed) for seed in range(8)]
            started.wait()
            session.close() if round_ % 4 == 0 else None
            total = sum((one.result() for one in working), Counter[str]())
        assert sum(total.values()) == 240
        session.close()
        with pytest.raises(tt.onnx.Fail, match="closed"):
            session.run(None, {"a": np.ones((1, 8), np.float32)})


def test_sessions_are_made_run_and_dropped_on_all_threads_at_once(model: Any) -> None:
    encoded = model.SerializeToString()
    a = np.ones((3, 8), np.float32)

    def width(number: int) -> Any:
        options = tt.onnx.SessionOptions()
        options.intra_op_num_threads = number
        return options

    def run_and_drop(options: Any) -> None:
        session = tt.onnx.InferenceSession(encoded, options)
        assert np.allclose(session.run(None, {"a": a})[0], expected(a), atol=1e-5)

    def run_and_close(options: Any) -> None:
        with tt.onnx.InferenceSession(encoded, options) as session:
            session.run(None, {"a": a})
            str(session.plan(n=4))

    before = len(tt.onnx.registry().executors())
    steps = [lambda n=n, step=step: step(width(n)) for n in (1, 2, 3) for step in (run_and_drop, run_and_close)]
    counted = together([*steps, gc.collect, lambda: str(tt.onnx.registry())], rounds=4)
    assert counted == {"done": THREADS * 4 * 8}
    gc.collect()
    assert len(tt.onnx.registry().executors()) == before
