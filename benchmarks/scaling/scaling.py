"""What one section costs on machines with more cores than this one, on paper: from counts of cache-line transfers.

The cost of a transfer is measured here (``dispatch --lines``) or taken from published measurements; the order of the
transfers comes from a discrete-event model of the protocol. No figure of this program was measured at these widths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from machines import Machine, measured, published
from model import FAN, PLANS, Costs, Outcome, relayed, section

MANIFEST = Path(__file__).parent.parent / "dispatch" / "Cargo.toml"
WIDTHS = [2, 4, 8, 9, 10, 12, 16, 24, 32, 48, 64, 96, 128]
SHOWN = [16, 64, 128]
FANS = [8, 16, 32, 64]


def main() -> int:
    options = parse()
    lines = json.loads(options.lines.read_text()) if options.lines else measure_lines()
    report = compute(lines, options.body)
    print(table(report))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.picture:
        from picture import draw

        draw(report, options.picture)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=Path, help="a JSON of dispatch --lines (default: measure now)")
    parser.add_argument("--body", type=float, default=0.0, help="ns of work on each participant (default 0)")
    parser.add_argument("--json", type=Path, help="write everything as JSON")
    parser.add_argument("--picture", type=Path, help="draw the curves into an SVG or PNG file (needs matplotlib)")
    options = parser.parse_args()
    if options.body < 0:
        parser.error(f"--body takes a number of at least 0, not {options.body}")
    return options


def measure_lines() -> dict[str, Any]:
    """Run ``dispatch --lines``, which builds on the first call."""
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(MANIFEST), "--"]
    path = MANIFEST.parent / "target" / "lines.json"
    subprocess.run([*command, "--lines", "--json", str(path)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def machines(lines: dict[str, Any]) -> list[Machine]:
    """The machines to compute, with the gaps of this one as shares of a transfer."""
    one_way = lines["round_trip_ns"] / 2
    gaps = lines["store_gap_ns"] / one_way, lines["load_gap_ns"] / one_way
    return [measured(lines["round_trip_ns"], *gaps), *published(*gaps)]


def compute(lines: dict[str, Any], body: float) -> dict[str, Any]:
    """Every machine, width and plan."""
    costs = Costs()
    results = []
    for machine in machines(lines):
        for width in WIDTHS:
            for plan, (_, children, gather) in PLANS.items():
                outcome = section(machine, costs, width - 1, children(width - 1), body, gather)
                results.append({"machine": machine.name, "width": width, "plan": plan, **figures(outcome)})
    return {
        "lines": lines,
        "body_ns": body,
        "costs": asdict(costs),
        "machines": [asdict(machine) for machine in machines(lines)],
        "plans": {plan: about for plan, (about, _, _) in PLANS.items()},
        "results": results,
        "fans": fans(machines(lines), costs, body),
    }


def fans(machines: list[Machine], costs: Costs, body: float) -> list[dict[str, Any]]:
    """The section with each fan, also where lines overlap less than here: with gaps 2.5 and 5 times as long."""
    rows = []
    for machine in machines:
        for factor in (1, 2.5, 5):
            slower = replace(machine, store_gap=machine.store_gap * factor, load_gap=machine.load_gap * factor)
            for width in SHOWN:
                totals = {
                    str(fan): section(slower, costs, width - 1, relayed(width - 1, fan), body, gather=False).total
                    for fan in FANS
                }
                rows.append({"machine": machine.name, "gaps": factor, "width": width, "totals": totals})
    return rows


def figures(outcome: Outcome) -> dict[str, Any]:
    """An outcome without the single starts."""
    return {key: value for key, value in asdict(outcome).items() if key != "starts"}


def table(report: dict[str, Any]) -> str:
    lines = report["lines"]
    text = [
        f"round trip here {lines['round_trip_ns']:.0f} ns; bodies of {report['body_ns']:.0f} ns",
        f"one more line: a store {lines['store_gap_ns']:.1f} ns, a load {lines['load_gap_ns']:.1f} ns",
        *(f"  {plan:<10} {about}" for plan, about in report["plans"].items()),
    ]
    for machine in report["machines"]:
        text += [
            "",
            f"{machine['name']} ({machine['source']})",
            "  one way {near:.0f} ns in a domain, {far:.0f} between domains, {across:.0f} between sockets".format(
                **machine
            ),
            "  width plan        section, ns  last start    join  posts  depth  leader lines",
        ]
        for row in report["results"]:
            if row["machine"] == machine["name"] and row["width"] in SHOWN:
                text.append(
                    f"  {row['width']:>5} {row['plan']:<10} {row['total']:>12.0f} {row['last_start']:>11.0f} "
                    f"{row['joined']:>7.0f} {row['posts']:>6} {row['depth']:>6} {row['lines']:>13}"
                )
    text += [
        "",
        f"the section, ns, by the most posts of one participant (the runtime: {FAN}), for gaps as here and longer",
        f"  {'':<36} {'gaps':>5} {'width':>6}" + "".join(f" {fan:>7}" for fan in FANS),
    ]
    for row in report["fans"]:
        totals = "".join(f" {row['totals'][str(fan)]:>7.0f}" for fan in FANS)
        text.append(f"  {row['machine']:<36} {row['gaps']:>4}x {row['width']:>6}{totals}")
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
