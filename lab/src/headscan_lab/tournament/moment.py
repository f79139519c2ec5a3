"""The measurements of a run at one step: held-out loss, shape of the states, gradient."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.measures.kept_gradient import GradientThroughHead
from headscan.measures.measure import MEASURES
from headscan.model.recording import before_call
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats
from headscan.training.heads import Unembedding, body_of, final_norm_of
from headscan.training.learner import Learner

GRADIENT_TOKENS = 512  # tokens whose gradients are measured


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The numbers of a run at one step; None where a number is undefined.

    Attributes:
        step: steps done.
        nats: held-out loss a token.
        average_cosine, effective_rank: of the last block's states. `_without_ones`: each state less
            the mean of its own coordinates, which a LayerNorm deletes. `_without_mean`: each state
            less the mean state of other windows.
        final_norm_cosine: average cosine of the states that meet the head.
        head_mean: norm of the head's mean row over its rows' mean norm.
        kept_norm, kept_norm_null, kept_norm_random, kept_norm_best: the share of the norm of the
            logits' gradient that passes the head, token by token; its nulls (that of the leverages,
            and a random head); and that of the best rank d. See `KeptGradient`.
        kept_norm_batch, kept_norm_batch_null: the same of the mean gradient of these tokens.
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


SHAPES = tuple(field.name for field in fields(Moment) if field.name not in ("step", "nats"))
"""The names of what is measured besides the loss."""


@torch.no_grad()
def measure_moment(
    learner: Learner,
    windows: Int[Tensor, "n time"],
    counts: Int[Tensor, " vocabulary"],
    *,
    step: int,
) -> Moment:
    """Return the moment of a run on held-out windows."""
    block_states, head_states = last_states(learner, windows[:, :-1])
    targets = windows[:, 1:].flatten()
    head = learner.readout(counts)
    assert head is not None

    gradient = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
    spacing = max(1, len(head_states) // GRADIENT_TOKENS)
    sample = torch.arange(0, len(head_states), spacing)[:GRADIENT_TOKENS]
    gradient.update(head.transform(head_states[sample]), targets[sample])
    passed = gradient.result()

    return Moment(
        step=step,
        nats=held_out_loss(head, head_states, targets),
        **_shape(block_states),
        final_norm_cosine=MEASURES["average_cosine"](Cloud.of_rows(_rows(head_states))),
        head_mean=float(head.rows.mean(0).norm() / head.rows.norm(dim=1).mean()),
        kept_norm=passed.kept_norm,
        kept_norm_null=passed.kept_norm_leverage,
        kept_norm_random=passed.kept_norm_random,
        kept_norm_best=passed.kept_norm_best,
        kept_norm_batch=passed.batch_kept_norm,
        kept_norm_batch_null=passed.batch_kept_norm_leverage,
    )


def _shape(states: Tensor) -> dict[str, float | None]:
    """Return average cosine and effective rank of states [n, d], of three versions of them.

    Each half of the states loses the other half's mean, so that no state loses its own.
    """
    half = len(states) // 2
    first = states[:half]
    second = states[half:]
    versions = {
        "": states,
        "_without_ones": states - states.mean(1, keepdim=True),
        "_without_mean": torch.cat([first - second.mean(0), second - first.mean(0)]),
    }
    shape = {}
    for suffix, version in versions.items():
        for name in ("average_cosine", "effective_rank"):
            shape[name + suffix] = MEASURES[name](Cloud.of_rows(_rows(version)))
    return shape


def held_out_loss(
    head: Unembedding, states: Float[Tensor, "n width"], targets: Int[Tensor, " n"]
) -> float:
    """Return the mean cross-entropy in nats."""
    total = torch.zeros((), dtype=torch.float64)
    for part, part_targets in zip(states.split(1024), targets.split(1024), strict=True):
        loss = nn.functional.cross_entropy(head.logits(part), part_targets, reduction="sum")
        total = total + loss.double()
    return float(total) / len(targets)


def last_states(learner: Learner, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last block's states [n, d], and those behind the final norm."""
    body = body_of(learner.model)
    norm = final_norm_of(body)
    assert norm is not None
    inputs = []

    def remember_input(_module: nn.Module, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        inputs.append(args[0])

    learner.eval()
    try:
        with before_call(norm, remember_input):
            states = body(ids).last_hidden_state
    finally:
        learner.train()
    return inputs[0].flatten(0, 1), states.flatten(0, 1)


def _rows(states: Tensor) -> Floats:
    return states.double().numpy()
