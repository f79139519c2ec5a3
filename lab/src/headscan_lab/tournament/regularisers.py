"""The regularisers: terms that spread out the output table, the last states or the logits."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput
from headscan.training.objective import REGULARISERS, LossInputs


def cosine_regulariser(rows: Tensor, *, epsilon: float = 1e-12) -> Tensor:
    """Return the mean cosine over the ordered pairs of distinct rows of a table [V, d].

    It is a scalar with gradient, in [−1/(V − 1), 1]. Add γ times it to the loss (Gao et al. 2019,
    arXiv:1907.12009, with γ = 1 and a sum over pairs divided by V²: the same up to the factor
    (V − 1)/V). The cost is O(Vd) by ‖Σŵ‖², where the published form multiplies V x V. Rows shorter
    than `epsilon` count as zero vectors.

    Raises:
        ValueError: for fewer than two rows.

    >>> w = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> round(cosine_regulariser(w).item(), 4)
    0.3333
    """
    n = len(rows)
    if n < 2:
        raise ValueError("a mean over pairs needs two rows")
    unit = torch.nn.functional.normalize(rows, dim=-1, eps=epsilon)
    return (unit.sum(0).square().sum() - unit.square().sum()) / (n * (n - 1))


def _squared_mean_norm(rows: Tensor) -> Tensor:
    return rows.mean(0).square().sum()


def _output_table(inputs: LossInputs) -> Tensor:
    head = output_layer(inputs.model)
    return embedding_table(inputs.model) if head is None else head.weight


def _at_least_float32(states: Tensor) -> Tensor:
    return states.float() if states.dtype.itemsize < 4 else states


def _last_states(inputs: LossInputs) -> Tensor:
    return _at_least_float32(inputs.rows)


def _block_states(inputs: LossInputs) -> Tensor:
    if inputs.block is None:
        raise BadInput(
            f"{type(inputs.model).__name__} has no final norm, so its last block's states are its "
            "last states."
        )
    return _at_least_float32(inputs.block)


def _centred_block_states(inputs: LossInputs) -> Tensor:
    states = _block_states(inputs)
    return states - states.mean(1, keepdim=True)


@dataclass(frozen=True)
class Term:
    """A regulariser: a function of vectors [K, d]; it is 0 for fewer than two of them.

    Attributes:
        vectors: gives the vectors.
        function: gives the term of the vectors.
        documentation: the term's docstring.
    """

    vectors: Callable[[LossInputs], Tensor]
    function: Callable[[Tensor], Tensor]
    documentation: str


TERMS = {
    # Gao et al. 2019, with strength 1. Cost: O(V d), and a dense gradient of the table.
    "cosine": Term(
        _output_table,
        cosine_regulariser,
        "Mean cosine between the rows of the output table: the head's, or without one the input "
        "embeddings.",
    ),
    # A model with a LayerNorm can lower this term without effect: it writes along the direction of
    # ones.
    "cosine-block": Term(
        _block_states,
        cosine_regulariser,
        "Mean cosine between the last block's states that carry loss. Cost: O(K d).",
    ),
    "cosine-block-centred": Term(
        _centred_block_states,
        cosine_regulariser,
        "Mean cosine between the last block's states, each less the mean of its own coordinates. "
        "Cost: O(K d).",
    ),
    "cosine-states": Term(
        _last_states,
        cosine_regulariser,
        "Mean cosine between the last hidden states that carry loss. Cost: O(K d).",
    ),
    # "Output embedding centering", arXiv:2601.02031.
    "mu-loss": Term(
        _output_table,
        _squared_mean_norm,
        "Squared norm of the mean row of the output table: the head's, or without one the input "
        "embeddings. Cost: O(V d).",
    ),
}


def _register(name: str, term: Term) -> None:
    def regulariser(inputs: LossInputs) -> Tensor:
        rows = term.vectors(inputs)
        return term.function(rows) if len(rows) > 1 else rows.sum() * 0

    regulariser.__doc__ = term.documentation
    REGULARISERS.add(name, regulariser)


for _name, _term in TERMS.items():
    _register(_name, _term)


@REGULARISERS.register("z-loss")
def z_loss(inputs: LossInputs) -> Tensor:
    """Mean square of the log of the softmax's denominator, which keeps logits from drifting
    together. Cost: O(K V).

    Source: PaLM (Chowdhery et al. 2022), with strength 1e-4.
    """
    if not len(inputs.rows):
        return inputs.rows.sum() * 0
    return inputs.logits.logsumexp(1).square().mean()
