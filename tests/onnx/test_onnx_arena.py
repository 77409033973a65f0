"""Views name the elements that NumPy views name, and buffers that live at the same time never overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from threadteam.onnx.arena import assign_offsets
from threadteam.onnx.values import Step, Tensor, merge_axes, row_major


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25))
def test_buffers_that_live_at_the_same_time_never_overlap(intervals):
    tensors = [Tensor.allocate(np.dtype("u1"), (size,)) for size, _, _ in intervals]
    steps = [Step("copy", [], []) for _ in range(31)]
    for tensor, (_, one, other) in zip(tensors, intervals, strict=True):
        steps[min(one, other)].outs.append(tensor)
        steps[max(one, other)].ins.append(tensor)
    arena = assign_offsets(steps)
    placed = [
        (arena.offsets[t.buffer], t.nbytes, min(a, b), max(a, b))
        for t, (_, a, b) in zip(tensors, intervals, strict=True)
    ]
    for number, (start, size, first, last) in enumerate(placed):
        assert start % 64 == 0
        assert start + size <= arena.nbytes
        for other_start, other_size, other_first, other_last in placed[:number]:
            apart_in_time = last < other_first or other_last < first
            assert (
                apart_in_time
                or not size
                or not other_size
                or (start + size <= other_start or other_start + other_size <= start)
            )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_views_reach_what_numpy_views_reach(data):
    base = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    tensor = Tensor.constant(base)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["permute", "slice", "reshape", "insert"]))
        if kind == "permute":
            order = data.draw(st.permutations(range(base.ndim)))
            base, tensor = base.transpose(order), tensor.permute(order)
        elif kind == "slice" and base.ndim:
            axis = data.draw(st.integers(0, base.ndim - 1))
            start = data.draw(st.integers(0, base.shape[axis] - 1))
            backward = data.draw(st.booleans())
            length = start + 1 if backward else base.shape[axis] - start
            index = [slice(None)] * base.ndim
            index[axis] = slice(start, None, -1) if backward else slice(start, None)
            base, tensor = base[tuple(index)], tensor.slice(axis, start, -1 if backward else 1, length)
        elif kind == "insert":
            axis = data.draw(st.integers(0, base.ndim))
            base, tensor = np.expand_dims(base, axis), tensor.insert([axis])
        elif kind == "reshape":
            flat = tensor.reshape((base.size,))
            if flat is not None:
                base, tensor = base.reshape(-1), flat
    memory = tensor.buffer.array.reshape(-1)
    index = np.indices(tensor.shape).reshape(tensor.rank, -1)
    where = tensor.offset + (index * np.array(tensor.strides, int).reshape(-1, 1)).sum(0)
    assert (memory[where].reshape(tensor.shape) == base).all()


def test_axes_merge_where_one_stride_reaches_both():
    assert merge_axes((2, 3, 4), row_major((2, 3, 4))) == [(24, 1)]
    assert merge_axes((2, 3, 4), (1, 8, 2)) == [(2, 1), (12, 2)]
