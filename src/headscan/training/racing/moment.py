"""What is measured of a run at one step: its held-out loss, and the shape of its states."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.geometry import MEASURES
from headscan.geometry.kept_gradient import GradientThroughHead
from headscan.statistics import Cloud
from headscan.training.heads import Unembedding, body_of, final_norm_of
from headscan.training.learner import Learner

__all__ = ["SHAPES", "Moment", "held_out_loss", "last_states", "measured"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A run at one step; None where a number is undefined.

    step: steps done. nats: held-out loss a token.
    average_cosine, effective_rank: of the last block's states; `_without_ones`: each state less the mean of its own
    coordinates, which a LayerNorm deletes; `_without_mean`: less the mean state of other windows.
    final_norm_cosine: of the states that meet the head. head_mean: norm of the head's mean row over its rows' mean norm.
    kept_norm, kept_norm_null, kept_norm_random, kept_norm_best: of the logits' gradient through the head, token by token,
    its nulls and the best rank d (`KeptGradient`; the null is that of the leverages); kept_norm_batch,
    kept_norm_batch_null: of the mean gradient of the same tokens.
    """

    step: int
    nats: float
    average_cosine: float | None
    average_cosine_without_ones: float | None
    average_cosine_without_mean: float | None
    effective_rank: float | None
    effective_rank_without_ones: float | None
    effective_rank_without_mean: float | None
    final_norm_cosine: float | None
    head_mean: float | None
    kept_norm: float | None
    kept_norm_null: float | None
    kept_norm_random: float | None
    kept_norm_best: float | None
    kept_norm_batch: float | None
    kept_norm_batch_null: float | None


SHAPES = tuple(one.name for one in fields(Moment))[2:]
"""The names of what is measured besides the loss."""

SAMPLED = 512  # tokens whose gradients are measured


@torch.no_grad()
def measured(
    learner: Learner, windows: Int[Tensor, "n time"], counts: Int[Tensor, " vocabulary"], *, step: int
) -> Moment:
    """The moment of a run, on held-out windows; two halves of which take each other's mean away."""
    block, states = last_states(learner, windows[:, :-1])
    targets = windows[:, 1:].flatten()
    head = learner.readout(counts)
    assert head is not None
    half = len(block) // 2
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
    chosen = torch.arange(0, len(states), max(1, len(states) // SAMPLED))[:SAMPLED]
    through.update(head.transform(states[chosen]), targets[chosen])
    kept = through.result()
    clouds = {
        "": block,
        "_without_ones": block - block.mean(1, keepdim=True),
        "_without_mean": torch.cat([block[:half] - block[half:].mean(0), block[half:] - block[:half].mean(0)]),
    }
    shape = {
        name + suffix: MEASURES[name](Cloud.of_rows(_rows(cloud)))
        for suffix, cloud in clouds.items()
        for name in ("average_cosine", "effective_rank")
    }
    return Moment(
        step=step, nats=held_out_loss(head, states, targets), **shape,
        final_norm_cosine=MEASURES["average_cosine"](Cloud.of_rows(_rows(states))),
        head_mean=float(head.rows.mean(0).norm() / head.rows.norm(dim=1).mean()),
        kept_norm=kept.kept_norm, kept_norm_null=kept.kept_norm_leverage, kept_norm_random=kept.kept_norm_random,
        kept_norm_best=kept.kept_norm_best, kept_norm_batch=kept.batch_kept_norm,
        kept_norm_batch_null=kept.batch_kept_norm_leverage,
    )  # fmt: skip


def held_out_loss(head: Unembedding, states: Float[Tensor, "n width"], targets: Int[Tensor, " n"]) -> float:
    """Mean cross-entropy in nats."""
    losses = [
        torch.nn.functional.cross_entropy(head.logits(some), wanted, reduction="sum").double()
        for some, wanted in zip(states.split(1024), targets.split(1024), strict=True)
    ]
    return float(sum(losses)) / len(targets)


def last_states(learner: Learner, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The last block's states [n, d] and those behind the final norm."""
    body, seen = body_of(learner.model), []
    norm = final_norm_of(body)
    assert norm is not None
    hook = norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    learner.eval()
    try:
        states = body(ids).last_hidden_state
    finally:
        hook.remove()
        learner.train()
    return seen[0].flatten(0, 1), states.flatten(0, 1)


def _rows(states: Tensor) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = states.double().numpy()
    return found
