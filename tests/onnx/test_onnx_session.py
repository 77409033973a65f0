"""The surface of a session: inputs of every kind, refusals by name, threads, closing, terminating, looking."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import threadteam as tt
import threadteam.onnx as tt_onnx
from onnx import helper
from small_models import build, feed, one_node


@pytest.fixture
def model():
    """`y = relu(a) + b` with a free first dimension."""
    nodes = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Add", ["r", "b"], ["y"])]
    return build(nodes, {"a": ("f4", ["n", 3]), "b": ("f4", (3,))}, {"y": ("f4", ["n", 3])})


@pytest.fixture
def session(model):
    """A session of that model."""
    with tt_onnx.InferenceSession(model) as made:
        yield made


A = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
B = np.array([10, 20, 30], np.float32)
Y = np.maximum(A, 0) + B


@pytest.mark.parametrize(
    "a",
    [
        A,
        np.asfortranarray(A),
        np.repeat(A, 2, axis=1)[:, ::2],
        A[::-1].copy()[::-1],
        A.astype(A.dtype.newbyteorder("S")),
        A.tolist(),
        [[1, -2, 3], [-4, 5, -6]],
        [list(row) for row in A],
    ],
    ids=["plain", "fortran", "strided", "reversed", "swapped", "floats", "ints", "numpy scalars"],
)
def test_inputs_of_any_layout_byte_order_and_nesting_mean_the_same(session, a):
    (result,) = session.run(None, {"a": a, "b": B})
    assert (result == Y).all()


def test_a_broadcast_input_is_read_as_it_looks(session):
    (result,) = session.run(None, {"a": np.broadcast_to(A[0], (4, 3)), "b": B})
    assert (result == Y[0]).all()


def test_an_unaligned_input_is_read_as_it_looks(session):
    a = np.frombuffer(b"x" + A.tobytes(), np.uint8)[1:].view("f4").reshape(2, 3)
    assert not a.flags.aligned
    assert (session.run(None, {"a": a, "b": B})[0] == Y).all()


def test_a_scalar_input_may_be_a_number():
    node = helper.make_node("Add", ["x", "x"], ["y"])
    session = tt_onnx.InferenceSession(build([node], {"x": ("i8", ())}, {"y": ("i8", ())}))
    assert session.run(None, {"x": 21})[0] == 42
    assert session.run(None, {"x": np.int64(21)})[0] == 42


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_small_types_pass_through(dtype):
    import ml_dtypes

    x = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype))
    node = helper.make_node("Transpose", ["x"], ["y"])
    kind = (int(helper.np_dtype_to_tensor_dtype(x.dtype)), (2, 3))
    model = build([node], {"x": kind}, {"y": (kind[0], (3, 2))}, opset=25)
    (result,) = tt_onnx.InferenceSession(model).run(None, {"x": x})
    assert result.dtype == x.dtype
    assert (result.astype("f4") == x.T.astype("f4")).all()


REFUSED = {
    "missing input 'b'": {"a": A},
    "missing inputs 'a', 'b'": {},
    "unexpected input 'c'": {"a": A, "b": B, "c": B},
    "missing input 'a' and unexpected input 'x'": {"x": A, "b": B},
    r"'a' has type tensor\(double\), expected tensor\(float\)": {"a": A.astype("f8"), "b": B},
    r"'a' has type tensor\(int64\), expected tensor\(float\)": {"a": A.astype("i8"), "b": B},
    r"'b' has rank 2 \(shape \[1, 3\]\), expected rank 1 \(shape \[3\]\)": {"a": A, "b": B[None]},
    r"'b' has shape \[4\], expected \[3\]: axis 0 is 4 instead of 3": {"a": A, "b": np.zeros(4, "f4")},
    r"'a' has shape \[2, 4\], expected \[n, 3\]: axis 1 is 4 instead of 3": {"a": np.zeros((2, 4), "f4"), "b": B},
    "'a' is not an array": {"a": [[1, 2, 3], [4]], "b": B},
    "'b' has type str": {"a": A, "b": "text"},
    "'b' has type NoneType": {"a": A, "b": None},
}


@pytest.mark.parametrize("message", REFUSED)
def test_unfit_inputs_are_refused_by_name(session, message):
    with pytest.raises(tt_onnx.InvalidArgument, match=message):
        session.run(None, REFUSED[message])
    assert (session.run(None, {"a": A, "b": B})[0] == Y).all()


def test_shapes_that_together_look_like_seen_ones_are_refused(session):
    session.run(None, {"a": A, "b": B})
    with pytest.raises(tt_onnx.InvalidArgument, match="rank"):
        session.run(None, {"a": np.zeros((2,), "f4"), "b": np.zeros((3, 3), "f4")})


def test_integers_outside_the_range_of_their_type_are_refused():
    node = helper.make_node("Identity", ["x"], ["y"])
    session = tt_onnx.InferenceSession(build([node], {"x": ("u1", (1,))}, {"y": ("u1", (1,))}))
    with pytest.raises(tt_onnx.InvalidArgument, match="outside the range of uint8"):
        session.run(None, {"x": [300]})


def test_unknown_outputs_are_refused_by_name(session):
    with pytest.raises(tt_onnx.InvalidArgument, match=r"'z'.*'y'"):
        session.run(["z"], {"a": A, "b": B})


def test_operands_that_do_not_fit_name_the_node():
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="the product")
    model = build([node], {"a": ("f4", ["n", "k"]), "b": ("f4", ["l", "m"])}, {"y": ("f4", None)})
    with pytest.raises(tt_onnx.InvalidGraph, match=r"the product.*3 columns against 4 rows"):
        tt_onnx.InferenceSession(model).run(None, {"a": np.ones((2, 3), "f4"), "b": np.ones((4, 5), "f4")})


def test_an_index_out_of_range_names_the_node_and_leaves_the_session_usable():
    node = helper.make_node("Gather", ["d", "i"], ["y"], name="the lookup")
    session = tt_onnx.InferenceSession(build([node], {"d": ("f4", (3,)), "i": ("i8", (1,))}, {"y": ("f4", (1,))}))
    with pytest.raises(tt_onnx.RuntimeException, match="the lookup"):
        session.run(None, {"d": np.ones(3, "f4"), "i": np.array([5])})
    assert session.run(None, {"d": np.ones(3, "f4"), "i": np.array([-1])})[0] == 1


def test_a_node_that_fails_in_the_reference_is_named():
    node = helper.make_node("Det", ["x"], ["y"], name="the determinant")
    session = tt_onnx.InferenceSession(build([node], {"x": ("f4", ["n", "m"])}, {"y": ("f4", None)}))
    with pytest.raises(tt_onnx.OnnxError, match="the determinant"):
        session.run(None, {"x": np.ones((2, 3), "f4")})


def test_results_belong_to_the_caller():
    node = helper.make_node("Shape", ["x"], ["y"])
    session = tt_onnx.InferenceSession(build([node], {"x": ("f4", (2, 3))}, {"y": ("i8", (2,))}))
    x = np.zeros((2, 3), np.float32)
    (first,) = session.run(None, {"x": x})
    first[...] = 9
    assert session.run(None, {"x": x})[0].tolist() == [2, 3]


def test_declared_names_types_and_shapes_are_those_of_onnx_runtime(session, model):
    import onnxruntime

    other = onnxruntime.InferenceSession(model.SerializeToString())
    for ours, theirs in zip(
        [*session.get_inputs(), *session.get_outputs()], [*other.get_inputs(), *other.get_outputs()], strict=True
    ):
        assert (ours.name, ours.type, ours.shape) == (theirs.name, theirs.type, theirs.shape)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_modelmeta().graph_name == other.get_modelmeta().graph_name


def test_providers_without_the_cpu_are_refused():
    with pytest.raises(tt_onnx.InvalidArgument, match="CUDAExecutionProvider"):
        tt_onnx.InferenceSession(one_node("Relu", [A]), providers=["CUDAExecutionProvider"])


@pytest.mark.parametrize("providers", [[3], [()], [None]])
def test_providers_that_are_no_names_are_refused(providers):
    with pytest.raises(tt_onnx.InvalidArgument, match="CPUExecutionProvider"):
        tt_onnx.InferenceSession(one_node("Relu", [A]), providers=providers)


@pytest.mark.parametrize("width", ["2", 2.5, None, -1])
def test_a_width_that_is_none_is_refused_when_the_session_is_made(width):
    options = tt_onnx.SessionOptions()
    options.intra_op_num_threads = width
    with pytest.raises(tt_onnx.InvalidArgument, match="intra_op_num_threads"):
        tt_onnx.InferenceSession(one_node("Relu", [A]), options)


@pytest.mark.parametrize("feeds", [None, [1], 3])
def test_inputs_that_are_no_mapping_are_refused(session, feeds):
    with pytest.raises(tt_onnx.InvalidArgument, match=type(feeds).__name__):
        session.run(None, feeds)


def test_an_input_larger_than_memory_once_copied_is_refused():
    model = build([helper.make_node("Relu", ["x"], ["y"])], {"x": ("f4", ["n"])}, {"y": ("f4", None)})
    session = tt_onnx.InferenceSession(model)
    with pytest.raises(tt_onnx.RuntimeException, match="memory"):
        session.run(None, {"x": np.broadcast_to(np.float32(0), (2**50,))})


def test_an_initializer_that_is_an_input_can_be_overridden():
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = build([node], {"x": ("f4", (2,)), "w": ("f4", (2,))}, {"y": ("f4", (2,))}, {"w": np.float32([1, 2])})
    session = tt_onnx.InferenceSession(model)
    x = np.zeros(2, np.float32)
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    assert session.run(None, {"x": x})[0].tolist() == [1, 2]
    assert session.run(None, {"x": x, "w": np.float32([3, 4])})[0].tolist() == [3, 4]
    assert session.run(None, {"x": x})[0].tolist() == [1, 2]


def test_initializers_of_old_models_are_constants_although_listed_as_inputs():
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = build(
        [node], {"x": ("f4", (2,)), "w": ("f4", (2,))}, {"y": ("f4", (2,))}, {"w": np.float32([1, 2])}, opset=8
    )
    model.ir_version = 3
    session = tt_onnx.InferenceSession(model)
    assert session.get_overridable_initializers() == []
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]


def test_added_initializers_replace_the_models():
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = build([node], {"x": ("f4", (2,))}, {"y": ("f4", (2,))}, {"w": np.float32([1, 2])})
    options = tt_onnx.SessionOptions()
    options.add_initializer("w", tt_onnx.OrtValue.ortvalue_from_numpy(np.float32([5, 6])))
    assert tt_onnx.InferenceSession(model, options).run(None, {"x": np.zeros(2, "f4")})[0].tolist() == [5, 6]


# -- preallocated outputs ----------------------------------------------------------------------------------------------


def test_a_bound_output_receives_the_result(session):
    binding = session.io_binding()
    target = np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("a", A)
    binding.bind_cpu_input("b", B)
    binding.bind_output("y", array=target)
    session.run_with_iobinding(binding)
    assert (target == Y).all()
    assert binding.copy_outputs_to_cpu()[0] is target


def test_a_bound_output_of_any_strides_receives_the_result(session):
    binding = session.io_binding()
    whole = np.zeros((4, 3), np.float32)
    binding.bind_cpu_input("a", A)
    binding.bind_cpu_input("b", B)
    binding.bind_output("y", array=whole[::2])
    session.run_with_iobinding(binding)
    assert (whole[::2] == Y).all()
    assert (whole[1::2] == 0).all()


def test_an_output_bound_to_an_input_gives_the_right_answer(session):
    a = A.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("a", a)
    binding.bind_cpu_input("b", B)
    binding.bind_output("y", array=a)
    session.run_with_iobinding(binding)
    assert (a == Y).all()


def test_a_bound_output_of_the_wrong_shape_is_refused(session):
    binding = session.io_binding()
    binding.bind_cpu_input("a", A)
    binding.bind_cpu_input("b", B)
    binding.bind_output("y", array=np.zeros((3, 3), np.float32))
    with pytest.raises(tt_onnx.InvalidArgument, match=r"'y'.*\[2, 3\].*\[3, 3\]"):
        session.run_with_iobinding(binding)


def test_an_input_at_a_bare_address_is_refused_with_what_to_call_instead(session):
    with pytest.raises(tt_onnx.InvalidArgument, match=r"'a'.*bind_cpu_input"):
        session.io_binding().bind_input("a", "cpu", 0, np.float32, A.shape, A.ctypes.data)


def test_calls_that_programs_make_before_and_beside_a_session_are_accepted(session):
    tt_onnx.set_default_logger_severity(3)
    tt_onnx.set_default_logger_verbosity(0)
    tt_onnx.disable_telemetry_events()
    tt_onnx.enable_telemetry_events()
    assert tt_onnx.get_all_providers() == tt_onnx.get_available_providers() == session.get_providers()
    session.disable_fallback()
    session.enable_fallback()
    assert session.get_profiling_start_time_ns() == 0


def test_wrapped_values_go_in_and_come_out(session):
    (value,) = session.run_with_ort_values(None, {"a": tt_onnx.OrtValue(A), "b": tt_onnx.OrtValue(B)})
    assert (value.numpy() == Y).all()
    assert value.data_type() == "tensor(float)"


# -- life --------------------------------------------------------------------------------------------------------------


def test_sessions_of_one_width_lease_one_executor():
    model = one_node("Relu", [A])
    before = {info.policy: info.leases for info in tt_onnx.registry().executors()}
    options = tt_onnx.SessionOptions()
    options.intra_op_num_threads = 3
    policy = tt_onnx.Policy(3)
    sessions = [tt_onnx.InferenceSession(model, options) for _ in range(5)]
    assert policy not in before
    for session in sessions:
        session.run(None, feed([A]))
    assert {info.policy: info.leases for info in tt_onnx.registry().executors()}[policy] == 5
    sessions.pop().close()
    assert {info.policy: info.leases for info in tt_onnx.registry().executors()}[policy] == 4
    del session, sessions
    gc.collect()
    assert policy not in {info.policy for info in tt_onnx.registry().executors()}


def test_the_registry_refuses_more_policies_than_its_bound():
    small = tt_onnx.Registry(bound=1)
    lease = small.lease(tt_onnx.Policy(1))
    with pytest.raises(tt_onnx.Fail, match="close sessions"):
        small.lease(tt_onnx.Policy(2))
    lease.release()
    lease.release()
    small.lease(tt_onnx.Policy(2)).release()


def test_a_session_that_ends_in_the_middle_of_a_change_gives_its_executor_back_after_it(monkeypatch):
    # The garbage collector ends sessions at any moment, on a thread that may be making an executor.
    shared = tt_onnx.Registry()
    ended = [shared.lease(tt_onnx.Policy(1)), shared.lease(tt_onnx.Policy(2))]
    registry_module = sys.modules[tt_onnx.Registry.__module__]
    make = registry_module.make_pool

    def make_and_collect(policy):
        ended.pop().release()
        return make(policy)

    monkeypatch.setattr(registry_module, "make_pool", make_and_collect)
    leases = []
    thread = threading.Thread(target=lambda: leases.append(shared.lease(tt_onnx.Policy(3))), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert {info.policy.width: info.leases for info in shared.executors()} == {1: 1, 3: 1}
    assert shared.lease(tt_onnx.Policy(2)).pool.exec().map(abs, [-1]) == [1]


def test_threads_and_memory_are_steady_over_many_sessions(model):
    def cycle(count):
        for _ in range(count):
            with tt_onnx.InferenceSession(model) as made:
                made.run(None, {"a": A, "b": B})
        gc.collect()

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    cycle(100)
    threads, memory = len(list(Path("/proc/self/task").iterdir())), resident()
    cycle(400)
    assert len(list(Path("/proc/self/task").iterdir())) <= threads
    assert resident() - memory < 4 << 20


def test_a_closed_session_refuses_to_run(session):
    session.close()
    session.close()
    with pytest.raises(tt_onnx.Fail, match="closed"):
        session.run(None, {"a": A, "b": B})


def test_a_session_runs_on_the_pool_it_is_given():
    with tt.Pool(2) as pool:
        session = tt_onnx.InferenceSession(one_node("Relu", [A]), on=pool)
        before = tt_onnx.registry().executors()
        assert (session.run(None, feed([A]))[0] == np.maximum(A, 0)).all()
        assert tt_onnx.registry().executors() == before


def gate_model():
    """A loop of which each turn passes through Python."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "one"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("c", 9, []),
            helper.make_tensor_value_info("v", 1, []),
        ],
        [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("w", 1, [])],
    )
    node = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    return build([node], {"m": ("i8", ()), "x": ("f4", ())}, {"y": ("f4", ())}, {"one": np.float32(1)})


def test_closing_waits_for_the_run_in_flight(monkeypatch):
    session = tt_onnx.InferenceSession(gate_model())
    entered, leave = threading.Event(), threading.Event()
    reference = session._planner.reference

    def slow(node):
        entered.set()
        assert leave.wait(30)
        return reference(node)

    monkeypatch.setattr(session._planner, "reference", slow)
    results = []
    runner = threading.Thread(target=lambda: results.append(session.run(None, {"m": 3, "x": np.float32(0)})))
    runner.start()
    assert entered.wait(30)
    closer = threading.Thread(target=session.close)
    closer.start()
    while not session._closed:
        pass
    assert closer.is_alive()
    assert not results
    leave.set()
    runner.join()
    closer.join()
    assert results[0][0] == 3


def test_terminate_ends_an_endless_loop():
    session = tt_onnx.InferenceSession(gate_model())
    options = tt_onnx.RunOptions()
    errors = []

    def run():
        try:
            session.run(None, {"m": np.int64(2**62), "x": np.float32(0)}, options)
        except tt_onnx.RunTerminated as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    options.terminate = True
    thread.join(60)
    assert not thread.is_alive()
    assert errors
    options.terminate = False
    assert session.run(None, {"m": 3, "x": np.float32(0)}, options)[0] == 3


def test_terminate_set_before_the_run_ends_it_at_once(session):
    options = tt_onnx.RunOptions()
    options.terminate = True
    with pytest.raises(tt_onnx.RunTerminated):
        session.run(None, {"a": A, "b": B}, options)


def test_runs_from_several_threads_do_not_mix(session):
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(200):
            a = random.standard_normal((random.integers(1, 6), 3)).astype(np.float32)
            (y,) = session.run(None, {"a": a, "b": B})
            if not (y == np.maximum(a, 0) + B).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_plans_for_many_shapes_are_bounded():
    options = tt_onnx.SessionOptions()
    options.plan_cache_size = 4
    node = helper.make_node("Relu", ["x"], ["y"])
    session = tt_onnx.InferenceSession(build([node], {"x": ("f4", ["n"])}, {"y": ("f4", ["n"])}), options)
    for extent in range(1, 20):
        session.run(None, {"x": np.ones(extent, np.float32)})
    assert len(session._plans) == 4
    assert len(session._fast) <= 4


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_profile_has_every_step(tmp_path):
    options = tt_onnx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile_")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Softmax", ["r"], ["y"], name="second"),
    ]
    before = time.monotonic_ns()
    session = tt_onnx.InferenceSession(build(nodes, {"x": ("f4", (2, 3))}, {"y": ("f4", (2, 3))}), options)
    assert before <= session.get_profiling_start_time_ns() <= time.monotonic_ns()
    session.run(None, {"x": A})
    session.run(None, {"x": A})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    assert [event["name"] for event in events] == ["first (Relu)", "second (Softmax)"] * 2


def test_a_plan_tells_steps_buffers_and_memory_before_anything_runs():
    nodes = [
        helper.make_node("MatMul", ["a", "a"], ["p"]),
        helper.make_node("MatMul", ["p", "a"], ["q"]),
        helper.make_node("MatMul", ["q", "p"], ["y"]),
    ]
    model = build(nodes, {"a": ("f4", ["n", "n"])}, {"y": ("f4", ["n", "n"])})
    plan = tt_onnx.InferenceSession(model).plan(n=16)
    assert [step.kind for step in plan.steps] == ["matmul"] * 3
    assert plan.flops == 3 * 2 * 16**3
    assert plan.arena_bytes == 2 * 16 * 16 * 4
    assert plan.peak_bytes == 3 * 16 * 16 * 4
    assert len(plan.buffers) == 2
    assert "24.6 kflop" in str(plan)


@pytest.mark.parametrize("shape", [np.zeros((2, 2)), 4, "ab", (2.5, 2), (-1, 2)])
def test_a_shape_that_is_none_is_refused_by_name(shape):
    model = build([helper.make_node("Relu", ["x"], ["y"])], {"x": ("f4", ["n", "m"])}, {"y": ("f4", ["n", "m"])})
    with pytest.raises(tt_onnx.InvalidArgument, match="the shape of input 'x' must be a sequence of extents"):
        tt_onnx.InferenceSession(model).plan({"x": shape})


def test_a_session_cannot_be_pickled(session):
    import pickle

    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(session)


def test_sequences_and_optionals_pass_through():
    tensor = helper.make_tensor_type_proto(1, None)
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    model = build(
        nodes,
        {"a": ("f4", (1, 3)), "b": ("f4", (2, 3))},
        {"y": ("f4", None), "s": helper.make_sequence_type_proto(tensor)},
    )
    session = tt_onnx.InferenceSession(model)
    y, s = session.run(None, {"a": A[:1], "b": A})
    assert (y == np.concatenate([A[:1], A])).all()
    assert [item.shape for item in s] == [(1, 3), (2, 3)]
    assert session.get_outputs()[1].type == "seq(tensor(float))"
    assert isinstance(session._graph.model, onnx.ModelProto)
