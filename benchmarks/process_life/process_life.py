"""A soak of the life of processes: interpreter exits, forks, pools that come and go, pools that idle.

Nothing may hang, end with another status than 0, print on standard error, or leave threads, descriptors or memory; an
idle pool may use no CPU. The exit status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from states import EXITS, exit_program

HERE = Path(__file__).parent
HUNG = 120.0
"""Seconds after which a process counts as hung."""
MOST_GROWTH = 8 << 20
"""Bytes of resident memory by which a process may grow between the first tenth of a part and its end."""


def main() -> int:
    options = arguments()
    console = Console(stderr=True)
    columns = TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    results: dict[str, dict[str, Any]] = {}
    with Progress(*columns, console=console, transient=True) as progress:
        for part, size in sizes(options).items():
            if size == 0:
                continue
            task = progress.add_task(part, total=4 if part == "idle" else size)
            steps = exits(int(size)) if part == "exits" else in_a_process(part, size)
            records = []
            for record in steps:
                records.append(record)
                progress.advance(task)
            results[part] = summary(part, size, records)
    well = all(result["well"] for result in results.values())
    print_results(results)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": machine(), "well": well, "parts": results}, indent=1) + "\n")
    return 0 if well else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exits", type=int, help="interpreters that end with busy workers (1000)")
    parser.add_argument("--forks", type=int, help="forks of one process in different states (1000)")
    parser.add_argument("--pools", type=int, help="pools made, used and dropped in one process (10000)")
    parser.add_argument("--idle", type=float, help="seconds that an idle pool is watched (5)")
    parser.add_argument("--quick", action="store_true", help="a few of each, and no idling")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


def sizes(options: argparse.Namespace) -> dict[str, float]:
    """How much of each part to run."""
    full: dict[str, float] = {"exits": 1000, "forks": 1000, "pools": 10_000, "idle": 5.0}
    quick: dict[str, float] = {"exits": 10, "forks": 40, "pools": 1000, "idle": 0}
    found = {
        part: size if (given := getattr(options, part)) is None else given
        for part, size in (quick if options.quick else full).items()
    }
    return {**found, "threads": found["pools"] // 10}


def exits(count: int) -> Iterator[dict[str, Any]]:
    """`count` interpreters, one a CPU at a time."""
    names = list(EXITS)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as starters:
        running = [starters.submit(one_exit, names[step % len(names)]) for step in range(count)]
        for done in as_completed(running):
            yield done.result()


def one_exit(state: str) -> dict[str, Any]:
    begin = time.perf_counter_ns()
    command = [sys.executable, "-c", exit_program(state)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG, check=False)
    except subprocess.TimeoutExpired:
        return {"state": state, "well": False, "problem": f"hung for {HUNG:.0f} s"}
    record: dict[str, Any] = {"state": state, "well": not (done.returncode or done.stderr)}
    if not record["well"]:
        record["problem"] = f"status {done.returncode}: {done.stderr[-500:]}"
    return {**record, "took": time.perf_counter_ns() - begin}


def in_a_process(part: str, size: float) -> Iterator[dict[str, Any]]:
    """The records of a part, one a step; a last one that is not well if its process did not end well."""
    command = [sys.executable, str(HERE / "states.py"), part, json.dumps(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
        said = process.stderr.read()
    if process.returncode or said:
        yield {"well": False, "problem": f"status {process.returncode}: {said[-500:]}"}


def summary(part: str, size: float, records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the records of a part come to."""
    problems = [record.get("problem", record.get("state", "")) for record in records if not record["well"]]
    result: dict[str, Any] = {"size": size, "failed": len(problems), "problems": problems[:5]}
    watched = [record for record in records if "threads" in record]
    if watched:
        first, last = watched[len(watched) // 10], watched[-1]
        result["left"] = {what: last[what] - first[what] for what in ("threads", "descriptors", "resident")}
    for what in ("took", "make", "first", "end"):
        values = sorted(record[what] for record in records if what in record)
        if values:
            p90 = values[len(values) * 9 // 10]
            result[what] = {"median": statistics.median(values), "p90": p90, "most": values[-1]}
    if part == "idle":
        result["by_width"] = records
    left = result.get("left", {})
    kept = left.get("threads", 0) <= 0 and left.get("descriptors", 0) == 0 and left.get("resident", 0) <= MOST_GROWTH
    result["well"] = not problems and kept
    return result


def print_results(results: dict[str, dict[str, Any]]) -> None:
    table = Table("part", "size", "failed", "threads", "descriptors", "memory left", "median (p90) of a step")
    for part, result in results.items():
        left = result.get("left")
        kept = (
            [str(left["threads"]), str(left["descriptors"]), f"{left['resident'] / 1024:.0f} KiB"] if left else [""] * 3
        )
        times = ", ".join(
            f"{what} {result[what]['median'] / 1e3:.1f} ({result[what]['p90'] / 1e3:.1f}) us"
            for what in ("took", "make", "first", "end")
            if what in result
        )
        if part == "idle":
            times = ", ".join(f"{each['state']}: {each['nanoseconds']} ns of CPU" for each in result["by_width"])
        table.add_row(part, f"{result['size']:g}", str(result["failed"]), *kept, times)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for part, result in results.items():
        for problem in result["problems"]:
            console.print(f"{part}: {problem}", markup=False)


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    sys.exit(main())
