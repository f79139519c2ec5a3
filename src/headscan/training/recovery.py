"""From a headless model's folder to a causal language model with a head: `headscan train recover`."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from safetensors.torch import load_file

from headscan.errors import BadInput
from headscan.results import check_writable
from headscan.text import Windows
from headscan.training.data import PackedText
from headscan.training.evaluate.likelihood import perplexity
from headscan.training.loading import load_trained
from headscan.training.losses import ce_loss
from headscan.training.readout import recover
from headscan.training.result import TrainResult
from headscan.training.trainer import EXTRA

__all__ = ["fit_head", "recover_model"]

STEPS = {"tied": 0, "bias": 0, "probe": 300, "finetune": 300}
RATES = {"probe": 1e-3, "finetune": 1e-4}  # the paper fine-tunes at 1e-4


def recover_model(
    model: str,
    text: Any,
    out: str | os.PathLike,
    *,
    mode: str = "bias",
    steps: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    held_out: float = 0.05,
    context: int | None = None,
    documents: str = "whole",
    field: str = "text",
    max_tokens: int | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    command: str | None = None,
) -> TrainResult:
    """Give the headless model in a folder a head, by `mode` (see `recover`), and write the whole to `out`/model.

    text: what counts tokens, trains the head ("probe", "finetune") and, its last `held_out` share, measures it. Give
    the text that the body was trained on: the unigram bias is a property of the training data.
    temperature: the one that the body was trained with. A body trained by "nce" brings its own table along.
    steps, batch, rate: of the two modes that train (300 steps of 16 windows, 1e-3 and 1e-4 by default).
    Raises BadInput where model, tokenizer or text cannot be used.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    folder = check_writable(out)
    body, words, home = load_trained(model, bare=True)
    size = context or min(128, getattr(body.config, "max_position_embeddings", None) or 128)
    windows = Windows(text, words, size, documents=documents, field=field, max_tokens=max_tokens)
    data, kept = PackedText.of(windows).split(held_out)
    counts = data.counts(body.config.vocab_size)
    rows = None
    if home and (own := home / EXTRA).exists() and "weight" in (saved := load_file(own)):
        rows = saved["weight"].to(body.device)
    whole = recover(body, mode, counts=counts, temperature=temperature, rows=rows)
    before = perplexity(whole, kept.rows, words)
    count = STEPS[mode] if steps is None else steps
    curve = []
    if mode in RATES:
        curve = fit_head(whole, data.rows, steps=count, batch=batch or 16, rate=rate or RATES[mode], seed=seed)
    after = perplexity(whole, kept.rows, words)
    whole.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    result = TrainResult(
        {
            "headscan": version("headscan"),
            "protocol": {
                "command": command,
                "text": windows.account(),
                "context": size,
                "seed": seed,
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - clock, 1),
            },
            "recipe": {"name": "recover", "size": mode, "objective": {"name": "ce" if curve else "none"}},
            "parameters": sum(p.numel() for p in whole.parameters()),
            "steps": len(curve) and count,
            "tokens": (len(curve) and count) * (batch or 16) * size,
            "loss": curve[-1]["loss"] if curve else None,
            "floor_corrected_loss": curve[-1]["loss"] if curve else None,
            "heldout_bits_per_byte": after["bits_per_byte"],
            "heldout": {"before": before, mode: after},
            "notes": [],
            "curve": curve,
            "scan": [],
        }
    )
    result.save(folder)
    return result


def fit_head(
    model: Any, rows, *, steps: int = 300, batch: int = 16, rate: float = 1e-4, seed: int = 0, warmup: float = 0.1
) -> list[dict[str, float]]:
    """Train what is trainable of a causal model by cross-entropy on windows int [n, T]; returns the curve.

    AdamW, linear warm-up, then constant, as published. Deterministic in the seed.
    """
    generator = torch.Generator().manual_seed(seed)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=0.01)
    table, total, curve = torch.from_numpy(rows), 0.0, []
    model.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / max(1.0, warmup * steps))
        ids = table[torch.randint(len(table), (batch,), generator=generator)].long().to(model.device)
        head = model.get_output_embeddings()
        states = model.base_model(ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.weight, ids[:, 1:].flatten(), bias=head.bias)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        total += float(loss.detach())
        if not total < float("inf"):
            raise BadInput(f"The loss is not finite at step {step}: lower the learning rate (now {rate}).")
        if step % max(1, steps // 20) == 0:
            curve.append({"step": step, "loss": total / max(1, steps // 20)})
            total = 0.0
    model.eval()
    return curve
