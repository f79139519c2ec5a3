"""A mixer that predicts each token from all others: one stream sees the past, another what lies two and more ahead."""

from __future__ import annotations

from headscan.model.mixer.configuration import MixerConfig
from headscan.model.mixer.modeling import MixerForCausalLM
from headscan.run import BadInput

__all__ = ["MixerForBidirectionalLM"]


class MixerForBidirectionalLM(MixerForCausalLM):
    """Logits at position i are for token i + 1, from tokens 0 ... i and i + 2 ... n - 1, and never from i + 1.

    Cost: two stacks of blocks. The first token is predicted by nobody; the last position predicts beyond the text.
    """

    def __init__(self, config: MixerConfig):
        if not config.bidirectional:
            raise BadInput("MixerForBidirectionalLM needs a configuration with bidirectional=True.")
        super().__init__(config)

    def can_generate(self) -> bool:  # type: ignore[override]
        """No: the model was trained with both sides at hand."""
        return False
