"""Where the intermediate results lie: shared buffers where safe, then offsets in one arena by lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .values import Buffer, Step, Tensor

__all__ = ["ALIGNMENT", "Arena", "assign_offsets", "place_outputs", "share_in_place", "write_parts_in_place"]

ALIGNMENT = 64
"""Buffers start at multiples of this many bytes: a cache line, and the widest vector."""

_IN_PLACE = frozenset({"unary", "binary", "select"})
"""Kernels that may write over an operand of the same pointer and layout."""


@dataclass(frozen=True)
class Arena:
    """Offsets of all arena buffers.

    Parameters
    ----------
    offsets : dict
        Buffer to its first byte.
    nbytes : int
        The size of the arena.
    lifetimes : dict
        Buffer to the numbers of the first and last step that touch it.
    """

    offsets: dict[Buffer, int]
    nbytes: int
    lifetimes: dict[Buffer, tuple[int, int]]


def tensors_of(step: Step) -> list[Tensor]:
    """All operands and results of a step."""
    return [*step.reads(), *step.outs]


def lifetimes_of(steps: Sequence[Step]) -> dict[Buffer, tuple[int, int]]:
    """For each buffer the numbers of the first and last step that touch it."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for tensor in tensors_of(step):
            first, _ = found.get(tensor.buffer, (number, number))
            found[tensor.buffer] = (first, number)
    return found


def write_parts_in_place(steps: list[Step], results: Sequence[Tensor]) -> list[Step]:
    """Let the producer of a part of a Concat write it there, so that the copy goes away.

    Allowed when the part fills a buffer of its own whose only layout is that of the copied operand: then the producer
    and all readers can use the part's place in the result instead.
    """
    uses: dict[Buffer, set[tuple[tuple[int, ...], tuple[int, ...], int]]] = {}
    touching: dict[Buffer, set[int]] = {}
    for number, step in enumerate(steps):
        for tensor in tensors_of(step):
            uses.setdefault(tensor.buffer, set()).add((tensor.shape, tensor.strides, tensor.offset))
            touching.setdefault(tensor.buffer, set()).add(number)
    fixed = {tensor.buffer for tensor in results}
    kept: list[Step] = []
    moved: dict[Buffer, Tensor] = {}

    def collides(part: Buffer, place: Tensor, copying: int) -> bool:
        """Whether a step would have operands there that reach over each other."""
        shared = (touching[part] & touching[place.buffer]) - {copying}
        others = (resolve(tensor, moved) for number in shared for tensor in tensors_of(steps[number]))
        return any(other.buffer is place.buffer and overlap(other, place) for other in others)

    for number, step in enumerate(steps):
        source = step.ins[0] if step.fills_alone else None
        if (
            source is not None
            and source.buffer.space == "arena"
            and source.fills_buffer
            and len(uses[source.buffer]) == 1
            and source.buffer not in moved
            and source.buffer not in fixed
            and not collides(source.buffer, step.outs[0], number)
        ):
            moved[source.buffer] = step.outs[0]
            touching[step.outs[0].buffer] |= touching[source.buffer] - {number}
        else:
            kept.append(step)
    for step in kept:
        step.ins = [None if t is None else resolve(t, moved) for t in step.ins]
        step.outs = [resolve(t, moved) for t in step.outs]
    return kept


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether the ranges between the first and last element of two views of one buffer meet."""
    (low, high), (start, end) = reach(a), reach(b)
    return low <= end and start <= high


def reach(tensor: Tensor) -> tuple[int, int]:
    """The lowest and highest element of its buffer that a view reaches."""
    steps = [step * (extent - 1) for step, extent in zip(tensor.strides, tensor.shape, strict=True)]
    return tensor.offset + sum(min(step, 0) for step in steps), tensor.offset + sum(max(step, 0) for step in steps)


def resolve(tensor: Tensor, moved: dict[Buffer, Tensor]) -> Tensor:
    """The final place of a tensor; a part may lie in a result that is itself a part."""
    while tensor.buffer in moved:
        tensor = moved[tensor.buffer]
    return tensor


def place_outputs(steps: list[Step], results: Sequence[Tensor]) -> None:
    """Let buffers that hold a whole result be the program's outputs; copy the results that lie otherwise."""
    written = {tensor.buffer for step in steps for tensor in step.outs}
    taken: set[Buffer] = set()
    copies: list[Step] = []
    for index, tensor in enumerate(results):
        buffer = tensor.buffer
        if buffer.space == "arena" and tensor.fills_buffer and buffer in written and buffer not in taken:
            taken.add(buffer)
            buffer.space, buffer.index = "output", index
        elif tensor.size:
            target = Tensor.allocate(tensor.dtype, tensor.shape, "output", index)
            copies.append(Step("copy", [tensor], [target], label=f"output {index}"))
    steps.extend(copies)


def share_in_place(steps: list[Step]) -> None:
    """Let element-wise steps write over an operand that nothing reads afterwards."""
    lifetimes = lifetimes_of(steps)
    first = {buffer: span[0] for buffer, span in lifetimes.items()}
    last = {buffer: span[1] for buffer, span in lifetimes.items()}
    alias: dict[Buffer, Buffer] = {}

    def root(buffer: Buffer) -> Buffer:
        while buffer in alias:
            buffer = alias[buffer]
        return buffer

    for number, step in enumerate(steps):
        if step.kind not in _IN_PLACE:
            continue
        y = step.outs[0]
        result = root(y.buffer)
        if not y.fills_buffer or first[y.buffer] != number:
            continue
        first_operand = 1 if step.kind == "select" else 0
        for x in step.reads()[first_operand:]:
            operand = root(x.buffer)
            if (
                operand.space == "arena"
                and operand is not result
                and last[operand] == number
                and x.fills_buffer
                and x.dtype.itemsize == y.dtype.itemsize
                and x.shape == y.shape
                and all(
                    root(other.buffer) is not operand or (other.shape == x.shape and other.strides == x.strides)
                    for other in step.reads()[first_operand:]
                )
                and all(root(other.buffer) is not operand for other in step.reads()[:first_operand])
            ):
                survivor, gone = (result, operand) if result.space == "output" else (operand, result)
                span = (min(first[operand], first[result]), max(last[operand], last[result]))
                alias[gone] = survivor
                first[survivor], last[survivor] = span
                break
    for step in steps:
        step.ins = [None if t is None else replace(t, buffer=root(t.buffer)) for t in step.ins]
        step.outs = [replace(t, buffer=root(t.buffer)) for t in step.outs]


def assign_offsets(steps: Sequence[Step]) -> Arena:
    """Give every arena buffer an offset; buffers that live at the same time never overlap.

    Buffers are placed in the order in which they come alive, each into the smallest gap that holds it (best fit), so
    one pass over the steps suffices.
    """
    lifetimes = {buffer: span for buffer, span in lifetimes_of(steps).items() if buffer.space == "arena"}
    starting: dict[int, list[Buffer]] = {}
    for buffer, (begin, _) in lifetimes.items():
        starting.setdefault(begin, []).append(buffer)
    offsets: dict[Buffer, int] = {}
    live: list[Buffer] = []
    size = 0
    for number in range(len(steps)):
        live = [buffer for buffer in live if lifetimes[buffer][1] >= number]
        for buffer in sorted(starting.get(number, ()), key=lambda b: -b.nbytes):
            offsets[buffer] = best_gap(live, offsets, buffer.nbytes)
            live.append(buffer)
            size = max(size, offsets[buffer] + aligned(buffer.nbytes))
    return Arena(offsets, size, lifetimes)


def aligned(nbytes: int) -> int:
    """The size rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def best_gap(live: Sequence[Buffer], offsets: dict[Buffer, int], nbytes: int) -> int:
    """The start of the smallest free gap of at least `nbytes`, or the end of all live buffers."""
    best, best_size, position = -1, 0, 0
    for buffer in sorted(live, key=offsets.__getitem__):
        gap = offsets[buffer] - position
        if gap >= nbytes and (best < 0 or gap < best_size):
            best, best_size = position, gap
        position = max(position, offsets[buffer] + aligned(buffer.nbytes))
    return best if best >= 0 else position
