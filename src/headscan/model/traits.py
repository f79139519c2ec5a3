"""What a model is, found by trying it: each question asked once a model, with one criterion for
everybody.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.run import BadInput

LENGTH = 6  # tokens of a trial input
# Relative difference up to which logits count as the same linear map of the states, computed twice.
SAME = {torch.float64: 1e-6, torch.float32: 1e-4}

T = TypeVar("T")


class Memo:
    """An object with a store of answers that cannot change while it lives.

    >>> memo = Memo()
    >>> memo.once("answer", lambda: 6 * 7), memo.once("answer", lambda: 0)
    (42, 42)
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave when this `key` was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast(T, self._kept[key])


class OutputLayer(NamedTuple):
    """The last layer of a model with logits: the module, its weight [V, e] and its bias [V] or
    None, both live.
    """

    module: nn.Module
    weight: Float[Tensor, "V e"]
    bias: Float[Tensor, " V"] | None


def embedding_table(model: Any) -> Float[Tensor, "V e"]:
    """The weight of the model's input embeddings; BadInput if it takes no tokens, or was built
    without weights.
    """
    try:
        table: Tensor = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError) as error:
        raise BadInput(
            f"{type(model).__name__} has no table of token embeddings, so it is no language model "
            "that headscan can read."
        ) from error
    if table.is_meta:
        raise BadInput(
            f"{type(model).__name__} was built without weights (it is on the 'meta' device)."
        )
    return table


def output_layer(model: Any) -> OutputLayer | None:
    module = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    weight = getattr(module, "weight", None)
    if module is None or weight is None:
        return None
    return OutputLayer(module, weight, getattr(module, "bias", None))


@dataclass(frozen=True, eq=False, repr=False)
class LinearHead:
    """A head that is a linear map: logits = states @ weight.T + bias, of the states at `site`."""

    site: str  # the final norm, or the last block where there is none
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None

    def logits(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        """The logits of states at `site`, in the precision of the weight."""
        return torch.nn.functional.linear(states.to(self.weight), self.weight, self.bias)

    def __repr__(self) -> str:
        bias = "no bias" if self.bias is None else "a bias"
        return f"LinearHead({tuple(self.weight.shape)} on {self.site}, {bias})"


class Readable(Protocol):
    model: Any
    sites: tuple[str, ...]
    context_length: int | None

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def default_sites(self) -> tuple[str, ...]: ...

    def run(self, input_ids: Any, *, sites: str | Iterable[str]) -> dict[str, Tensor]: ...


@dataclass(frozen=True, eq=False)
class Traits:
    """What one model is: `Lens.traits`. Each trait is found by a forward pass of a few tokens when
    first asked for.

    >>> from headscan.model import Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> lens.traits.causal, lens.traits.encoder_decoder, lens.traits.linear_head.site
    (True, False, 'final_norm')
    >>> lens.traits
    Traits(causal language model with a linear head at final_norm)
    """

    lens: Readable

    @property
    def encoder_decoder(self) -> bool:
        return bool(getattr(self.lens.model.config, "is_encoder_decoder", False))

    @property
    def predicts(self) -> bool:
        return "head" in self.lens.sites and output_layer(self.lens.model) is not None

    @property
    def masked(self) -> bool:
        return self.predicts and not self.encoder_decoder and not self.causal

    @property
    def pooled(self) -> bool:
        return not self.predicts and not self.encoder_decoder and not self.causal

    @cached_property
    def causal(self) -> bool:
        """Whether no output depends on a later token: tried at the deepest site, not read from a
        configuration.
        """
        if self.encoder_decoder:
            return False
        ids = random_ids(self.lens, 3)
        ids[1:] = ids[0]
        ids[2, -1] = (ids[0, -1] + 1) % self.lens.vocabulary_size
        site = self.lens.sites[-1]
        return blind_to_the_last(self.lens.run(ids, sites=site)[site])

    @cached_property
    def linear_head(self) -> LinearHead | None:
        """The head, if the logits are a linear map of the states at the last site of the stack;
        else None. BERT's head transforms the states first, some models scale or cap their logits:
        those have none.
        """
        head = output_layer(self.lens.model)
        site = self.lens.default_sites[-1]
        if head is None or "head" not in self.lens.sites or not head.weight.is_floating_point():
            return None
        states = self.lens.run(random_ids(self.lens, 1), sites=[site, "head"])
        if head.weight.shape[1] != states[site].shape[-1]:
            return None
        linear = LinearHead(
            site, head.weight.detach(), None if head.bias is None else head.bias.detach()
        )
        own = states["head"].float()
        made = linear.logits(states[site]).float()
        bound = SAME.get(head.weight.dtype, 1e-2)
        return (
            linear
            if own.shape == made.shape and (own - made).abs().max() <= bound * own.abs().max()
            else None
        )

    @property
    def quantised(self) -> bool:
        return bool(getattr(self.lens.model, "is_quantized", False))

    def __repr__(self) -> str:
        if self.encoder_decoder:
            kind = "encoder-decoder"
        elif not self.predicts:
            kind = "causal model without a head" if self.causal else "pooled encoder"
        else:
            kind = f"{'causal' if self.causal else 'masked'} language model"
        head = (
            f" with a linear head at {self.linear_head.site}"
            if self.linear_head is not None
            else ""
        )
        return f"Traits({kind}{head})"


def random_ids(lens: Readable, rows: int, length: int = LENGTH) -> Int[Tensor, "rows T"]:
    """Random token ids of the vocabulary, the same in every call, at most as long as the context."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(
        0,
        lens.vocabulary_size,
        (rows, min(length, lens.context_length or length)),
        generator=generator,
    )


def blind_to_the_last(states: Float[Tensor, "3 T w"]) -> bool:
    """Whether outputs before the last position do not depend on the last token.

    The states are of two equal rows and of one that differs from them in its last token, run as one
    batch. The third may differ from the first by 1e-6 of its norm, or by four times the rounding
    difference of the two equal rows.

    >>> states = torch.zeros(3, 2, 1)
    >>> states[2, 1] = 1
    >>> blind_to_the_last(states)
    True
    """
    # Values that are no numbers in all three rows say nothing about what depends on what.
    first, again, changed = states[:, :-1].float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    noise = float((first - again).norm())
    return bool((first - changed).norm() <= max(1e-6 * float(first.norm()), 4 * noise))
