"""A small transformer, or an MLP, trained on contexts with soft labels, as in arXiv:2408.15417."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.model import Lens
from headscan.ntp import SoftLabels, cross_entropy


def train_transformer(
    contexts: npt.NDArray[np.integer[Any]],
    labels: SoftLabels,
    *,
    width: int = 128,
    layers: int = 2,
    steps: int = 2000,
    batch: int = 1024,
    learning_rate: float = 2e-3,
    decay: float = 1e-5,
    checkpoints: Sequence[int] = (),
    seed: int = 0,
) -> list[tuple[int, Lens]]:
    """Train a Llama of `layers` blocks on contexts [m, K] and their soft labels.

    Each step draws `batch` contexts by their frequency (or takes all, weighted, if there are no
    more than that) and descends the cross-entropy with their whole soft label, which is the sum
    over all positions of the text with those contexts. AdamW, warm-up of a twentieth, cosine to a
    tenth. Cost: steps x batch x K tokens of a 12 layers width² model.

    Returns:
        (step, Lens) at each checkpoint and at the end.
    """
    model = small_llama(labels.vocabulary, width, layers, contexts.shape[1], seed)
    lenses: list[tuple[int, Lens]] = []

    def copy_model(step: int) -> None:
        if step in {*checkpoints, steps}:
            lenses.append((step, Lens(copy.deepcopy(model).eval(), name=f"step {step}")))

    fit(
        model,
        contexts,
        labels,
        steps,
        batch=batch,
        learning_rate=learning_rate,
        decay=decay,
        seed=seed,
        report=copy_model,
    )
    return lenses


def last_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the logits [n, V] of the token that follows contexts [n, K].

    The model is a causal language model, or a module that gives these logits itself.
    """
    if isinstance(model, nn.Sequential):
        logits: Tensor = model(ids)
    else:
        logits = model(input_ids=ids, logits_to_keep=1).logits[:, -1]
    return logits


def small_llama(
    vocabulary: int, width: int, layers: int, length: int, seed: int
) -> LlamaForCausalLM:
    """Return a Llama with random weights and an untied head, for contexts of `length` tokens."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32),
        max_position_embeddings=max(length + 1, 16),
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def pyramid(vocabulary: int, length: int, narrowest: int, seed: int) -> nn.Module:
    """Return an MLP of 20 layers on the embeddings of a context's tokens side by side.

    Five layers each are 8, 4, 2 and 1 times the narrowest width (published: 1,024 to 128). It
    starts as He et al. (2015) do, so that 20 layers pass a gradient on.
    """
    sizes = [length * narrowest]
    for times in (8, 4, 2, 1):
        sizes += [narrowest * times] * 5
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(low, high) for low, high in pairwise(sizes)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        body: list[nn.Module] = []
        for layer in layers:
            body += [layer, nn.ReLU()]
        return nn.Sequential(
            nn.Embedding(vocabulary, narrowest),
            nn.Flatten(),
            *body,
            nn.Linear(narrowest, vocabulary),
        )


def fit(
    model: nn.Module,
    contexts: npt.NDArray[np.integer[Any]],
    labels: SoftLabels,
    steps: int,
    *,
    batch: int = 1024,
    learning_rate: float = 2e-3,
    decay: float = 1e-5,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> float:
    """Train a model as `train_transformer` does; return CE - H over all contexts, in nats.

    Args:
        report: called with the number of steps done, before each step and at the end.
    """
    ids = torch.from_numpy(np.asarray(contexts, dtype=np.int64))
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, weight_decay=decay, betas=(0.9, 0.99)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, partial(_rate_factor, steps=steps))
    sampler = _Sampler(labels, batch, seed)
    model.train()
    for step in range(steps):
        if report is not None:
            report(step)
        rows, weights, targets = sampler.draw()
        log_probabilities = torch.log_softmax(last_logits(model, ids[rows]), -1)
        loss = -(weights @ (targets * log_probabilities).sum(1))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    if report is not None:
        report(steps)
    with torch.no_grad():
        logits = last_logits(model, ids).double().numpy()
    return cross_entropy(logits, labels) - labels.entropy()


def _rate_factor(step: int, *, steps: int) -> float:
    """Return the factor of the learning rate: a warm-up, then a cosine to a tenth."""
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return 0.1 + 0.45 * (1 + float(np.cos(np.pi * progress)))


class _Sampler:
    """Draws the contexts of each step by their frequency.

    All contexts are used, weighted, where there are no more than `batch`.
    """

    def __init__(self, labels: SoftLabels, batch: int, seed: int) -> None:
        self.counts = labels.matrix()
        self.occurrences = labels.occurrences
        self.prior = labels.prior
        self.batch = batch
        self.generator = np.random.default_rng(seed)

    def draw(self) -> tuple[npt.NDArray[np.int64], Tensor, Tensor]:
        """Return the contexts of a step [n], their weights [n], and their soft labels [n, V]."""
        m = len(self.prior)
        if m <= self.batch:
            rows = np.arange(m)
            weights = self.prior[rows]
        else:
            rows = self.generator.choice(m, self.batch, p=self.prior)
            weights = np.full(self.batch, 1 / self.batch)
        soft_labels = self.counts[rows].toarray() / self.occurrences[rows][:, None]
        return (
            rows,
            torch.from_numpy(weights.astype(np.float32)),
            torch.from_numpy(soft_labels.astype(np.float32)),
        )
