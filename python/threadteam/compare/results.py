"""What a comparison measured, as data: the tables and the JSON are made from it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from threadteam.compare.systems import Decomposition

__all__ = ["ArmResult", "CaseResult", "Comparison", "quantile"]


def quantile(values: list[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class ArmResult:
    """One system at one width on one case. Times are in seconds; None where nothing was measured.

    `turns` holds the median of each turn, in which every arm of the case had one.

    `problem` says why the arm was skipped, failed, or gave a wrong result. `difference` is the largest one from the
    reference arm relative to the largest magnitude; `threads_found` counts the participants in /proc.
    """

    system: str
    threads: int
    problem: str | None = None
    load: float | None = None
    first_run: float | None = None
    difference: float | None = None
    threads_found: int | None = None
    seconds: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    decomposition: Decomposition | None = None

    @property
    def median(self) -> float | None:
        """The steady-state median of a run."""
        return quantile(self.seconds, 0.5) if self.seconds else None

    @property
    def p90(self) -> float | None:
        """The time that nine of ten runs do not exceed."""
        return quantile(self.seconds, 0.9) if self.seconds else None

    @property
    def worst(self) -> float | None:
        """The slowest run after warm-up."""
        return max(self.seconds, default=None)

    def add_turn(self, seconds: list[float], cpu_seconds: float) -> None:
        """Note the runs of one more turn."""
        self.seconds += seconds
        self.turns.append(quantile(seconds, 0.5))
        self.cpu_seconds += cpu_seconds

    def ratios(self, other: ArmResult | None) -> list[float]:
        """The time of a run as a multiple of another arm's, turn by turn.

        The clock of a shared machine changes between turns, and with it that of both arms.
        """
        return [own / its for own, its in zip(self.turns, other.turns, strict=False) if its] if other else []

    def over(self, other: ArmResult | None) -> float | None:
        """The median of the `ratios`."""
        return statistics.median(ratios) if (ratios := self.ratios(other)) else None

    @property
    def cpu_per_run(self) -> float | None:
        """The CPU time of the whole process per run, spinning workers included."""
        return self.cpu_seconds / len(self.seconds) if self.seconds else None


@dataclass
class CaseResult:
    """All arms on one case.

    `round_trip` is the time of a cache line between two CPUs and back, in seconds, just before; `same_bits` whether all
    widths of `threadteam` and `openmp` gave the same result, None when there were not two to compare.
    """

    name: str
    title: str
    arms: list[ArmResult]
    round_trip: float | None = None
    same_bits: bool | None = None

    def speedup(self, arm: ArmResult) -> float | None:
        """How many times faster `arm` is than the same system on one thread."""
        serial = next((other for other in self.arms if other.system == arm.system and other.threads == 1), None)
        return serial.over(arm) if serial else None

    def best(self, system: str) -> ArmResult | None:
        """The fastest width of a system."""
        timed = [arm for arm in self.arms if arm.system == system and arm.median is not None]
        return min(timed, key=lambda arm: arm.median or 0.0, default=None)

    def against_onnxruntime(self, arm: ArmResult) -> float | None:
        """A run of `arm` as a multiple of ONNX Runtime's at its best width: below 1 is faster."""
        return arm.over(self.best("onnxruntime"))

    @property
    def wrong(self) -> list[ArmResult]:
        """The arms whose result differs from the reference by more than the tolerance."""
        return [arm for arm in self.arms if arm.problem is not None and arm.problem.startswith("wrong result")]


@dataclass
class Comparison:
    """A whole comparison.

    `machine` describes where it ran, `settings` how, `versions` the systems by name, `skipped` the systems and models
    that were left out with the reason.
    """

    machine: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def correct(self) -> bool:
        """Whether no arm gave a wrong result, and all widths of each of our systems gave the same bits."""
        return not any(case.wrong or case.same_bits is False for case in self.cases)

    def to_dict(self) -> dict[str, Any]:
        """Everything, the time of every run included, for JSON."""
        result = dataclasses.asdict(self)
        for case, entry in zip(self.cases, result["cases"], strict=True):
            for arm, row in zip(case.arms, entry["arms"], strict=True):
                row["median"], row["p90"], row["worst"] = arm.median, arm.p90, arm.worst
                row["cpu_per_run"] = arm.cpu_per_run
                row["speedup"] = case.speedup(arm)
                row["against_onnxruntime"] = case.against_onnxruntime(arm)
                # An infinite difference, of another shape for instance, has no form in JSON.
                row["difference"] = (
                    arm.difference if arm.difference is not None and math.isfinite(arm.difference) else None
                )
        result["correct"] = self.correct
        return result
