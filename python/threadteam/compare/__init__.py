"""One model on several execution systems, side by side: our teams, OpenMP, ONNX Runtime, NumPy."""

from threadteam.compare.artifacts import write
from threadteam.compare.case import Case
from threadteam.compare.chains import Chain, chains
from threadteam.compare.models import select
from threadteam.compare.report import case_table, explanation, summary_table
from threadteam.compare.results import ArmResult, CaseResult, Comparison
from threadteam.compare.runner import Settings, compare, default_threads

__all__ = [
    "ArmResult",
    "Case",
    "CaseResult",
    "Chain",
    "Comparison",
    "Settings",
    "case_table",
    "chains",
    "compare",
    "default_threads",
    "explanation",
    "select",
    "summary_table",
    "write",
]
