"""Masked mixers as transformers models: blocks of a masked mixing of positions and an MLP over
features.

A block is x + mixing(norm(x)), then x + mlp(norm(x)). There are no positional encodings: the
weights themselves belong to positions. Source: Badger, "Masked Mixers for Language Generation and
Retrieval", arXiv:2409.01482.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

from headscan.model.mixer.mixing import (
    MaskedMixing,
    MixerConfig,
    mixing_of,
    to_left,
    to_right,
    uniform,
)
from headscan.run import BadInput


class MixerMLP(nn.Module):
    """Two linear maps of the features with a GELU between."""

    def __init__(self, config: MixerConfig):
        super().__init__()
        inner = config.intermediate_size or 4 * config.hidden_size
        self.up = nn.Linear(config.hidden_size, inner)
        self.down = nn.Linear(inner, config.hidden_size)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        output: Tensor = self.down(F.gelu(self.up(x)))
        return output


class MixerBlock(nn.Module):
    """One block: positions are mixed, then features; each has a norm before and a residual."""

    def __init__(self, config: MixerConfig, direction: str = "past"):
        super().__init__()
        self.mixing_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mixing = mixing_of(config, direction)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = MixerMLP(config)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        x = x + self.mixing(self.mixing_norm(x))
        x = x + self.mlp(self.mlp_norm(x))
        return x


class MixerPreTrainedModel(PreTrainedModel):
    """The base of all mixers: configuration, initial weights, saving and loading."""

    config_class = MixerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = False
    _no_split_modules = ["MixerBlock"]  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=self.config.embedding_std)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, MaskedMixing):
            module.reset()
        elif isinstance(module, nn.Linear):
            uniform(module.weight, fan_in=module.in_features)
            if module.bias is not None:
                uniform(module.bias, fan_in=module.in_features)


class MixerModel(MixerPreTrainedModel):
    """The body of a mixer: token ids (or embeddings) to hidden states.

    >>> sizes = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1}
    >>> model = MixerModel(MixerConfig(**sizes, max_position_embeddings=6))
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, config: MixerConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(MixerBlock(config) for _ in range(config.num_hidden_layers))
        # Two streams that meet only after the last block: were they joined earlier, a block ahead
        # would hand the future stream's knowledge of token i + 1 back to position i.
        ahead = config.num_hidden_layers if config.bidirectional else 0
        self.future_layers = nn.ModuleList(MixerBlock(config, "future") for _ in range(ahead))
        self.norm: nn.Module = nn.Identity()
        if config.final_norm:
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return hidden states [B, n, d] for token ids [B, n] or embeddings [B, n, d].

        n is at most the number of slots. `attention_mask` [B, n] may mark padding (0) on the left:
        such rows are moved to the first slots and back.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise BadInput("Give a mixer either input_ids or inputs_embeds.")
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        slots = self.config.max_position_embeddings
        if hidden.shape[1] > slots:
            raise BadInput(
                f"The text has {hidden.shape[1]} tokens but this mixer has {slots} slots."
            )
        self._check_padding(attention_mask)
        shift = None
        if attention_mask is not None and attention_mask.dim() == 2:
            has_padding_on_left = not bool((attention_mask[:, 0] != 0).all())
            if has_padding_on_left:
                hidden, shift = to_left(hidden, attention_mask)
        states = [hidden]
        future = hidden
        for layer in self.layers:
            hidden = layer(hidden)
            states.append(hidden)
        for layer in self.future_layers:
            future = layer(future)
        if len(self.future_layers):
            hidden = hidden + future
        hidden = self.norm(hidden)
        states[-1] = hidden
        if shift is not None:
            hidden = to_right(hidden, shift)
            states = [to_right(state, shift) for state in states]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = tuple(states) if output_hidden_states else None
        output = BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)
        return output if return_dict is not False else output.to_tuple()

    def _check_padding(self, attention_mask: Tensor | None) -> None:
        if attention_mask is None or not len(self.future_layers):
            return
        if not bool((attention_mask != 0).all()):
            raise BadInput(
                "A bidirectional mixer cannot leave padding out of sight: give texts of one length."
            )


class MixerForCausalLM(MixerPreTrainedModel, GenerationMixin):
    """A mixer that predicts the next token; generates and saves as every transformers model does.

    >>> sizes = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1}
    >>> model = MixerForCausalLM(MixerConfig(**sizes, max_position_embeddings=6))
    >>> model.generate(torch.tensor([[1, 2]]), max_new_tokens=3, do_sample=False).shape
    torch.Size([1, 5])
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: MixerConfig):
        if config.bidirectional and type(self) is MixerForCausalLM:
            raise BadInput(
                "A bidirectional mixer sees what follows and cannot generate: use "
                "MixerForBidirectionalLM."
            )
        super().__init__(config)
        self.model: nn.Module = MixerModel(config)
        self.lm_head: nn.Module = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # every slot has its own weights: there are no keys and values to store

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput | tuple[Any, ...]:
        """Return logits [B, n, V]; with labels [B, n] (-100: none) also the loss.

        Position i predicts token i + 1.
        """
        output = self.model(input_ids, attention_mask, inputs_embeds, output_hidden_states)
        positions: slice | Tensor
        if isinstance(logits_to_keep, int):
            positions = slice(-logits_to_keep, None)
        else:
            positions = logits_to_keep
        logits = self.lm_head(output.last_hidden_state[:, positions, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs
            )
        result = CausalLMOutput(loss=loss, logits=logits, hidden_states=output.hidden_states)
        return result if return_dict is not False else result.to_tuple()


class MixerAutoencoder(MixerPreTrainedModel):
    """Encoder mixer, the last token's hidden state repeated to every position, decoder mixer, head.

    All information passes through one vector of width d: the loss measures how much of a text one
    embedding holds.

    >>> import torch
    >>> sizes = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1}
    >>> config = MixerConfig(**sizes, max_position_embeddings=6)
    >>> MixerAutoencoder(config)(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: MixerConfig):
        super().__init__(config)
        self.model = MixerModel(config)
        self.decoder_layers = nn.ModuleList(
            MixerBlock(config) for _ in range(config.num_hidden_layers)
        )
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def embed(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return one vector a text: the hidden state of its last token."""
        states: Tensor = self.model(input_ids, attention_mask).last_hidden_state
        return states[:, -1]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Return logits [B, n, V] for the tokens themselves.

        With labels [B, n] (-100: none) also the mean loss, unshifted.
        """
        embedding = self.embed(input_ids, attention_mask)
        hidden = embedding[:, None, :].repeat(1, input_ids.shape[1], 1)
        for layer in self.decoder_layers:
            hidden = layer(hidden)
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return CausalLMOutput(loss=loss, logits=logits)


class MixerForBidirectionalLM(MixerForCausalLM):
    """A mixer whose logits at position i are for token i + 1, from all tokens but that one.

    It reads tokens 0 ... i and i + 2 ... n - 1, with two stacks of blocks. No position predicts the
    first token; the last position predicts beyond the text.
    """

    def __init__(self, config: MixerConfig):
        if not config.bidirectional:
            raise BadInput("MixerForBidirectionalLM needs a configuration with bidirectional=True.")
        super().__init__(config)

    def can_generate(self) -> bool:  # type: ignore[override]
        return False
