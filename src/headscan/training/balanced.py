"""Balanced cross-entropy, and fine-tuning a classifier with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.run import BadInput
from headscan.training.heads import body_of

__all__ = ["balanced_cross_entropy", "finetune_classifier"]


def balanced_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy in which every class of the batch weighs alike: the mean over classes of its mean loss (nats).

    logits [n, C], labels int [n]. The weights come from the batch's own labels (Godey et al. 2024, appendix E); with
    as many of each class it is the ordinary cross-entropy.

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> round(balanced_cross_entropy(logits, torch.tensor([0, 0, 1])).item(), 4)
    0.41
    """
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    counts = torch.bincount(labels, minlength=logits.shape[1])
    return (losses / counts[labels]).sum() / (counts > 0).sum()


def finetune_classifier(
    model: PreTrainedModel, rows: list[list[int]], labels: list[int], *, classes: int, steps: int = 300, batch: int = 32,
    rate: float = 1e-4, balanced: bool = True, seed: int = 0,
) -> nn.Module:  # fmt: skip
    """Fine-tune a body with a linear classifier on its mean hidden state; returns a module of (ids, mask) to logits.

    rows: token ids of each text; labels: 0 ... classes - 1. The body is trained in place. AdamW, 10 % warm-up.
    """
    if len(rows) != len(labels) or not rows:
        raise BadInput(f"There are {len(rows)} texts but {len(labels)} labels.")
    torch.manual_seed(seed)
    classifier = _Classifier(body_of(model), classes)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=rate, weight_decay=0.01)
    generator = torch.Generator().manual_seed(seed)
    loss_of = balanced_cross_entropy if balanced else nn.functional.cross_entropy
    classifier.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 10 * step / steps)
        chosen = torch.randint(len(rows), (batch,), generator=generator).tolist()
        width = max(len(rows[i]) for i in chosen)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in chosen])
        mask = torch.tensor([[1] * len(rows[i]) + [0] * (width - len(rows[i])) for i in chosen])
        logits = classifier(ids, mask)
        loss = loss_of(logits, torch.tensor([labels[i] for i in chosen], device=logits.device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
        optimizer.step()
    return classifier.eval()


class _Classifier(nn.Module):
    def __init__(self, body: PreTrainedModel, classes: int) -> None:
        super().__init__()
        self.body = body
        device = next(body.parameters()).device
        self.head = nn.Linear(body.config.hidden_size, classes, device=device)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        device = self.head.weight.device
        ids, mask = ids.to(device), mask.to(device)
        states = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
        logits: Tensor = self.head((states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))
        return logits
