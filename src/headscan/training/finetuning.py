"""Fine-tuning on labelled sentences: a linear layer on the sentence vector, and the whole body trained with it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from headscan.model.pooling import pooled
from headscan.run import BadInput, Progress, no_progress
from headscan.training.heads import body_of
from headscan.training.scores import Scores, mean_of, scored
from headscan.training.sentences import balanced_cross_entropy, matthews
from headscan.training.task import Evaluated, Labelled

__all__ = ["finetuned"]


def finetuned(
    given: Evaluated, train: Labelled, test: Labelled, *, epochs: int = 3, rate: float = 5e-5, batch: int = 32, seed: int = 0,
    progress: Progress | None = None,
) -> Scores:  # fmt: skip
    """Accuracy and Matthews' correlation of a copy of the model that was trained on sentences with labels.

    The classifier is linear on the sentence vector (as `sentence_vectors` makes it) and starts at zero; cross-entropy weighs
    every class of a batch alike (Godey et al. 2024, appendix E); AdamW, a tenth of the steps as warm-up, then linear to
    zero, clip 1. The model that is given stays as it is. Cost: `epochs` passes forward and back, twice the weights and
    Adam's moments. Deterministic in the seed. Raises BadInput where the loss is not finite or a label is missing.
    """
    texts, labels = train[0][: given.limit], np.asarray(train[1][: given.limit])
    wanted = np.asarray(test[1][: given.limit])
    classes = int(max(labels.max(), wanted.max())) + 1
    if len(set(labels.tolist())) < 2:
        raise BadInput("Fine-tuning needs sentences of two classes at least: raise --limit.")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = copy.deepcopy(body_of(given.model)).float().train()
        layer = nn.Linear(body.config.hidden_size, classes).to(body.device)
        nn.init.zeros_(layer.weight)
        weights = [*(one for one in body.parameters() if one.requires_grad), *layer.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
        steps = epochs * -(-len(texts) // batch)
        for step, chosen in enumerate(_batches(len(texts), batch, epochs, seed), 1):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(step / max(1.0, 0.1 * steps), (steps - step + 1) / max(1.0, 0.9 * steps))
            logits = layer(_vectors(given, body, [texts[i] for i in chosen]))
            loss = balanced_cross_entropy(logits, torch.from_numpy(labels[chosen]).to(logits.device))
            if not bool(torch.isfinite(loss)):
                raise BadInput(f"The loss of the fine-tuning is not finite at step {step}: lower --finetune-rate.")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            (progress or no_progress)(f"fine-tuning · loss {float(loss.detach()):.3f}", step, steps, "steps")
        predicted = _predicted(given, body.eval(), layer, test[0][: given.limit], batch)
    largest = float(np.bincount(wanted).max() / len(wanted))
    return {
        **mean_of("finetuned_accuracy", predicted == wanted),
        **scored(
            "finetuned_matthews", lambda taken: matthews(predicted[taken], wanted[taken]), len(wanted), bounds=(-1, 1)
        ),
        "largest_class": largest,
        "finetuned_on": len(texts),
    }


def _batches(count: int, size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """Places of the items of each step, shuffled anew every epoch."""
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draw.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size].tolist()


def _vectors(given: Evaluated, body: nn.Module, texts: list[str]) -> Tensor:
    """Sentence vectors with gradient, [n, d]."""
    special = given.pooling is not None
    rows = [given.tokenizer(text, add_special_tokens=special)["input_ids"][: given.context] or [0] for text in texts]
    width = max(map(len, rows))
    device = next(body.parameters()).device
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    states: Tensor = body(input_ids=ids, attention_mask=mask).last_hidden_state
    return pooled(states, given.pooling or "mean", mask)


@torch.no_grad()
def _predicted(given: Evaluated, body: nn.Module, layer: nn.Module, texts: list[str], batch: int) -> np.ndarray:
    """The class of each text, int [n]."""
    found = [
        layer(_vectors(given, body, texts[start : start + batch])).argmax(-1).cpu()
        for start in range(0, len(texts), batch)
    ]
    classes: np.ndarray = torch.cat(found).numpy()
    return classes
