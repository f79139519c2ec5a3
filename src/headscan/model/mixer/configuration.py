"""The configuration of a masked mixer."""

from __future__ import annotations

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from headscan.run import BadInput

__all__ = ["MIXINGS", "MixerConfig"]

MIXINGS = ("flat", "expanded", "parallel", "heads")


@strict
class MixerConfig(PreTrainedConfig):
    """What a masked mixer is made of.

    vocab_size, hidden_size (d), num_hidden_layers: as everywhere in transformers. max_position_embeddings: the slots L;
    a text of any length up to L uses the first of them.
    mixing: how tokens are mixed: "flat" (one triangular matrix), "expanded" (two, with `mixing_expansion` hidden units
    a position and a GELU between), "parallel" (`mixing_branches` matrices, summed), "heads" (`mixing_heads`
    projections of width `mixing_head_width`, one matrix each).
    kernel_size: taps of the mixing along the features; 1 is a plain matrix ("flat" and "parallel" only).
    as_published: mask as the published code does: the lower triangle of the *flattened* weight. It leaks nothing,
    but for expansion > 1 half of the hidden units are never used, and for kernel_size k position i sees only the
    positions up to i / k.
    bidirectional: a second stream that sees what lies two and more positions ahead (for `MixerForBidirectionalLM`).
    intermediate_size: width of the MLP, default 4 d. final_norm: a LayerNorm before the head (the published have none).
    embedding_std: of the initial embeddings; 1 as published (transformers use 0.02).

    >>> MixerConfig(hidden_size=64, num_hidden_layers=2).intermediate_size
    256
    """

    model_type = "headscan_mixer"
    keys_to_ignore_at_inference: ClassVar[list[str]] = []

    vocab_size: int = 4096
    hidden_size: int = 512
    num_hidden_layers: int = 8
    max_position_embeddings: int = 512
    intermediate_size: int | None = None
    mixing: str = "flat"
    mixing_expansion: int = 2
    mixing_branches: int = 2
    mixing_heads: int = 4
    mixing_head_width: int | None = None
    kernel_size: int = 1
    as_published: bool = False
    bidirectional: bool = False
    final_norm: bool = False
    embedding_std: float = 1.0
    layer_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    use_cache: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill what follows from the rest and refuse what does not fit."""
        if self.mixing not in MIXINGS:
            raise BadInput(f"The mixing must be one of {', '.join(MIXINGS)}, not {self.mixing!r}.")
        if self.kernel_size < 1 or (self.kernel_size > 1 and self.mixing not in ("flat", "parallel")):
            raise BadInput(f"A kernel of {self.kernel_size} taps does not go with the mixing {self.mixing!r}.")
        if min(self.mixing_expansion, self.mixing_branches, self.mixing_heads, self.max_position_embeddings) < 1:
            raise BadInput("Expansion, branches, heads and the number of slots of a mixer must all be at least 1.")
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.mixing_head_width is None:
            self.mixing_head_width = max(1, self.hidden_size // self.mixing_heads)
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
