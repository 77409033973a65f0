"""Compare execution systems on one chain from Python: what `threadteam compare` does, with the figures at hand.

    python examples/compare_systems.py

Needs `pip install 'threadteam[all]'`; ONNX Runtime and an OpenMP runtime take part when they are found.
"""

from __future__ import annotations

import threadteam.compare as comparison


def main() -> None:
    cases, _ = comparison.select(["gsg_32_64_64_64"])
    report = comparison.compare(cases, comparison.Settings(threads=comparison.default_threads(), repeat=3))
    for system, reason in report.skipped.items():
        print(f"{system} was skipped: {reason}")
    for case in report.cases:
        for arm in case.arms:
            if arm.median is not None:
                print(f"{case.name}  {arm.system:12} {arm.threads} thread(s)  median {1e6 * arm.median:8.1f} us")
    print("results agree:", report.correct)


if __name__ == "__main__":
    main()
