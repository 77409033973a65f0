"""The files of a comparison: the JSON, the figures as a picture, and a traced case as a picture and for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from threadteam.compare import chart
from threadteam.compare.case import Case
from threadteam.compare.results import Comparison
from threadteam.errors import MissingExtra
from threadteam.extras import require
from threadteam.outputs import writing

__all__ = ["record_timeline", "write"]

#: Which chain is drawn, when it was compared: its sections are long enough to see and short enough for the dispatches.
_DRAWN = "gsg_256_512_512_512"
_RUNS = 40


def write(report: Comparison, cases: Sequence[Case], folder: Path) -> list[Path]:
    """Write ``compare.json``, its picture, and for one case ``timeline.png``, ``timeline.svg`` and ``trace.json``.

    Parameters
    ----------
    report : Comparison
        The figures.
    cases : sequence of Case
        What was compared; one of them is run again, traced.
    folder : Path
        Where to write; made if it is missing.

    Returns
    -------
    list of Path
        The files. The pictures are left out when matplotlib is not installed, and noted in `report.skipped`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "compare.json"
    written = [path]
    try:
        written += draw_ratios(report, folder)
        if cases and "threadteam" in report.settings["systems"]:
            case = next((case for case in cases if case.name == _DRAWN), cases[0])
            written += record_timeline(report, case, max(report.settings["threads"]), folder)
    finally:
        # The figures took minutes: they are kept also when the disk has no room for pictures.
        with writing(path):
            path.write_text(json.dumps(report.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
    return written


def draw_ratios(report: Comparison, folder: Path) -> list[Path]:
    """Draw the times over ONNX Runtime's, where there are any."""
    pictures = [folder / "compare.png", folder / "compare.svg"]
    try:
        chart.draw(report, pictures)
    except MissingExtra as error:
        report.skipped["picture"] = str(error)
        return []
    except ValueError:
        return []
    return pictures


def record_timeline(report: Comparison, case: Case, threads: int, folder: Path) -> list[Path]:
    """Run `case` traced on `threads` threads, and write the pictures and the Perfetto JSON."""
    require("onnx", "onnx", "the comparison")
    from threadteam import Pool, trace
    from threadteam.onnx import InferenceSession

    inputs = dict(case.inputs)
    with Pool(threads) as pool, InferenceSession(case.model, on=pool) as session:
        session.run(None, inputs)
        with trace() as recorded:
            for _ in range(_RUNS):
                session.run(None, inputs)
    written = [folder / "trace.json"]
    recorded.save(written[0])
    pictures = [folder / "timeline.png", folder / "timeline.svg"]
    title = f"{case.name}: {case.title} on {threads} thread{'s' if threads > 1 else ''}"
    try:
        recorded.timeline().draw(*pictures, title=title)
        written += pictures
    except MissingExtra as error:
        report.skipped["timeline"] = str(error)
    return written
