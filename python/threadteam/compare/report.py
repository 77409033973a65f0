"""The tables of a comparison."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from threadteam.compare.results import ArmResult, CaseResult, Comparison
from threadteam.compare.systems import Decomposition
from threadteam.extras import require
from threadteam.units import duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["case_table", "explanation", "summary_table"]

#: Operators named one by one in a decomposition; the rest of a long model is added up.
_NAMED_OPERATORS = 4


def explanation() -> str:
    """What the columns of a case's table mean."""
    return (
        "first: the first run after loading. median, p90, worst: single runs in the steady state. CPU: CPU time of "
        "the process per run, spinning included. speed-up: over the same system on one thread. vs ORT: median over "
        "ONNX Runtime's at its best width, below 1 is faster. operators: time inside operators. D+B: dispatch and "
        "barrier. idle: the part of the participants' time without work."
    )


def case_table(result: CaseResult) -> RenderableType:
    """One case: a row an arm, then where our systems' time goes and what went wrong."""
    table = _table(f"{result.name}: {result.title}")
    table.add_column("system", no_wrap=True)
    for heading in (
        "threads",
        "first",
        "median",
        "p90",
        "worst",
        "CPU",
        "speed-up",
        "vs ORT",
        "operators",
        "D+B",
        "idle",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    best = min((arm.median for arm in result.arms if arm.median is not None), default=None)
    for arm in result.arms:
        if arm.first_run is None:
            continue
        table.add_row(*_row(result, arm), style="bold" if best is not None and arm.median == best else None)
    notes = [*_decompositions(result.arms), *_problems(result)]
    if result.round_trip is not None:
        notes.append(f"round trip of a cache line: {duration(result.round_trip)}")
    group: RenderableType = require("rich.console", "cli", "the comparison's tables").Group(table, *_texts(notes), "")
    return group


def summary_table(report: Comparison) -> RenderableType:
    """All cases: the best width of each system as a multiple of ONNX Runtime's best, and the geometric means."""
    table = _table("Median of each system's best width over ONNX Runtime's (below 1 is faster); threadteam's widths")
    table.add_column("case", no_wrap=True)
    systems = [name for name in report.versions if name != "onnxruntime"]
    for heading in ("ORT's median", *systems, "threadteam n / 1 threads"):
        table.add_column(heading, justify="right", no_wrap=True)
    columns: dict[str, list[float]] = defaultdict(list)
    for case in report.cases:
        reference = case.best("onnxruntime")
        cells = [case.name, duration(reference.median if reference else None)]
        for name in systems:
            best = case.best(name)
            cells.append(_ratio_cell(case.against_onnxruntime(best) if best else None, columns[name]))
        cells.append(_ratio_cell(_widest_over_serial(case), columns["widths"]))
        table.add_row(*cells)
    table.add_section()
    means = [_times(_geometric_mean(columns[name])) for name in (*systems, "widths")]
    table.add_row("geometric mean", "", *means, style="bold")
    notes = [f"{name}: {version}" for name, version in report.versions.items()]
    notes += [f"skipped {name}: {reason}" for name, reason in report.skipped.items()]
    group: RenderableType = require("rich.console", "cli", "the comparison's tables").Group(table, *_texts(notes), "")
    return group


def _table(title: str) -> Table:
    rich = require("rich.table", "cli", "the comparison's tables")
    box = require("rich.box", "cli", "the comparison's tables")
    table: Table = rich.Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    return table


def _texts(lines: Iterable[str]) -> list[Any]:
    """Lines as plain text: names of nodes and reasons may hold rich's markup characters."""
    text = require("rich.text", "cli", "the comparison's tables").Text
    return [text(f"  {line}") for line in lines]


def _row(result: CaseResult, arm: ArmResult) -> list[str]:
    parts = arm.decomposition
    speedup = result.speedup(arm)
    return [
        arm.system,
        str(arm.threads),
        duration(arm.first_run),
        duration(arm.median),
        duration(arm.p90),
        duration(arm.worst),
        duration(arm.cpu_per_run),
        _times(speedup) if arm.threads > 1 else "-",
        _times(result.against_onnxruntime(arm)),
        duration(sum(parts.operators.values())) if parts else "-",
        duration(parts.dispatch + parts.barrier) if parts else "-",
        f"{parts.idle_share:.0%}" if parts else "-",
    ]


def _decompositions(arms: list[ArmResult]) -> list[str]:
    return [
        f"{arm.system} {arm.threads}: {_operators(arm.decomposition)}; dispatch {duration(arm.decomposition.dispatch)}"
        f" + barrier {duration(arm.decomposition.barrier)} in {arm.decomposition.sections:.3g} sections"
        for arm in arms
        if arm.decomposition is not None
    ]


def _operators(parts: Decomposition) -> str:
    """The steps of a short model; of a long one, the most expensive kinds of operators and the rest."""
    if len(parts.operators) <= _NAMED_OPERATORS + 1:
        return " + ".join(f"{name} {duration(seconds)}" for name, seconds in parts.operators.items())
    kinds: dict[str, float] = defaultdict(float)
    for label, seconds in parts.operators.items():
        # Steps are labelled "node (operator)"; those of short chains by the node alone.
        kinds[label.removesuffix(")").rpartition("(")[2]] += seconds
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    named = [f"{name} {duration(seconds)}" for name, seconds in ordered[:_NAMED_OPERATORS]]
    rest = sum(seconds for _, seconds in ordered[_NAMED_OPERATORS:])
    return " + ".join([*named, *([f"others {duration(rest)}"] if rest else [])])


def _problems(result: CaseResult) -> list[str]:
    widths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for arm in result.arms:
        if arm.problem is not None:
            widths[arm.system, arm.problem].append(arm.threads)
    notes = [f"{system} {', '.join(map(str, threads))}: {problem}" for (system, problem), threads in widths.items()]
    notes += [
        f"{arm.system} {arm.threads}: participants found in the process: {arm.threads_found}{_why_fewer(arm)}"
        for arm in result.arms
        if arm.threads_found is not None and arm.threads_found != arm.threads
    ]
    if result.same_bits is False:
        notes.append("the results of threadteam and openmp are not the same bits at every width")
    return notes


def _why_fewer(arm: ArmResult) -> str:
    """OpenMP starts its threads with the first section, so a model without one has none."""
    return " (no section was worth a dispatch)" if arm.decomposition and arm.decomposition.sections == 0 else ""


def _widest_over_serial(case: CaseResult) -> float | None:
    ours = [arm for arm in case.arms if arm.system == "threadteam" and arm.median is not None and arm.threads > 1]
    speedup = case.speedup(max(ours, key=lambda arm: arm.threads)) if ours else None
    return 1.0 / speedup if speedup else None


def _ratio_cell(value: float | None, column: list[float]) -> str:
    if value is not None:
        column.append(value)
    return _times(value)


def _geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
