"""Training of one twin: the same GPT-2 body under one of two objectives, seeded and resumable."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from specimens_corpus import Corpus, batch_at
from specimens_measure import cosine_by_site, held_out_loss
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass(frozen=True)
class Recipe:
    """All that decides what is trained; equal recipes give equal weights on one machine."""

    objective: str  # "vanilla": next-token cross-entropy; "headless": contrastive weight tying
    tied: bool  # vanilla only: whether the head is the input embedding
    vocabulary: int
    width: int
    blocks: int
    heads: int
    context: int
    dropout: float
    steps: int
    rows: int  # windows a step
    rate: float  # peak of the learning rate
    decay: float  # weight decay of all matrices
    seed: int


def build(recipe: Recipe) -> GPT2LMHeadModel:
    """A fresh model. The body's initial weights depend on the seed and the shape alone, not on the
    objective.
    """
    torch.manual_seed(recipe.seed)
    config = GPT2Config(
        vocab_size=recipe.vocabulary,
        n_positions=recipe.context,
        n_embd=recipe.width,
        n_layer=recipe.blocks,
        n_head=recipe.heads,
        resid_pdrop=recipe.dropout,
        embd_pdrop=recipe.dropout,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=recipe.tied or recipe.objective == "headless",
    )
    return GPT2LMHeadModel(config)


def cross_entropy(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean of log Σ_v exp(h·w_v) − h·w_t in nats. hidden [K, d], head [V, d], targets [K]."""
    return F.cross_entropy(hidden @ head.T, targets)


def contrastive(
    hidden: torch.Tensor, embeddings: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Contrastive weight tying: the target's own input embedding against those of all other targets
    in the batch.

    A target that occurs c times is c equal terms of the sum, hence one term with a bias of log c
    over the unique targets: K x U instead of K x K, with the same gradient. The value is that of
    the K x K form less the mean of log c_target, the floor below which that form cannot fall; so
    batches of any size compare.
    """
    unique, inverse, counts = targets.unique(return_inverse=True, return_counts=True)
    return F.cross_entropy(hidden @ embeddings[unique].T + counts.log(), inverse)


def rate_at(step: int, recipe: Recipe, warm_up: int = 100) -> float:
    """Linear warm-up, then a cosine down to a twentieth of the peak."""
    if step < warm_up:
        return recipe.rate * (step + 1) / warm_up
    done = (step - warm_up) / max(1, recipe.steps - warm_up)
    return recipe.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def optimizer_of(model: GPT2LMHeadModel, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; gains and biases are not decayed."""
    weights = [p for p in model.parameters() if p.dim() >= 2]
    parameters = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": weights, "weight_decay": recipe.decay},
        {"params": parameters, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98))


def train(
    recipe: Recipe, corpus: Corpus, work: Path, *, interval: int = 250, bf16: bool = False
) -> tuple[GPT2LMHeadModel, dict]:
    """Train, or go on from `work/checkpoint.pt`. Returns the model and its history (also in
    `work/history.json`).
    """
    work.mkdir(parents=True, exist_ok=True)
    checkpoint = work / "checkpoint.pt"
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    objective = contrastive if recipe.objective == "headless" else cross_entropy
    target_table = model.transformer.wte if recipe.objective == "headless" else model.lm_head
    history: dict = {"recipe": asdict(recipe), "seconds": 0.0, "every": interval, "points": []}
    first = 0
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["history"]["recipe"] != asdict(recipe):
            raise SystemExit(
                f"{checkpoint} was made by another recipe: give another --work folder."
            )
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        history = saved["history"]
        first = saved["step"]
    seconds_before = history["seconds"]
    start = time.process_time()
    losses: list[float] = []
    for step in range(first, recipe.steps):
        torch.manual_seed(recipe.seed * 1_000_003 + step)  # dropout, the same after a resumption
        batch = batch_at(corpus.train, step, recipe.rows, recipe.context, recipe.seed)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, recipe)
        model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            hidden = model.transformer(batch[:, :-1]).last_hidden_state.flatten(0, 1)
            loss = objective(hidden, target_table.weight, batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise SystemExit(f"The loss is not finite at step {step}: lower --rate.")
        if (step + 1) % interval == 0 or step + 1 == recipe.steps:
            history["seconds"] = seconds_before + time.process_time() - start
            point = {
                "step": step + 1,
                "seconds": round(history["seconds"]),
                "train": sum(losses) / len(losses),
            }
            point |= held_out_loss(model, corpus) | {"cosine": cosine_by_site(model, corpus)}
            history["points"].append(point)
            losses.clear()
            left = (recipe.steps - step - 1) * history["seconds"] / (step + 1)
            clock = f"{history['seconds']:.0f} s, {left:.0f} s left"
            print(f"{step + 1}/{recipe.steps} {clock}, {json.dumps(point)}", flush=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "history": history,
            }
            torch.save(state | {"step": step + 1}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
            (work / "history.json").write_text(json.dumps(history, indent=1))
    return model.eval(), history
