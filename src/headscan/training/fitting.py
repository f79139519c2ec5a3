"""Training a head, with or without its body, by cross-entropy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from headscan.run import BadInput, Progress, no_progress
from headscan.training.heads import body_of, head_of
from headscan.training.losses import ce_loss
from headscan.training.records import CurvePoint

__all__ = ["fit_head"]


def fit_head(
    model: PreTrainedModel, rows: npt.NDArray[np.integer], *, steps: int = 300, batch: int = 16, rate: float = 1e-4,
    seed: int = 0, warmup: float = 0.1, progress: Progress | None = None,
) -> list[CurvePoint]:  # fmt: skip
    """Train what is trainable of a causal model by cross-entropy on windows int [n, T]; returns the curve.

    AdamW, linear warm-up, then constant, as published. Deterministic in the seed. Raises BadInput where the loss is not
    finite.
    """
    tell = progress or no_progress
    generator = torch.Generator().manual_seed(seed)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=0.01)
    table, total, every, size = torch.from_numpy(rows), 0.0, max(1, steps // 20), batch * rows.shape[1]
    curve: list[CurvePoint] = []
    model.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / max(1.0, warmup * steps))
        ids = table[torch.randint(len(table), (batch,), generator=generator)].long().to(model.device)
        head = head_of(model)
        states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.rows, ids[:, 1:].flatten(), bias=head.bias)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        total += float(loss.detach())
        if not total < float("inf"):
            raise BadInput(f"The loss is not finite at step {step}: lower the learning rate (now {rate}).")
        tell(f"training the head · loss {float(loss.detach()):.3f}", step * size, steps * size, "tokens")
        if step % every == 0:
            curve.append(CurvePoint(step=step, loss=total / every))
            total = 0.0
    model.eval()
    return curve
