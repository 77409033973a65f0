"""What `InferenceSession.plan` shows: steps, buffers and predicted memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .planner import StageDraft
from .program import Description
from .values import Tensor

__all__ = ["BufferRow", "Plan", "PlanStep"]

_SHORT = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c"}


@dataclass(frozen=True)
class PlanStep:
    """One row of the table.

    Parameters
    ----------
    kind, node : str
        The kernel and the node it comes from.
    operands, results : tuple of str
        Types and shapes, such as `f32[8,8]`.
    flops : int
        Floating point operations.
    """

    kind: str
    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    flops: int


@dataclass(frozen=True)
class BufferRow:
    """A buffer of the arena.

    Parameters
    ----------
    offset, nbytes : int
        Its place.
    first, last : int
        The steps that use it first and last.
    """

    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """A program, printed as a table.

    Parameters
    ----------
    shapes : dict
        Input name to the shape it was made for.
    steps : tuple of PlanStep
        What runs, in order.
    buffers : tuple of BufferRow
        Where intermediate results lie.
    arena_bytes, constant_bytes, output_bytes : int
        Memory of one run, of the constants, and of the results.
    later : tuple of str
        Nodes whose output shapes depend on data, and those that wait for them; planned when the model runs.
    """

    shapes: dict[str, list[int]]
    steps: tuple[PlanStep, ...]
    buffers: tuple[BufferRow, ...]
    arena_bytes: int
    constant_bytes: int
    output_bytes: int
    later: tuple[str, ...]

    @classmethod
    def of(cls, draft: StageDraft, description: Description, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The table of a planned stage."""
        arena = description.arena
        return cls(
            {name: list(shape) for name, shape in shapes.items()},
            tuple(
                PlanStep(
                    step.kind,
                    step.label,
                    tuple("-" if tensor is None else short(tensor) for tensor in step.ins),
                    tuple(map(short, step.outs)),
                    step.flops,
                )
                for step in description.drafted
            ),
            tuple(
                BufferRow(offset, buffer.nbytes, *arena.lifetimes[buffer]) for buffer, offset in arena.offsets.items()
            ),
            description.arena_bytes,
            sum(array.nbytes for array in description.constants),
            sum(tensor.nbytes for tensor in draft.results.values()),
            tuple(str(node) for node in (*draft.ready, *draft.rest)),
        )

    @property
    def flops(self) -> int:
        """Floating point operations of all steps."""
        return sum(step.flops for step in self.steps)

    @property
    def peak_bytes(self) -> int:
        """Predicted memory while the program runs: constants, arena and results."""
        return self.arena_bytes + self.constant_bytes + self.output_bytes

    @property
    def python_steps(self) -> tuple[PlanStep, ...]:
        """The steps that the reference implementation evaluates."""
        return tuple(step for step in self.steps if step.kind == "python")

    def __str__(self) -> str:
        rows = [("step", "kind", "node", "operands", "result", "flops")]
        rows += [
            (
                str(n),
                s.kind,
                s.node,
                ", ".join(filter(lambda x: x != "-", s.operands)),
                ", ".join(s.results),
                str(s.flops),
            )
            for n, s in enumerate(self.steps)
        ]
        widths = [min(max(len(row[column]) for row in rows), 48) for column in range(6)]
        lines = [
            "  ".join(
                (clip(text, width).rjust(width) if column in (0, 5) else clip(text, width).ljust(width))
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.append(
            f"{len(self.steps)} steps, {units(self.flops, 'flop')}, arena {units(self.arena_bytes, 'bytes')},"
            f" constants {units(self.constant_bytes, 'bytes')}, outputs {units(self.output_bytes, 'bytes')},"
            f" peak {units(self.peak_bytes, 'bytes')}"
        )
        if self.later:
            lines.append(f"planned when the model runs: {', '.join(self.later)}")
        return "\n".join(lines)


def clip(text: str, width: int) -> str:
    """Text that fits a column; the end is kept, where names differ."""
    return text if len(text) <= width else "..." + text[3 - width :]


def short(tensor: Tensor) -> str:
    """Type and shape, such as `f32[8,8]`."""
    name = tensor.dtype.name
    stem = name.rstrip("0123456789")
    name = _SHORT.get(stem, stem) + name[len(stem) :]
    return f"{name}[{','.join(map(str, tensor.shape))}]"


def units(count: int, unit: str) -> str:
    """A count with a decimal prefix.

    Examples
    --------
    >>> units(2_500_000, "flop")
    '2.5 Mflop'
    """
    for factor, prefix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.1f} {prefix}{unit}"
    return f"{count} {unit}"
