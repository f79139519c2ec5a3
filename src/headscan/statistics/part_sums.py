"""Sums of unit states by parts: what the length of their mean is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, Blocks
from headscan.statistics.tally import BlockedTally, SiteBatch, Tally

BLOCKS = 16
NEAR = 512  # tokens at a time on a CPU: in float64 they stay in the cache, and no memory is asked for anew


class PartSums(Accumulator):
    """Σx/‖x‖ of one site, cut by cells, by documents, and by what the states are sums of; exact, float64.

    Each of at most 16 blocks of consecutive windows is a `Tally` of `cells` [cells, d] (disjoint sets of tokens), their `tokens`
    [cells], `sources` [sources, d] (each term of the states, divided by their norm) and `constants` [constants] (sums of the
    weights of vectors that are the same for all tokens). `documents`: at most 16 groups of consecutive documents, each with
    `unit` [d] and `tokens`. Memory 8·16·(cells + sources + 1)·d bytes.

    >>> sums = PartSums(2, cells=2)
    >>> sums.update(SiteBatch("s", torch.tensor([[[3.0, 0.0], [0.0, 2.0]]]), torch.tensor([[7, 8]]), [0]), torch.tensor([[0, 1]]))
    >>> sums.blocks.total()["cells"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    arguments, fields = ("width", "cells", "sources", "constants"), ("blocks", "documents")

    def __init__(
        self, width: int, *, cells: int, sources: int = 0, constants: int = 0, device: torch.device | str = "cpu"
    ):
        self.width, self.cells, self.sources, self.constants = width, cells, sources, constants
        self.device = torch.device(device)
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, self._zero)
        self.documents: Blocks[Tally] = Blocks(BLOCKS, self._document)

    def _zero(self) -> Tally:
        shapes = {"cells": (self.cells, self.width), "tokens": (self.cells,)}
        shapes |= {"sources": (self.sources, self.width), "constants": (self.constants,)}
        return Tally(shapes, self.device)

    def _document(self) -> Tally:
        return Tally({"unit": (self.width,), "tokens": ()}, self.device)

    def update(self, batch: SiteBatch, cells: Tensor) -> None:
        """Add a batch [B, T, d], each token to its cell, int64 [B, T]."""
        states, scale = batch.counted, torch.where(batch.norms > 0, 1 / batch.norms, 0.0).flatten()
        documents = torch.zeros_like(batch.ids) if batch.documents is None else batch.documents
        numbers, place = (one.to(states.device) for one in documents.unique(return_inverse=True))
        place, chosen = place.flatten(), cells.to(states.device).flatten()
        groups = scale.new_zeros(len(numbers), self.width)
        length, flat = states.shape[1], states.flatten(0, 1)
        near = NEAR if states.device.type == "cpu" else len(flat)
        for tally, rows in self.runs(batch.windows):
            whole = torch.zeros_like(tally["cells"])
            for start in range(rows.start * length, rows.stop * length, near):
                part = slice(start, min(start + near, rows.stop * length))
                unit = flat[part].double() * scale[part, None]
                whole.index_add_(0, chosen[part], unit)
                if len(numbers) > 1:
                    groups.index_add_(0, place[part], unit)
            tally["cells"] += whole
            tally["tokens"] += torch.bincount(chosen[rows.start * length : rows.stop * length], minlength=self.cells)
            if len(numbers) == 1:
                groups += whole.sum(0)
        if batch.documents is not None:
            self.documents.index(int(numbers[-1]))
            for number, one, count in zip(numbers.tolist(), groups, torch.bincount(place), strict=True):
                tally = self.documents[number]
                tally["unit"] += one
                tally["tokens"] += count

    def runs(self, windows: list[int]) -> Iterator[tuple[Tally, slice]]:
        """The rows of a batch of consecutive windows that belong to one block, and its tally."""
        for tally, members in self.blocks.runs(windows):
            yield tally, slice(members[0], members[-1] + 1)

    def merge(self, other: PartSums) -> None:
        self.blocks.merge(other.blocks)
        self.documents.merge(other.documents)


PLACES = ((0, 1), (1, 2), (2, 16), (16, None))
"""Where lengths are told apart: position 0, position 1, 2 to 15, and from 16 on."""
MASSIVE = 1000.0
"""A coordinate is massive where it is so many times the median one of its vector (Sun et al. 2024, arXiv:2402.17762)."""


class PositionTally(BlockedTally):
    """Σ‖x‖ [4] and counts [4] over the positions of `PLACES`, the same of all (`norm`, `tokens`), windows, and the sum of
    the windows' variances of ‖x‖ (over T − 1)."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return {"norms": (len(PLACES),), "counts": (len(PLACES),)} | dict.fromkeys(
            ("norm", "tokens", "windows", "spread"), ()
        )

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        norms, skipped = batch.norms, batch.skip_first
        parts = [
            norms[:, max(0, low - skipped) : None if high is None else max(0, high - skipped)] for low, high in PLACES
        ]
        one = norms.new_ones(len(norms))
        return {
            "norms": torch.stack([part.sum(1) for part in parts], dim=1),
            "counts": torch.stack([one * part.shape[1] for part in parts], dim=1), "norm": norms.sum(1),
            "tokens": one * norms.shape[1], "windows": one, "spread": norms.var(1) if norms.shape[1] > 1 else 0 * one,
        }  # fmt: skip


class PeakTally(BlockedTally):
    """Of each vector the largest |coordinate| over the median one (of an even number the lower): Σ of these ratios, how many
    reach `MASSIVE`, how many of those also 100, and of the massive ones which coordinate it is: how often, Σ|x|, Σx² [d].

    Vectors whose median is zero have no ratio; `tokens` counts the others.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("tokens", "windows", "ratio", "massive", "absolute"), ()) | dict.fromkeys(
            ("places", "sizes", "squares"), (width,)
        )

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        sizes = batch.rows.abs()
        largest, place = sizes.max(-1)
        median = sizes.median(-1).values
        known = median > 0
        ratio = torch.where(known, largest / median, 0.0)
        massive = (ratio >= MASSIVE).double()

        def by_place(values: Tensor) -> Tensor:
            return sizes.new_zeros(len(sizes), sizes.shape[-1]).scatter_add_(1, place, values)

        return {
            "tokens": known.double().sum(1), "windows": ratio.new_ones(len(ratio)), "ratio": ratio.sum(1),
            "massive": massive.sum(1), "absolute": (massive * (largest > 100)).sum(1), "places": by_place(massive),
            "sizes": by_place(massive * largest), "squares": by_place(massive * largest.square()),
        }  # fmt: skip


def turns(states: Tensor) -> tuple[Tensor, Tensor]:
    """Of paths [B, T, d] with steps v: Σ of the angles between steps and Σ of those that are defined [B]; and the straightness
    ‖z_T − z_1‖/Σ‖v‖ [B], NaN for a path that does not move.

    >>> angles, straight = turns(torch.tensor([[[0.0], [1.0], [2.0]]]).double())
    >>> angles.tolist(), straight.tolist()
    ([[0.0, 1.0]], [1.0])
    """
    steps = states.diff(dim=1)
    lengths = torch.linalg.vector_norm(steps, dim=-1)
    scale = lengths[:, 1:] * lengths[:, :-1]
    cosines = torch.where(scale > 0, (steps[:, 1:] * steps[:, :-1]).sum(-1) / scale, 0.0).clamp(-1, 1)
    angles = torch.where(scale > 0, torch.arccos(cosines), 0.0)
    straight = torch.linalg.vector_norm(states[:, -1] - states[:, 0], dim=-1) / lengths.sum(1)
    return torch.stack([angles.sum(1), (scale > 0).double().sum(1)], dim=1), straight


def window_entropy(states: Tensor) -> Tensor:
    """Shannon's entropy of the eigenvalues' shares of each window's Gram matrix [B], nats, over log min(T, d): in [0, 1].

    >>> window_entropy(torch.eye(4).double()[None]).tolist()
    [1.0]
    """
    _, length, width = states.shape
    wide = length <= width
    gram = states @ states.transpose(1, 2) if wide else states.transpose(1, 2) @ states
    values = torch.linalg.eigvalsh(gram).clamp(min=0)
    shares = values / values.sum(-1, keepdim=True)
    entropy = -torch.where(shares > 0, shares * shares.clamp(min=1e-300).log(), 0.0).sum(-1)
    return entropy / math.log(max(2, min(length, width)))


class PathTally(BlockedTally):
    """Sums over windows of `turns` and `window_entropy`, and of the same with each window's tokens shuffled (`_shuffled`): the
    null, for which the order is the same one in every window of a length."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        names = ("angles", "turns", "straight", "moving", "angles_shuffled", "turns_shuffled", "straight_shuffled")
        return dict.fromkeys((*names, "entropy", "tokens"), ())

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        rows = batch.rows
        order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0)).to(rows.device)
        found = {"entropy": window_entropy(rows).nan_to_num(), "tokens": torch.ones(len(rows), dtype=torch.float64)}
        for end, states in (("", rows), ("_shuffled", rows[:, order])):
            angles, straight = turns(states)
            found |= {
                f"angles{end}": angles[:, 0], f"turns{end}": angles[:, 1], f"straight{end}": straight.nan_to_num(),
            }  # fmt: skip
            if not end:
                found["moving"] = torch.isfinite(straight).double()
        return found


class PushPull(Accumulator):
    """The gradient of Σ −log softmax(W h + b)[next] in each row of W [V, d], split by where it comes from.

    For row v, −∂L/∂w_v = pull_v − push_v with
        pull_v = Σ_{t: next = v} (1 − p_t(v)) h_t     where v is the token to predict: towards the hidden state;
        push_v = Σ_{t: next ≠ v} p_t(v) h_t           everywhere else: away from it.
    `pull`, `push` [V, d]; `pull_mass`, `push_mass` [V] the sums of the coefficients; `counts` [V] how often v came next;
    `state_sum` [d] Σh; `loss` in nats; `tokens`. Of tied embeddings only the head's gradient is seen.

    Cost of n rows: two products of n x d x V beside the softmax; 2·8·V·d bytes.

    >>> sums = PushPull(2, 1)
    >>> sums.update(torch.tensor([[1.0]]), torch.tensor([0]), torch.zeros(2, 1))      # p = 1/2, 1/2
    >>> sums.pull.tolist(), sums.push.tolist()
    ([[0.5], [0.0]], [[0.0], [0.5]])
    """

    arguments = ("vocabulary", "width")
    fields = ("pull", "push", "pull_mass", "push_mass", "counts", "state_sum", "scalars")

    def __init__(self, vocabulary: int, width: int, device: torch.device | str = "cpu"):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.vocabulary, self.width = vocabulary, width
        self.pull, self.push = zeros(vocabulary, width), zeros(vocabulary, width)
        self.pull_mass, self.push_mass, self.counts = zeros(vocabulary), zeros(vocabulary), zeros(vocabulary)
        self.state_sum, self.scalars = zeros(width), zeros(2)  # loss, tokens

    @property
    def loss(self) -> float:
        return float(self.scalars[0])

    @property
    def tokens(self) -> int:
        return int(self.scalars[1])

    def update(self, states: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        """Add hidden states [n, d] with the ids that come next [n], under the head's weight [V, d] and bias [V]."""
        step = max(1, 2**25 // (4 * len(weight)))
        for start in range(0, len(targets), step):
            h = states[start : start + step].detach().to(weight.dtype)
            y = targets[start : start + step].to(h.device)
            logits = torch.nn.functional.linear(h, weight, bias).float()
            scale = torch.logsumexp(logits, -1, keepdim=True)
            rows = torch.arange(len(y), device=h.device)
            self.scalars[0] += (scale[:, 0] - logits[rows, y]).double().sum()
            probabilities = logits.sub_(scale).exp_()
            missing = 1 - probabilities[rows, y].double()
            probabilities[rows, y] = 0.0
            h64 = h.double()
            self.push += (probabilities.T @ h.float()).double()
            self.push_mass += probabilities.double().sum(0)
            self.pull.index_add_(0, y, missing[:, None] * h64)
            self.pull_mass.index_add_(0, y, missing)
            self.counts.index_add_(0, y, torch.ones_like(missing))
            self.state_sum += h64.sum(0)
            self.scalars[1] += len(y)

    def merge(self, other: PushPull) -> None:
        for name in self.fields:
            getattr(self, name).add_(getattr(other, name).to(self.pull.device))
