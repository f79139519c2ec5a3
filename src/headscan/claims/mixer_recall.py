"""What a mixer's (or a transformer's) outputs still hold of a token whose own output is hidden: the tool behind 105-122.

Two ways of asking. *Continuous*, as the source does: embeddings are moved by gradient until the visible outputs match, and
decoded to the nearest token. *Exact*: every token of the vocabulary is tried at the last hidden position, with the rest
known; if one fits and no other does, the information is there, whatever an optimizer made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headscan.claims.stand_ins import VOCABULARY, language
from headscan.model.mixer import MixerConfig, MixerModel
from headscan.run import Json
from headscan.training.losses import ce_loss

__all__ = ["Recall", "body", "recall"]

SLOTS, SIZE, PROMPTS = 12, VOCABULARY, 6


@dataclass(frozen=True, eq=False)
class Recall:
    """What was found, 1 or 0 a token.

    Attributes:
        own: [n, T - first], tokens whose output is visible, by descent; hidden: [n, first], the others (None for first = 0).
        exact: [n, 1], the last hidden token by search, all others known; margin: the least relative residual of a runner-up
            in that search: near 0, nothing tells the two apart.
    """

    own: Tensor
    hidden: Tensor | None
    exact: Tensor | None
    margin: float | None

    def numbers(self) -> dict[str, Json]:
        """Shares and margin as plain numbers."""
        hidden, exact = (None if part is None else float(part.mean()) for part in (self.hidden, self.exact))
        count = 0 if self.hidden is None else self.hidden.shape[1]
        return {"own": float(self.own.mean()), "hidden": hidden, "exact": exact, "margin": self.margin, "count": count}


def body(kind: str, width: int, blocks: int, *, trained: int = 0, seed: int = 0) -> Any:
    """A body on embeddings N(0, 1) as published: a mixer by its mixing, or "llama"; `trained` steps on a made-up language."""
    torch.manual_seed(seed)
    if kind == "llama":
        from transformers import LlamaConfig, LlamaModel

        config = LlamaConfig(
            vocab_size=SIZE,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=blocks,
            num_attention_heads=4,
            max_position_embeddings=SLOTS,
        )
        model: Any = LlamaModel(config)
    else:
        expansion = {"mixing": "expanded", "mixing_expansion": 1} if kind == "expanded" else {"mixing": kind}
        model = MixerModel(
            MixerConfig(
                vocab_size=SIZE,
                hidden_size=width,
                num_hidden_layers=blocks,
                max_position_embeddings=SLOTS,
                **expansion,
            )
        )
    if trained:
        _train(model, trained, seed)
    return model.eval().requires_grad_(False)


def recall(
    model: Any,
    *,
    first: int,
    seed: int = 0,
    steps: int = 150,
    blocks: int | None = None,
    rate: float = 0.1,
    ids: Tensor | None = None,
) -> Recall:
    """Recover texts int [n, T] from the outputs at positions `first`, ..., T - 1 of block `blocks`; by default PROMPTS
    texts of SLOTS tokens of the made-up language.

    Continuous: Adam on the mean absolute difference from embeddings drawn as the table's own, the rate falling to zero.
    """
    ids = language(seed + 50_000_000, PROMPTS, SLOTS) if ids is None else ids
    run = _runner(model, blocks)
    table = model.get_input_embeddings().weight.detach()
    target = run(table[ids])[:, first:]
    torch.manual_seed(seed)
    guess = (torch.randn(*ids.shape, table.shape[1]) * table.std()).requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=rate * float(table.std()))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        (run(guess)[:, first:] - target).abs().mean().backward()
        optimizer.step()
        schedule.step()
    found = torch.cdist(guess.detach(), table).argmin(-1)
    hits = (found == ids).float()
    if first == 0:
        return Recall(hits, None, None, None)
    exact, margin = _search(run, table, ids, target, first)
    return Recall(hits[:, first:], hits[:, :first], exact, margin)


@torch.no_grad()
def _search(
    run: Callable[[Tensor], Tensor], table: Tensor, ids: Tensor, target: Tensor, first: int
) -> tuple[Tensor, float]:
    """Try every token at position first - 1, the last hidden one, all others known."""
    hits, margins = [], []
    for row, want in zip(ids, target, strict=True):
        candidates = row.repeat(len(table), 1)
        candidates[:, first - 1] = torch.arange(len(table))
        residual = torch.cat(
            [(run(table[part])[:, first:] - want).flatten(1).norm(dim=1) for part in candidates.split(128)]
        )
        best = residual.argsort()[:2]
        hits.append(float(best[0] == row[first - 1]))
        margins.append(float(residual[best[1]] / want.norm()))
    return torch.tensor(hits)[:, None], min(margins)


def _runner(model: Any, blocks: int | None) -> Callable[[Tensor], Tensor]:
    """Embeddings to the output of a block (1 is the first; None the last), later blocks left out."""

    def run(embeds: Tensor) -> Tensor:
        if isinstance(model, MixerModel):
            for layer in model.layers[:blocks]:
                embeds = layer(embeds)
            return embeds
        states: Tensor = model(inputs_embeds=embeds, use_cache=False).last_hidden_state
        return states

    return run


def _train(model: Any, steps: int, seed: int) -> None:
    """Next-token prediction with a head of its own, which is then thrown away."""
    head = torch.nn.Linear(model.config.hidden_size, SIZE, bias=False)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    for step in range(steps):
        ids = language(100_000 * seed + step, 32, SLOTS)
        states = model(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.weight, ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
