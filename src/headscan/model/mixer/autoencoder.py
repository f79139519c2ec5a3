"""A mixer that must put a whole text into one vector and write it out again."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import CausalLMOutput

from headscan.model.mixer.configuration import MixerConfig
from headscan.model.mixer.modeling import MixerBlock, MixerModel, MixerPreTrainedModel

__all__ = ["MixerAutoencoder"]


class MixerAutoencoder(MixerPreTrainedModel):
    """Encoder mixer, the hidden state of the last token repeated to every position, decoder mixer, head.

    What is lost in the loss was lost in one vector of width d: a measure of how much of a text one embedding holds.

    >>> import torch
    >>> config = MixerConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1, max_position_embeddings=6)
    >>> MixerAutoencoder(config)(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: MixerConfig):
        super().__init__(config)
        self.model = MixerModel(config)
        self.decoder_layers = nn.ModuleList(MixerBlock(config) for _ in range(config.num_hidden_layers))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def embed(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The vector [B, d] of each text: the last position's hidden state."""
        states: Tensor = self.model(input_ids, attention_mask).last_hidden_state
        return states[:, -1]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
    ) -> CausalLMOutput:
        """Logits [B, n, V] for the tokens themselves; with labels [B, n] (-100: none) the mean loss, unshifted."""
        hidden = self.embed(input_ids, attention_mask)[:, None, :].repeat(1, input_ids.shape[1], 1)
        for layer in self.decoder_layers:
            hidden = layer(hidden)
        logits = self.lm_head(hidden)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return CausalLMOutput(loss=loss, logits=logits)
