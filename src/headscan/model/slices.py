"""Slices: which part of a model is run, and which part of its output is looked at, as one small value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headscan.errors import BadInput

if TYPE_CHECKING:
    from headscan.model.lens import Lens
    from headscan.model.slices_cut import Cut

__all__ = ["Slice"]

RANGE = re.compile(r"^\s*(-?\d*)\s*(:?)\s*(-?\d*)\s*$")
RANDOM = re.compile(r"^\s*random\s*\(?\s*(\d+)\s*(?:,\s*(\d+))?\s*\)?\s*$")


@dataclass(frozen=True)
class Slice:
    """A part of a model from its input embeddings to a site, cut in any of several ways, and a part of the output.

    A Slice says what is computed; it holds no model. It is saved inside results as `slice.document()`.

    Attributes:
        sites: one or more sites of the Lens (globs are allowed). Several are concatenated on the feature axis.
        only: "attention" or "mlp" silences the other branches of every block (attention stands for whatever mixes
            tokens: recurrences and mixers too). What is left keeps its norm and its residual unless said otherwise.
        start: the first block that is run; blocks before it pass the embeddings on. `start=3, sites=("block.3",)` is
            block 3 alone.
        residual: False replaces x + branch(x) by branch(x) in every block.
        normalisation: False makes every norm the identity, the final one included.
        causal: True imposes a causal mask, False lifts it, None leaves the model's own.
        positions: False takes away position embeddings and rotary angles.
        embedding: another embedding table: "random:SEED" (normal, with the standard deviation of the model's own) or
            the name of a model whose table has the same shape; None is the model's own.
        weights: None as given, "fresh:SEED" for a newly initialised twin.
        bits: round the weights of every linear map to so many bits (per output row, symmetric), 2 to 8: what 8-bit
            loading does to them, on any machine. None leaves them.
        tokens: which positions of the output are kept, as between the brackets of numpy: ":", "1:", ":3", "-1", "2:5".
        features: which features: ":", ":64", "64:128", or "random(64)" / "random(64, SEED)" for a random subset.
        pool: "mean", "first" or "last" replaces the kept positions by one vector, as sentence encoders do.

    `run` gives [B, T', w']: T' positions kept, w' features kept, all sites together.

    >>> from headscan.model import Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> cut = Slice.parse("block.0 + block.1 [:, 1:, :12]", causal=False)
    >>> cut.run(lens, [[1, 2, 3]]).shape
    torch.Size([1, 2, 12])
    >>> str(cut)
    'block.0 + block.1 [:, 1:, :12] causal=False'
    >>> Slice.from_document(cut.document()) == cut
    True
    """

    sites: tuple[str, ...] = ("block.0",)
    only: str | None = None
    start: int = 0
    residual: bool = True
    normalisation: bool = True
    causal: bool | None = None
    positions: bool = True
    embedding: str | None = None
    weights: str | None = None
    bits: int | None = None
    tokens: str = ":"
    features: str = ":"
    pool: str | None = None

    def __post_init__(self) -> None:
        sites = [self.sites] if isinstance(self.sites, str) else list(self.sites)
        object.__setattr__(self, "sites", tuple(site.strip() for site in sites if site.strip()))
        if not self.sites:
            raise BadInput("A slice needs at least one site, such as block.0.")
        _one_of("only", self.only, (None, "attention", "mlp"))
        _one_of("pool", self.pool, (None, "mean", "first", "last"))
        if self.start < 0:
            raise BadInput(f"The first block of a slice cannot be number {self.start}.")
        if self.bits is not None and not 2 <= self.bits <= 8:
            raise BadInput(f"Weights can be rounded to 2 to 8 bits, not to {self.bits}.")
        if self.weights is not None and not re.fullmatch(r"fresh:\d+", self.weights):
            raise BadInput(f"The weights of a slice are given as fresh:SEED, not as '{self.weights}'.")
        object.__setattr__(self, "tokens", self.tokens.replace(" ", "") or ":")
        object.__setattr__(self, "features", " ".join(self.features.split()) or ":")
        _range(self.tokens)
        if not RANDOM.match(self.features):
            _range(self.features)

    # ---- as text and as JSON

    @classmethod
    def parse(cls, text: str, **options: Any) -> Slice:
        """Read `SITE [+ SITE ...] [[:, TOKENS, FEATURES]]`; the other attributes are given by name.

        >>> Slice.parse("block.3[:, -1, :]").tokens
        '-1'
        """
        match = re.fullmatch(r"\s*([^\[\]]*?)\s*(?:\[([^\[\]]*)\])?\s*", text)
        if match is None or not match[1]:
            raise BadInput(f"'{text}' is no slice: write for example 'block.3' or 'block.3[:, 1:, :64]'.")
        parts: list[str] = _axes(match[2]) if match[2] is not None else [":", ":", ":"]
        if len(parts) not in (2, 3) or parts[0].strip() != ":":
            raise BadInput(f"'[{match[2]}]' is no part of an output [B, T, w]: write for example [:, 1:, :64].")
        tokens, features = parts[1].strip(), parts[2].strip() if len(parts) == 3 else ":"
        return cls(sites=tuple(match[1].split("+")), **({"tokens": tokens, "features": features} | options))

    def document(self) -> dict[str, Any]:
        """All attributes as plain JSON values."""
        return asdict(self) | {"sites": list(self.sites)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Slice:
        """The slice that `document` wrote; unknown keys are refused."""
        known = {field.name for field in fields(cls)}
        if unknown := set(document) - known:
            raise BadInput(f"A slice has no attribute {', '.join(sorted(unknown))}.")
        return cls(**{**document, "sites": tuple(document.get("sites", ("block.0",)))})

    def __str__(self) -> str:
        part = "" if self.tokens == self.features == ":" else f" [:, {self.tokens}, {self.features}]"
        rest = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in ("sites", "tokens", "features") and getattr(self, field.name) != field.default
        ]
        return " + ".join(self.sites) + part + "".join(f" {one}" for one in rest)

    def but(self, **changes: Any) -> Slice:
        """The same slice with some attributes changed."""
        return replace(self, **changes)

    # ---- running

    def on(self, lens: Lens) -> Cut:
        """The slice made ready on a model: what takes time (fresh weights, probing the mask) is done once and kept.

        Raises:
            BadInput: the model cannot be cut so; one sentence says why.
        """
        from headscan.model.slices_cut import Cut

        ready: dict[Slice, Cut] = lens.__dict__.setdefault("_cuts", {})
        if self not in ready:
            ready[self] = Cut(self, lens)
        return ready[self]

    def run(
        self,
        lens: Lens,
        input_ids: Tensor | Sequence | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        grad: bool = False,
    ) -> Tensor:
        """Run the slice on token ids [B, T] or on embeddings [B, T, e]; later layers are not computed.

        Args:
            lens: the model.
            input_ids: token ids [B, T].
            inputs_embeds: in place of ids, vectors as the embedding table would give them, without positions.
            grad: record gradients, so that the output can be differentiated by `inputs_embeds`.

        Returns:
            [B, T', w'] in the precision of the model.
        """
        return self.on(lens).run(input_ids, inputs_embeds=inputs_embeds, grad=grad)

    # ---- the part of the output

    def kept(self, length: int) -> list[int]:
        """The positions kept of an output of `length` positions.

        >>> Slice(tokens="-1").kept(5), Slice(tokens="1:3").kept(5)
        ([4], [1, 2])
        """
        found = list(range(length))[_range(self.tokens)]
        if not found:
            raise BadInput(f"[:, {self.tokens}, :] leaves nothing of an output of {length} positions.")
        return found

    def chosen(self, width: int) -> Tensor | slice:
        """The index of the features kept of an output of `width` features."""
        if match := RANDOM.match(self.features):
            count, seed = int(match[1]), int(match[2] or 0)
            if not 0 < count <= width:
                raise BadInput(f"{count} random features cannot be taken from {width}.")
            return torch.randperm(width, generator=torch.Generator().manual_seed(seed))[:count].sort().values
        part = _range(self.features)
        if not range(width)[part]:
            raise BadInput(f"[:, :, {self.features}] leaves nothing of an output of {width} features.")
        return part


def _axes(text: str) -> list[str]:
    """Split at the commas that are in no parentheses."""
    return re.split(r",(?![^(]*\))", text)


def _range(text: str) -> slice:
    match = RANGE.match(text)
    if match is None or not (match[1] or match[2]):
        raise BadInput(f"'{text}' is no range of positions or features: write for example 1:, :3, 2:5 or -1.")
    first, colon, last = match.groups()
    if not colon:
        if last:
            raise BadInput(f"'{text}' is no range of positions or features: write for example 1:, :3, 2:5 or -1.")
        number = int(first)
        return slice(number, number + 1 if number != -1 else None)
    return slice(int(first) if first else None, int(last) if last else None)


def _one_of(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        words = ", ".join(str(one) for one in allowed if one is not None)
        raise BadInput(f"The attribute '{name}' of a slice is one of {words}, not '{value}'.")
