"""Sampled softmax: a baseline that avoids the sum over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from headscan.run import Option
from headscan.training.losses import sample_noise, sampled_softmax_loss
from headscan.training.objective import OBJECTIVES, LossInputs
from headscan.training.objectives._headed import Headed

__all__ = ["SampledSoftmax"]


@OBJECTIVES.register("sampled")
@dataclass(frozen=True, kw_only=True)
class SampledSoftmax(Headed):
    """Sampled softmax: cross-entropy among the target and noise from the unigram distribution (Jean et al. 2015)."""

    noise_tokens: Annotated[int, Option("Noise tokens that the sampled softmax draws a step.", low=1)] = 1024

    @property
    def needs_counts(self) -> bool:
        """Its noise is drawn by frequency."""
        return True

    def loss(self, inputs: LossInputs) -> Tensor:
        """See `sampled_softmax_loss`."""
        head = inputs.head
        assert head is not None
        noise = sample_noise(inputs.log_law, self.noise_tokens)
        rows = head.transform(inputs.rows)
        return sampled_softmax_loss(
            rows, head.rows, inputs.targets, noise, inputs.log_law, bias=head.bias, reduction=inputs.reduction
        )
