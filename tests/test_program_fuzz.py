"""Whatever a description says, no byte outside the program's memory is written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from program_builder import DTYPES, Builder, Shape, dense
from threadteam import _native
from threadteam.errors import StepError

Array = NDArray[Any]

GUARD = 64
ARENA = 96
LARGE = 10**6
SPACES: dict[tuple[str, int], tuple[str, Shape]] = {
    ("input", 0): ("int32", (3, 4)),
    ("input", 1): ("float32", (10,)),
    ("output", 0): ("int32", (4, 3)),
    ("output", 1): ("float32", (8,)),
    ("const", 0): ("int32", (6,)),
    ("const", 1): ("uint8", (1,)),
    ("const", 2): ("float32", (1,)),
}
EXTREMES = [0, 1, -1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**62)]
Value = tuple[str, int, int, str, Shape, Shape]
StepRow = tuple[str, list[int], list[int], dict[str, Any], str]

# Steps that fill all memory, so that what follows may read anywhere.
FILLING: list[Value] = [
    ("arena", 0, 0, "uint8", (ARENA,), (1,)),
    ("const", 1, 0, "uint8", (ARENA,), (0,)),
    ("output", 0, 0, "int32", (4, 3), (3, 1)),
    ("const", 0, 0, "int32", (4, 3), (0, 2)),
    ("output", 1, 0, "float32", (8,), (1,)),
    ("const", 2, 0, "float32", (8,), (0,)),
]
FILL: list[StepRow] = [("copy", [2 * number + 1], [2 * number], {}, "fill") for number in range(3)]


class Guarded:
    """An array between bytes that nobody may write."""

    def __init__(self, dtype: str, shape: Shape) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.whole = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        self.array = self.whole[GUARD : GUARD + size].view(dtype).reshape(shape)
        self.array[...] = np.arange(self.array.size).reshape(shape)

    def is_intact(self) -> bool:
        return bool((self.whole[:GUARD] == 0xA5).all() and (self.whole[-GUARD:] == 0xA5).all())


@st.composite
def tame_values(draw: st.DrawFn, shape: Shape, usual: str) -> Value:
    """A value of `shape`, mostly of the type `usual`, mostly inside its space."""
    dtype = draw(st.sampled_from([usual] * 7 + ["uint8"]))
    space, index = draw(
        st.sampled_from([("arena", 0)] * 4 + [key for key, (found, _) in SPACES.items() if found == dtype])
    )
    elements = ARENA // np.dtype(dtype).itemsize if space == "arena" else math.prod(SPACES[space, index][1])
    strides = [step * draw(st.sampled_from([1, 1, 1, 1, 1, 0, -1, 2])) for step in dense(shape)]
    if draw(st.integers(0, 3)) == 0:
        strides = [math.prod(shape[:axis]) for axis in range(len(shape))]
    reaches = [step * (extent - 1) for step, extent in zip(strides, shape, strict=True)]
    lowest = -sum(reach for reach in reaches if reach < 0)
    highest = elements - 1 - sum(reach for reach in reaches if reach > 0)
    start = draw(st.integers(lowest, max(lowest, highest)))
    return space, index, start * np.dtype(dtype).itemsize, dtype, shape, tuple(strides)


@st.composite
def wild_values(draw: st.DrawFn) -> Value:
    """A value of any numbers."""
    rank = draw(st.integers(0, 9))
    extents = st.integers(0, 4) | st.sampled_from([abs(n) for n in EXTREMES if n != -(2**63)])
    steps = st.integers(-5, 5) | st.sampled_from(EXTREMES)
    return (
        draw(st.sampled_from(["arena", "input", "output", "const"])),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 200) | st.sampled_from([2**63 - 1, 2**62])),
        draw(st.sampled_from(DTYPES)),
        tuple(draw(st.lists(extents, min_size=rank, max_size=rank))),
        tuple(draw(st.lists(steps, min_size=rank, max_size=rank))),
    )


@st.composite
def step_rows(draw: st.DrawFn, ids: list[int], targets: list[int], wild: bool) -> StepRow:
    kinds: dict[str, tuple[int, dict[str, Any]]] = {
        "copy": (1, {}),
        "unary": (1, {"op": "neg"}),
        "binary": (2, {"op": "add"}),
        "cast": (1, {}),
    }
    if wild:
        axis = draw(st.integers(0, 9))
        kinds |= {
            "select": (3, {}),
            "compare": (2, {"op": "less"}),
            "softmax": (1, {"axis": axis, "log": draw(st.booleans())}),
            "layer_norm": (3, {"axis": axis, "epsilon": 1e-5}),
            "reduce": (1, {"op": "sum", "axes": draw(st.lists(st.integers(0, 8), max_size=3))}),
            "gather": (2, {"axis": axis}),
            "matmul": (3, {"alpha": 1.0, "beta": 1.0}),
            "attention": (4, {"alpha": 0.5, "beta": 1.0}),
            "python": (2, {"call": lambda *arrays: arrays[:1]}),
        }
    kind = draw(st.sampled_from([*kinds, "copy", "unary", "binary"]))
    count, attrs = kinds[kind]
    outs = draw(st.lists(st.sampled_from(targets), min_size=1, max_size=3 if kind in ("layer_norm", "python") else 1))
    return kind, [draw(st.sampled_from(ids)) for _ in range(count)], outs, attrs, kind


@st.composite
def descriptions(draw: st.DrawFn) -> tuple[list[Value], list[StepRow], bool]:
    """Values and steps, after steps that fill all memory; and whether some of them follow no rule at all."""
    wild = draw(st.booleans())
    shape = draw(st.sampled_from([(4,), (2, 3), (3, 2), (2, 1, 2), (2, 2), (0, 2), ()]))
    usual = draw(st.sampled_from(["int32", "float32"]))
    tame = tame_values(shape, usual)
    if wild:
        reduced = draw(st.integers(0, len(shape)))
        other = tame_values((*shape[:reduced], *(1 for _ in shape[reduced:])), usual)
        values = st.one_of(tame, tame, other, wild_values())
    else:
        values = tame
    drawn = draw(st.lists(values, min_size=5, max_size=10))
    ids = list(range(len(FILLING), len(FILLING) + len(drawn)))
    targets = [number for number, value in zip(ids, drawn, strict=True) if value[0] in ("arena", "output")] or ids
    if wild:
        ids, targets = [*ids, -1, 0, ids[-1] + 1], [*targets, -1, 1]
    steps = FILL + draw(st.lists(step_rows(ids, targets, wild), min_size=1, max_size=6))
    return FILLING + drawn, steps, wild


def evaluate(values: list[Value], steps: list[StepRow], memory: dict[tuple[str, int], Array]) -> None:
    """The meaning of the tame kinds, by NumPy, which checks the bounds of every view itself."""

    def view(number: int) -> Array:
        space, index, offset, dtype, shape, strides = values[number]
        item = np.dtype(dtype).itemsize
        buffer = memory[space, index]
        return np.ndarray(shape, dtype, buffer, offset, tuple(step * item for step in strides))

    for kind, ins, outs, _, _ in steps:
        operands = [view(number).copy() for number in ins]
        y = view(outs[0])
        if kind == "unary":
            y[...] = -operands[0]
        elif kind == "binary":
            y[...] = operands[0] + operands[1]
        else:
            y[...] = operands[0].astype(y.dtype)


class Space:
    """The memory of one example, and programs over it."""

    def __init__(self) -> None:
        self.memory = {space: Guarded(*port) for space, port in SPACES.items()}

    def arrays(self, what: str) -> list[Array]:
        return [guarded.array for (space, _), guarded in self.memory.items() if space == what]

    def build(self, values: list[Value], steps: list[StepRow]) -> _native.Program:
        ports = {
            what: [(f"{what}{index}", *port) for (space, index), port in SPACES.items() if space == what]
            for what in ("input", "output")
        }
        return _native.Program(values, self.arrays("const"), ports["input"], ports["output"], steps, ARENA)

    def accepts(self, values: list[Value], steps: list[StepRow]) -> bool:
        try:
            self.build(values, steps)
        except (ValueError, OverflowError):
            return False
        return True


@settings(max_examples=100, deadline=None)
@given(descriptions())
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_what_a_program_accepts_stays_in_its_memory_and_means_what_numpy_means(
    description: tuple[list[Value], list[StepRow], bool],
) -> None:
    drawn_values, drawn_steps, wild = description
    space = Space()
    # What is refused gives way to what is not, so that every example runs what can be run of it.
    steps = drawn_steps[: len(FILL)]
    values = [value if space.accepts([*FILLING, value], steps) else FILLING[0] for value in drawn_values]
    for step in drawn_steps[len(FILL) :]:
        if space.accepts(values, [*steps, step]):
            steps.append(step)
    if any(math.prod(shape) > LARGE for _, _, _, _, shape, _ in values):
        return  # a reduction of a broadcast value of this size is allowed, and takes days
    before = {key: guarded.array.copy() for key, guarded in space.memory.items()}
    try:
        space.build(values, steps).run(space.arrays("input"), space.arrays("output"))
    except StepError:
        assert wild
    assert all(guarded.is_intact() for guarded in space.memory.values())
    for key, array in before.items():
        if key[0] != "output":
            np.testing.assert_array_equal(space.memory[key].array, array)
    if not wild:
        expected = before | {("arena", 0): np.zeros(ARENA, np.uint8)}
        evaluate(values, steps, expected)
        for key, guarded in space.memory.items():
            np.testing.assert_array_equal(guarded.array, expected[key])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_concatenation_of_slices_along_any_axis_is_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=3)))
    order = data.draw(st.permutations(range(len(cuts) + 1)))
    strides = dense(shape)
    builder = Builder()
    builder.input("int16", shape)
    builder.output("int16", shape)
    bounds = list(zip([0, *cuts], [*cuts, shape[axis]], strict=True))
    for number in order:
        start, stop = bounds[number]
        extents = (*shape[:axis], stop - start, *shape[axis + 1 :])
        last = (shape[axis] - 1 - start) * strides[axis]
        back = (*strides[:axis], -strides[axis], *strides[axis + 1 :])
        source = builder.value("input", 0, 2 * last if stop > start else 0, "int16", extents, back)
        target = builder.value("output", 0, 2 * start * strides[axis], "int16", extents, strides)
        builder.step("copy", [source], [target])
    x = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    np.testing.assert_array_equal(builder.build().run([x])[0], np.flip(x, axis))
    if any(start < stop for start, stop in bounds):
        missing = next(i for i, number in enumerate(order) if bounds[number][0] < bounds[number][1])
        del builder.steps[missing]
        with pytest.raises(ValueError, match=r"output 0 .* is not written in full"):
            builder.build()
