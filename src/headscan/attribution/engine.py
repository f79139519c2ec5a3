"""The forward pass behind every map: from embeddings to the logits that matter, with a shared prefix where it can be."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headscan.errors import BadInput
from headscan.model import Lens
from headscan.model.verify import evaluating

__all__ = ["Engine", "frozen"]


class Engine:
    """A model as a function from embeddings [B, T, e] to logits [B, P, V] at P positions.

    Only the wanted positions pass the head, where the model allows it. In a causal model with a key-value cache, rows
    that share the first tokens with the prompt need only the rest: `prefix` holds the prompt's keys and values once,
    and each batch takes as much of it as its rows share. That this gives the same numbers is tried on the prompt
    itself before it is used.

    Attributes:
        causal: whether an output depends on no later token (tried, not read from a configuration).
    """

    def __init__(self, lens: Lens) -> None:
        if "head" not in lens.sites:
            raise BadInput(
                f"'{lens.name}' ({type(lens.model).__name__}) has no output layer over the vocabulary, so it predicts no "
                "token; load it as a causal or masked language model."
            )
        if getattr(lens.model.config, "is_encoder_decoder", False):
            raise BadInput(f"'{lens.name}' is an encoder-decoder; attribution reads causal and masked language models.")
        self.lens = lens
        self.model = lens.model
        names = inspect.signature(lens.model.forward).parameters
        self._keeps = "logits_to_keep" in names
        self._caches = "past_key_values" in names and "use_cache" in names
        self._uncached: dict[str, Any] = {"use_cache": False} if "use_cache" in names else {}
        self._prefix: list[tuple[Tensor, Tensor]] | None = None
        # Tried once a Lens: the answer cannot change.
        self.causal: bool = lens.__dict__.setdefault("_reads_left_to_right", None) or False
        if lens.__dict__["_reads_left_to_right"] is None:
            self.causal = lens.__dict__["_reads_left_to_right"] = self._is_causal()
        self.tokens_computed = 0

    def embed(self, ids: Tensor) -> Tensor:
        """What the embedding module gives for ids [..., T]: [..., T, e], scaled as the model wants it."""
        with torch.no_grad():
            return self.model.get_input_embeddings()(ids.to(self.lens.device))

    def logits(self, embeds: Tensor, positions: list[int], prefix: int = 0, *, grad: bool = False) -> Tensor:
        """Logits [B, P, V] at `positions` of the whole row.

        Args:
            embeds: [B, T - prefix, e], the rows without their first `prefix` tokens.
            positions: counted in the whole row; none before `prefix`.
            prefix: how many first tokens are those of the prompt given to `share`.
            grad: record gradients.
        """
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        index = torch.tensor([p - prefix for p in positions], device=embeds.device)
        options: dict[str, Any] = dict(self._uncached)
        if prefix:
            options = {"past_key_values": self._cache(prefix, embeds.shape[0]), "use_cache": True}
        if self._keeps:
            options["logits_to_keep"] = index
        with torch.set_grad_enabled(grad), evaluating(self.model):
            found = self.model(inputs_embeds=embeds, **options).logits
        return found if self._keeps else found[:, index]

    # ---- the shared prefix

    def share(self, embeds: Tensor) -> bool:
        """Keep the keys and values of a prompt [T, e]; False where the model cannot, or where it gives other numbers."""
        self._prefix = None
        if not (self.causal and self._caches) or embeds.shape[0] < 4:
            return False
        with torch.no_grad(), evaluating(self.model):
            try:
                found = self.model(inputs_embeds=embeds[None], use_cache=True)
                without = found.logits[:, -1:].float()
                self._prefix = [(layer.keys, layer.values) for layer in found.past_key_values.layers]
            except (AttributeError, TypeError, NotImplementedError):
                return False
        if any(keys is None or keys.ndim != 4 or keys.shape[2] != embeds.shape[0] for keys, _ in self._prefix):
            self._prefix = None
            return False
        half, last = embeds.shape[0] // 2, embeds.shape[0] - 1
        try:
            with_prefix = self.logits(embeds[None, half:].expand(2, -1, -1), [last], half).float()
        except (TypeError, ValueError, RuntimeError):
            self._prefix = None
            return False
        precise = embeds.dtype in (torch.float32, torch.float64)
        scale = without.abs().max().clamp(min=1e-6)
        if not bool(((with_prefix - without).abs().max() / scale) < (1e-4 if precise else 2e-2)):
            self._prefix = None
        return self._prefix is not None

    @property
    def shares(self) -> bool:
        """Whether a prefix is kept."""
        return self._prefix is not None

    def _cache(self, prefix: int, rows: int) -> Any:
        from transformers import DynamicCache

        assert self._prefix is not None
        cache = DynamicCache()
        for number, (keys, values) in enumerate(self._prefix):
            cut = [part[:, :, :prefix].expand(rows, -1, -1, -1) for part in (keys, values)]
            cache.update(cut[0], cut[1], number)
        return cache

    def _is_causal(self) -> bool:
        length = min(6, self.lens.context_length or 6)
        ids = torch.arange(1, length + 1).remainder(self.lens.vocabulary_size).expand(2, -1).clone()
        ids[1, -1] = (ids[1, -1] + 7) % self.lens.vocabulary_size
        if length < 2 or ids[0, -1] == ids[1, -1]:
            return True
        self.tokens_computed = 0
        first = self.logits(self.embed(ids), [0]).float()
        return bool((first[0] - first[1]).abs().max() <= 1e-5 * first.abs().max().clamp(min=1e-6))


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradient for the weights: only the input's is wanted, and theirs would keep every activation in memory."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)
