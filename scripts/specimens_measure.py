"""Measure a specimen: its held-out loss and the average cosine by layer."""

from __future__ import annotations

import math
from contextlib import ExitStack

import numpy as np
import torch
from specimens_corpus import Corpus
from transformers import GPT2LMHeadModel

from headscan.model.recording import after_call


def windows_of(stream: np.ndarray, context: int) -> torch.Tensor:
    """Consecutive windows, int64 [n, context + 1]; overlapping by one: each token but the first is
    predicted.
    """
    count = (len(stream) - 1) // context
    return torch.from_numpy(
        np.stack([stream[i * context : (i + 1) * context + 1] for i in range(count)])
    )


@torch.no_grad()
def held_out_loss(model: GPT2LMHeadModel, corpus: Corpus) -> dict[str, float]:
    """Held-out loss in nats a token and bits a byte, with the logits as they are and with the
    log-unigram added.

    The second is what a model trained by contrast lacks, and what one trained by cross-entropy has
    learned already. Bits a byte: nats a token, times the tokens of the held-out text (end marks
    among them), over its bytes and log 2.
    """
    model.eval()
    unigram = corpus.log_unigram
    sums = np.zeros(2)
    count = 0
    for rows in windows_of(corpus.held_out, model.config.n_positions).split(8):
        logits = model(rows[:, :-1]).logits.flatten(0, 1)
        targets = rows[:, 1:].flatten()
        sums += [
            torch.nn.functional.cross_entropy(z, targets, reduction="sum").item()
            for z in (logits, logits + unigram)
        ]
        count += len(targets)
    nats = sums / count
    bits = nats * len(corpus.held_out) / corpus.held_out_bytes / math.log(2)
    names = ("held_out", "held_out_unigram")
    return {n: float(v) for n, v in zip(names, nats, strict=True)} | {
        f"{n}_bits_per_byte": float(v) for n, v in zip(names, bits, strict=True)
    }


@torch.no_grad()
def cosine_by_site(model: GPT2LMHeadModel, corpus: Corpus, rows: int = 8) -> dict[str, float]:
    """Average cosine over all ordered pairs of distinct held-out tokens, (|Σû|² − n) /
    (n(n − 1)).
    """
    model.eval()
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, vectors: torch.Tensor) -> None:
        unit = torch.nn.functional.normalize(vectors.flatten(0, -2).double(), dim=-1)
        sums[name] = sums.get(name, 0) + unit.sum(0)
        counts[name] = counts.get(name, 0) + len(unit)

    def adder(name: str):
        def add_output(_module, _args, _kwargs, output) -> None:
            add(name, output[0] if isinstance(output, tuple) else output)

        return add_output

    body = model.transformer
    named = {
        "embedding": body.drop,
        **{f"block.{i}": b for i, b in enumerate(body.h)},
        "final_norm": body.ln_f,
    }
    with ExitStack() as hooks:
        for name, module in named.items():
            hooks.enter_context(after_call(module, adder(name)))
        for batch in windows_of(corpus.held_out, model.config.n_positions).split(rows):
            body(batch[:, :-1])
    add("input embedding rows", model.transformer.wte.weight)
    add("head rows", model.lm_head.weight)
    cosines = {}
    for name, total in sums.items():
        n = counts[name]
        cosines[name] = round(float((total.square().sum() - n) / (n * (n - 1))), 4)
    return cosines
