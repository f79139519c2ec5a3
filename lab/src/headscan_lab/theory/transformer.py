"""A small transformer trained on the contexts of a count, with soft labels, as arXiv:2408.15417 trains its own."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.model import Lens
from headscan.ntp.labels import SoftLabels
from headscan.run import Progress


def train_transformer(
    contexts: npt.NDArray[np.integer[Any]], labels: SoftLabels, *, width: int = 128, layers: int = 2, steps: int = 2000,
    batch: int = 1024, learning_rate: float = 2e-3, decay: float = 1e-5, checkpoints: Sequence[int] = (), seed: int = 0,
    progress: Progress | None = None,
) -> list[tuple[int, Lens]]:  # fmt: skip
    """Train a Llama of `layers` blocks on contexts [m, K] and their soft labels; (step, Lens) at each checkpoint and the end.

    Each step draws `batch` contexts by their frequency (or takes all, weighted, if there are no more than that) and
    descends the cross-entropy with their whole soft label, which is the sum over all positions of the text with those
    contexts. AdamW, warm-up of a twentieth, cosine to a tenth. Cost: steps x batch x K tokens of a 12 layers width² model.
    """
    m, K = contexts.shape
    config = LlamaConfig(
        vocab_size=labels.vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32), max_position_embeddings=max(K + 1, 16), tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    ids, matrix = torch.from_numpy(np.asarray(contexts, dtype=np.int64)), labels.matrix()
    occurrences, prior = labels.occurrences, labels.prior
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=decay, betas=(0.9, 0.99))
    warm = max(1, steps // 20)

    def rate(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.1 + 0.45 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    rng = np.random.default_rng(seed)
    kept: list[tuple[int, Lens]] = []

    def keep(step: int) -> None:
        kept.append((step, Lens(copy.deepcopy(model).eval(), name=f"step {step}")))

    model.train()
    for step in range(steps):
        if step in set(checkpoints):
            keep(step)
        rows = np.arange(m) if m <= batch else rng.choice(m, batch, p=prior)
        weight = prior[rows] if m <= batch else np.full(batch, 1 / batch)
        soft = torch.from_numpy((matrix[rows].toarray() / occurrences[rows][:, None]).astype(np.float32))
        logits = model(input_ids=ids[rows], logits_to_keep=1).logits[:, -1]
        loss = -(torch.from_numpy(weight.astype(np.float32)) @ (soft * torch.log_softmax(logits, -1)).sum(1))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        if progress is not None:
            progress("training", step + 1, steps, "steps")
    keep(steps)
    return kept
