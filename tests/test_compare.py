"""The comparison: chains, results, turns, reports. Systems are replaced where a test needs a fault."""

import json
import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from threadteam.compare import Case, Settings, chains, chart, compare, select
from threadteam.compare.arm import Arm
from threadteam.compare.artifacts import write
from threadteam.compare.case import largest_difference
from threadteam.compare.results import ArmResult, CaseResult, Comparison, quantile
from threadteam.compare.runner import _turn
from threadteam.compare.systems import SYSTEMS, Decomposition, system
from threadteam.compare.worker import Turn
from threadteam.errors import MissingExtra

PLAIN = chains()[3]
MASKED = next(chain for chain in chains() if chain.mask_shape is not None)


def arm(name: str, threads: int, median: float | None) -> ArmResult:
    row = ArmResult(name, threads)
    if median is not None:
        row.add_turn([median], median)
    return row


def case(*arms: ArmResult) -> CaseResult:
    return CaseResult("case", "a case", list(arms))


@pytest.mark.parametrize("chain", [PLAIN, MASKED], ids=lambda chain: chain.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_onnx_model_of_a_chain_computes_its_numpy_expression(chain, dtype) -> None:
    runtime = pytest.importorskip("onnxruntime")
    inputs = chain.inputs(dtype)
    session = runtime.InferenceSession(chain.model(dtype), providers=["CPUExecutionProvider"])
    assert largest_difference(session.run(None, inputs), chain.evaluate(inputs)) < 1e-5


def test_every_chain_of_the_workload_file_is_there_once() -> None:
    names = [chain.name for chain in chains()]
    assert len(names) == len(set(names)) == 25


def test_the_softmax_of_a_plain_chain_is_not_one_hot() -> None:
    inputs = chains()[5].inputs()
    assert np.std(inputs["A"] @ inputs["B"]) == pytest.approx(1.0, rel=0.1)


def test_inputs_are_the_same_every_time() -> None:
    one, other = PLAIN.inputs(), PLAIN.inputs()
    assert all(np.array_equal(one[name], other[name]) for name in ("A", "B", "C"))


def test_a_beginning_of_a_name_selects_all_chains_that_have_it() -> None:
    cases, _ = select(["attn_decode"])
    assert [selected.name for selected in cases] == ["attn_decode_h12_kv128_d64", "attn_decode_h12_kv384_d64"]


def test_a_case_selected_twice_is_compared_once() -> None:
    cases, _ = select(["gsg_1_64", "gsg_1_64_64_64"])
    assert len(cases) == 1


def test_a_name_that_selects_nothing_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'gemm'.*attention.*gsg_1_64_64_64"):
        select(["gemm"])


def test_magikas_features_come_from_real_files() -> None:
    pytest.importorskip("magika")
    cases, _ = select(["magika"])
    features = cases[-1].inputs["bytes"]
    assert features.shape[1] == 2048
    assert len({row.tobytes() for row in features}) == len(features)


def test_a_missing_magika_is_named_as_skipped(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cases, skipped = select(["magika"])
    assert cases == []
    assert "pip install magika" in skipped["magika"]


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model at all")
    with pytest.raises(ValueError, match=r"broken\.onnx is not an ONNX model"):
        select([str(tmp_path / "broken.onnx")])


def test_a_model_file_gets_random_inputs(tmp_path: Path) -> None:
    (tmp_path / "chain.onnx").write_bytes(PLAIN.model())
    (selected,), _ = select([str(tmp_path / "chain.onnx")])
    assert {name: value.shape for name, value in selected.inputs.items()} == {
        "A": (64, 128),
        "B": (128, 128),
        "C": (128, 128),
    }


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([np.zeros(2)], [np.zeros(3)]),
        ([np.zeros(2)], []),
        ([np.array([np.nan])], [np.array([1.0])]),
        ([np.array([1.0])], [np.array([np.inf])]),
        ([np.array(["a"])], [np.array(["b"])]),
        ([np.zeros(1, np.int64)], [np.zeros(1)]),
    ],
)
def test_results_of_another_form_or_kind_differ_infinitely(result, expected) -> None:
    assert largest_difference(result, expected) == math.inf


def test_equal_results_do_not_differ_even_where_they_are_no_numbers() -> None:
    values = [np.array([np.nan, np.inf, -1.0]), np.array([True]), np.array([], np.float32)]
    assert largest_difference(values, values) == 0.0


def test_quantiles_are_values_that_were_measured() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.9, 1.0)] == [1.0, 3.0, 5.0, 5.0]


def test_the_speedup_is_over_the_same_system_on_one_thread() -> None:
    result = case(arm("numpy", 1, 8.0), arm("openmp", 1, 4.0), arm("openmp", 2, 2.0))
    assert result.speedup(result.arms[2]) == 2.0


def test_the_ratio_is_to_onnx_runtimes_best_width() -> None:
    result = case(arm("threadteam", 2, 3.0), arm("onnxruntime", 1, 6.0), arm("onnxruntime", 2, 12.0))
    assert result.against_onnxruntime(result.arms[0]) == 0.5


def test_ratios_are_taken_turn_by_turn() -> None:
    one, other = ArmResult("threadteam", 1), ArmResult("threadteam", 2)
    # The clock halves after the first turn; the second arm is disturbed in the last.
    for row, turns in ((one, [4.0, 8.0, 8.0]), (other, [2.0, 4.0, 40.0])):
        for seconds in turns:
            row.add_turn([seconds] * 3, seconds)
    assert one.over(other) == 2.0
    assert case(one, other).speedup(other) == 2.0
    assert (one.median, other.median) == (8.0, 4.0)


def test_nothing_is_compared_with_what_was_not_measured() -> None:
    result = case(arm("threadteam", 2, None), arm("onnxruntime", 1, None))
    assert result.speedup(result.arms[0]) is None
    assert result.against_onnxruntime(result.arms[0]) is None


def test_an_unknown_system_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'tensorflow'.*threadteam, openmp, onnxruntime, numpy"):
        system("tensorflow")


def test_settings_refuse_what_is_no_width() -> None:
    for text in ("0", "two", "-1", "1.5"):
        with pytest.raises(ValueError, match="whole numbers"):
            Settings.parse(threads=text)


def test_every_system_says_what_its_process_starts_with() -> None:
    for name in SYSTEMS:
        assert system(name).environment(3)["OPENBLAS_NUM_THREADS"] == ("3" if name == "numpy" else "1")


@pytest.fixture(scope="module")
def report() -> Comparison:
    cases, _ = select(["gsg_8_64_64_64"])
    return compare(cases, Settings(systems=("onnxruntime", "numpy"), threads=(1, 2), repeat=2))


def test_arms_are_timed_and_agree(report: Comparison) -> None:
    pytest.importorskip("onnxruntime")
    (result,) = report.cases
    assert [(row.system, row.threads) for row in result.arms] == [
        ("onnxruntime", 1),
        ("onnxruntime", 2),
        ("numpy", 1),
        ("numpy", 2),
    ]
    assert all(row.problem is None and row.median is not None and row.difference < 1e-5 for row in result.arms)
    assert report.correct


def test_thread_counts_are_read_from_the_processes(report: Comparison) -> None:
    counted = [(row.threads, row.threads_found) for row in report.cases[0].arms]
    assert all(found in (None, threads) for threads, found in counted)


def test_the_json_is_complete(report: Comparison) -> None:
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    (entry,) = data["cases"]
    assert len(entry["arms"]) == 4
    assert {"system", "threads", "seconds", "median", "p90", "worst", "cpu_per_run", "speedup", "first_run"} <= set(
        entry["arms"][0]
    )
    assert data["versions"].keys() == {"onnxruntime", "numpy"}


def test_a_system_that_is_missing_is_named_as_skipped(monkeypatch, tmp_path: Path) -> None:
    # A package of that name that fails to import, first on the path of the child process.
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cases, _ = select(["gsg_1_64_64_64"])
    found = compare(cases, Settings(systems=("onnxruntime", "numpy"), threads=(1,), repeat=1))
    assert "pip install onnxruntime" in found.skipped["onnxruntime"]
    assert [row.system for row in found.cases[0].arms] == ["numpy"]


def test_a_wrong_result_is_named_and_not_timed(monkeypatch, tmp_path: Path) -> None:
    # The reference is ONNX Runtime; a stand-in for it answers with zeros.
    (tmp_path / "onnxruntime.py").write_text(
        "import numpy\n__version__ = '0'\n"
        "class SessionOptions: pass\n"
        "class InferenceSession:\n"
        "    def __init__(self, *a, **k): pass\n"
        "    def run(self, names, feeds): return [numpy.ones((1, 64), numpy.float32)]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cases, _ = select(["gsg_1_64_64_64"])
    found = compare(cases, Settings(systems=("onnxruntime", "numpy"), threads=(1,), repeat=1))
    assert not found.correct
    (wrong,) = found.cases[0].wrong
    assert wrong.system == "numpy"
    assert wrong.seconds == []


def test_a_process_that_dies_is_reported_and_the_others_go_on(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "import os\n__version__ = '0'\nclass SessionOptions: pass\ndef InferenceSession(*a, **k): os._exit(9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cases, _ = select(["gsg_1_64_64_64", "gsg_8_64_64_64"])
    found = compare(cases, Settings(systems=("onnxruntime", "numpy"), threads=(1,), repeat=1))
    for result in found.cases:
        dead, alive = result.arms
        assert "status 9" in dead.problem
        assert alive.median is not None


def test_tables_fit_120_columns_and_show_what_went_wrong(report: Comparison) -> None:
    console = pytest.importorskip("rich.console")
    from threadteam.compare import case_table, summary_table

    result = case(arm("threadteam", 1, 12.3e-6), arm("threadteam", 2, 8.1e-6), arm("onnxruntime", 1, 20e-6))
    for row in result.arms:
        row.first_run, row.cpu_seconds = 1e-3, 3e-5
    result.arms[1].decomposition = Decomposition({"Gemm [1]": 5e-6, "Softmax": 2e-6}, 2e-7, 4e-7, 0.08, 3.0)
    result.arms[1].threads_found = 3
    result.arms[2].problem = "wrong result: differs"
    with console.Console(width=120, record=True, file=open("/dev/null", "w")) as printer:
        printer.print(case_table(result))
        printer.print(summary_table(report))
    text = printer.export_text()
    assert max(map(len, text.splitlines())) <= 120
    assert "Gemm [1] 5.00 us + Softmax 2.00 us; dispatch 200 ns + barrier 400 ns in 3 sections" in text
    assert "threadteam 2: participants found in the process: 3" in text
    assert "onnxruntime 1: wrong result" in text
    assert "geometric mean" in text


def test_the_operators_of_a_long_model_are_added_up_by_kind() -> None:
    console = pytest.importorskip("rich.console")
    from threadteam.compare import case_table

    result = case(arm("threadteam", 2, 1e-3))
    operators = {f"layer{number}/mul (Mul)": 1e-6 for number in range(9)} | {"layer0/conv (Conv)": 5e-4}
    result.arms[0].decomposition = Decomposition(operators, 0.0, 0.0, 0.0, 9.0)
    with console.Console(width=120, record=True, file=open("/dev/null", "w")) as printer:
        printer.print(case_table(result))
    assert "threadteam 2: Conv 500 us + Mul 9.00 us; dispatch" in printer.export_text()


def test_a_missing_onnx_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"threadteam\[onnx\]"):
        PLAIN.model()


def test_a_case_keeps_its_arrays_out_of_its_text() -> None:
    assert "array" not in repr(Case("name", "title", b"model", {"A": np.zeros(3)}, 1e-5))


def measured(*cases: CaseResult) -> Comparison:
    machine = {"processor": "a processor", "cpus": 4, "cpu_budget": 2}
    return Comparison(machine, {"systems": ["numpy"], "threads": [1], "repeat": 1}, cases=list(cases))


def test_the_picture_shows_each_case_that_onnx_runtime_ran_and_every_other_system(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = case(arm("threadteam", 1, 3.0), arm("threadteam", 2, 2.0), arm("numpy", 1, 40.0), arm("onnxruntime", 1, 6.0))
    alone = CaseResult("alone", "", [arm("threadteam", 1, 1.0)])
    chart.draw(measured(ran, alone), [tmp_path / "compare.svg"])
    drawn = (tmp_path / "compare.svg").read_text()
    for text in ("case  (6.00 s)", "threadteam", "numpy", "a processor, 2 of 4 CPUs"):
        assert f"<!-- {text} -->" in drawn
    assert "<!-- openmp -->" not in drawn
    assert "<!-- alone" not in drawn


def test_without_times_of_onnx_runtime_no_picture_is_written(tmp_path: Path) -> None:
    report = measured(case(arm("threadteam", 1, 3.0), arm("onnxruntime", 1, None)))
    with pytest.raises(ValueError, match="nothing to draw"):
        chart.draw(report, [tmp_path / "compare.svg"])
    assert [path.name for path in write(report, [], tmp_path / "out")] == ["compare.json"]


def test_the_files_of_a_comparison_are_its_json_and_pictures(report: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib")
    names = [path.name for path in write(report, [], tmp_path)]
    assert names == ["compare.json", "compare.png", "compare.svg"]
    assert all((tmp_path / name).stat().st_size > 0 for name in names)


class SteadyArm:
    """Stands for a process whose runs take 50 us after a first one of 50 ms."""

    def __init__(self) -> None:
        self.timed: list[int] = []

    def time(self, runs: int, warm_up: int) -> Turn:
        self.timed.append(runs)
        return Turn([5e-5] * runs, 0.0)

    def settle(self) -> None:
        pass


def test_the_first_turn_is_as_long_as_the_others_however_long_the_first_run_took() -> None:
    steady = SteadyArm()
    row = arm("threadteam", 2, None)
    row.first_run = 0.05
    for _ in range(2):
        _turn(cast(Arm, steady), row)
    assert steady.timed == [1, 800, 800]
    assert len(row.seconds) == 1600
