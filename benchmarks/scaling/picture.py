"""The curves of the scaling model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

STYLES = {
    "flat": ("#b2182b", "-", "flat: the leader posts to everybody"),
    "relayed": ("#2166ac", "-", "relayed: beyond 32 members captains post for it (the runtime)"),
    "gathered": ("#4d9221", ":", "gathered: captains also wait for their groups (not built)"),
}


def draw(report: dict[str, Any], path: Path) -> None:
    """One panel a machine: section time over the number of participants."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "threadteam", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    machines = report["machines"]
    figure, axes = plt.subplots(1, len(machines), figsize=(4.2 * len(machines), 4.6), sharey=True)
    for axis, machine in zip(axes, machines, strict=True):
        for plan, (colour, dash, label) in STYLES.items():
            rows = [row for row in report["results"] if row["machine"] == machine["name"] and row["plan"] == plan]
            widths, totals = [row["width"] for row in rows], [row["total"] / 1000 for row in rows]
            axis.plot(widths, totals, dash, color=colour, label=label, linewidth=1.8)
            axis.text(widths[-1] * 1.08, totals[-1], f"{totals[-1]:.2f}", va="center", fontsize=8, color=colour)
        marks = {33: "relayed from here", machine["domain"] + 1: "a second cache domain", 65: "a second socket"}
        for width, text in marks.items():
            if width == 33 or 2 < width <= machine["socket"] + 1 < 1000:
                axis.axvline(width, color="0.6", linewidth=0.8, linestyle="--")
                axis.text(width * 0.97, 1.3, text, rotation=90, ha="right", va="top", fontsize=7, color="0.4")
        axis.set_title(title(machine), fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set_xlim(1.8, 190)
        axis.set_xticks([2, 4, 8, 16, 32, 64, 128], ["2", "4", "8", "16", "32", "64", "128"])
        axis.set_xlabel("participants of one section")
        axis.grid(alpha=0.3)
    axes[0].set_ylim(0, 1.4)
    axes[0].set_ylabel("us of an empty gang section\n(a model, not measured)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=1, fontsize=8, frameon=False)
    figure.suptitle("What a wide section costs on paper: posts and joins counted in cache-line transfers", fontsize=11)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(figure)


def title(machine: dict[str, Any]) -> str:
    """The machine and how far apart its cores are."""
    ways = sorted({round(machine[key]) for key in ("near", "far", "across")})
    return f"{machine['name']}\na line takes {' / '.join(map(str, ways))} ns one way"
