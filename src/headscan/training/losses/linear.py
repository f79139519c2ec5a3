"""Cross-entropy of a linear layer, from hidden states to losses, with and without the matrix of logits in memory.

All forms compute, for hidden h [K, d], rows W [C, d], bias b [C] and targets t [K],

    loss_k = log sum_c exp(h_k . W_c + b_c) - (h_k . W_{t_k} + b_{t_k}).

They differ in what they keep: *full* keeps K x C logits for the backward pass, *chunked* keeps one log-sum per row and
computes the logits again, one chunk of rows at a time, so that memory is O(chunk x C), *fused* is torch's own kernel. A
headless loss is one of them over the unique targets' rows with b = log(count).
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headscan.run import BadInput


def full(hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Losses [K] by way of the whole K x C matrix of logits; softmax in float32 or wider.

    >>> full(torch.zeros(1, 2), torch.zeros(4, 2), torch.tensor([3])).exp()
    tensor([4.])
    """
    return F.cross_entropy(logits_of(hidden, rows, bias), targets, reduction="none")


def chunked(hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None, *, chunk: int = 256) -> Tensor:
    """Losses [K], keeping K numbers between forward and backward instead of K x C logits.

    Memory O(chunk x C) beside the gradients themselves; time one more matrix product than `full` (the logits are computed twice).

    >>> chunked(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1]), chunk=2).exp()
    tensor([4., 4., 4.])
    """
    if chunk < 1:
        raise BadInput(f"chunk must be at least 1 row, not {chunk}.")
    device = hidden.device.type
    if torch.is_autocast_enabled(device):  # autocast does not look inside a custom Function, so its cast is made here
        dtype = torch.get_autocast_dtype(device)
        hidden, rows = hidden.to(dtype), rows.to(dtype)
    losses: Tensor = _Chunked.apply(hidden, rows, targets, bias, chunk)  # type: ignore[no-untyped-call]
    return losses


def logits_of(hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
    """[K, C] in at least float32: a bf16 log-sum over thousands of terms would lose the small ones."""
    logits = hidden @ rows.T
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    # In place: the product's own backward needs its factors, not its value, and the matrix is the largest thing here.
    return logits if bias is None else logits.add_(bias.to(logits.dtype))


class _Chunked(torch.autograd.Function):
    """Forward keeps the log-sums; backward computes each chunk's softmax again from them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None, chunk: int) -> Tensor:
        losses, log_sums = [], []
        for start in range(0, hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            logits = logits_of(hidden[part], rows, bias)
            log_sum = torch.logsumexp(logits, dim=1)
            losses.append(log_sum - logits.gather(1, targets[part, None]).squeeze(1))
            log_sums.append(log_sum)
        empty = hidden.new_zeros(0, dtype=torch.promote_types(hidden.dtype, torch.float32))
        ctx.save_for_backward(hidden, rows, targets, bias, torch.cat(log_sums) if log_sums else empty)
        ctx.chunk = chunk
        return torch.cat(losses) if losses else empty

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        hidden, rows, targets, bias, log_sums = ctx.saved_tensors
        want_hidden, want_rows, _, want_bias, _ = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if want_hidden else None
        # Many small chunks would round a bf16 sum many times: the rows' gradient is summed in float32 or wider.
        wide = torch.promote_types(rows.dtype, torch.float32)
        grad_rows = torch.zeros(rows.shape, dtype=wide, device=rows.device) if want_rows else None
        grad_bias = torch.zeros(len(rows), dtype=wide, device=rows.device) if want_bias else None
        for start in range(0, hidden.shape[0], ctx.chunk):
            part = slice(start, start + ctx.chunk)
            slope = logits_of(hidden[part], rows, bias)
            slope = slope.sub_(log_sums[part, None]).exp_()
            slope[torch.arange(slope.shape[0], device=slope.device), targets[part]] -= 1
            slope = slope.mul_(upstream[part, None].to(slope.dtype))
            if grad_bias is not None:
                grad_bias += slope.sum(0)
            slope = slope.to(rows.dtype)
            if grad_hidden is not None:
                torch.mm(slope, rows, out=grad_hidden[part])
            if grad_rows is not None:
                if wide == rows.dtype:
                    grad_rows.addmm_(slope.T, hidden[part])
                else:
                    grad_rows += slope.T @ hidden[part]
        grad_bias = None if grad_bias is None else grad_bias.to(bias.dtype)
        return grad_hidden, None if grad_rows is None else grad_rows.to(rows.dtype), None, grad_bias, None


Kept = Literal["sum", "none"]
CHUNK = 256  # rows whose logits are held at a time on a CPU: torch 2.13's own choice takes three to four times as long


def has_fused() -> bool:
    """Whether this torch has `linear_cross_entropy` (2.13 and later)."""
    return hasattr(F, "linear_cross_entropy")


def fused(hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None, keep: Kept = "sum") -> Tensor:
    """torch's own (`torch.nn.functional.linear_cross_entropy`), on any device; summed, or losses [K].

    Summed, it computes the gradients during the forward pass, which saves the second look at the logits. On a CPU 256 rows
    are worked on at a time (K = 512, V = 8,192, d = 64: 38 ms against 153 by torch's own choice), elsewhere torch's choice.
    Raises BadInput where torch is older than 2.13.

    >>> if has_fused(): fused(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1]), keep="none").exp().round()
    tensor([4., 4., 4.])
    """
    if not has_fused():
        raise BadInput("This torch has no linear_cross_entropy (2.13 and later have): use the chunked form.")
    return F.linear_cross_entropy(
        hidden, rows, targets, linear_bias=None if bias is None else bias.to(rows.dtype), reduction=keep,
        options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK if hidden.device.type == "cpu" else None),
    )  # fmt: skip
