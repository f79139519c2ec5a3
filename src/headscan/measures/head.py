"""The softmax bottleneck: is the head's rank enough for the data (Godey et al. 2024, arXiv:2404.07647)?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.measures.spectrum import entropy_of
from headscan.statistics.uncertainty import Cells, jackknife

WEIGHTS = "a property of the weights alone"
OWN_MATRIX = "of this text's own matrix"
TOO_MANY = "more than 6,000 tokens occur, or windows are shorter than that many tokens"


def head_spectrum(weight: Tensor) -> Cells:
    """Singular values of a head [V, d] and what they say of its rank.

    Keys: `singular_values` (largest first), `singular_entropy` log d − H(σ/Σσ) in nats (0: all directions alike; rises
    when a small model's head saturates), `effective_rank` of the energies, `stable_rank`, `top_ratio` σ₁/median σ,
    `half_error_rank` and `tenth_error_rank`: how many directions bring `w_error` to 0.5 and 0.1. Cost O(Vd² + d³).

    >>> round(head_spectrum(torch.eye(3))["singular_entropy"], 6)
    0.0
    """
    values = head_values(weight)
    if not values[0] > 0:
        names = (
            "singular_entropy", "effective_rank", "stable_rank", "top_ratio", "half_error_rank", "tenth_error_rank",
        )  # fmt: skip
        return {"singular_values": values.tolist()} | dict.fromkeys(names)
    energies = values**2 / (values**2).sum()
    errors = w_error(values)
    median = float(np.median(values))
    return {
        "singular_values": values.tolist(),
        "singular_entropy": max(0.0, math.log(len(values)) - entropy_of(values / values.sum())),
        "effective_rank": math.exp(entropy_of(energies)), "stable_rank": float(1 / energies[0]),
        "top_ratio": float(values[0]) / median if median > 0 else None,
        "half_error_rank": int(np.argmax(errors <= 0.5)), "tenth_error_rank": int(np.argmax(errors <= 0.1)),
    }  # fmt: skip


def head_values(weight: Tensor) -> npt.NDArray[np.float64]:
    """The singular values of a head [V, d], largest first; what is below rounding is zero."""
    w = torch.as_tensor(weight).detach().double()
    values = torch.linalg.eigvalsh(w.T @ w).flip(0).clamp(min=0)
    kept: npt.NDArray[np.float64] = (
        torch.where(values > 4 * w.shape[1] * 2.2e-16 * values[0], values, 0.0).sqrt().cpu().numpy()
    )
    return kept


def w_error(singular_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """W-error(k) = ‖σ_{k+1:}‖₂/‖W‖_F for k = 0 ... d [d + 1]: what the best matrix of rank k leaves out. From 1 to 0.

    >>> w_error([4.0, 3.0]).tolist()
    [1.0, 0.6, 0.0]
    """
    energies = np.asarray(singular_values, dtype=np.float64) ** 2
    rest = np.concatenate([np.cumsum(energies[::-1])[::-1], [0.0]])
    return np.sqrt(rest / rest[0]) if rest[0] > 0 else np.zeros(len(rest))


def ngram_matrix(windows: npt.NDArray[np.int64], vocabulary: int, order: int) -> scipy.sparse.csr_matrix:
    """The empirical n-gram matrix [contexts, V]: row = p(next | the `order` − 1 tokens before), sparse.

    `windows` [B, T] of ids; contexts do not cross windows. Its spectrum says how much a head of rank d must lose on the
    data itself. Cost O(tokens).

    >>> ngram_matrix(np.array([[0, 1, 0, 2]]), 3, order=2).toarray().tolist()
    [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
    """
    ids = np.asarray(windows, dtype=np.int64)
    lead = order - 1
    grams = np.lib.stride_tricks.sliding_window_view(ids, order, axis=1).reshape(-1, order)
    keys = np.ascontiguousarray(grams[:, :lead]).view(np.dtype((np.void, 8 * lead))).ravel() if lead else None
    rows = np.zeros(len(grams), dtype=np.int64) if keys is None else np.unique(keys, return_inverse=True)[1].ravel()
    counts = scipy.sparse.coo_matrix(
        (np.ones(len(grams)), (rows, grams[:, -1])), shape=(int(rows.max(initial=0)) + 1, vocabulary)
    ).tocsr()
    return (scipy.sparse.diags(1 / np.asarray(counts.sum(1)).ravel()) @ counts).tocsr()


def spectrum_of_sparse(matrix: scipy.sparse.csr_matrix, *, most: int = 6000) -> npt.NDArray[np.float64]:
    """All singular values of a sparse matrix, largest first, from the Gram matrix of its occupied columns.

    Raises ValueError where more than `most` columns are occupied: 8·most² bytes and O(most³).

    >>> spectrum_of_sparse(scipy.sparse.csr_matrix([[3.0, 0, 0], [0, 0, 4.0]])).round(6).tolist()
    [4.0, 3.0]
    """
    occupied = np.unique(matrix.indices)
    if len(occupied) > most:
        raise ValueError(f"{len(occupied)} tokens occur, more than {most}")
    part = matrix[:, occupied]
    gram = (part.T @ part).toarray() if len(occupied) <= part.shape[0] else (part @ part.T).toarray()
    values: npt.NDArray[np.float64] = np.sqrt(np.clip(np.linalg.eigvalsh(gram)[::-1], 0, None))
    return values


@dataclass(frozen=True)
class LowRankHead:
    """A head W = A·B of rank r trained on frozen states: `a` [V, r], `b` [r, d], `loss` in nats a token on the second
    half of the positions, which training has not seen, with its 95 % `interval` over batches of them (not over what
    training would make of other data), and `path`, the training loss every tenth of the way."""

    a: Tensor
    b: Tensor
    loss: float
    path: list[float]
    interval: list[float] | None = None


def train_low_rank_head(
    states: Tensor, targets: Tensor, vocabulary: int, rank: int, *, steps: int = 300, batch: int = 1024,
    rate: float = 3e-3, seed: int = 0,
) -> LowRankHead:  # fmt: skip
    """Train softmax(A·B·h) on frozen hidden states [n, d] with the ids that come next [n]; Adam, cosine schedule.

    The first half of the positions trains, the second is held out. A starts at zero, B at N(0, 1/d), so that the first
    step starts at the uniform distribution. States are scaled by their root mean square, which a head can undo. Losses of
    several ranks at equal steps show where the rank begins to matter. Cost 6·steps·batch·r·(d + V) multiply-adds.

    >>> h = torch.eye(4).repeat(64, 1); y = torch.arange(4).repeat(64)
    >>> one, four = (train_low_rank_head(h, y, 4, r, steps=200, rate=0.05).loss for r in (1, 4))
    >>> four < 0.1 < one
    True
    """
    generator = torch.Generator().manual_seed(seed)
    h = states.detach().float()
    h = h / h.square().mean().sqrt().clamp(min=1e-12)
    half = len(h) // 2
    a = torch.zeros(vocabulary, rank, requires_grad=True)
    b = (torch.randn(rank, h.shape[1], generator=generator) / h.shape[1] ** 0.5).requires_grad_()
    optimiser = torch.optim.Adam([a, b], lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    path = []
    for step in range(steps):
        chosen = torch.randint(half, (min(batch, half),), generator=generator)
        loss = torch.nn.functional.cross_entropy(h[chosen] @ b.T @ a.T, targets[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            path.append(loss.item())
    with torch.no_grad():
        starts = range(half, len(h), batch)
        parts = [
            float(
                torch.nn.functional.cross_entropy(h[k : k + batch] @ b.T @ a.T, targets[k : k + batch], reduction="sum")
            )
            for k in starts
        ]
    total, count = sum(parts), max(1, len(h) - half)
    sizes = [min(batch, len(h) - k) for k in starts]
    left = [(total - part) / max(1, count - size) for part, size in zip(parts, sizes, strict=True)]
    interval = jackknife(total / count, left, sizes, bounds=(0.0, None))
    return LowRankHead(a.detach(), b.detach(), total / count, path, interval)


class HeadProbe(Probe):
    """The head's spectrum."""

    words = ProbeWords(
        name="head", title="The head's spectrum", group="head",
        sentence="How many directions does the output layer use? A rising singular entropy is how small models' "
        "heads saturate.",
        literature="Godey et al. 2024, arXiv:2404.07647", position="Weights know no position.", docs="head.md",
        function="headscan.measures.head.head_spectrum", order=13, fields={
            "singular_entropy": Field("singular entropy",
                "Divergence of the singular values from uniform: 0 when all are equal.", "log d − H(σ/Σσ)", range=(0, None),
                unit="nats", undefined="the head is zero", interval=WEIGHTS),
            "effective_rank": Field("effective rank", "exp of the entropy of the energies.", "exp H(σ²/Σσ²)", range=(1, None),
                unit="dimensions", undefined="the head is zero", interval=WEIGHTS),
            "stable_rank": Field("stable rank", "Energy in units of the strongest direction.", "Σσ²/σ₁²", range=(1, None),
                unit="dimensions", undefined="the head is zero", interval=WEIGHTS),
            "top_ratio": Field("top ratio", "First singular value over the median one.", "σ₁/median σ", range=(1, None),
                undefined="the median singular value is zero", interval=WEIGHTS),
            "half_error_rank": Field("rank for W-error ½", "Directions that leave half of the norm out.", "W-error(k) ≤ 0.5",
                range=(0, None), unit="dimensions", undefined="the head is zero", interval=WEIGHTS),
            "tenth_error_rank": Field("rank for W-error 0.1", "Directions that leave a tenth out.", "W-error(k) ≤ 0.1",
                range=(0, None), unit="dimensions", undefined="the head is zero", interval=WEIGHTS),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.output_embeddings is not None else NO_HEAD

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        output = setup.lens.output_embeddings
        return [] if output is None else [{"site": "output embeddings", **head_spectrum(output)}]


NO_HEAD = "the model has no output layer"


class BottleneckProbe(Probe):
    """What rank the data want."""

    words = ProbeWords(
        name="bottleneck", title="The softmax bottleneck", group="head",
        sentence="How much does a head of low rank lose? The text's own n-gram matrix cut at rank k, and heads of "
        "rank k trained on the frozen states.",
        literature="Godey et al. 2024, arXiv:2404.07647; Yang et al. 2018",
        position="All positions that have a successor (--skip-first 1 leaves the first out).", docs="head.md",
        function="headscan.measures.head.train_low_rank_head", expensive=True, order=17, fields={
            "rank": Field("rank", "k.", range=(1, None), interval="given"),
            "head_error": Field("W-error of the head", "Of the model's own head cut at k.", "‖σ_{k+1:}‖/‖W‖", range=(0, 1),
                undefined="the model has no output layer", interval=WEIGHTS),
            "bigram_error": Field("W-error of bigrams", "Of the text's matrix of p(next | last token) cut at k.",
                range=(0, 1), undefined=TOO_MANY, interval=OWN_MATRIX),
            "trigram_error": Field("W-error of trigrams", "Of p(next | last two tokens).", range=(0, 1), undefined=TOO_MANY,
                interval=OWN_MATRIX),
            "bigram_rank": Field("rank of bigrams",
                "Numerical rank of the matrix of p(next | last token): a head of fewer dimensions cannot express it.",
                range=(0, None), unit="dimensions", undefined=TOO_MANY, interval=OWN_MATRIX),
            "trigram_rank": Field("rank of trigrams", "Of p(next | last two tokens).", range=(0, None), unit="dimensions",
                undefined=TOO_MANY, interval=OWN_MATRIX),
            "loss": Field("loss of a rank-k head", "Trained on half of the frozen states, measured on the other half.",
                range=(0, None), unit="nats a token",
                undefined="the model has no output layer, or there are fewer than four states",
                interval="three batches of held-out states are needed"),
        },
    )  # fmt: skip
    TOKENS, STEPS, BATCH = 32768, 300, 1024

    def _ranks(self, setup: ProbeSetup) -> list[int]:
        width = setup.lens.width(setup.last)
        return [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if k < width] + [width]

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        steps = sum(6.0 * self.STEPS * self.BATCH * k * (width + vocabulary) for k in self._ranks(setup))
        softmax = len(self._ranks(setup)) * 20.0 * self.STEPS * self.BATCH * vocabulary
        spectra = 20.0 * min(vocabulary, 6000) ** 3
        return Cost(steps + softmax + spectra, 12.0 * self.BATCH * vocabulary + 24.0 * min(vocabulary, 6000) ** 2)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows
        errors: dict[str, Any] = {}
        ranks: dict[str, int | None] = {}
        for order, name in ((2, "bigram_error"), (3, "trigram_error")):
            try:
                values = spectrum_of_sparse(ngram_matrix(ids.numpy(), setup.lens.vocabulary_size, order))
                errors[name] = w_error(values)
                # The roots of a Gram matrix's eigenvalues are known to √ε of the largest.
                ranks[name.replace("error", "rank")] = int(
                    (values > 3e-8 * len(values) ** 0.5 * values.max(initial=0.0)).sum()
                )
            except ValueError:
                errors[name] = ranks[name.replace("error", "rank")] = None
        output = setup.lens.output_embeddings
        errors["head_error"] = None if output is None else w_error(head_values(output))
        states, targets = self._states(setup, ids[: max(1, self.TOKENS // ids.shape[1])])
        rows: list[Cells] = []
        for k in self._ranks(setup):
            row: Cells = {"site": f"rank {k}", "rank": k, **ranks}
            for name in ("head_error", "bigram_error", "trigram_error"):
                values = errors[name]
                row[name] = None if values is None else float(values[min(k, len(values) - 1)])
            trained = None if output is None or len(states) < 4 else train_low_rank_head(
                states, targets, setup.lens.vocabulary_size, k, steps=self.STEPS, batch=self.BATCH, seed=setup.seed
            )  # fmt: skip
            row |= {"loss": None, "loss_interval": None}
            rows.append(row if trained is None else row | {"loss": trained.loss, "loss_interval": trained.interval})
        return rows

    def _states(self, setup: ProbeSetup, ids: Tensor) -> tuple[Tensor, Tensor]:
        states, targets = [], []
        for start in range(0, len(ids), 16):
            part = ids[start : start + 16]
            found = setup.lens.run(part.to(setup.lens.device), sites=setup.last)[setup.last]
            states.append(found[:, setup.skip_first : -1].reshape(-1, found.shape[-1]).float().cpu())
            targets.append(part[:, setup.skip_first + 1 :].reshape(-1))
        return torch.cat(states), torch.cat(targets)
