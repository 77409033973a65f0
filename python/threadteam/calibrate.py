"""Measuring what a section costs on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from threadteam._native import DispatchCosts, DispatchKind, Sampler, WidthCosts
from threadteam.calibrated import KINDS, MOST_COST, Host
from threadteam.errors import CalibrationError
from threadteam.units import duration

__all__ = ["PASSES", "ROUNDS", "Calibration", "Cell", "MembersAway", "Sample", "calibrate", "widths"]

ROUNDS = 300
"""Turns that each kind and width gets in one pass."""

PASSES = 6
"""Passes before the measurement is refused: neighbours come and go within seconds."""

PATIENCE = 25.0
"""Seconds after which no other pass begins. One takes a second on two CPUs and some fifteen on a hundred."""

LONGEST = 50.0
"""Seconds after which a pass that has begun is given up: the machine is so loaded that its figures would be."""

SECTIONS = 100
"""Sections of one sample: half a millisecond, far above the clock's steps, far below a neighbour's time slice."""

MOST_SPREAD = 0.5
"""Of the median, between the quartiles. A quiet machine shows 0.1; a busy process on one of two CPUs more than 0.9."""

MOST_DRIFT = 0.3
"""Of the median, between the medians of the first and the second half of the rounds."""

MOST_MISSING = 0.1
"""Part of the samples that may fail because the members were away."""

LEAST_COST = 5e-8
"""No section costs less: a line that two CPUs share takes longer to move once."""

LEAST_PRESENT = 0.9
"""Of the members, on average over the sections of a sample that counts: alone the caller measures its own work."""

Sample = Callable[[DispatchKind, int], float]
"""Measures once what a section of a kind and a width costs beyond its share, in seconds; may raise `MembersAway`."""


class MembersAway(Exception):
    """A sample in which the members could not be had, or did not come."""


@dataclass(frozen=True)
class Cell:
    """What was measured for one kind of dispatch at one width."""

    kind: str
    width: int
    cost: float
    """Median, in seconds."""
    spread: float
    """Distance between the quartiles, as a part of the median."""
    samples: int


@dataclass(frozen=True)
class Calibration:
    """The measured costs of a machine."""

    host: Host
    cells: tuple[Cell, ...]

    def to_dict(self) -> dict[str, Any]:
        """The host and the cells, as JSON holds them."""
        return {"host": asdict(self.host), "cells": [asdict(cell) for cell in self.cells]}

    def costs(self) -> DispatchCosts:
        """The row that a pool is given.

        A worker that leads is measured beside a sleeping caller, which takes two CPUs more than a team of one: where
        there are none, its sections cost what those from outside do, which they share every step with.
        """
        anchors = {name: [(cell.width, cell.cost) for cell in self.cells if cell.kind == name] for name in KINDS}
        rows = (WidthCosts.from_anchors(anchors[name] or anchors["outside"]) for name in KINDS)
        return DispatchCosts(*rows)


def widths(width: int) -> tuple[int, ...]:
    """Return the widths to measure on so many CPUs.

    Parameters
    ----------
    width : int
        CPUs.

    Returns
    -------
    tuple of int
        From 2 to `width`, at most `WidthCosts.MAX_ANCHORS`: every one costs time, and between two the cost is a line.

    Examples
    --------
    >>> from threadteam.calibrate import widths
    >>> widths(2), widths(10), widths(200)
    ((2,), (2, 3, 4, 6, 8, 10), (2, 4, 8, 16, 32, 64, 128, 200))
    """
    doubling = [2**power for power in range(1, width.bit_length())]
    steps = sorted({step for power in doubling for step in (power, power * 3 // 2) if step <= width} | {width})
    if len(steps) > WidthCosts.MAX_ANCHORS:
        steps = sorted({*doubling, width})
    return tuple(step for step in steps if 2 <= step <= width)


def calibrate(
    *,
    host: Host | None = None,
    sample: Sample | None = None,
    rounds: int = ROUNDS,
    on_round: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration:
    """Measure what a section costs, for each kind of dispatch and for widths up to the CPUs of this process.

    Kinds and widths take turns, so that a disturbance hits them all; of each the median counts. A pass that was
    disturbed is repeated, at most five times.

    Parameters
    ----------
    host : Host, optional
        The machine; by default this one.
    sample : callable, optional
        What measures once; by default a pool of its own.
    rounds : int, default 300
        Turns of a pass; at least 8.
    on_round : callable, optional
        Called with a line of text before each turn.
    clock : callable, optional
        Seconds that pass: no pass begins after `PATIENCE`, none goes on after `LONGEST`.

    Returns
    -------
    Calibration
        The medians and their spread. `threadteam.calibrated.store` keeps them.

    Raises
    ------
    CalibrationError
        There is one CPU only, or the measurements of every pass vary too much to mean anything.

    Examples
    --------
    >>> from threadteam.calibrate import calibrate
    >>> from threadteam.calibrated import Host
    >>> found = calibrate(host=Host("generic", "A model", 4, "0.4.0"), sample=lambda kind, width: width * 1e-7)
    >>> [(cell.kind, cell.width, cell.cost) for cell in found.cells[:2]], found.cells[0].spread
    ([('team', 2, 2e-07), ('team', 3, 3e-07)], 0.0)
    """
    if rounds < 8:
        raise ValueError(f"rounds must be at least 8 for a median that means something, got {rounds}")
    host = host or Host.here()
    if host.width < 2:
        raise CalibrationError("this process may use one CPU only: there is no section to measure on it")
    take = sample or _sampler(host.width)
    # A worker that leads has one member fewer: the caller that sent it holds a place.
    cells = [(name, width) for name in KINDS for width in widths(host.width - (name == "in_pool"))]
    since = clock()
    for number in range(1, PASSES + 1):
        taken: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
        try:
            for turn in range(rounds):
                on_round(f"pass {number} of at most {PASSES}, round {turn + 1} of {rounds}")
                for cell in cells:
                    if clock() - since > LONGEST:
                        raise _Disturbed(f"round {turn + 1} of {rounds} was not over after {LONGEST:.0f} s")
                    with suppress(MembersAway):
                        taken[cell].append(take(KINDS[cell[0]], cell[1]))
            return Calibration(host, tuple(_judged(*cell, taken[cell], rounds) for cell in cells))
        except _Disturbed as disturbed:
            reason = str(disturbed)
        if clock() - since > PATIENCE:
            break
    passes = "1 pass varies" if number == 1 else f"{number} passes vary"
    raise CalibrationError(
        f"the measurements of {passes} too much to be kept: {reason}. Stop other programs, plug in the power "
        "supply, and run `threadteam calibrate` again; the costs of this machine's class are used meanwhile"
    )


class _Disturbed(Exception):
    """Why a pass does not count."""


def _sampler(width: int) -> Sample:
    sampler = Sampler(width)

    def sample(kind: DispatchKind, width: int) -> float:
        try:
            cost, members = sampler.take(kind, width, SECTIONS)
        except ValueError as error:
            raise MembersAway(str(error)) from None
        if members < LEAST_PRESENT * (width - 1):
            raise MembersAway(f"{members:.1f} of {width - 1} members took part")
        return cost

    return sample


def _judged(kind: str, width: int, samples: Sequence[float], rounds: int) -> Cell:
    """The median of the samples, if they agree."""
    what = f"a section of {width} participants ({kind.replace('_', ' ')})"
    if len(samples) < rounds * (1 - MOST_MISSING):
        raise _Disturbed(f"{what} found its members away in {rounds - len(samples)} of {rounds} rounds")
    low, cost, high = statistics.quantiles(samples, n=4)
    if not -LEAST_COST <= cost <= MOST_COST:
        raise _Disturbed(f"{what} cost {duration(cost)} in the median, which none does")
    halves = [statistics.median(half) for half in (samples[: len(samples) // 2], samples[len(samples) // 2 :])]
    scale = max(cost, LEAST_COST)
    spread, drift = (high - low) / scale, abs(halves[0] - halves[1]) / scale
    if spread > MOST_SPREAD:
        raise _Disturbed(
            f"{what} cost {duration(max(cost, 0.0))} in the median, but half of the samples spread over "
            f"{duration(high - low)}, more than {MOST_SPREAD:.0%} of it"
        )
    if drift > MOST_DRIFT:
        first, second = (duration(max(half, 0.0)) for half in halves)
        raise _Disturbed(f"{what} cost {first} in the first half of the rounds and {second} in the second")
    return Cell(kind, width, round(scale, 9), spread, len(samples))
