"""Calibration: the widths, the medians, what is refused, the command."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import threadteam as tt
from hypothesis import given
from hypothesis import strategies as st
from threadteam.calibrate import Calibration, Cell, MembersAway, calibrate, widths
from threadteam.calibrated import Host, kept

HOST = Host("generic", "A model", 4, "0.0.1")
TEAM, IN_POOL, OUTSIDE = tt.DispatchKind.TEAM, tt.DispatchKind.IN_POOL, tt.DispatchKind.OUTSIDE


@given(st.integers(2, 1025))
def test_the_measured_widths_rise_from_two_to_the_last_and_fit_a_row(width: int) -> None:
    found = widths(width)
    assert found[0] == 2
    assert found[-1] == width
    assert list(found) == sorted(set(found))
    assert len(found) <= tt.WidthCosts.MAX_ANCHORS


def test_kinds_and_widths_take_turns() -> None:
    seen: list[tuple[tt.DispatchKind, int]] = []

    def sample(kind: tt.DispatchKind, width: int) -> float:
        seen.append((kind, width))
        return 1e-6

    calibrate(host=HOST, sample=sample, rounds=8)
    turn = [*((TEAM, width) for width in (2, 3, 4)), *((IN_POOL, width) for width in (2, 3))]
    assert seen == (turn + [(OUTSIDE, width) for width in (2, 3, 4)]) * 8


def test_the_median_of_each_kind_and_width_becomes_the_row() -> None:
    base = {TEAM: 5e-7, IN_POOL: 6e-7, OUTSIDE: 7e-7}
    noise = random.Random(1)
    found = calibrate(host=HOST, sample=lambda kind, width: base[kind] * width * noise.choice([0.9, 1.0, 1.1]))
    costs = found.costs()
    assert [costs.cost(TEAM, width) for width in (2, 3, 4)] == pytest.approx([1e-6, 1.5e-6, 2e-6])
    assert costs.cost(IN_POOL, 3) == pytest.approx(1.8e-6)
    assert costs.cost(OUTSIDE, 4) == pytest.approx(2.8e-6)
    assert all(cell.samples == 300 and 0.1 < cell.spread < 0.3 for cell in found.cells)


def test_rare_outliers_change_nothing() -> None:
    turn = iter(range(10**6))
    found = calibrate(host=HOST, sample=lambda kind, width: 1e-2 if next(turn) % 10 == 0 else 5e-7)
    assert {cell.cost for cell in found.cells} == {5e-7}


def test_on_two_cpus_a_worker_that_leads_is_charged_as_from_outside() -> None:
    found = calibrate(host=Host("generic", "A model", 2, "0.0.1"), sample=lambda kind, width: 4e-7)
    assert [(cell.kind, cell.width) for cell in found.cells] == [("team", 2), ("outside", 2)]
    assert found.costs().row(IN_POOL) == found.costs().row(OUTSIDE)


def test_a_cost_below_what_a_cache_line_takes_is_raised_to_it() -> None:
    cells = calibrate(host=HOST, sample=lambda kind, width: -1e-9).cells
    assert {cell.cost for cell in cells} == {5e-8}


def two_modes() -> Callable[[tt.DispatchKind, int], float]:
    turn = iter(range(10**6))
    return lambda kind, width: 5e-7 if next(turn) // 8 % 2 else 4e-6


def drifting() -> Callable[[tt.DispatchKind, int], float]:
    turn = iter(range(10**6))
    return lambda kind, width: 5e-7 * (1 + next(turn) % 2400 / 2400)


def busy() -> Callable[[tt.DispatchKind, int], float]:
    turn = iter(range(10**6))

    def sample(kind: tt.DispatchKind, width: int) -> float:
        if next(turn) % 3 == 0:
            raise MembersAway("no members")
        return 5e-7

    return sample


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (two_modes, r"a section of 2 participants \(team\) cost .* spread over .*, more than 50% of it"),
        (drifting, r"in the first half of the rounds and .* in the second"),
        (busy, r"found its members away in \d+ of 300 rounds"),
    ],
)
def test_measurements_that_vary_too_much_are_refused_with_the_reason_and_what_to_do(
    sample: Callable[[], Callable[[tt.DispatchKind, int], float]], reason: str
) -> None:
    with pytest.raises(tt.CalibrationError, match=rf"{reason}. Stop other programs"):
        calibrate(host=HOST, sample=sample())


def test_one_cpu_has_nothing_to_measure() -> None:
    with pytest.raises(tt.CalibrationError, match="one CPU only"):
        calibrate(host=Host("generic", "A model", 1, "0.0.1"), sample=lambda kind, width: 1e-6)


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds must be at least 8"):
        calibrate(host=HOST, sample=lambda kind, width: 1e-6, rounds=7)


def test_each_round_is_announced() -> None:
    lines: list[str] = []
    calibrate(host=HOST, sample=lambda kind, width: 1e-6, rounds=9, on_round=lines.append)
    assert lines[0] == "pass 1 of at most 6, round 1 of 9"
    assert len(lines) == 9


def test_a_disturbed_pass_is_repeated_and_does_not_count() -> None:
    turn = iter(range(10**6))
    noise = two_modes()
    # Two passes of 8 rounds with 8 cells are disturbed.
    found = calibrate(host=HOST, sample=lambda kind, width: noise(kind, width) if next(turn) < 128 else 6e-7, rounds=8)
    assert {(cell.cost, cell.samples) for cell in found.cells} == {(6e-7, 8)}


class Clock:
    """Seconds that pass with each sample."""

    def __init__(self, each: float) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        return self.now

    def sample(self, kind: tt.DispatchKind, width: int) -> float:
        self.now += self.each
        return random.Random(self.now).choice([5e-7, 5e-6])


def test_no_pass_begins_when_the_time_is_over() -> None:
    lines: list[str] = []
    clock = Clock(13 / 64)  # two passes of 64 samples are over after 26 s
    with pytest.raises(tt.CalibrationError, match="of 2 passes vary"):
        calibrate(host=HOST, sample=clock.sample, rounds=8, on_round=lines.append, clock=clock)
    assert len(lines) == 16


def test_a_pass_that_does_not_end_is_given_up() -> None:
    clock = Clock(5.0)  # members that are had after five seconds, each time
    with pytest.raises(tt.CalibrationError, match=r"of 1 pass varies .* round 2 of 300 was not over after 50 s"):
        calibrate(host=HOST, sample=clock.sample, clock=clock)
    assert clock.now == 55


def test_a_sample_in_which_the_caller_was_left_alone_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone:
        def __init__(self, width: int) -> None:
            pass

        def take(self, kind: tt.DispatchKind, width: int, sections: int) -> tuple[float, float]:
            return 3.8e-6, 0.1

    monkeypatch.setattr("threadteam.calibrate.Sampler", Alone)
    with pytest.raises(tt.CalibrationError, match="members away in 8 of 8 rounds"):
        calibrate(host=HOST, rounds=8)


def test_the_runtime_itself_can_be_sampled() -> None:
    from threadteam._native import Sampler

    sampler = Sampler(3)
    for kind, width in [(TEAM, 3), (OUTSIDE, 2), (IN_POOL, 2)]:
        cost, members = sampler.take(kind, width, 10)
        assert -1 < cost < 60
        assert 0 <= members <= width - 1
    with pytest.raises(ValueError, match="4 participants"):
        sampler.take(TEAM, 4, 10)


#: A machine of four CPUs whose sections cost what the environment says, for the command in a process of its own.
COMMAND = """
import itertools, os, signal, sys
import threadteam.calibrate, threadteam.calibrated
from threadteam.cli import run
turn = itertools.count()
def sample(kind, width):
    number, costs = next(turn), os.environ["COSTS"].split(",")
    if os.environ["INTERRUPT"] == str(number):
        os.kill(os.getpid(), signal.SIGINT)
    return float(costs[number // 8 % len(costs)])
threadteam.calibrate._sampler = lambda width: sample
threadteam.calibrated.detected_width = lambda: int(os.environ["CPUS"])
sys.exit(run(sys.argv[1:]))
"""


def command(
    *arguments: str, cache: Path, costs: str = "5e-7", cpus: int = 4, interrupt: int = -1
) -> subprocess.CompletedProcess[str]:
    given = {"XDG_CACHE_HOME": str(cache), "COSTS": costs, "CPUS": str(cpus), "INTERRUPT": str(interrupt)}
    environ = {**os.environ, **given}
    line = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(line, capture_output=True, text=True, env=environ, timeout=120)


pytest.importorskip("typer")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG_CACHE_HOME is Linux's")
class TestTheCommand:
    def test_it_keeps_the_row_and_shows_it(self, tmp_path: Path) -> None:
        done = command("calibrate", cache=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        (file,) = (tmp_path / "threadteam").iterdir()
        assert f"written: {file}" in done.stdout
        assert "team     width 4      500 ns, half of the samples within 0% of it" in done.stdout

    def test_info_says_whether_the_row_is_measured(self, tmp_path: Path) -> None:
        before = command("info", cache=tmp_path).stdout
        assert "not calibrated; threadteam calibrate measures this machine" in before
        command("calibrate", cache=tmp_path)
        assert (
            "500 ns in a team of 2, 500 ns from outside (measured on this machine"
            in command("info", cache=tmp_path).stdout
        )
        found = json.loads(command("info", "--json", cache=tmp_path).stdout)["dispatch_costs"]
        assert (found["calibrated"], found["problem"]) == (True, None)
        assert found["costs"]["in_pool"] == [[2, 5e-7], [3, 5e-7]]

    def test_info_says_why_a_file_is_not_used(self, tmp_path: Path) -> None:
        command("calibrate", cache=tmp_path)
        (file,) = (tmp_path / "threadteam").iterdir()
        file.write_text("{")
        done = command("info", cache=tmp_path)
        assert done.returncode == 0
        assert f"{file} is not used: it is damaged" in done.stdout

    def test_noise_is_one_line_and_a_status_and_keeps_the_old_row(self, tmp_path: Path) -> None:
        command("calibrate", cache=tmp_path)
        (file,) = (tmp_path / "threadteam").iterdir()
        before = file.read_text()
        done = command("calibrate", cache=tmp_path, costs="5e-7,5e-6")
        assert done.returncode == 1
        assert done.stderr.startswith("threadteam: error: the measurements of 6 passes vary too much to be kept")
        assert len(done.stderr.splitlines()) == 1
        assert (list((tmp_path / "threadteam").iterdir()), file.read_text()) == ([file], before)

    def test_an_interrupt_is_one_line_and_a_status_and_writes_nothing(self, tmp_path: Path) -> None:
        done = command("calibrate", cache=tmp_path, interrupt=100)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "threadteam: error: interrupted\n")
        assert list(tmp_path.iterdir()) == []

    def test_one_cpu_is_one_line_and_a_status(self, tmp_path: Path) -> None:
        done = command("calibrate", cache=tmp_path, cpus=1)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "threadteam: error: this process may use one CPU only: there is no section to measure on it\n"
        )

    @pytest.mark.parametrize("cost", ["nan", "inf", "-inf", "1e300", "-1e300", "2.0"])
    def test_figures_that_no_section_costs_are_never_kept(self, tmp_path: Path, cost: str) -> None:
        done = command("calibrate", cache=tmp_path, costs=cost)
        assert done.returncode == 1, done.stdout
        assert "vary too much to be kept: a section of 2 participants (team) cost " in done.stderr
        assert "in the median, which none does" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert len(done.stderr) < 400
        assert list(tmp_path.iterdir()) == []

    def test_its_json_stands_alone(self, tmp_path: Path) -> None:
        found = json.loads(command("calibrate", "--json", cache=tmp_path).stdout)
        assert Path(found["file"]).parent == tmp_path / "threadteam"
        assert found["host"]["width"] == 4
        assert found["cells"][0] == {"kind": "team", "width": 2, "cost": 5e-7, "spread": 0.0, "samples": 300}

    def test_a_directory_that_cannot_be_written_costs_the_file_not_the_figures(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("no directory")
        done = command("calibrate", "--json", cache=tmp_path / "file")
        assert done.returncode == 1
        assert json.loads(done.stdout)["file"] is None
        assert "measured but not kept" in done.stderr
        assert "XDG_CACHE_HOME" in done.stderr


def test_a_calibration_is_plain_data() -> None:
    found = Calibration(HOST, (Cell("outside", 2, 5e-7, 0.1, 300),))
    assert json.loads(json.dumps(found.to_dict()))["host"]["cpu"] == "A model"
    assert kept(Path("/no/such/directory")).costs is None
