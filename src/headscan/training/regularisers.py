"""The output table spread out."""

from __future__ import annotations

from torch import Tensor

from headscan.model.traits import embedding_table, output_layer
from headscan.training.losses.isotropy import cosine_regulariser, isoscore_loss
from headscan.training.objective import REGULARISERS, LossInputs


@REGULARISERS.register("cosine")
def cosine(inputs: LossInputs) -> Tensor:
    """Mean cosine between the rows of the output table: the head's, or without one the input embeddings.

    Source: Gao et al. 2019, with strength 1. Cost: O(V d), and a dense gradient of the table.
    """
    head = output_layer(inputs.model)
    return cosine_regulariser(embedding_table(inputs.model) if head is None else head.weight)


# ---- The cone of the last block, before the final norm.


@REGULARISERS.register("cosine-block")
def cosine_block(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last block's states that carry loss. Cost: O(K d).

    A model with a LayerNorm can lower it for nothing: it writes along the direction of ones, which that norm deletes.
    See `cosine-block-centred`.
    """
    states = inputs.before_norm
    return cosine_regulariser(states) if len(states) > 1 else states.sum() * 0


# ---- The cone of the last block, as a LayerNorm sees it.


@REGULARISERS.register("cosine-block-centred")
def cosine_block_centred(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last block's states, each less the mean of its own coordinates. Cost: O(K d)."""
    states = inputs.before_norm
    return cosine_regulariser(states - states.mean(1, keepdim=True)) if len(states) > 1 else states.sum() * 0


# ---- The cone itself, where the head sees it.


@REGULARISERS.register("cosine-states")
def cosine_states(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last hidden states that carry loss. Cost: O(K d)."""
    states = inputs.after_norm
    return cosine_regulariser(states) if len(states) > 1 else states.sum() * 0


# ---- I-STAR.


@REGULARISERS.register("isoscore")
def isoscore(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last hidden states that carry loss; a negative strength lowers isotropy.

    Source: Rudman and Eickhoff 2024, who found a negative one to help. Cost: O(K d²).
    """
    states = inputs.after_norm
    return isoscore_loss([states], strength=1.0) if len(states) > 1 else states.sum() * 0


# ---- I-STAR on the last block, before the final norm.


@REGULARISERS.register("isoscore-block")
def isoscore_block(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last block's states that carry loss. Cost: O(K d²)."""
    states = inputs.before_norm
    return isoscore_loss([states], strength=1.0) if len(states) > 1 else states.sum() * 0


# ---- I-STAR on the last block, as a LayerNorm sees it.


@REGULARISERS.register("isoscore-block-centred")
def isoscore_block_centred(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last block's states, each less the mean of its own coordinates. Cost: O(K d²)."""
    states = inputs.before_norm
    return isoscore_loss([states - states.mean(1, keepdim=True)], strength=1.0) if len(states) > 1 else states.sum() * 0


# ---- The μ-loss.


@REGULARISERS.register("mu-loss")
def mu_loss(inputs: LossInputs) -> Tensor:
    """Squared norm of the mean row of the output table: the head's, or without one the input embeddings. Cost: O(V d).

    Source: "Output embedding centering", arXiv:2601.02031.
    """
    head = output_layer(inputs.model)
    return (embedding_table(inputs.model) if head is None else head.weight).mean(0).square().sum()


# ---- The z-loss.


@REGULARISERS.register("z-loss")
def z_loss(inputs: LossInputs) -> Tensor:
    """Mean square of the log of the softmax's denominator, which keeps logits from drifting together. Cost: O(K V).

    Source: PaLM (Chowdhery et al. 2022), with strength 1e-4.
    """
    return inputs.logits.logsumexp(1).square().mean() if len(inputs.rows) else inputs.rows.sum() * 0
