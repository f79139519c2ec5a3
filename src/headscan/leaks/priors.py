"""What an attacker knows of a text before anything leaks: the probability of every token at a position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code
from headscan.model.lens import Lens
from headscan.run import BadInput

__all__ = ["SENTENCES", "Prior", "cut_prior", "prior_of"]

Prior = Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]]
"""From token rows to the probabilities of what follows each of their tokens, float64, on the CPU."""

SENTENCES = {
    "model": "The attacker expects each token as this model itself does, given the tokens before it.",
    "uniform": "The attacker takes all tokens of the vocabulary as equally likely.",
    "text": "The attacker knows how often each token stands in this text, and nothing of their order.",
}
"""Each prior in a sentence."""


def prior_of(name: str, lens: Lens, texts: Sequence[Sequence[int]]) -> Prior:
    """The prior of a name.

    Raises:
        BadInput: the model says nothing of the next token.
    """
    size = lens.vocabulary_size
    if name == "model":
        if not (lens.traits.predicts and lens.traits.causal) or lens.width("head") < size:
            raise BadInput(f"'{lens.name}' says nothing of the next token: choose --prior text or uniform.")
        return lambda ids: _expected(lens, ids, size)
    if name == "uniform":
        flat = torch.full((size,), 1 / size, dtype=torch.float64)
    else:
        counts = torch.bincount(torch.tensor([token for text in texts for token in text]), minlength=size).double()
        flat = counts / counts.sum()
    return lambda ids: flat.expand(*ids.shape, size)


@torch.no_grad()
def _expected(lens: Lens, ids: Tensor, size: int) -> Tensor:
    logits = lens.run(ids, sites="head")["head"][..., :size]  # padded vocabularies have no such tokens
    return logits.double().softmax(-1).cpu()


def cut_prior(shares: Float[Tensor, " V"], most: int | None) -> tuple[Int[Tensor, " M"], Callable[[Tensor], Code]]:
    """The likeliest candidates of a prior, at most `most`, and what makes a `Code` of their releases.

    Tokens of probability 0 are none; the probability of the others that are not run is kept apart, so that the bounds hold
    for the whole prior.
    """
    order = shares.argsort(descending=True, stable=True)
    order = order[shares[order] > 0]
    most = len(order) if most is None else min(most, len(order))
    inside, outside = order[:most], shares[order[most:]]
    return inside, lambda points: Code(points, shares[inside].to(points.device), outside.to(points.device))
