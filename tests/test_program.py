"""`_native.Program`: what a description may say, and what a run does."""

from __future__ import annotations

import doctest
import gc
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import threadteam as tt
from numpy.typing import NDArray
from program_builder import DTYPES, Builder, Shape
from threadteam import _native
from threadteam.errors import RunCancelled, StepError

Array = NDArray[Any]

# In the byte order that this machine does not have; its string is `>f4` on most.
SWAPPED = np.dtype("f4").newbyteorder("S")


def unary(op: str, shape: Shape = (4,), dtype: str = "float32", params: Sequence[float] = ()) -> _native.Program:
    b = Builder()
    b.step("unary", [b.input(dtype, shape)], [b.output(dtype, shape)], op=op, params=list(params))
    return b.build()


def python_step(call: Callable[..., Any], shape: Shape = (2, 2), dtype: str = "float32") -> _native.Program:
    b = Builder()
    b.step("python", [b.input(dtype, shape)], [b.output(dtype, shape)], "call", call=call)
    return b.build()


RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((3, 4)).astype(np.float32)


# --- every kind -------------------------------------------------------------------------------------------------------

UNARY: dict[str, tuple[Sequence[float], Callable[[Array], Array]]] = {
    "relu": ((), lambda x: np.maximum(x, 0)),
    "leaky_relu": ((0.1,), lambda x: np.where(x < 0, 0.1 * x, x)),
    "elu": ((2.0,), lambda x: np.where(x < 0, 2 * np.expm1(x), x)),
    "sigmoid": ((), lambda x: 1 / (1 + np.exp(-x))),
    "hard_sigmoid": ((0.2, 0.5), lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "tanh": ((), np.tanh),
    "silu": ((), lambda x: x / (1 + np.exp(-x))),
    "softplus": ((), lambda x: np.log1p(np.exp(x))),
    "gelu_tanh": ((), lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "exp": ((), np.exp),
    "log": ((), np.log),
    "sqrt": ((), np.sqrt),
    "reciprocal": ((), lambda x: 1 / x),
    "neg": ((), np.negative),
    "abs": ((), np.abs),
    "floor": ((), np.floor),
    "ceil": ((), np.ceil),
    "round": ((), np.rint),
    "sign": ((), np.sign),
    "sin": ((), np.sin),
    "cos": ((), np.cos),
    "clip": ((-0.5, 0.25), lambda x: np.clip(x, -0.5, 0.25)),
}


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_unary_step_computes_its_function(op: str, dtype: str) -> None:
    params, expected = UNARY[op]
    x = X.astype(dtype)
    (y,) = unary(op, x.shape, dtype, params).run([x])
    assert y.dtype == x.dtype
    np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)


def test_erf_and_gelu_agree_with_scipy() -> None:
    special = pytest.importorskip("scipy.special")
    np.testing.assert_allclose(unary("erf", X.shape).run([X])[0], special.erf(X), rtol=1e-5, atol=1e-6)
    gelu = X / 2 * (1 + special.erf(X / np.sqrt(2)))
    np.testing.assert_allclose(unary("gelu", X.shape).run([X])[0], gelu, rtol=1e-5, atol=1e-6)


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "pow": np.power, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_binary_step_broadcasts_by_zero_strides(op: str, dtype: str) -> None:
    a = np.array([[1], [2], [3]], dtype)
    b = np.array([[1, 2, 3, 2]], dtype)
    builder = Builder()
    builder.input(dtype, a.shape)
    builder.input(dtype, b.shape)
    left = builder.value("input", 0, 0, dtype, (3, 4), (1, 0))
    right = builder.value("input", 1, 0, dtype, (3, 4), (0, 1))
    builder.step("binary", [left, right], [builder.output(dtype, (3, 4))], op=op)
    np.testing.assert_array_equal(builder.build().run([a, b])[0], BINARY[op](a, b))


@pytest.mark.parametrize("op", ["equal", "less", "less_or_equal", "greater", "greater_or_equal"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
def test_a_compare_step_gives_bool(op: str, dtype: str) -> None:
    a, b = np.array([0, 1, 1], dtype), np.array([1, 1, 0], dtype)
    builder = Builder()
    ins = [builder.input(dtype, (3,)), builder.input(dtype, (3,))]
    builder.step("compare", ins, [builder.output("bool", (3,))], op=op)
    (y,) = builder.build().run([a, b])
    function = getattr(np, op.replace("_or", "") if "_or" in op else op)
    assert y.dtype == np.bool_
    np.testing.assert_array_equal(y, function(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_select_and_gather_move_every_type(dtype: str) -> None:
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    x = np.arange(6).reshape(2, 3).astype(numpy_dtype)
    builder = Builder()
    builder.input(dtype, (2, 3))
    transposed = builder.value("input", 0, 0, dtype, (3, 2), (1, 3))
    reversed_rows = builder.value("input", 0, 5 * numpy_dtype.itemsize, dtype, (2, 3), (-3, -1))
    condition = builder.constant(np.array([[True, False, True], [False, True, False]]))
    indices = builder.constant(np.array([2, -3]))
    builder.step("copy", [transposed], [builder.output(dtype, (3, 2))])
    builder.step("select", [condition, 0, reversed_rows], [builder.output(dtype, (2, 3))])
    builder.step("gather", [0, indices], [builder.output(dtype, (2, 2))], axis=1)
    copied, selected, gathered = builder.build().run([x])
    assert copied.dtype == selected.dtype == gathered.dtype == numpy_dtype
    np.testing.assert_array_equal(copied, x.T)
    np.testing.assert_array_equal(selected, np.where(builder.constants[0], x, x[::-1, ::-1]))
    np.testing.assert_array_equal(gathered, x[:, [2, 0]])


@pytest.mark.parametrize("source", ["bool", "int8", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize("target", ["bool", "uint8", "int16", "int32", "uint64", "float32", "float64"])
def test_a_cast_step_converts_what_fits(source: str, target: str) -> None:
    x = np.array([0, 1, 100], source)
    builder = Builder()
    builder.step("cast", [builder.input(source, (3,))], [builder.output(target, (3,))])
    (y,) = builder.build().run([x])
    np.testing.assert_array_equal(y, x.astype(target))
    assert y.dtype == target


def test_matmul_softmax_norm_and_reduce_agree_with_numpy() -> None:
    builder = Builder()
    x = builder.input("float32", (3, 4))
    weights = builder.constant(RANDOM.standard_normal((4, 5)).astype(np.float32))
    builder.constant(RANDOM.standard_normal(5).astype(np.float32))
    bias = builder.value("const", 1, 0, "float32", (3, 5), (0, 1))
    builder.constant(np.full(1, 2, np.float32))
    scale = builder.value("const", 2, 0, "float32", (3, 5), (0, 0))
    product, normal, softmax = (builder.arena("float32", (3, 5)) for _ in range(3))
    total = builder.output("float32", (1, 5))
    mean = builder.output("float32", (3, 1))
    builder.step("matmul", [x, weights, bias], [product], alpha=0.5, beta=2.0)
    builder.step("layer_norm", [product, scale, -1], [normal, mean], axis=1, epsilon=1e-5)
    builder.step("softmax", [normal], [softmax], axis=-1 % 2, log=False)
    builder.step("reduce", [softmax], [total], op="sum", axes=[0])
    got, got_mean = builder.build().run([X])

    y = 0.5 * X @ builder.constants[0] + 2 * builder.constants[1]
    np.testing.assert_allclose(got_mean, y.mean(1, keepdims=True), rtol=1e-4, atol=1e-6)
    y = 2 * (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    e = np.exp(y - y.max(1, keepdims=True))
    np.testing.assert_allclose(got, (e / e.sum(1, keepdims=True)).sum(0, keepdims=True), rtol=1e-4)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_given_outputs_are_filled_and_returned() -> None:
    program, y = unary("neg"), np.zeros(4, np.float32)
    (result,) = program.run([np.arange(4, dtype=np.float32)], [y])
    assert result is y
    np.testing.assert_array_equal(y, [0, -1, -2, -3])
    (fresh,) = program.run((np.ones(4, np.float32),), (None,))
    np.testing.assert_array_equal(fresh, -np.ones(4))
    np.testing.assert_array_equal(y, [0, -1, -2, -3])


def test_scalars_and_empty_arrays_go_through() -> None:
    assert unary("neg", ()).run([np.array(2, np.float32)])[0] == -2
    assert unary("neg", (0, 3)).run([np.zeros((0, 3), np.float32)])[0].shape == (0, 3)
    assert python_step(lambda x: (x + 1,), ()).run([np.array(2, np.float32)])[0] == 3


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        ([1, 2, 3, 4], TypeError, r"input x0 is a list, but a numpy.ndarray of float32 is expected"),
        (np.zeros(4), TypeError, r"input x0 is float64, but float32 of native byte order is expected"),
        (np.zeros(4, SWAPPED), TypeError, f"input x0 is {SWAPPED}, but float32 of native"),
        (np.zeros(3, np.float32), ValueError, r"input x0 has the shape \[3\], but \[4\] is expected"),
        (np.zeros((2, 2), np.float32), ValueError, r"has the shape \[2, 2\]"),
        (np.zeros(8, np.float32)[::2], ValueError, r"input x0 is not C-contiguous and aligned"),
        (np.zeros(17, np.uint8)[1:].view(np.float32), ValueError, r"not C-contiguous and aligned"),
    ],
)
def test_an_unsuitable_input_is_refused_by_name(array: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        unary("neg").run([array])


def test_an_unsuitable_output_is_refused_by_name() -> None:
    program, x = unary("neg"), np.zeros(4, np.float32)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="output y0 is read-only"):
        program.run([x], [frozen])
    with pytest.raises(ValueError, match="output y0 has the shape"):
        program.run([x], [np.zeros(5, np.float32)])
    with pytest.raises(ValueError, match="the program takes 1 outputs, but 2 were given"):
        program.run([x], [None, None])
    with pytest.raises(ValueError, match="the program takes 1 inputs, but 0 were given"):
        program.run([])
    with pytest.raises(TypeError, match="inputs is a ndarray, but a list is expected"):
        program.run(x)


def test_an_output_that_shares_memory_is_refused() -> None:
    program, both = unary("neg"), np.zeros(6, np.float32)
    with pytest.raises(ValueError, match="output y0 shares memory with an input"):
        program.run([both[:4]], [both[2:]])
    builder = Builder()
    builder.step("copy", [builder.constant(both[:4])], [builder.output("float32", (4,))])
    builder.step("copy", [0], [builder.output("float32", (4,))])
    with pytest.raises(ValueError, match="output y0 shares memory with an input, a constant"):
        builder.build().run([], [both[:4], None])
    apart = np.zeros(6, np.float32)
    with pytest.raises(ValueError, match="output y1 shares memory"):
        builder.build().run([], [apart[:4], apart[2:]])


def test_constants_live_as_long_as_the_program() -> None:
    builder = Builder()
    array = np.arange(4, dtype=np.float32)
    alive = weakref.ref(array)
    builder.step("copy", [builder.constant(array)], [builder.output("float32", (4,))])
    program = builder.build()
    del array, builder
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(program.run([])[0], np.arange(4))
    del program
    assert alive() is None


def test_a_run_uses_whatever_on_names() -> None:
    program, x = unary("neg"), np.ones(4, np.float32)
    with tt.Pool(2) as pool:
        for on in (None, pool, pool.exec(), tt.Exec.serial()):
            np.testing.assert_array_equal(program.run([x], on=on)[0], -x)
    with pytest.raises(TypeError, match="on must be"):
        program.run([x], on=3)


def test_threads_may_run_one_program_at_once() -> None:
    meeting = threading.Barrier(4)

    def call(x: Array) -> tuple[Array]:
        meeting.wait()
        return (x,)

    builder = Builder()
    x, kept, passed = builder.input("int64", (8,)), builder.arena("int64", (8,)), builder.arena("int64", (8,))
    builder.step("copy", [x], [kept])
    builder.step("python", [kept], [passed], call=call)
    builder.step("binary", [kept, passed], [builder.output("int64", (8,))], op="add")
    program = builder.build()
    results: dict[int, Array] = {}

    def work(number: int) -> None:
        results[number] = program.run([np.full(8, number)])[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        np.testing.assert_array_equal(results[number], np.full(8, 2 * number))
    program.release_idle()


def test_a_profile_has_one_time_for_every_step() -> None:
    program = unary("neg")
    x = np.zeros(4, np.float32)
    assert program.profile() == []
    program.run([x], profile=True)
    assert len(program.profile()) == len(program.steps()) == 1
    assert program.steps() == [("unary", "node")]
    ((begin, end),) = program.spans()
    assert 0 <= begin <= end
    assert program.profile() == [pytest.approx((end - begin) * 1e-9)]


def test_the_examples_of_the_documentation_run() -> None:
    for documented in (_native.Program, _native.CancelFlag):
        (example,) = doctest.DocTestFinder(recurse=False).find(documented, documented.__name__, module=False)
        assert example.examples
        assert doctest.DocTestRunner().run(example).failed == 0


def test_a_program_shows_its_size() -> None:
    program = unary("neg")
    assert program.arena_bytes == 0
    assert repr(program) == "<Program of 1 steps, 1 inputs, 1 outputs, 0 bytes of arena>"


def test_a_cancelled_run_raises_before_the_next_step() -> None:
    flag = _native.CancelFlag()

    def call(x: Array) -> tuple[Array]:
        flag.set()
        return (x,)

    builder = Builder()
    x, middle = builder.input("float32", (4,)), builder.arena("float32", (4,))
    builder.step("python", [x], [middle], "first", call=call)
    builder.step("copy", [middle], [builder.output("float32", (4,))], "second")
    program = builder.build()
    with pytest.raises(RunCancelled, match=r"cancelled before step 1 \(second\)") as caught:
        program.run([np.zeros(4, np.float32)], cancelled=flag)
    assert (caught.value.step, caught.value.label) == (1, "second")
    assert flag.is_set()
    flag.clear()
    assert not flag.is_set()


def test_an_index_out_of_range_names_its_step() -> None:
    builder = Builder()
    data, indices = builder.constant(np.arange(3)), builder.input("int64", (1,))
    builder.step("gather", [data, indices], [builder.output("int64", (1,))], "pick", axis=0)
    program = builder.build()
    with pytest.raises(StepError, match=r"step 0 \(pick\): index 3 is out of range") as caught:
        program.run([np.array([3])])
    assert (caught.value.step, caught.value.label) == (0, "pick")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.step, copy.label) == (str(caught.value), 0, "pick")
    assert program.run([np.array([-1])])[0] == 2


def test_an_arena_that_does_not_fit_is_a_memory_error() -> None:
    builder = Builder()
    builder.step("copy", [builder.input("float32", (1,))], [builder.output("float32", (1,))])
    builder.arena_bytes = 2**62 - 1
    with pytest.raises(MemoryError):
        builder.build().run([np.zeros(1, np.float32)])


# --- Python steps -----------------------------------------------------------------------------------------------------


def test_a_python_step_gets_copies_and_gives_arrays() -> None:
    seen: list[Array | None] = []

    def call(*arrays: Array | None) -> list[Array]:
        seen.extend(arrays)
        assert arrays[0] is not None
        arrays[0][:] += 1
        return [arrays[0].T.copy().T, np.float64(3.5)]  # type: ignore[list-item]

    builder = Builder()
    builder.input("float64", (2, 3))
    reversed_rows = builder.value("input", 0, 24, "float64", (2, 3), (-3, 1))
    outs = [builder.output("float64", (2, 3)), builder.output("float64", ())]
    builder.step("python", [reversed_rows, -1], outs, call=call)
    x = np.arange(6.0).reshape(2, 3)
    y, scalar = builder.build().run([x])
    assert seen[1] is None
    assert scalar == 3.5
    np.testing.assert_array_equal(y, x[::-1] + 1)
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, r"step 0 \(call\): its function returned a NoneType, but a tuple of 1 arrays is expected"),
        ((), r"returned 0 results, but 1 are expected"),
        (([1, 2],), r"result 0 is a list, but an array is expected"),
        ((np.zeros((2, 2)),), r"result 0 is float64, but float32 is expected"),
        ((np.zeros((2, 2), SWAPPED),), f"result 0 is {SWAPPED}, but float32"),
        ((np.zeros(4, np.float32),), r"result 0 has the shape \[4\], but \[2, 2\] is expected"),
        ((np.zeros((2, 2), object),), r"result 0 is object"),
    ],
)
def test_an_unsuitable_result_names_the_step(result: Any, message: str) -> None:
    with pytest.raises(StepError, match=message):
        python_step(lambda x: result).run([np.zeros((2, 2), np.float32)])


def test_an_exception_of_a_python_step_is_raised_with_a_note() -> None:
    error = ZeroDivisionError("no")

    def call(x: Array) -> tuple[Array]:
        raise error

    program = python_step(call)
    with pytest.raises(ZeroDivisionError) as caught:
        program.run([np.zeros((2, 2), np.float32)])
    assert caught.value is error
    assert error.__notes__ == ["raised in step 0 (call)"]
    assert caught.traceback[-1].name == "call"


def test_a_python_step_may_run_the_same_program() -> None:
    programs: list[_native.Program] = []

    def call(x: Array) -> tuple[Array]:
        if x.max() > 0:
            x = programs[0].run([x - 1])[0]
        return (x,)

    programs.append(python_step(call))
    np.testing.assert_array_equal(programs[0].run([np.full((2, 2), 3, np.float32)])[0], np.zeros((2, 2)))


def test_a_program_with_a_python_step_runs_inside_bodies() -> None:
    program, x = python_step(lambda x: (x + 1,)), np.zeros((2, 2), np.float32)
    results: list[Array] = []

    def body(start: int, stop: int) -> None:
        results.extend(program.run([x])[0] for _ in range(start, stop))

    tt.Exec.serial().for_ranges(3, 1, body)
    with tt.Pool(2) as pool:
        pool.exec().for_ranges(3, 1, body)
    assert [result.sum() for result in results] == [4.0] * 6


def test_a_program_that_its_own_step_refers_to_is_collected() -> None:
    class Owner:
        program: _native.Program

        def call(self, x: Array) -> tuple[Array]:
            return (x,)

    owner = Owner()
    owner.program = python_step(owner.call)
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to the own thread")
@pytest.mark.parametrize("width", [1, 2])
def test_an_interrupt_between_native_steps_ends_the_run(width: int) -> None:
    begun, main = threading.Event(), threading.get_ident()

    def call(x: Array) -> tuple[Array]:
        begun.set()
        return (x,)

    def interrupt() -> None:
        begun.wait()
        signal.pthread_kill(main, signal.SIGINT)

    builder = Builder()
    x, left, right = builder.input("float32", (256, 256)), *(builder.arena("float32", (256, 256)) for _ in range(2))
    builder.step("python", [x], [left], call=call)
    for _ in range(10_000):  # many times what the interrupt takes to be seen
        builder.step("matmul", [left, x], [right], alpha=1.0, beta=0.0)
        left, right = right, left
    builder.step("copy", [left], [builder.output("float32", (256, 256))])
    program, y = builder.build(), np.ones((256, 256), np.float32)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with tt.Pool(width) as pool, pytest.raises(KeyboardInterrupt):
        program.run([np.zeros((256, 256), np.float32)], [y], on=pool)
    thread.join()
    assert (y == 1).all()


# --- descriptions -----------------------------------------------------------------------------------------------------


def malformed() -> dict[str, tuple[Callable[[Builder], object], type[Exception], str]]:
    return {
        "a tuple of another length": (lambda b: b.values.append((1, 2)), ValueError, "value 2: "),
        "a negative offset": (lambda b: b.value("input", 0, -4, "float32", (4,), (1,)), OverflowError, "value 2: "),
        "a huge stride": (lambda b: b.value("input", 0, 0, "float32", (4,), (2**70,)), OverflowError, "value 2: "),
        "an unknown space": (
            lambda b: b.value("gpu", 0, 0, "float32", (4,), (1,)),
            ValueError,
            'value 2 lies in "gpu"',
        ),
        "an unknown type": (
            lambda b: b.value("input", 0, 0, "str", (4,), (1,)),
            ValueError,
            'value 2 is of the type "str"',
        ),
        "an unknown kind": (lambda b: b.step("conv", [0], [1]), ValueError, r'step 0 \(node\) is of the kind "conv"'),
        "an unknown op": (lambda b: b.step("unary", [0], [1], op="cosh"), ValueError, 'unary operation "cosh"'),
        "params in excess": (
            lambda b: b.step("unary", [0], [1], op="relu", params=[1.0]),
            ValueError,
            'gives 1 params to "relu", which takes 0',
        ),
        "an attribute missing": (lambda b: b.step("softmax", [0], [1], axis=0), KeyError, "lacks the attribute"),
        "an attribute in excess": (lambda b: b.step("copy", [0], [1], axis=0), ValueError, "has attributes that copy"),
        "an attribute of another type": (
            lambda b: b.step("softmax", [0], [1], axis="last", log=False),
            TypeError,
            r'step 0 \(node\) attribute "axis"',
        ),
        "a negative axis": (lambda b: b.step("softmax", [0], [1], axis=-1, log=False), OverflowError, "axis"),
        "an axis too many": (lambda b: b.step("softmax", [0], [1], axis=1, log=False), ValueError, "names axis 1"),
        "a value that is not there": (
            lambda b: b.step("copy", [9], [1]),
            ValueError,
            r"step 0 \(node\) refers to value 9",
        ),
        "a negative value": (lambda b: b.step("copy", [-2], [1]), ValueError, "an absent one is -1"),
        "a call that is none": (lambda b: b.step("python", [0], [1], call=3), TypeError, "'call' is not callable"),
        "an unfilled output": (lambda b: None, ValueError, r"output 0 \(y0\) is not written in full"),
        "an object constant": (lambda b: b.constants.append(np.zeros(1, object)), TypeError, "constant 0 is object"),
        "a strided constant": (
            lambda b: b.constants.append(np.zeros(4)[::2]),
            ValueError,
            "constant 0 is not C-contig",
        ),
        "a swapped constant": (
            lambda b: b.constants.append(np.zeros(1, SWAPPED)),
            TypeError,
            f"constant 0 is {SWAPPED}",
        ),
        "a list as constant": (lambda b: b.constants.append([1]), TypeError, "constant 0 is a list"),  # type: ignore[arg-type]
        "an arena below zero": (lambda b: setattr(b, "arena_bytes", -1), OverflowError, "negative"),
        "an arena above all": (lambda b: setattr(b, "arena_bytes", 2**63), ValueError, "exceeds the address space"),
    }


@pytest.mark.parametrize("what", malformed())
def test_a_malformed_description_is_refused_in_one_sentence(what: str) -> None:
    break_it, error, message = malformed()[what]
    builder = Builder()
    builder.input("float32", (4,))
    builder.output("float32", (4,))
    break_it(builder)
    with pytest.raises(error, match=message) as caught:
        builder.build()
    assert "\n" not in str(caught.value)
