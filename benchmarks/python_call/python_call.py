"""What one parallel section costs when it is called from Python.

Compares threadteam (native and Python bodies) with the same sections led from Rust, with numba's ``prange`` on each
threading layer and with ``concurrent.futures``. Every system runs in a process of its own; the processes take turns
round by round, so that all see the same machine, and a ratio is formed inside a round.
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
from dataclasses import dataclass, field
from pathlib import Path

from systems import SYSTEMS
from twin import build

REFERENCE = "threadteam"
SERIAL = "serial"
OVER_NATIVE_NS = 250
"""What a call from Python may add to the same section led from Rust."""
OF_TASKS = {REFERENCE: "tasks.threadteam", SERIAL: "tasks.loop"}
"""What tasks are compared with instead."""


@dataclass(frozen=True)
class Scenario:
    """What a section does. One part per thread."""

    about: str
    body_ns: float
    gap_ns: int = 0
    sections: int = 2000
    seconds: float = 0.1
    batch: int = 1
    """Sections between two time stamps; the figures are for one."""
    tasks: int = 0
    """Empty Python functions of a section, instead of native bodies; the figures are for one of them."""


SCENARIOS = {
    "empty": Scenario("one empty body per thread", 0),
    "empty-batched": Scenario("the same, twenty between two time stamps", 0, batch=20),
    "work-2us": Scenario("one 2 us body per thread", 2_000),
    "work-20us": Scenario("one 20 us body per thread", 20_000),
    "work-200us": Scenario("one 200 us body per thread", 200_000, sections=300),
    "gap-1ms": Scenario("caller busy for 1 ms, then one 20 us body per thread", 20_000, 1_000_000, 50, 0.2),
    "gap-20ms": Scenario("caller busy for 20 ms, then one 20 us body per thread", 20_000, 20_000_000, 5, 0.5),
    **{
        f"tasks-{count}": Scenario(f"{count} empty Python functions; times are for one", 0, tasks=count)
        for count in (1, 2, 4, 10, 100, 1000, 10_000)
    },
}


@dataclass
class Figures:
    """The rounds of one system in one scenario."""

    rounds: list[list[float]] = field(default_factory=list)
    body_ns: list[float] = field(default_factory=list)

    def pooled(self) -> list[float]:
        return sorted(time for times in self.rounds for time in times)

    def medians(self) -> list[float]:
        return [statistics.median(times) for times in self.rounds]


def cpu_seconds(path: str, first: int, count: int, skipped: tuple[int, ...] = ()) -> float:
    """The sum of tick counters in a file of ``/proc``: ``count`` fields after the name, from number ``first``."""
    text = Path(path).read_text().splitlines()[0]
    fields = text.rpartition(")")[2].split() if ")" in text else text.split()[1:]
    ticks = [int(value) for number, value in enumerate(fields[first : first + count]) if number not in skipped]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


class Child:
    """The process of one system."""

    def __init__(self, name: str, threads: int) -> None:
        environment = dict(os.environ, NUMBA_NUM_THREADS=str(threads), **dict(SYSTEMS[name].environment))
        command = [sys.executable, __file__, "--serve", name, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        reply = self._read()
        self.unavailable: str | None = reply.get("unavailable")

    def measure(self, scenario: Scenario) -> dict:
        request = {
            "body_ns": scenario.body_ns,
            "gap_ns": scenario.gap_ns,
            "sections": scenario.sections,
            "seconds": scenario.seconds,
            "batch": scenario.batch,
            "tasks": scenario.tasks,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        reply = self._read()
        self._settle()
        return reply

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return cpu_seconds(f"/proc/{self.process.pid}/stat", 11, 2)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return {"unavailable": f"its process ended with status {self.process.wait()}"}
        return json.loads(line)

    def _settle(self, limit: float = 0.5) -> None:
        """Wait until none of its threads spins: it would be a CPU hog to the system that is measured next."""
        end = time.monotonic() + limit
        while time.monotonic() < end and self._runs():
            time.sleep(0.001)

    def _runs(self) -> bool:
        try:
            stats = [task.read_text() for task in Path(f"/proc/{self.process.pid}/task").glob("*/stat")]
        except OSError:
            return False
        # The state follows the name, which is in brackets and may contain anything.
        return any(stat.rpartition(")")[2].split()[0] == "R" for stat in stats)


def main() -> int:
    options = parse()
    if options.serve:
        from server import serve

        serve(options.serve, options.threads)
        return 0
    if options.list:
        for kind, entries in (("system", SYSTEMS), ("scenario", SCENARIOS)):
            for name, entry in entries.items():
                print(f"{kind:<9} {name:<22} {entry.about}")
        return 0
    always = {SERIAL, REFERENCE, *OF_TASKS.values()}
    names = [name for name in SYSTEMS if name in always or wanted(options.systems, name)]
    progress("building the native twins")
    build()
    scenarios = {name: scenario for name, scenario in SCENARIOS.items() if wanted(options.scenarios, name)}
    children: dict[str, Child] = {}
    skipped: dict[str, str] = {}
    try:
        for name in names:
            progress(f"starting {name}")
            child = children[name] = Child(name, options.threads)
            if child.unavailable is not None:
                skipped[name] = child.unavailable
                children.pop(name).close()
        progress("")
        report = {
            "machine": machine(options),
            "systems": {name: SYSTEMS[name].about for name in children},
            "skipped": skipped,
            "scenarios": {},
        }
        print(heading(report))
        for name, scenario in scenarios.items():
            foreign, since = foreign_seconds(children), time.monotonic()
            takers = {
                system: child for system, child in children.items() if SYSTEMS[system].tasks == bool(scenario.tasks)
            }
            figures = run(name, scenario, takers, options.rounds)
            company = (foreign_seconds(children) - foreign) / (time.monotonic() - since)
            report["scenarios"][name] = {"company": company, **summary(scenario, figures)}
            print(table(name, report["scenarios"][name]))
    finally:
        for child in children.values():
            child.close()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def foreign_seconds(children: dict[str, Child]) -> float:
    """CPU seconds used on this machine by neither this process nor its children."""
    # user nice system idle iowait irq softirq steal: idle and iowait are no use.
    everyone = cpu_seconds("/proc/stat", 0, 8, skipped=(3, 4))
    return everyone - time.process_time() - sum(child.cpu_seconds() for child in children.values())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds per scenario (default 20)")
    parser.add_argument("--quick", dest="rounds", action="store_const", const=3, help="3 rounds")
    parser.add_argument("--threads", type=int, default=2, help="threads per section (default 2)")
    parser.add_argument("--systems", type=names, default=[], help="only systems whose name contains one of these")
    parser.add_argument("--scenarios", type=names, default=[], help="only scenarios whose name contains one of these")
    parser.add_argument("--json", "--output", type=Path, help="write everything as JSON")
    parser.add_argument("--list", action="store_true", help="name the systems and scenarios and stop")
    parser.add_argument("--serve", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds takes a number of at least 1, not {options.rounds}")
    if options.threads < 2:
        parser.error(f"--threads takes a number of at least 2, not {options.threads}")
    return options


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def wanted(filters: list[str], name: str) -> bool:
    return not filters or any(part in name for part in filters)


def run(name: str, scenario: Scenario, children: dict[str, Child], rounds: int) -> dict[str, Figures]:
    """Every system in every round, starting with another one each time."""
    figures = {system: Figures() for system in children}
    order = list(children)
    for number in range(rounds):
        progress(f"{name} {number + 1}/{rounds}")
        shift = number % len(order)
        for system in order[shift:] + order[:shift]:
            reply = children[system].measure(scenario)
            if "times" not in reply:
                raise SystemExit(f"python_call: {system} stopped in {name}: {reply['unavailable']}")
            figures[system].rounds.append(reply["times"])
            figures[system].body_ns.append(reply["body_ns"])
    progress("")
    return figures


def summary(scenario: Scenario, figures: dict[str, Figures]) -> dict:
    """Reduce the rounds to quantiles and ratios. Times in ns."""
    bodies = [body for of_system in figures.values() for body in of_system.body_ns]
    serial, reference = (OF_TASKS[name] if scenario.tasks else name for name in (SERIAL, REFERENCE))
    systems = {}
    for name, own in figures.items():
        pooled = own.pooled()
        systems[name] = {
            "sections": len(pooled),
            "median_ns": quantile(pooled, 0.5),
            "p90_ns": quantile(pooled, 0.9),
            "p99_ns": quantile(pooled, 0.99),
            "x_serial": ratio(own, figures.get(serial)),
            "x_threadteam": ratio(own, figures.get(reference)),
            "over_native_ns": difference(own, figures.get(SYSTEMS[name].twin or "")),
            "round_medians_ns": own.medians(),
        }
    return {
        "about": scenario.about,
        "rounds": len(next(iter(figures.values())).rounds),
        "body_ns": {"claimed": scenario.body_ns, "measured": statistics.median(bodies)},
        "systems": systems,
    }


def ratio(own: Figures, other: Figures | None) -> float | None:
    """Median over the rounds of the ratio of medians."""
    if other is None:
        return None
    return statistics.median(a / b for a, b in zip(own.medians(), other.medians(), strict=True))


def difference(own: Figures, twin: Figures | None) -> list[float] | None:
    """Quartiles over the rounds of the difference of medians: what the call from Python adds to its native twin."""
    if twin is None:
        return None
    differences = sorted(a - b for a, b in zip(own.medians(), twin.medians(), strict=True))
    return [quantile(differences, q) for q in (0.25, 0.5, 0.75)]


def quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def machine(options: argparse.Namespace) -> dict:
    import numba
    import numpy as np

    return {
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": options.threads,
        "rounds": options.rounds,
    }


def heading(report: dict) -> str:
    machine = report["machine"]
    lines = [
        "{cpus} CPUs, Linux {kernel}, Python {python}, numba {numba}; {threads} threads, nothing pinned".format(
            **machine
        ),
        "",
    ]
    lines += [f"  {name:<22} {about}" for name, about in report["systems"].items()]
    lines += [f"  {name:<22} skipped: {reason}" for name, reason in report["skipped"].items()]
    return "\n".join(lines) + "\n"


def table(name: str, scenario: dict) -> str:
    lines = [
        f"{name}: {scenario['about']}; {scenario['rounds']} rounds; other processes used {scenario['company']:.2f} CPU"
    ]
    body = scenario["body_ns"]
    if body["claimed"]:
        lines.append(f"  a {body['claimed']:.0f} ns body took {body['measured']:.0f} ns, the call from Python included")
    columns = f"{'median':>10} {'p90':>10} {'p99':>10} {'x serial':>9} {'x threadteam':>13}"
    lines.append(f"  {'':<22} {columns} {'over native, quartiles':>24}")
    for system, figures in scenario["systems"].items():
        times = " ".join(f"{duration(figures[key]):>10}" for key in ("median_ns", "p90_ns", "p99_ns"))
        ratios = f"{factor(figures['x_serial']):>9} {factor(figures['x_threadteam']):>13}"
        over = figures["over_native_ns"]
        more = "" if over is None else f"{', '.join(f'{ns:.0f}' for ns in over)} ns"
        lines.append(f"  {system:<22} {times} {ratios} {more:>24}".rstrip())
    return "\n".join([*lines, *targets(scenario)]) + "\n"


def targets(scenario: dict) -> list[str]:
    """For each native body whether the call from Python added no more than it may: the median over the rounds.

    Of the empty sections only: elsewhere the difference of two processes is that of their bodies.
    """
    if scenario["body_ns"]["claimed"]:
        return []
    rows = []
    for system, figures in scenario["systems"].items():
        over = figures["over_native_ns"]
        if over is not None and not system.endswith(".python"):
            verdict = "met" if over[1] <= OVER_NATIVE_NS else "missed"
            rows.append(f"  {system:<22} target {OVER_NATIVE_NS} ns over native, measured {over[1]:.0f} ns: {verdict}")
    return rows


def duration(ns: float) -> str:
    if abs(ns) < 99.95:
        return f"{ns:.1f} ns"
    if abs(ns) < 9_999.5:
        return f"{ns:.0f} ns"
    if abs(ns) < 9_999_500:
        return f"{ns / 1e3:.1f} us"
    return f"{ns / 1e6:.1f} ms"


def factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def progress(text: str) -> None:
    """Show where the run is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
