"""What users of thread pools report about the life of a process, as properties."""

import sys

import pytest
import threadteam as tt
from script import run

PATIENCE = 30.0
"""Seconds after which something that should happen counts as missing."""


def test_property_4_refused_threads_are_an_exception_that_says_how_many_were_reached() -> None:
    # A limit on the address space refuses the stacks of threads; a limit on processes does not bind the superuser.
    out = run("""
        import resource, threadteam as tt
        pool = tt.Pool(5, stack_size=1 << 30)
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (9 << 28), resource.RLIM_INFINITY))
        try:
            pool.exec().broadcast(lambda index: None)
        except tt.ThreadStartError as error:
            print(error.started, error.wanted)
            print(f"{error.started} of {error.wanted}" in str(error))
    """)
    assert out.splitlines() == ["2 4", "True"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("before", ["a section", "a team", "nothing"])
def test_property_24_a_forked_child_works_at_full_width(before: str) -> None:
    use = {
        "a section": "pool.exec().broadcast(lambda index: None)",
        "a team": "pool.exec().team(lambda team: team.run(lambda index, size: None))",
        "nothing": "pass",
    }[before]
    out = run(f"""
        import os, threading, threadteam as tt
        pool = tt.Pool(3, acquire_timeout=30.0)
        {use}

        def meet():
            meeting = threading.Barrier(3)
            threads = set()
            def body(index):
                meeting.wait(30)
                threads.add(threading.get_ident())
            pool.exec().broadcast(body)
            return len(threads)

        child = os.fork()
        if child == 0:
            os._exit(meet())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), meet())
    """)
    assert out == "3 3\n"


TASKS = {
    "tasks of Python": "token.map(lambda item: time.sleep(0.001), range(100_000))",
    "tasks that never end by themselves": "token.for_ranges(8, 1, lambda start, stop: forever())",
    "tasks of native code": "token.for_ranges(10_000, 1, tt.native(usleep, data=None, signature='range'))",
}


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("end", ["the end of the program", "sys.exit(0)", "os._exit(0)"])
def test_property_25_a_process_with_queued_and_running_tasks_ends_with_status_0(tasks: str, end: str) -> None:
    last = "pass" if end.startswith("the") else end
    for _ in range(3):
        run(f"""
            import ctypes, os, sys, threading, time, threadteam as tt
            # A body of two numbers that sleeps for the first of them, in microseconds.
            usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
            token = tt.Pool(2).exec()

            def forever():
                begun.set()
                while True:
                    time.sleep(0.01)

            begun = threading.Event()
            def section():
                begun.set()
                {TASKS[tasks]}
            threading.Thread(target=section, daemon=True).start()
            begun.wait()
            {last}
        """)


def test_property_26_an_interrupt_drops_the_queue_of_a_long_map_and_leaves_the_pool_usable() -> None:
    out = run("""
        import os, signal, threadteam as tt
        pool = tt.Pool(2, acquire_timeout=30.0)
        token = pool.exec()
        ran = []
        def task(item):
            ran.append(item)
            if len(ran) == 100:
                os.kill(os.getpid(), signal.SIGINT)
        try:
            token.map(task, range(10_000_000))
        except KeyboardInterrupt:
            print("interrupted", len(ran) < 10_000_000)
        print(token.map(abs, [-1, -2]))
        pool.exec().broadcast(lambda index: None)
    """)
    assert out.splitlines() == ["interrupted True", "[1, 2]"]


class Wrong(Exception):
    """What a chunk raises."""


@pytest.mark.parametrize("chunk", [0, 3, 7])
def test_property_27_an_exception_in_one_chunk_reaches_the_caller_as_itself_and_slots_return(chunk: int) -> None:
    wrong = Wrong(chunk)

    def body(start: int, stop: int) -> None:
        if start <= chunk < stop:
            raise wrong

    with tt.Pool(3, acquire_timeout=PATIENCE) as pool, pool.exec() as token:
        for _ in range(200):
            with pytest.raises(Wrong) as caught:
                token.for_ranges(8, 1, body)
            assert caught.value is wrong
            # Refused if a slot were lost.
            token.broadcast(lambda index: None)
        assert token.budget == 3
