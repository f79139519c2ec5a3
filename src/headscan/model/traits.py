"""Traits of a model, found by trying it, once a model and by one criterion each."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.run import BadInput

TRIAL_LENGTH = 6
"""Tokens of a trial input."""

LINEAR_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""The relative difference up to which logits count as a linear map of the states, by precision."""
LOW_PRECISION_TOLERANCE = 1e-2
NEAR_CAP = 0.9
"""Logits above this share of their cap say little of what was capped."""

T = TypeVar("T")


class Memo:
    """An object with a store of answers that cannot change while it lives.

    >>> memo = Memo()
    >>> memo.once("answer", lambda: 6 * 7), memo.once("answer", lambda: 0)
    (42, 42)
    """

    def __init__(self) -> None:
        self._answers: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gave when this `key` was first asked for."""
        if key not in self._answers:
            self._answers[key] = make()
        return cast(T, self._answers[key])


class OutputLayer(NamedTuple):
    """The last layer of a model with logits, with its weight and bias, both live."""

    module: nn.Module
    weight: Float[Tensor, "V e"]
    bias: Float[Tensor, " V"] | None


def embedding_table(model: Any) -> Float[Tensor, "V e"]:
    """Return the weight of the model's input embeddings.

    Raises:
        BadInput: for a model that takes no tokens, or was built without weights.
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
    """Return the last layer of a model; None of a model without logits."""
    module = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    weight = getattr(module, "weight", None)
    if module is None or weight is None:
        return None
    return OutputLayer(module, weight, getattr(module, "bias", None))


@dataclass(frozen=True, eq=False, repr=False)
class LinearHead:
    """A head that is a linear map of the states at `site`, up to a known function.

    With z = states @ weight.T + bias, the logits are scale·z (Granite, Cohere), or
    cap·tanh(scale·z / cap) where the model caps them (Gemma 2). The site is the final norm, or the
    last block where there is none.
    """

    site: str
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        """Return the logits of states at `site`, in the precision of the weight."""
        return self.of_linear(self.linear(states))

    def linear(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        """Return the linear map of states, before scale and cap."""
        return torch.nn.functional.linear(states.to(self.weight), self.weight, self.bias)

    def of_linear(self, linear: Float[Tensor, "... V"]) -> Float[Tensor, "... V"]:
        """Return the logits that the linear map's numbers become."""
        scaled = linear if self.scale == 1 else linear * self.scale
        return scaled if self.cap is None else self.cap * torch.tanh(scaled / self.cap)

    def __repr__(self) -> str:
        bias = "no bias" if self.bias is None else "a bias"
        scale = "" if self.scale == 1 else f", times {self.scale:.3g}"
        cap = "" if self.cap is None else f", capped at {self.cap:g}"
        return f"LinearHead({tuple(self.weight.shape)} on {self.site}, {bias}{scale}{cap})"


def _caps(config: Any) -> list[float]:
    """Return the numbers of a configuration at which logits may be capped."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    return [
        float(value)
        for name, value in vars(text_config).items()
        if "cap" in name and isinstance(value, int | float) and value > 0
    ]


def _scale(logits: Tensor, linear: Tensor, cap: float | None) -> float:
    """Return the factor between a linear map and the logits before their cap, by least squares."""
    if cap is not None:
        below = logits.abs() < NEAR_CAP * cap
        linear = linear[below]
        logits = cap * torch.atanh(logits[below] / cap)
    energy = float(linear.double().square().sum())
    return float((logits.double() * linear.double()).sum()) / energy if energy else 1.0


class Readable(Protocol):
    """The part of a Lens that traits need."""

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
    """The traits of one model: `Lens.traits`.

    Each trait is found by a forward pass of a few tokens when it is first asked for.

    >>> from headscan.model import Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> lens.traits.causal, lens.traits.encoder_decoder, lens.traits.linear_head.site
    (True, False, 'final_norm')
    >>> lens.traits
    Traits(causal language model with a linear head at final_norm)
    """

    lens: Readable

    @property
    def encoder_decoder(self) -> bool:
        """Return whether the model has two stacks."""
        return bool(getattr(self.lens.model.config, "is_encoder_decoder", False))

    @property
    def predicts(self) -> bool:
        """Return whether the model has logits over its vocabulary."""
        return "head" in self.lens.sites and output_layer(self.lens.model) is not None

    @property
    def masked(self) -> bool:
        """Return whether the model is a masked language model."""
        return self.predicts and not self.encoder_decoder and not self.causal

    @property
    def pooled(self) -> bool:
        """Return whether the model is an encoder without a head."""
        return not self.predicts and not self.encoder_decoder and not self.causal

    @cached_property
    def causal(self) -> bool:
        """Return whether no output depends on a later token.

        This is tried at the deepest site, not read from a configuration.
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
        """The head, if the logits are a linear map of the states at the last site of the stack.

        They may be scaled and capped. None: BERT's head transforms the states first.
        """
        layer = output_layer(self.lens.model)
        if layer is None or "head" not in self.lens.sites or not layer.weight.is_floating_point():
            return None
        site = self.lens.default_sites[-1]
        states = self.lens.run(random_ids(self.lens, 1), sites=[site, "head"])
        if layer.weight.shape[1] != states[site].shape[-1]:
            return None
        bias = None if layer.bias is None else layer.bias.detach()
        head = LinearHead(site, layer.weight.detach(), bias)
        logits = states["head"].float()
        linear = head.linear(states[site]).float()
        if logits.shape != linear.shape:
            return None
        tolerance = LINEAR_TOLERANCE.get(layer.weight.dtype, LOW_PRECISION_TOLERANCE)
        for cap in (None, *_caps(self.lens.model.config)):
            scale = _scale(logits, linear, cap)
            if abs(scale - 1) <= tolerance:
                scale = 1.0
            known = replace(head, scale=scale, cap=cap)
            difference = (logits - known.of_linear(linear)).abs().max()
            if difference <= tolerance * logits.abs().max():
                return known
        return None

    @property
    def quantised(self) -> bool:
        """Return whether the weights are rounded to 8 or 4 bits."""
        return bool(getattr(self.lens.model, "is_quantized", False))

    def __repr__(self) -> str:
        if self.encoder_decoder:
            text = "encoder-decoder"
        elif self.predicts:
            text = "causal language model" if self.causal else "masked language model"
        else:
            text = "causal model without a head" if self.causal else "pooled encoder"
        if self.linear_head is not None:
            text += f" with a linear head at {self.linear_head.site}"
        return f"Traits({text})"


def random_ids(lens: Readable, rows: int, length: int = TRIAL_LENGTH) -> Int[Tensor, "rows T"]:
    """Return random token ids, the same in every call, at most as long as the context."""
    shape = (rows, min(length, lens.context_length or length))
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, lens.vocabulary_size, shape, generator=generator)


def blind_to_the_last(states: Float[Tensor, "3 T w"]) -> bool:
    """Return whether outputs before the last position do not depend on the last token.

    The states are of two equal rows and of one that differs from them in its last token, run as one
    batch. The third may differ from the first by 1e-6 of its norm, or by four times the rounding
    difference of the two equal rows.

    >>> states = torch.zeros(3, 2, 1)
    >>> states[2, 1] = 1
    >>> blind_to_the_last(states)
    True
    """
    # Values that are no numbers in all three rows show no dependence.
    earlier = states[:, :-1].float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    first, repeated, changed = earlier
    rounding = float((first - repeated).norm())
    tolerance = max(1e-6 * float(first.norm()), 4 * rounding)
    return bool((first - changed).norm() <= tolerance)
