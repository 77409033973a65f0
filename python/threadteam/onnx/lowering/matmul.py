"""Matrix products: MatMul and Gemm."""

from __future__ import annotations

from threadteam.errors import InvalidGraph
from threadteam.onnx.values import Shape, Tensor

from .context import Context, lowers

__all__ = ["product"]


def product(
    context: Context,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    y: Tensor | None = None,
) -> Tensor:
    """One step `alpha * a @ b + beta * bias` over batches, with operands broadcast to the result."""
    batch = context.broadcast(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.shape[-2] != k:
        raise InvalidGraph(
            f"node {context.node}: matrices of shapes {list(a.shape)} and {list(b.shape)} do not fit:"
            f" {k} columns against {b.shape[-2]} rows"
        )
    y = context.new(a.dtype, (*batch, m, n)) if y is None else y
    folded = fold_batch(a, b, bias, y)
    if folded is not None:
        a, b, bias, target = folded
    else:
        target = y
        a, b = a.expand((*batch, m, k)), b.expand((*batch, k, n))
        bias = None if bias is None else bias.expand(y.shape)
    context.emit("matmul", [a, b, bias], [target], flops=2 * y.size * k, alpha=alpha, beta=beta)
    return y


def fold_batch(
    a: Tensor, b: Tensor, bias: Tensor | None, y: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor] | None:
    """A batch over one and the same right matrix as a single larger product, where strides allow it."""
    if y.rank <= 2 or any(extent != 1 for extent in b.shape[:-2]) or a.shape[:-2] != y.shape[:-2]:
        return None
    rows = (a.size // max(a.shape[-1], 1), a.shape[-1])
    flat_a, flat_y = a.reshape(rows) if a.size else None, y.reshape((-1 if not y.size else rows[0], y.shape[-1]))
    flat_bias = None if bias is None else bias.expand(y.shape).reshape((rows[0], y.shape[-1]))
    if flat_a is None or flat_y is None or (bias is not None and flat_bias is None):
        return None
    return flat_a, b.drop(range(b.rank - 2)), flat_bias, flat_y


@lowers("MatMul")
def lower_matmul(context: Context) -> None:
    """NumPy's matrix product; vectors are promoted and the extra axis dropped."""
    context.require_real(0, 1)
    a, b = context.tensor(0), context.tensor(1)
    if a.rank == 0 or b.rank == 0:
        raise InvalidGraph(f"node {context.node}: a matrix product needs operands of rank 1 or more")
    dropped = []
    rank = max(a.rank, b.rank, 2)
    if a.rank == 1:
        a, dropped = a.insert([0]), [rank - 2]
    if b.rank == 1:
        b, dropped = b.insert([1]), [*dropped, rank - 1]
    y = product(context, a, b)
    context.bind(y.drop(dropped) if dropped else y)


@lowers("Gemm")
def lower_gemm(context: Context) -> None:
    """`alpha * A @ B + beta * C` with optional transposes."""
    context.require_real(0, 1)
    a, b = context.tensor(0), context.tensor(1)
    if a.rank != 2 or b.rank != 2:
        raise InvalidGraph(f"node {context.node}: Gemm takes matrices, not shapes {list(a.shape)} and {list(b.shape)}")
    a = a.permute((1, 0)) if context.attr("transA", 0) else a
    b = b.permute((1, 0)) if context.attr("transB", 0) else b
    beta = float(context.attr("beta", 1.0))
    bias = None
    if context.has(2) and beta != 0.0:
        context.require_real(0, 2)
        bias = context.tensor(2)
        shape: Shape = (a.shape[0], b.shape[1])
        if context.broadcast(bias.shape, shape) != shape:
            raise InvalidGraph(
                f"node {context.node}: C of shape {list(bias.shape)} does not broadcast to {list(shape)}"
            )
        bias = bias.expand(shape)
    context.bind(product(context, a, b, bias, float(context.attr("alpha", 1.0)), beta))
