"""The figures of a comparison as a picture: each system's best width on each case, against ONNX Runtime's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from os import PathLike
from typing import Any

from threadteam.compare.results import ArmResult, CaseResult, Comparison
from threadteam.extras import require
from threadteam.outputs import writing
from threadteam.units import duration

__all__ = ["draw"]

#: The systems in order: colours that stay apart for colour-blind readers, and shapes for readers without colour.
_MARKS = {"threadteam": ("#2166ac", "o"), "openmp": ("#f7941d", "s"), "numpy": ("#8c8c8c", "^")}
_FASTER = "#eaf2fb"
#: The ratios that the axis shows in any case.
_LEAST, _MOST = 0.4, 1.6
_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0)


def draw(report: Comparison, paths: Sequence[str | PathLike[str]]) -> None:
    """Write pictures of a comparison.

    Parameters
    ----------
    report : Comparison
        What was measured.
    paths : sequence of path
        The files; the ending says the format.

    Raises
    ------
    MissingExtra
        When matplotlib is not installed.
    ValueError
        When no case has both ONNX Runtime and another system.
    """
    cases = [case for case in report.cases if case.best("onnxruntime") is not None]
    rows = [{name: ratios for name in _MARKS if (ratios := _ratios(case, case.best(name)))} for case in cases]
    if not any(rows):
        raise ValueError("no case has times of ONNX Runtime and of another system, so there is nothing to draw")
    figures = require("matplotlib.figure", "plot", "the picture of a comparison")
    figure = figures.Figure(figsize=(10, 1.9 + 0.34 * len(cases)), layout="constrained")
    axis = figure.subplots()
    reach = [ratio for row in rows for ratios in row.values() for ratio in ratios]
    left, right = min(_LEAST, *reach) * 0.95, max(_MOST, *reach) * 1.05
    axis.axvspan(left, 1.0, color=_FASTER, zorder=0)
    axis.axvline(1.0, color="0.3", linewidth=1.0, zorder=1)
    for height, row in enumerate(rows):
        for place, name in enumerate(_MARKS):
            if name in row:
                _mark(axis, name, row[name], height + 0.17 * (place - 1))
    axis.set_xscale("log")
    axis.set_xlim(left, right)
    ticks = [tick for tick in _TICKS if left <= tick <= right]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_yticks(range(len(cases)), [_label(case) for case in cases])
    axis.set_ylim(len(cases) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("time of a run over ONNX Runtime's, each system at its best width: left of 1 is faster")
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    figure.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(_headline(report), x=0.01, ha="left", fontsize=11, fontweight="bold")
    for path in paths:
        with writing(path):
            figure.savefig(path, dpi=150)


def _ratios(case: CaseResult, arm: ArmResult | None) -> list[float]:
    """The lower quartile, median and upper quartile of the turns of an arm over those of ONNX Runtime."""
    ratios = arm.ratios(case.best("onnxruntime")) if arm is not None else []
    return list(statistics.quantiles(ratios, method="inclusive")) if len(ratios) > 1 else ratios * 3


def _mark(axis: Any, name: str, ratios: list[float], height: float) -> None:
    colour, shape = _MARKS[name]
    low, middle, high = ratios
    label = None if name in axis.get_legend_handles_labels()[1] else name
    size = 8 if name == "threadteam" else 5
    axis.plot([low, high], [height, height], color=colour, linewidth=1.5, solid_capstyle="butt", zorder=2)
    axis.plot([middle], [height], shape, color=colour, markersize=size, label=label, linestyle="none", zorder=3)


def _label(case: CaseResult) -> str:
    best = case.best("onnxruntime")
    return f"{case.name}  ({duration(best.median or 0.0)})" if best is not None else case.name


def _headline(report: Comparison) -> str:
    machine = report.machine
    where = f"{machine['processor']}, {machine['cpu_budget']} of {machine['cpus']} CPUs"
    return f"One run of each model against ONNX Runtime, its own time in brackets; lines span the quartiles\n{where}"
