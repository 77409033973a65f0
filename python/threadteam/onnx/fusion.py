"""Patterns of steps that fewer kernels compute: products with a bias, attention, spelled-out Gelu, one-hot products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from threadteam._native import IN_PLACE_BYTES

from .values import Array, Buffer, Step, Tensor

__all__ = ["drop_unused", "fuse"]

_FEW_ROWS = 8
_DEEP = 128
_SMALL_WEIGHTS = 64 * 64
_WIDE = 4
#: Rows a multiple of it apart fall on few lines of a cache.
_PAGE = 4096


def fuse(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """All patterns, then without the steps that nothing reads any more.

    Parameters
    ----------
    steps : list of Step
        A program before its buffers are shared: each buffer has its own writer.
    results : sequence of Tensor
        What must be computed.
    """
    steps = drop_unused(steps, results)
    steps = fuse_gelu(steps, results)
    steps = fuse_product(steps, results)
    steps = fuse_attention(steps, results)
    return fuse_lookup(steps, results)


def drop_unused(steps: Sequence[Step], results: Sequence[Tensor]) -> list[Step]:
    """The steps that the results depend on."""
    wanted = {tensor.buffer for tensor in results}
    kept = []
    for step in reversed(steps):
        if any(tensor.buffer in wanted for tensor in step.outs):
            kept.append(step)
            wanted.update(tensor.buffer for tensor in step.reads())
    return list(reversed(kept))


class Uses:
    """Who writes and who reads each buffer."""

    def __init__(self, steps: Sequence[Step], results: Sequence[Tensor]) -> None:
        self.writers: dict[Buffer, list[int]] = {}
        self.readers: dict[Buffer, list[int]] = {}
        for number, step in enumerate(steps):
            for tensor in step.outs:
                self.writers.setdefault(tensor.buffer, []).append(number)
            for buffer in {tensor.buffer for tensor in step.reads()}:
                self.readers.setdefault(buffer, []).append(number)
        self.results = {tensor.buffer for tensor in results}

    def maker(self, tensor: Tensor) -> int | None:
        """The one step that writes the tensor's buffer, when the tensor is all of it."""
        writers = self.writers.get(tensor.buffer, ())
        return writers[0] if len(writers) == 1 and tensor.fills_buffer else None


def fuse_product(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """Let a product scale its result by the number, and add the operand, that its only readers apply one by one."""
    uses = Uses(steps, results)
    gone: set[int] = set()
    for number, step in enumerate(steps):
        if step.kind != "binary" or step.attrs["op"] not in ("add", "mul", "div"):
            continue
        for side in (0, 1) if step.attrs["op"] != "div" else (0,):
            made, other = step.ins[side], step.ins[1 - side]
            assert made is not None
            assert other is not None
            maker = uses.maker(made)
            if maker is None or maker in gone or other.buffer is made.buffer:
                continue
            if uses.readers[made.buffer] != [number] or made.buffer in uses.results or made.shape != step.outs[0].shape:
                continue
            fused = joined(steps[maker], step, other)
            if fused is not None:
                steps[number] = fused
                gone.add(maker)
                break
    return [step for number, step in enumerate(steps) if number not in gone]


def joined(product: Step, step: Step, other: Tensor) -> Step | None:
    """The product that computes `step` as well, or None."""
    target = product.outs[0]
    if product.kind != "matmul" or not target.fills_buffer:
        return None
    result = step.outs[0].reshape(target.shape)
    if result is None:
        return None
    ins, attrs = list(product.ins), dict(product.attrs)
    if step.attrs["op"] == "add":
        bias = other.reshape(target.shape)
        if bias is None or ins[2] is not None:
            return None
        ins[2], attrs["beta"] = bias, 1.0
    else:
        array = other.buffer.array
        if array is None or array.size != 1:
            return None
        number = float(array.reshape(-1)[0])
        if not np.isfinite(number) or number == 0.0:
            return None
        factor = number if step.attrs["op"] == "mul" else 1.0 / number
        # Factors that are in range one by one may not be so as one.
        limits = np.finfo(target.dtype)
        for name in ("alpha", "beta") if ins[2] is not None else ("alpha",):
            attrs[name] *= factor
            if not float(limits.tiny) <= abs(attrs[name]) <= float(limits.max):
                return None
    return Step("matmul", ins, [result], attrs, product.label, product.flops + step.flops)


def fuse_attention(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """Let one kernel compute a product, the softmax of its rows and the product of that, where that is faster."""
    uses = Uses(steps, results)
    gone: set[int] = set()
    for number, step in enumerate(steps):
        if step.kind != "matmul" or step.ins[2] is not None or step.attrs["alpha"] != 1.0:
            continue
        softmax = only_maker(step.ins[0], number, uses)
        if softmax is None or steps[softmax].kind != "softmax" or steps[softmax].attrs["log"]:
            continue
        weights = steps[softmax].outs[0]
        product = only_maker(steps[softmax].ins[0], softmax, uses)
        if product is None or steps[product].kind != "matmul" or steps[softmax].attrs["axis"] != weights.rank - 1:
            continue
        a, b, bias = steps[product].ins
        values = step.ins[1]
        assert a is not None
        assert b is not None
        assert values is not None
        # One shape all through: a reshaped or folded batch has other axes, and one that the second product only
        # broadcasts over has fewer softmaxes than results.
        scores = steps[softmax].ins[0]
        if scores is None or not steps[product].outs[0].shape == scores.shape == weights.shape:
            continue
        if step.ins[0] != weights or weights.shape[:-1] != step.outs[0].shape[:-1] or not gains(a, b, weights, values):
            continue
        attrs = {name: steps[product].attrs[name] for name in ("alpha", "beta")}
        parts = (steps[product], steps[softmax], step)
        # As a node's label: its name and what it does.
        label = " + ".join(part.label.partition(" (")[0] for part in parts) + " (Attention)"
        flops = sum(part.flops for part in parts)
        steps[number] = Step("attention", [a, b, values, bias], list(step.outs), attrs, label, flops)
        gone |= {product, softmax}
    return [step for number, step in enumerate(steps) if number not in gone]


def only_maker(tensor: Tensor | None, reader: int, uses: Uses) -> int | None:
    """The step that writes a tensor which only `reader` reads."""
    if tensor is None or uses.readers[tensor.buffer] != [reader] or tensor.buffer in uses.results:
        return None
    return uses.maker(tensor)


def gains(a: Tensor, b: Tensor, weights: Tensor, values: Tensor) -> bool:
    """Whether attention is faster in one kernel.

    It is where both products read their second operand in place: each part of the rows then goes through all three
    operations on one core. Else each part packs both, which pays where the steps are short, or the weights are most of
    what they touch. Measured in ``docs/decisions/08-attention-in-one-kernel.md``.
    """
    if in_place(b) and in_place(values):
        return True
    rows, columns = weights.shape[-2:]
    depth = max(a.shape[-1], values.shape[-1])
    short = weights.size > rows * columns and rows * columns <= _SMALL_WEIGHTS
    return rows >= _FEW_ROWS and depth <= _DEEP and (short or columns >= _WIDE * depth)


def in_place(operand: Tensor) -> bool:
    """Whether a product reads its second operand where it is, as ``crates/kernels/src/panels.rs`` decides."""
    size = operand.dtype.itemsize
    nbytes = operand.shape[-2] * operand.shape[-1] * size
    return operand.strides[-1] == 1 and nbytes <= IN_PLACE_BYTES and operand.strides[-2] * size % _PAGE != 0


@dataclass(frozen=True)
class Term:
    """A part of a pattern: an operation over parts, a number, or the pattern's operand."""

    op: str
    parts: tuple[Term, ...] = ()
    value: float = 0.0


_X = Term("x")


def _number(value: float) -> Term:
    return Term("number", value=value)


def _mul(a: Term, b: Term) -> Term:
    return Term("mul", (a, b))


def _add(a: Term, b: Term) -> Term:
    return Term("add", (a, b))


def _cubes() -> list[Term]:
    """The spellings of `0.044715 x ** 3` that exporters write."""
    c = _number(0.044715)
    return [
        _mul(_X, _mul(_X, _mul(c, _X))),
        _mul(c, _mul(_mul(_X, _X), _X)),
        _mul(c, Term("pow", (_X, _number(3.0)))),
        _mul(_mul(c, _mul(_X, _X)), _X),
    ]


def _gelu_forms() -> list[tuple[Term, str]]:
    """All spellings with the kernel that computes them."""
    half, one = _number(0.5), _number(1.0)
    gates = [
        (Term("tanh", (_mul(_number(float(np.sqrt(2 / np.pi))), _add(_X, cube)),)), "gelu_tanh") for cube in _cubes()
    ]
    root = float(np.sqrt(2.0))
    gates += [
        (Term("erf", (Term("div", (_X, _number(root))),)), "gelu"),
        (Term("erf", (_mul(_X, _number(1.0 / root)),)), "gelu"),
    ]
    forms = []
    for gate, op in gates:
        opened = _add(one, gate)
        forms += [
            (_mul(_X, _mul(half, opened)), op),
            (_mul(half, _mul(_X, opened)), op),
            (_mul(_mul(half, _X), opened), op),
        ]
    return forms


_GELU = _gelu_forms()


def fuse_gelu(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """Replace the last step of each spelled-out Gelu; its other steps then have no reader."""
    uses = Uses(steps, results)
    for number, step in enumerate(steps):
        if step.kind != "binary" or step.attrs["op"] != "mul" or step.outs[0].dtype.kind != "f":
            continue
        for form, op in _GELU:
            found: list[Tensor] = []
            if match_step(form, step, steps, uses, found) and found[0].shape == step.outs[0].shape:
                x = found[0]
                steps[number] = Step("unary", [x], list(step.outs), {"op": op, "params": []}, step.label, x.size)
                break
    return drop_unused(steps, results)


def match(term: Term, tensor: Tensor | None, steps: Sequence[Step], uses: Uses, found: list[Tensor]) -> bool:
    """Whether a tensor is the value of a term; `found` collects the operand, the same everywhere."""
    if tensor is None:
        return False
    if term.op == "number":
        array = tensor.buffer.array
        return array is not None and array.size == 1 and bool(np.isclose(array.reshape(-1)[0], term.value, rtol=1e-4))
    if term.op == "x":
        if found:
            return found[0] == tensor
        found.append(tensor)
        return True
    maker = uses.maker(tensor)
    if maker is None or steps[maker].outs[0].shape != tensor.shape:
        return False
    return match_step(term, steps[maker], steps, uses, found)


def match_step(term: Term, step: Step, steps: Sequence[Step], uses: Uses, found: list[Tensor]) -> bool:
    """Whether a step computes a term; products and sums match in both orders."""
    if step.kind not in ("unary", "binary") or step.attrs["op"] != term.op:
        return False
    orders = [term.parts, term.parts[::-1]] if term.op in ("add", "mul") else [term.parts]
    for order in orders:
        trial = list(found)
        if all(match(part, tensor, steps, uses, trial) for part, tensor in zip(order, step.ins, strict=True)):
            found[:] = trial
            return True
    return False


def fuse_lookup(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """Replace the product of a one-hot matrix with a constant table by looking rows up."""
    uses = Uses(steps, results)
    fused: list[Step] = []
    for step in steps:
        fused.extend(lookup(step, steps, uses) or [step])
    return drop_unused(fused, results)


def lookup(step: Step, steps: Sequence[Step], uses: Uses) -> list[Step] | None:
    """The steps that look up what `step` computes as `float(index == range) @ table + bias`, or None.

    An index outside the range has a row of zeros: the table gets one before and one after its rows, and indices are
    clipped to those. The bias is added to the table. All entries must be finite, since zero times infinity is not zero.
    """
    if step.kind != "matmul" or step.attrs["alpha"] != 1.0:
        return None
    one_hot, table, bias, y = step.ins[0], step.ins[1], step.ins[2], step.outs[0]
    rows = constant_rows(table, bias)
    equal = one_hot_of(one_hot, steps, uses)
    if rows is None or equal is None or y.size == 0:
        return None
    for ramp, index in (equal.ins, equal.ins[::-1]):
        start = ramp_start(ramp)
        if start is None or index is None or index.strides[-1] != 0:
            continue
        flat = index.slice(index.rank - 1, 0, 1, 1).drop([index.rank - 1]).reshape(y.shape[:-1])
        if flat is None or index.dtype not in (np.dtype("int32"), np.dtype("int64")):
            continue
        made: list[Step] = []
        for op, limit in (("max", start - 1), ("min", start + rows.shape[0] - 2), ("sub", start - 1)):
            bound = Tensor.constant(np.asarray(limit, flat.dtype)).expand(flat.shape)
            clipped = Tensor.allocate(flat.dtype, flat.shape)
            made.append(Step("binary", [flat, bound], [clipped], {"op": op}, equal.label, flat.size))
            flat = clipped
        made.append(Step("gather", [Tensor.constant(rows), flat], [y], {"axis": 0}, step.label))
        return made
    return None


def constant_rows(table: Tensor | None, bias: Tensor | None) -> Array | None:
    """A finite constant table with a row of zeros on both sides and a constant bias added to every row."""
    if table is None or table.rank != 2 or table.buffer.array is None or not table.fills_buffer:
        return None
    values = table.buffer.array.reshape(table.shape)
    if not np.isfinite(values).all():
        return None
    rows: Array = np.pad(values, ((1, 1), (0, 0)))
    if bias is None:
        return rows
    array = bias.buffer.array
    if array is None or array.size != table.shape[1] or bias.strides[-1] != 1 or any(bias.strides[:-1]):
        return None
    return np.asarray(rows + array.reshape(-1), rows.dtype)


def one_hot_of(tensor: Tensor | None, steps: Sequence[Step], uses: Uses) -> Step | None:
    """The comparison whose truth values, as numbers, are the tensor."""
    cast = None if tensor is None else uses.maker(tensor)
    if cast is None or steps[cast].kind != "cast":
        return None
    truth = steps[cast].ins[0]
    equal = None if truth is None else uses.maker(truth)
    if equal is None or steps[equal].kind != "compare" or steps[equal].attrs["op"] != "equal":
        return None
    same = truth is not None and truth.shape == steps[equal].outs[0].shape == steps[cast].outs[0].shape
    return steps[equal] if same else None


def ramp_start(tensor: Tensor | None) -> int | None:
    """The first of the consecutive integers that a constant counts along its last axis and only there."""
    array = None if tensor is None else tensor.buffer.array
    if tensor is None or array is None or tensor.rank == 0 or array.size != tensor.shape[-1] or array.size < 2:
        return None
    steps = [step for extent, step in zip(tensor.shape[:-1], tensor.strides[:-1], strict=True) if extent > 1]
    flat = array.reshape(-1)
    if any(steps) or tensor.strides[-1] != 1 or tensor.offset or flat.dtype.kind != "i":
        return None
    return int(flat[0]) if bool(np.all(np.diff(flat) == 1)) else None
