"""Cross-entropy of a linear layer, from hidden states to losses, with and without the matrix of
logits in memory.

All forms compute, for hidden h [K, d], rows W [C, d], bias b [C] and targets t [K],

    loss_k = log sum_c exp(h_k . W_c + b_c) - (h_k . W_{t_k} + b_{t_k}).

They differ in what they hold: *full* holds K x C logits for the backward pass, *chunked* holds one
log-sum per row and computes the logits again, one chunk of rows at a time, so that memory is
O(chunk x C), *fused* is torch's own kernel. A headless loss is one of them over the unique targets'
rows with b = log(count).
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headscan.run import BadInput

Reduction = Literal["sum", "none"]

CPU_CHUNK = 256
"""Rows whose logits torch's kernel holds at a time on a CPU; its own choice takes 3 to 4 times as
long (torch 2.13).
"""


def full(hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the losses [K] by way of the K x C matrix of logits; softmax in float32 or wider.

    >>> full(torch.zeros(1, 2), torch.zeros(4, 2), torch.tensor([3])).exp()
    tensor([4.])
    """
    return F.cross_entropy(logits_of(hidden, rows, bias), targets, reduction="none")


def chunked(
    hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None, *, chunk: int = 256
) -> Tensor:
    """Return the losses [K], with K numbers between forward and backward instead of K x C logits.

    Memory O(chunk x C) beside the gradients themselves; time one more matrix product than `full`
    (the logits are computed twice).

    >>> chunked(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1]), chunk=2).exp()
    tensor([4., 4., 4.])
    """
    if chunk < 1:
        raise BadInput(f"chunk must be at least 1 row, not {chunk}.")
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        # Autocast does not look inside a custom Function, so its cast is made here.
        dtype = torch.get_autocast_dtype(device)
        hidden = hidden.to(dtype)
        rows = rows.to(dtype)
    losses: Tensor = _Chunked.apply(hidden, rows, targets, bias, chunk)  # type: ignore[no-untyped-call]
    return losses


def logits_of(hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
    """Return the logits [K, C] in at least float32.

    A bf16 log-sum over thousands of terms would lose the small ones.
    """
    logits = hidden @ rows.T
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    # In place: the product's own backward needs its factors, not its value, and the matrix is the
    # largest tensor here.
    return logits if bias is None else logits.add_(bias.to(logits.dtype))


class _Chunked(torch.autograd.Function):
    """The forward pass stores the log-sums; the backward pass computes each chunk's softmax again
    from them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None, chunk: int
    ) -> Tensor:
        losses = []
        log_sums = []
        for start in range(0, hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            logits = logits_of(hidden[part], rows, bias)
            log_sum = torch.logsumexp(logits, dim=1)
            losses.append(log_sum - logits.gather(1, targets[part, None]).squeeze(1))
            log_sums.append(log_sum)
        empty = hidden.new_zeros(0, dtype=torch.promote_types(hidden.dtype, torch.float32))
        all_log_sums = torch.cat(log_sums) if log_sums else empty
        ctx.save_for_backward(hidden, rows, targets, bias, all_log_sums)
        ctx.chunk = chunk
        return torch.cat(losses) if losses else empty

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, upstream: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        hidden, rows, targets, bias, log_sums = ctx.saved_tensors
        needs_hidden, needs_rows, _, needs_bias, _ = ctx.needs_input_grad
        # Many small chunks would round a bf16 sum many times: the rows' gradient is summed in
        # float32 or wider.
        wide = torch.promote_types(rows.dtype, torch.float32)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_rows = torch.zeros(rows.shape, dtype=wide, device=rows.device) if needs_rows else None
        grad_bias = torch.zeros(len(rows), dtype=wide, device=rows.device) if needs_bias else None
        for start in range(0, hidden.shape[0], ctx.chunk):
            part = slice(start, start + ctx.chunk)
            # The gradient of the logits: (softmax - one-hot of the target) * upstream.
            grad_logits = logits_of(hidden[part], rows, bias)
            grad_logits = grad_logits.sub_(log_sums[part, None]).exp_()
            indices = torch.arange(grad_logits.shape[0], device=grad_logits.device)
            grad_logits[indices, targets[part]] -= 1
            grad_logits = grad_logits.mul_(upstream[part, None].to(grad_logits.dtype))
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
            grad_logits = grad_logits.to(rows.dtype)
            if grad_hidden is not None:
                torch.mm(grad_logits, rows, out=grad_hidden[part])
            if grad_rows is not None:
                if wide == rows.dtype:
                    grad_rows.addmm_(grad_logits.T, hidden[part])
                else:
                    grad_rows += grad_logits.T @ hidden[part]
        if grad_rows is not None:
            grad_rows = grad_rows.to(rows.dtype)
        if grad_bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_hidden, grad_rows, None, grad_bias, None


def has_fused() -> bool:
    """Return whether this torch has `linear_cross_entropy` (2.13 and later)."""
    return hasattr(F, "linear_cross_entropy")


def fused(
    hidden: Tensor,
    rows: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Return the loss by torch's own kernel (`torch.nn.functional.linear_cross_entropy`), on any
    device; summed, or losses [K].

    Summed, it computes the gradients during the forward pass, which saves the second computation of
    the logits. On a CPU 256 rows are worked on at a time (K = 512, V = 8,192, d = 64: 38 ms against
    153 by torch's own choice), elsewhere torch's choice. Raises BadInput where torch is older than
    2.13.

    >>> hidden, rows, targets = torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1])
    >>> if has_fused(): fused(hidden, rows, targets, reduction="none").exp().round()
    tensor([4., 4., 4.])
    """
    if not has_fused():
        raise BadInput(
            "This torch has no linear_cross_entropy (2.13 and later have): use the chunked form."
        )
    chunk = CPU_CHUNK if hidden.device.type == "cpu" else None
    return F.linear_cross_entropy(
        hidden,
        rows,
        targets,
        linear_bias=None if bias is None else bias.to(rows.dtype),
        reduction=reduction,
        options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk),
    )
