"""The controller of a comparison: checks every arm's results, then gives the arms turns under the clock."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np

from threadteam.compare.arm import Arm, ArmFailed
from threadteam.compare.case import Array, Case, largest_difference
from threadteam.compare.probe import round_trip
from threadteam.compare.results import ArmResult, CaseResult, Comparison
from threadteam.compare.systems import SYSTEMS, system
from threadteam.compare.worker import Skipped
from threadteam.cpus import cpu_budget

__all__ = ["Settings", "compare", "default_threads"]

#: The systems whose results must be the same bits at every width: they share our kernels.
_OURS = ("threadteam", "openmp")
#: The reference is the first of these that has a result: implementations that share no code with ours.
_REFERENCES = ("onnxruntime", "numpy")
#: Seconds of runs in one turn, and of untimed runs before them: long enough for workers to be awake and clocks up.
_TURN = 0.04
_WARM_UP = 0.006
_MOST_RUNS = 2000
_DECOMPOSED_RUNS = 50
_DECOMPOSED_SECONDS = 0.2


@dataclass(frozen=True)
class Settings:
    """How to compare.

    Parameters
    ----------
    systems : sequence of str
        The execution systems.
    threads : sequence of int
        The widths of each of them.
    repeat : int
        Turns per arm and case; the arms take turns in a rotating order.
    """

    systems: Sequence[str] = tuple(SYSTEMS)
    threads: Sequence[int] = (1,)
    repeat: int = 5

    @classmethod
    def parse(cls, systems: str = "", threads: str = "", repeat: int = 5) -> Settings:
        """Settings from comma-separated lists; an empty one means the default.

        Examples
        --------
        >>> Settings.parse(systems="numpy", threads="1, 2").threads
        (1, 2)
        """
        names = tuple(name.strip() for name in systems.split(",") if name.strip()) or tuple(SYSTEMS)
        for name in names:
            system(name)
        widths = []
        most = 16 * cpu_budget().count
        for word in filter(None, (word.strip() for word in threads.split(","))):
            # Every system starts what it is given: tens of thousands of threads stop a machine for minutes.
            if not word.isdecimal() or len(word) > 9 or not 1 <= int(word) <= most:
                raise ValueError(
                    f"threads are whole numbers from 1 to {most} (16 for each CPU), separated by commas, not {word!r}"
                )
            widths.append(int(word))
        return cls(names, tuple(dict.fromkeys(widths)) or default_threads(), repeat)


def default_threads() -> tuple[int, ...]:
    """One thread, and as many as this process may use."""
    return tuple(sorted({1, cpu_budget().count}))


def compare(
    cases: Sequence[Case],
    settings: Settings,
    *,
    on_step: Callable[[str], None] = lambda _: None,
    on_case: Callable[[CaseResult], None] = lambda _: None,
) -> Comparison:
    """Compare execution systems on `cases`.

    Parameters
    ----------
    cases : sequence of Case
        The models with their inputs.
    settings : Settings
        Systems, widths and turns.
    on_step : callable
        Told what is being done, `repeat` + 2 times a case.
    on_case : callable
        Given each case's result as soon as it is complete.

    Returns
    -------
    Comparison
        The figures; systems that are missing are named in `skipped`.

    Examples
    --------
    >>> from threadteam.compare import Settings, compare, select
    >>> cases, _ = select(["gsg_1_64_64_64"])
    >>> report = compare(cases, Settings(systems=["numpy"], repeat=1))
    >>> [arm.problem for arm in report.cases[0].arms]
    [None]
    """
    report = Comparison(_machine(), _describe(settings))
    with ExitStack() as stack:
        arms = _open_arms(settings, report, stack)
        for case in cases:
            result = _compare_case(case, arms, settings.repeat, on_step)
            report.cases.append(result)
            on_case(result)
    return report


def _open_arms(settings: Settings, report: Comparison, stack: ExitStack) -> list[Arm]:
    """Start a process for each arm; a system that cannot be had is noted once."""
    started = []
    for name in settings.systems:
        for threads in settings.threads:
            arm = Arm(name, threads)
            stack.callback(arm.close)
            started.append(arm)
    usable = []
    for arm in started:
        try:
            answer = arm.open()
        except ArmFailed as error:
            answer = Skipped(str(error))
        if isinstance(answer, Skipped):
            report.skipped[arm.name] = answer.reason
        else:
            report.versions[arm.name] = answer.version
            usable.append(arm)
    return usable


def _compare_case(case: Case, arms: list[Arm], repeat: int, on_step: Callable[[str], None]) -> CaseResult:
    results = [ArmResult(arm.name, arm.threads) for arm in arms]
    result = CaseResult(case.name, case.title, results, round_trip())
    on_step(f"{case.name}: checking the results against each other")
    outputs = [_first_run(arm, case, row) for arm, row in zip(arms, results, strict=True)]
    result.same_bits = _check(case, results, outputs)
    timed = [(arm, row) for arm, row in zip(arms, results, strict=True) if row.problem is None]
    for turn in range(repeat):
        on_step(f"{case.name}: turn {turn + 1} of {repeat}")
        # Another arm begins each time, so that none always follows the same neighbour.
        first = turn % max(1, len(timed))
        for arm, row in timed[first:] + timed[:first]:
            _guard(row, lambda arm=arm, row=row: _turn(arm, row))  # type: ignore[misc]
    on_step(f"{case.name}: where the time goes")
    for arm, row in timed:
        _guard(row, lambda arm=arm, row=row: _decompose(arm, row))  # type: ignore[misc]
        with suppress(ArmFailed):
            arm.unload()
    return result


def _first_run(arm: Arm, case: Case, row: ArmResult) -> list[Array] | None:
    try:
        answer = arm.load(case)
    except ArmFailed as error:
        row.problem = f"failed: {error}"
        return None
    finally:
        arm.settle()
    if isinstance(answer, Skipped):
        row.problem = f"skipped: {answer.reason}"
        return None
    row.load, row.first_run, row.threads_found = answer.load_seconds, answer.first_seconds, answer.threads
    return answer.outputs


def _check(case: Case, rows: list[ArmResult], outputs: list[list[Array] | None]) -> bool | None:
    """Mark the rows whose result is wrong; return whether our systems gave the same bits at every width."""
    have = {row.system: output for row, output in reversed(list(zip(rows, outputs, strict=True))) if output is not None}
    reference = next((name for name in (*_REFERENCES, *have) if name in have), None)
    if reference is None:
        return None
    for row, output in zip(rows, outputs, strict=True):
        if output is None:
            continue
        row.difference = largest_difference(output, have[reference])
        if row.difference > case.tolerance:
            row.problem = (
                f"wrong result: differs from {reference} by {row.difference:.1e} of the largest magnitude "
                f"(allowed {case.tolerance:.0e})"
            )
    ours = [output for row, output in zip(rows, outputs, strict=True) if output is not None and row.system in _OURS]
    if len(ours) < 2:
        return None
    return all(_same_bits(output, ours[0]) for output in ours)


def _same_bits(one: list[Array], other: list[Array]) -> bool:
    return len(one) == len(other) and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        for a, b in zip(one, other, strict=True)
    )


def _turn(arm: Arm, row: ArmResult) -> None:
    """One turn: as many runs as its time allows, by the arm's own speed so far."""
    # Before the first turn the third run says it: the first, which starts threads, may take a thousand times longer.
    expected = row.median or arm.time(1, 1).seconds[0] or _TURN
    runs = min(_MOST_RUNS, max(1, round(_TURN / expected)))
    # A run that is longer than the warm-up by far warms itself up.
    warm_up = min(_MOST_RUNS, math.ceil(_WARM_UP / expected) if expected < _TURN else 0)
    turn = arm.time(runs, warm_up)
    arm.settle()
    row.add_turn(turn.seconds, turn.cpu_seconds)


def _decompose(arm: Arm, row: ArmResult) -> None:
    expected = row.median or _DECOMPOSED_SECONDS
    row.decomposition = arm.decompose(min(_DECOMPOSED_RUNS, max(2, round(_DECOMPOSED_SECONDS / expected))))
    arm.settle()


def _guard(row: ArmResult, action: Callable[[], None]) -> None:
    """Do `action` unless the arm failed before; note when it fails."""
    if row.problem is not None:
        return
    try:
        action()
    except ArmFailed as error:
        row.problem = f"failed: {error}"


def _describe(settings: Settings) -> dict[str, object]:
    return {"systems": list(settings.systems), "threads": list(settings.threads), "repeat": settings.repeat}


def _machine() -> dict[str, object]:
    budget = cpu_budget()
    return {
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu_budget": budget.count,
        "cpu_budget_explained": str(budget),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
