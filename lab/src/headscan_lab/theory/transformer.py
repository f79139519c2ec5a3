"""A small transformer, or an MLP, trained on the contexts of a count, with soft labels, as
arXiv:2408.15417 trains its own.
"""

import copy
from collections.abc import Callable, Sequence
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
    """Train a Llama of `layers` blocks on contexts [m, K] and their soft labels; (step, Lens) at
    each checkpoint and the end.

    Each step draws `batch` contexts by their frequency (or takes all, weighted, if there are no
    more than that) and descends the cross-entropy with their whole soft label, which is the sum
    over all positions of the text with those contexts. AdamW, warm-up of a twentieth, cosine to a
    tenth. Cost: steps x batch x K tokens of a 12 layers width² model.
    """
    model = small_llama(labels.vocabulary, width, layers, contexts.shape[1], seed)
    kept = list[tuple[int, Lens]]()

    def keep(step: int) -> None:
        if step in {*checkpoints, steps}:
            kept.append((step, Lens(copy.deepcopy(model).eval(), name=f"step {step}")))

    fit(
        model,
        contexts,
        labels,
        steps,
        batch=batch,
        learning_rate=learning_rate,
        decay=decay,
        seed=seed,
        each=keep,
    )
    return kept


def last_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """What a causal language model, or a module that gives logits [n, V] of contexts [n, K], says
    of the token that follows.
    """
    found: Tensor = (
        model(ids)
        if isinstance(model, nn.Sequential)
        else model(input_ids=ids, logits_to_keep=1).logits[:, -1]
    )
    return found


def small_llama(
    vocabulary: int, width: int, layers: int, length: int, seed: int
) -> LlamaForCausalLM:
    """A Llama with random weights and an untied head, for contexts of `length` tokens."""
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
    """An MLP of 20 layers, five each of 8, 4, 2 and 1 times the narrowest width (published: 1,024
    to 128), on the embeddings of a context's tokens side by side; started as He et al. (2015) do,
    so that 20 layers pass a gradient on.
    """
    sizes = [length * narrowest, *(narrowest * times for times in (8, 4, 2, 1) for _ in range(5))]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(low, high) for low, high in pairwise(sizes)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        body = [part for layer in layers for part in (layer, nn.ReLU())]
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
    each: Callable[[int], None] = lambda step: None,
) -> float:
    """Train a model as `train_transformer` does, `each` being told the steps done; CE - H over all
    contexts, nats.
    """
    m = len(contexts)
    ids = torch.from_numpy(np.asarray(contexts, dtype=np.int64))
    matrix = labels.matrix()
    occurrences = labels.occurrences
    prior = labels.prior
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, weight_decay=decay, betas=(0.9, 0.99)
    )
    warm = max(1, steps // 20)

    def rate(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.1 + 0.45 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    rng = np.random.default_rng(seed)
    model.train()
    for step in range(steps):
        each(step)
        rows = np.arange(m) if m <= batch else rng.choice(m, batch, p=prior)
        weight = prior[rows] if m <= batch else np.full(batch, 1 / batch)
        soft = torch.from_numpy(
            (matrix[rows].toarray() / occurrences[rows][:, None]).astype(np.float32)
        )
        loss = -(
            torch.from_numpy(weight.astype(np.float32))
            @ (soft * torch.log_softmax(last_logits(model, ids[rows]), -1)).sum(1)
        )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    each(steps)
    with torch.no_grad():
        return cross_entropy(last_logits(model, ids).double().numpy(), labels) - labels.entropy()
