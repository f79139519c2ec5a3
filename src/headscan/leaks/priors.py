"""The prior: the attacker's knowledge of a text before anything leaks."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code
from headscan.model.lens import Lens
from headscan.run import BadInput

PriorName = Literal["model", "uniform", "text"]
Prior = Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]]
"""From token rows to the probabilities of what follows each of their tokens, float64, on the CPU.
"""

SENTENCES: dict[str, str] = {
    "model": "The attacker expects each token as this model itself does, given the tokens before "
    "it.",
    "uniform": "The attacker takes all tokens of the vocabulary as equally likely.",
    "text": "The attacker knows how often each token occurs in this text, but not their order.",
}


def prior_of(name: str, lens: Lens, texts: Sequence[Sequence[int]]) -> Prior:
    """Return the prior of a name.

    Raises:
        BadInput: the model does not predict a next token.
    """
    size = lens.vocabulary_size
    if name == "model":
        if not (lens.traits.predicts and lens.traits.causal) or lens.width("head") < size:
            raise BadInput(
                f"'{lens.name}' does not predict the next token: choose --prior text or uniform."
            )
        return lambda ids: _predicted(lens, ids, size)
    if name == "uniform":
        shares = torch.full((size,), 1 / size, dtype=torch.float64)
    else:
        tokens = torch.tensor([token for text in texts for token in text])
        counts = torch.bincount(tokens, minlength=size).double()
        shares = counts / counts.sum()
    return lambda ids: shares.expand(*ids.shape, size)


@torch.no_grad()
def _predicted(lens: Lens, ids: Tensor, size: int) -> Tensor:
    logits = lens.run(ids, sites="head")["head"]
    # A head that is padded has logits beyond the vocabulary.
    return logits[..., :size].double().softmax(-1).cpu()


def cut_prior(
    shares: Float[Tensor, " V"], most: int | None
) -> tuple[Int[Tensor, " M"], Callable[[Tensor], Code]]:
    """Return the likeliest candidates of a prior, and what makes a `Code` of their releases.

    Tokens of probability 0 are no candidates. The probabilities of the candidates that are not run
    go into the code, so that the bounds hold for the whole prior.

    Args:
        shares: the probability of each token.
        most: candidates that are run, at most; None: all.
    """
    order = shares.argsort(descending=True, stable=True)
    order = order[shares[order] > 0]
    count = len(order) if most is None else min(most, len(order))
    candidates = order[:count]
    outside = shares[order[count:]]

    def code_of(points: Tensor) -> Code:
        return Code(points, shares[candidates].to(points.device), outside.to(points.device))

    return candidates, code_of
