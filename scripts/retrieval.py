"""Training a body to retrieve: the vector of one part of a text finds the vector of the
other part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.run import BadInput
from headscan.training.heads import body_of

__all__ = ["halves", "retrieval_accuracy", "text_vectors", "train_retrieval"]


def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows int [n, T] to their first and second halves, [n, T // 2] each: pairs that belong
    together.

    >>> [part.tolist() for part in halves(np.arange(8).reshape(2, 4))]
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    middle = rows.shape[1] // 2
    if middle < 1:
        raise BadInput("A window of one token has no halves.")
    return rows[:, :middle], rows[:, middle : 2 * middle]


def text_vectors(model: Any, ids: Tensor, position: int = -1) -> Tensor:
    """[B, d]: the last hidden state at one position of texts int [B, T] (the published mixers take
    the last but one).
    """
    return body_of(model)(input_ids=ids.to(model.device)).last_hidden_state[:, position]


def train_retrieval(
    model: Any,
    queries: np.ndarray,
    candidates: np.ndarray,
    *,
    steps: int = 200,
    batch: int = 32,
    rate: float = 3e-4,
    temperature: float = 0.02,
    position: int = -1,
    seed: int = 0,
) -> list[float]:
    """Fine-tune a body by InfoNCE on pairs of texts int [n, T]; returns the loss of each step. In
    place, AdamW.

    batch: one positive and batch - 1 negatives a query (32 as published).
    """
    if len(queries) != len(candidates) or len(queries) < 2:
        raise BadInput(
            f"Retrieval needs at least two pairs, not {len(queries)} queries and "
            f"{len(candidates)} candidates."
        )
    generator = torch.Generator().manual_seed(seed)
    body = body_of(model)
    optimizer = torch.optim.AdamW(body.parameters(), lr=rate)
    query_ids = torch.from_numpy(queries).long()
    candidate_ids = torch.from_numpy(candidates).long()
    losses = []
    body.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 10 * step / steps)
        rows_drawn = torch.randperm(len(query_ids), generator=generator)[:batch]
        query_vectors, answer_vectors = (
            F.normalize(text_vectors(model, rows[rows_drawn], position), dim=1)
            for rows in (query_ids, candidate_ids)
        )
        similarities = query_vectors @ answer_vectors.T / temperature
        loss = F.cross_entropy(similarities, torch.arange(len(query_vectors)))  # InfoNCE
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    body.eval()
    return losses


@torch.no_grad()
def retrieval_accuracy(
    model: Any, queries: np.ndarray, candidates: np.ndarray, *, among: int = 32, position: int = -1
) -> float:
    """Share of queries whose nearest candidate (cosine), among consecutive groups of `among`, is
    their own.

    Chance is 1 / among. A last group that is smaller is left out.
    """
    groups = len(queries) // among
    if not groups:
        raise BadInput(f"There are {len(queries)} pairs, fewer than one group of {among}.")
    hits = 0.0
    for group in range(groups):
        part = slice(group * among, (group + 1) * among)
        vectors = [
            torch.nn.functional.normalize(
                text_vectors(model, torch.from_numpy(rows[part]).long(), position), dim=1
            )
            for rows in (queries, candidates)
        ]
        nearest = (vectors[0] @ vectors[1].T).argmax(1).cpu()
        hits += float((nearest == torch.arange(among)).float().mean())
    return hits / groups
