"""Baselines that avoid the sum over the vocabulary: sampled softmax, noise contrastive estimation, adaptive softmax."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headscan.run import BadInput
from headscan.training.losses.shared import check, reduce


def log_unigram(counts: Tensor, smoothing: float = 1.0) -> Tensor:
    """log p(v) [V] in nats from token counts [V], with `smoothing` added to each count so that no token has p = 0.

    >>> log_unigram(torch.tensor([2, 0]), smoothing=1).exp()
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    smooth = counts.double() + smoothing
    return smooth.log() - smooth.sum().log()


def sample_noise(log_noise: Tensor, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """int64 [samples] drawn, with replacement, from the noise distribution exp(log_noise) [V]."""
    return torch.multinomial(log_noise.exp(), samples, replacement=True, generator=generator)


def sampled_softmax_loss(
    hidden: Tensor, embeddings: Tensor, targets: Tensor, noise: Tensor, log_noise: Tensor, *,
    bias: Tensor | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Cross-entropy among the target and shared noise tokens [S], each logit corrected by -log(expected count).

    hidden [K, d], embeddings [V, d], targets [K]; log_noise [V] is the distribution the noise was drawn from. A noise
    token equal to the row's target is left out for that row (an accidental hit). With the correction the estimate of
    the full loss is consistent: it tends to it as S grows. Source: Jean et al. 2015. Cost: O(K S d).
    """
    check(hidden, embeddings, targets)
    if len(noise) == 0:
        raise BadInput("Sampled softmax needs at least one noise token.")
    expected = log_noise.to(hidden.dtype) + math.log(len(noise))
    others = hidden @ embeddings[noise].T - expected[noise]
    own = (hidden * embeddings[targets]).sum(1)
    if bias is not None:
        others, own = others + bias[noise], own + bias[targets]
    others = others.masked_fill(noise[None, :] == targets[:, None], float("-inf"))
    return reduce(torch.logsumexp(torch.cat([own[:, None], others], 1), 1) - own, reduction)


def nce_loss(
    hidden: Tensor, embeddings: Tensor, targets: Tensor, noise: Tensor, log_noise: Tensor, *,
    bias: Tensor | None = None, log_partition: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Noise contrastive estimation: tell the target from S noise tokens, one yes-or-no question each (nats).

    The model is taken as normalised up to the constant `log_partition` (log Z). `embeddings` is the output table, tied
    or not; the published ablation without tying has its own. Source: Gutmann and Hyvarinen 2010; Mnih and Teh 2012.
    """
    check(hidden, embeddings, targets)
    if len(noise) == 0:
        raise BadInput("Noise contrastive estimation needs at least one noise token.")
    expected = log_noise.to(hidden.dtype) + math.log(len(noise)) + log_partition
    own = (hidden * embeddings[targets]).sum(1) - expected[targets]
    others = hidden @ embeddings[noise].T - expected[noise]
    if bias is not None:
        own, others = own + bias[targets], others + bias[noise]
    return reduce(F.softplus(-own) + F.softplus(others).sum(1), reduction)


class AdaptiveSoftmax(nn.Module):
    """Adaptive softmax on any numbering of tokens: frequent ones in a short head, rare ones in narrow tails.

    torch's `AdaptiveLogSoftmaxWithLoss` asks for ids sorted by frequency; this sorts them by `counts` [V].
    Source: Grave et al. 2017.

    >>> head = AdaptiveSoftmax(8, torch.tensor([1, 50, 3, 9, 0, 2]), cutoffs=[2])
    >>> head(torch.zeros(2, 8), torch.tensor([1, 4])).shape
    torch.Size([])
    """

    rank: Tensor

    def __init__(self, width: int, counts: Tensor, cutoffs: list[int] | None = None, div_value: float = 4.0):
        super().__init__()
        size = len(counts)
        if cutoffs is None:
            cutoffs = sorted({max(1, size // 16), max(2, size // 4)} - {size})
        if not cutoffs or cutoffs[-1] >= size:
            raise BadInput(f"The cutoffs {cutoffs} must lie below the vocabulary's size {size}.")
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(width, size, cutoffs, div_value)
        rank = torch.empty(size, dtype=torch.long)
        rank[torch.argsort(counts, descending=True, stable=True)] = torch.arange(size)
        self.register_buffer("rank", rank)

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean loss in nats over hidden [K, d] and targets [K]."""
        if len(targets) == 0:
            return hidden.sum() * 0
        loss: Tensor = self.softmax(hidden, self.rank[targets]).loss
        return loss

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """log p over the vocabulary, [K, V], in the original numbering."""
        return self.softmax.log_prob(hidden)[:, self.rank]


def infonce_loss(
    queries: Tensor, candidates: Tensor, *, temperature: float = 0.02, first: int = 0, both_ways: bool = False
) -> Tensor:
    """Mean of -log softmax_j(cos(q_i, c_j) / T) at j = first + i (nats): queries [N, d], candidates [M, d], M >= first + N.

    Row i of the queries belongs to candidate first + i; all others are negatives (hard negatives may follow). both_ways:
    the mean with the loss of candidates looking for queries (N = M, first = 0). T = 0.02 as in the masked-mixer papers.

    >>> round(infonce_loss(torch.eye(2), torch.eye(2), temperature=1.0).item(), 4)
    0.3133
    """
    if queries.dim() != 2 or candidates.dim() != 2 or queries.shape[1] != candidates.shape[1]:
        raise BadInput(f"Queries {list(queries.shape)} and candidates {list(candidates.shape)} do not fit together.")
    if first + len(queries) > len(candidates):
        raise BadInput(
            f"{len(queries)} queries need at least {first + len(queries)} candidates, not {len(candidates)}."
        )
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    scores = F.normalize(queries, dim=1) @ F.normalize(candidates, dim=1).T / temperature
    own = first + torch.arange(len(queries), device=queries.device)
    loss = F.cross_entropy(scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores, own)
    if not both_ways:
        return loss
    if first or len(queries) != len(candidates):
        raise BadInput("Both ways need as many candidates as queries.")
    return (loss + F.cross_entropy(scores.T, own)) / 2
