"""The process of one system: reads a scenario a line, answers with the times of its sections."""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import ExitStack

from systems import SYSTEMS
from twin import Twin
from work import Bodies, Section, Unavailable, Work, steps_lasting

WARM_UP = 0.02
"""Seconds of sections before the first that counts."""


def serve(name: str, threads: int) -> None:
    """Answer every line of standard input until it ends."""
    with ExitStack() as stack:
        try:
            bodies = Bodies()
            work = Work.of(threads)
            section = stack.enter_context(SYSTEMS[name].open(bodies, work, threads))
            (check_tasks if SYSTEMS[name].tasks else check)(section, work)
        except Unavailable as error:
            answer({"unavailable": str(error)})
            return
        answer({"ready": name})
        stamp = stamp_ns()
        steps: dict[float, int] = {}
        for line in sys.stdin:
            request = json.loads(line)
            duration = request["body_ns"]
            work.tasks = request["tasks"]
            if duration not in steps:
                steps[duration] = steps_lasting(bodies, duration)
            work.set_steps(steps[duration])
            body_ns = body_time(bodies, work) - stamp if duration else 0.0
            wanted = request["sections"], request["seconds"], request["gap_ns"], request["batch"]
            if isinstance(section, Twin):
                times = section.sample(*wanted, warm_up=WARM_UP)
            else:
                nothing = stamp if request["batch"] == 1 else batch_stamp_ns(request["batch"])
                times = [elapsed - nothing for elapsed in sample(section, *wanted)]
            each = max(1, work.tasks) * request["batch"]
            answer({"times": [elapsed / each for elapsed in times], "body_ns": body_ns})


def answer(message: dict) -> None:
    print(json.dumps(message), flush=True)


def check(section: Section, work: Work) -> None:
    """Refuse a system that does not run every part, or does not wait for it."""
    for steps in (0, 1, 100_000):
        work.set_steps(steps)
        work.forget()
        section()
        missing = [part for part, result in enumerate(work.results()) if result == 0]
        if missing:
            raise Unavailable(f"after a section of {work.parts} parts these had not run: {missing}")


def check_tasks(section: Section, work: Work) -> None:
    """Refuse a system that loses a task or changes their order."""
    for work.tasks in (0, 1, 100):
        if section() != list(range(work.tasks)):
            raise Unavailable(f"the results of {work.tasks} tasks are wrong")


def stamp_ns() -> float:
    """What timing nothing gives: the median."""

    def nothing() -> None:
        pass

    return sorted(sample(nothing, 2001, 1.0, 0))[1000]


def batch_stamp_ns(batch: int) -> float:
    """What timing nothing so often gives: the median."""

    def nothing() -> None:
        pass

    return sorted(sample(nothing, 501, 1.0, 0, batch))[250]


def body_time(bodies: Bodies, work: Work) -> float:
    """The median time of one body on this thread, as seen from Python."""
    call, address = bodies.call_ranges, work.address
    return sorted(sample(lambda: call(0, 1, address), 41, 1.0, 0))[20]


def sample(section: Section, sections: int, seconds: float, gap_ns: int, batch: int = 1) -> list[int]:
    """Time up to so many sections for at most so long; before each the caller is busy for ``gap_ns``.

    They are timed one by one, or ``batch`` at a time without a gap.
    """
    clock = time.perf_counter_ns
    times: list[int] = []
    # The collector would stop some section at random for longer than it lasts.
    gc.collect()
    gc.disable()
    try:
        warm = clock() + int(WARM_UP * 1e9)
        while clock() < warm:
            busy(clock, gap_ns)
            section()
        end = clock() + int(seconds * 1e9)
        while len(times) < sections and clock() < end:
            busy(clock, gap_ns)
            if batch == 1:
                start = clock()
                section()
                times.append(clock() - start)
            else:
                start = clock()
                for _ in range(batch):
                    section()
                times.append(clock() - start)
    finally:
        gc.enable()
    return times


def busy(clock, gap_ns: int) -> None:
    """Compute for so long."""
    if gap_ns:
        end = clock() + gap_ns
        while clock() < end:
            pass
