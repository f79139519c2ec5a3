"""The predictions that were explained, as they stand in a result."""

from __future__ import annotations

import torch

from headscan.attribution.method import AttributionMap, AttributionTask
from headscan.attribution.result import ExplainedStep, LikelyToken, NamedToken
from headscan.text.display import display

__all__ = ["explained"]


def explained(task: AttributionTask, found: AttributionMap) -> list[ExplainedStep]:
    """Each prediction with its probability, the likeliest tokens there, and its scores."""
    lens, target = task.engine.lens, task.target
    with torch.no_grad():
        logits = task.engine.logits(task.embeds[None], target.positions)[0].float()
        values = target.value(logits[None])[0].tolist()
        probabilities = logits.softmax(-1)
    steps = []
    for k, step in enumerate(target.steps):
        if step.token is None:
            scores = found.tokens[k].tolist()
            steps.append(ExplainedStep(step.position, None, "the sentence vector", None, values[k], None, [], scores))
            continue
        top = probabilities[k].topk(min(5, probabilities.shape[-1]))
        steps.append(
            ExplainedStep(
                step.position,
                step.token,
                display(lens.tokenizer, step.token),
                None if step.against is None else NamedToken(step.against, display(lens.tokenizer, step.against)),
                values[k],
                float(probabilities[k, step.token]),
                [
                    LikelyToken(int(i), display(lens.tokenizer, int(i)), float(p))
                    for p, i in zip(top.values, top.indices, strict=True)
                ],
                found.tokens[k].tolist(),
            )
        )
    return steps
