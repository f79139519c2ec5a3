"""Contrastive weight tying: find the next token's own input embedding among those of the batch.

For hidden states o_k, targets t_k and the input embeddings e of the same model,

    L = -1/K sum_k log [ exp(o_k . e_{t_k} / T) / sum_{p in pool} exp(o_k . e_p / T) ],

where the pool is the multiset of all targets of the batch: no prediction head, no sum over the
vocabulary.

The pool repeats tokens, and repeated tokens have the same row. With U distinct tokens v and their
counts c_v,

    sum_{p in pool} exp(o.e_p) = sum_{v in U} exp(o.e_v + log c_v),

so the K x K loss *is* a cross-entropy over U classes with the bias log c, plus mean(log c_t): the
same value and the same gradient from a K x U matrix. As U <= min(K, V), this is never dearer than
the dense form nor than the full cross-entropy. The mean of log c_t is also the floor that no model
can pass: `floor_of` subtracts it, and makes losses of different batch sizes comparable.

Source: Godey, de la Clergerie, Sagot, "Headless language models" (ICLR 2024), section 3; the
identity is proved in tests/training/losses/test_cwt.py.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.run import BadInput
from headscan.training.losses.linear import chunked, full, fused
from headscan.training.losses.shared import Pool, check, no_loss, pool_of, reduce

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
    """Return the contrastive weight tying loss, in nats.

    Range: [log c_t, inf) per row, c_t the target's count in the pool.

    hidden: [K, d], the states of the contexts. embeddings: [V, d], the model's input embeddings
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
    >>> round(cwt_loss(hidden, table, ids).item(), 4)
    0.0134
    >>> round(cwt_loss(hidden, table, ids, form="dense").item(), 4)
    0.0134
    """
    check(hidden, embeddings, targets)
    if form not in CWT_FORMS:
        raise BadInput(f"form must be one of {', '.join(CWT_FORMS)}, not {form!r}.")
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    targets = targets.long()
    if len(targets) == 0:
        return no_loss(hidden, embeddings, reduction)
    tokens = pool_of(targets, None if pool is None else pool.long())
    if normalize:
        hidden = F.normalize(hidden, dim=1)
    if temperature != 1:
        hidden = hidden / temperature
    if form == "dense":
        pool_ids = targets if pool is None else pool.long()
        rows = F.embedding(pool_ids, embeddings, sparse=sparse)
        if normalize:
            rows = F.normalize(rows, dim=1)
        return reduce(full(hidden, rows, _first_positions(tokens, pool_ids)), reduction)

    rows = F.embedding(tokens.ids, embeddings, sparse=sparse)
    if normalize:
        rows = F.normalize(rows, dim=1)
    return _unique_loss(hidden, rows, tokens, form, chunk, reduction)


def _unique_loss(
    hidden: Tensor, rows: Tensor, tokens: Pool, form: str, chunk: int, reduction: str
) -> Tensor:
    """Return the loss over the rows [U, d] of the distinct tokens of the pool."""
    positions = tokens.positions
    bias = tokens.log_counts
    floor = bias[positions]
    if form == "fused" and reduction != "none":
        total = fused(hidden, rows, positions, bias)
        total = total + floor.sum().to(total.dtype)
        return total if reduction == "sum" else total / len(positions)
    if form == "chunked":
        losses = chunked(hidden, rows, positions, bias, chunk=chunk)
    elif form == "fused":
        losses = fused(hidden, rows, positions, bias, "none")
    else:
        losses = full(hidden, rows, positions, bias)
    return reduce(losses + floor.to(losses.dtype), reduction)


def _first_positions(tokens: Pool, pool_ids: Tensor) -> Tensor:
    """Return for each target its first position in the pool, [K].

    Any of its positions would do: equal tokens have equal rows.
    """
    token_of_position = torch.searchsorted(tokens.ids, pool_ids)
    first = torch.full_like(tokens.ids, len(pool_ids))
    indices = torch.arange(len(pool_ids), device=pool_ids.device)
    first.scatter_reduce_(0, token_of_position, indices, "amin")
    return first[tokens.positions]


def floor_of(targets: Tensor, pool: Tensor | None = None) -> Tensor:
    """Return the mean of log c_t (nats), the least value of the contrastive loss on these targets;
    0 for no targets.

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
    """Return the share of rows (0 to 1) whose highest score among the pool's distinct tokens is
    that of their own target; 0 for no rows.

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
    hits = []
    for states, positions in zip(hidden.split(chunk), tokens.positions.split(chunk), strict=True):
        scores = states @ rows.T.to(states.dtype)
        hits.append(scores.argmax(1) == positions)
    return torch.cat(hits).float().mean()
