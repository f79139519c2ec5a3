"""Cross-entropy of a linear layer, from hidden states to losses, with and without the matrix of
logits in memory.

All forms compute, for hidden h [K, d], rows W [C, d], bias b [C] and targets t [K],

    loss_k = log sum_c exp(h_k . W_c + b_c) - (h_k . W_{t_k} + b_{t_k}).

They differ in what they keep: *full* keeps K x C logits for the backward pass, *chunked* keeps one
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
from headscan.training.losses.shared import Pool, check, pool_of, reduce


def full(hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Losses [K] by way of the whole K x C matrix of logits; softmax in float32 or wider.

    >>> full(torch.zeros(1, 2), torch.zeros(4, 2), torch.tensor([3])).exp()
    tensor([4.])
    """
    return F.cross_entropy(logits_of(hidden, rows, bias), targets, reduction="none")


def chunked(
    hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None, *, chunk: int = 256
) -> Tensor:
    """Losses [K], keeping K numbers between forward and backward instead of K x C logits.

    Memory O(chunk x C) beside the gradients themselves; time one more matrix product than `full`
    (the logits are computed twice).

    >>> chunked(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1]), chunk=2).exp()
    tensor([4., 4., 4.])
    """
    if chunk < 1:
        raise BadInput(f"chunk must be at least 1 row, not {chunk}.")
    device = hidden.device.type
    if torch.is_autocast_enabled(
        device
    ):  # autocast does not look inside a custom Function, so its cast is made here
        dtype = torch.get_autocast_dtype(device)
        hidden = hidden.to(dtype)
        rows = rows.to(dtype)
    losses: Tensor = _Chunked.apply(hidden, rows, targets, bias, chunk)  # type: ignore[no-untyped-call]
    return losses


def logits_of(hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
    """[K, C] in at least float32: a bf16 log-sum over thousands of terms would lose the small ones."""
    logits = hidden @ rows.T
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    # In place: the product's own backward needs its factors, not its value, and the matrix is the
    # largest thing here.
    return logits if bias is None else logits.add_(bias.to(logits.dtype))


class _Chunked(torch.autograd.Function):
    """Forward keeps the log-sums; backward computes each chunk's softmax again from them."""

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
        ctx.save_for_backward(
            hidden, rows, targets, bias, torch.cat(log_sums) if log_sums else empty
        )
        ctx.chunk = chunk
        return torch.cat(losses) if losses else empty

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, upstream: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        hidden, rows, targets, bias, log_sums = ctx.saved_tensors
        want_hidden, want_rows, _, want_bias, _ = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if want_hidden else None
        # Many small chunks would round a bf16 sum many times: the rows' gradient is summed in
        # float32 or wider.
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
        return (
            grad_hidden,
            None if grad_rows is None else grad_rows.to(rows.dtype),
            None,
            grad_bias,
            None,
        )


Kept = Literal["sum", "none"]
# rows whose logits are held at a time on a CPU: torch 2.13's own choice takes three to four times
# as long
CHUNK = 256


def has_fused() -> bool:
    """Whether this torch has `linear_cross_entropy` (2.13 and later)."""
    return hasattr(F, "linear_cross_entropy")


def fused(
    hidden: Tensor, rows: Tensor, targets: Tensor, bias: Tensor | None = None, keep: Kept = "sum"
) -> Tensor:
    """torch's own (`torch.nn.functional.linear_cross_entropy`), on any device; summed, or losses
    [K].

    Summed, it computes the gradients during the forward pass, which saves the second look at the
    logits. On a CPU 256 rows are worked on at a time (K = 512, V = 8,192, d = 64: 38 ms against 153
    by torch's own choice), elsewhere torch's choice. Raises BadInput where torch is older than
    2.13.

    >>> if has_fused(): fused(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([3, 0, 1]), keep="none").exp().round()
    tensor([4., 4., 4.])
    """
    if not has_fused():
        raise BadInput(
            "This torch has no linear_cross_entropy (2.13 and later have): use the chunked form."
        )
    return F.linear_cross_entropy(
        hidden,
        rows,
        targets,
        linear_bias=None if bias is None else bias.to(rows.dtype),
        reduction=keep,
        options=torch.nn.LinearCrossEntropyOptions(
            batch_chunk_size=CHUNK if hidden.device.type == "cpu" else None
        ),
    )


# ---- Contrastive weight tying: learn to point at the next token's own input embedding, among those of the batch.
#
# For hidden states o_k, targets t_k and the input embeddings e of the same model,
#
#     L = -1/K sum_k log [ exp(o_k . e_{t_k} / T) / sum_{p in pool} exp(o_k . e_p / T) ],
#
# where the pool is the multiset of all targets of the batch: no prediction head, no sum over the
# vocabulary.
#
# The pool repeats tokens, and repeated tokens have the same row. With U distinct tokens v and their
# counts c_v,
#
#     sum_{p in pool} exp(o.e_p) = sum_{v in U} exp(o.e_v + log c_v),
#
# so the K x K loss *is* a cross-entropy over U classes with the bias log c, plus mean(log c_t): the
# same value and the same gradient from a K x U matrix. As U <= min(K, V), this is never dearer than
# the dense form nor than the full cross-entropy. The mean of log c_t is also the floor that no
# model can pass: `floor_of` subtracts it, and makes losses of different batch sizes comparable.
#
# Source: Godey, de la Clergerie, Sagot, "Headless language models" (ICLR 2024), section 3; the
# identity is ours to prove in tests/training/losses/test_cwt.py.


CWT_FORMS = ("dense", "unique", "chunked", "fused")


def cwt_loss(
    hidden: Tensor,
    embeddings: Tensor,
    targets: Tensor,
    form: str = "unique",
    *,
    pool: Tensor | None = None,
    temperature: float = 1.0,
    normalize: bool = False,
    chunk: int = 256,
    sparse: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Contrastive weight tying loss, in nats. Range: [log c_t, inf) per row, c_t the target's count
    in the pool.

    hidden: [K, d], what the model made of the context. embeddings: [V, d], its input embeddings
    (the gradient flows into both). targets: int [K], the tokens to find.
    form: "dense" (K x P, as published, positive counted once), "unique" (K x U, the same value and
    gradient), "chunked" (unique, memory O(chunk x U), logits computed twice) or "fused" (torch's
    own kernel over the unique rows).
    pool: int [P], all tokens to compare against, the targets among them; default the targets. Give
    `torch.cat([targets, extra])` for extra negatives, or the targets of all devices (`gather_ids`)
    or of all micro-batches of an accumulation: targets are known before the forward pass, so a
    batch-invariant loss needs no second one. temperature: T > 0. normalize: compare directions only
    (cosine / T); the published loss compares raw products. sparse: give the table's gradient as the
    U rows that are not zero (a sparse tensor) instead of [V, d] mostly zeros, in U x d memory.
    Where the table also feeds the model, autograd adds these rows to its dense gradient. reduction:
    "mean", "sum" or "none" ([K]).

    Cost: dense O(K P d) time, K x P memory; unique O(K U d), K x U; chunked the same time and a
    half, chunk x U. No targets (K = 0) give 0 and zero gradients; one unique token gives log K and,
    rightly, no pull and no push. Raises BadInput where shapes, ids or options do not fit.

    >>> hidden, table = torch.eye(3), 5 * torch.eye(3)
    >>> ids = torch.tensor([0, 1, 2])
    >>> round(cwt_loss(hidden, table, ids).item(), 4), round(cwt_loss(hidden, table, ids, form="dense").item(), 4)
    (0.0134, 0.0134)
    """
    check(hidden, embeddings, targets)
    if form not in CWT_FORMS:
        raise BadInput(f"form must be one of {', '.join(CWT_FORMS)}, not {form!r}.")
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    targets = targets.long()
    if len(targets) == 0:
        nothing = (hidden.sum() + 0 * embeddings[:1].sum()) * 0
        return reduce(hidden.sum(1), "none") if reduction == "none" else nothing
    tokens = pool_of(targets, None if pool is None else pool.long())
    if normalize:
        hidden = F.normalize(hidden, dim=1)
    if temperature != 1:
        hidden = hidden / temperature
    bias: Tensor | None
    if form == "dense":
        everything = targets if pool is None else pool.long()
        rows = F.embedding(everything, embeddings, sparse=sparse)
        positions = _first_places(tokens, everything)
        bias = None
        floor = torch.zeros(())
    else:
        rows = F.embedding(tokens.ids, embeddings, sparse=sparse)
        positions = tokens.positions
        bias = tokens.log_counts
        floor = tokens.log_counts[positions]
    if normalize:
        rows = F.normalize(rows, dim=1)
    if form == "fused" and reduction != "none":
        total = fused(hidden, rows, positions, bias)
        total = total + floor.sum().to(total.dtype)
        return total if reduction == "sum" else total / len(targets)
    if form == "chunked":
        losses = chunked(hidden, rows, positions, bias, chunk=chunk)
    elif form == "fused":
        losses = fused(hidden, rows, positions, bias, "none")
    else:
        losses = full(hidden, rows, positions, bias)
    return reduce(losses if form == "dense" else losses + floor.to(losses.dtype), reduction)


def _first_places(tokens: Pool, everything: Tensor) -> Tensor:
    """[K]: for each target one place in the pool where it stands (any will do: equal tokens have
    equal rows).
    """
    inverse = torch.searchsorted(tokens.ids, everything)
    place = torch.full_like(tokens.ids, len(everything))
    place.scatter_reduce_(
        0, inverse, torch.arange(len(everything), device=everything.device), "amin"
    )
    return place[tokens.positions]


# ---- What to watch while a contrastive loss falls: numbers that mean the same at every batch size.


def floor_of(targets: Tensor, pool: Tensor | None = None) -> Tensor:
    """Mean of log c_t (nats): the least that the contrastive loss can be on these targets; 0 for no
    targets.

    A batch in which tokens repeat has a floor above 0, and a larger batch repeats more: subtract it
    before comparing losses of different batch sizes. Cost: one sort.

    >>> floor_of(torch.tensor([4, 4, 9])).item() == 2 / 3 * torch.tensor(2.0).double().log().item()
    True
    """
    if len(targets) == 0:
        return torch.zeros((), dtype=torch.float64, device=targets.device)
    tokens = pool_of(targets, pool)
    return tokens.log_counts[tokens.positions].mean()


@torch.no_grad()
def in_batch_accuracy(
    hidden: Tensor,
    embeddings: Tensor,
    targets: Tensor,
    *,
    pool: Tensor | None = None,
    chunk: int = 1024,
) -> Tensor:
    """Share of rows (0 to 1) whose highest score among the pool's distinct tokens is its own
    target; 0 for no rows.

    hidden [K, d], embeddings [V, d], targets int [K]. Scores are raw products, without the counts,
    so that a frequent token has no head start. Cost: O(K U d).

    >>> in_batch_accuracy(torch.eye(2), torch.eye(2), torch.tensor([0, 0]))
    tensor(1.)
    >>> in_batch_accuracy(torch.eye(2), torch.eye(2), torch.tensor([1, 0]))
    tensor(0.)
    """
    check(hidden, embeddings, targets)
    if len(targets) == 0:
        return torch.zeros((), device=hidden.device)
    tokens = pool_of(targets, pool)
    rows = embeddings.index_select(0, tokens.ids)
    hits = [
        (part @ rows.T.to(part.dtype)).argmax(1) == places
        for part, places in zip(hidden.split(chunk), tokens.positions.split(chunk), strict=True)
    ]
    return torch.cat(hits).float().mean()
