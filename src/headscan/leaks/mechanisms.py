"""What may be done to a release before the noise: maps that the attacker knows, with the way back
to states.
"""

import contextlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.sites import first_tensor, input_tensor
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.mapped import Mapped
from headscan.run import BadInput, Named, Option, Registry, Settings

# ---- A release of every position, as what the audit needs of it: slices to run, and what the model loses by it.

Change = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch w"]]


@dataclass(frozen=True)
class Exposure:
    """What leaks at several sites."""

    names: tuple[str, ...]  # of the sites
    together: SlicedModel  # all of them as one slice, their features one after another
    widths: tuple[int, ...]  # of each
    alone: Callable[[str], SlicedModel]  # a site as a slice of its own
    parts: tuple[
        tuple[int, ...], ...
    ] = ()  # of each site the widths that are rounded together; empty where that is the whole
    defence: str = "none"  # what is done to the release before the noise, in a word
    rounded: bool = (
        False  # whether that makes some releases equal, so that there are bits without noise
    )
    # from a site, sigma and a generator to what the release makes of states for whoever goes on
    # with them; None for noise alone
    working: Callable[[str, float, torch.Generator], Change] | None = None
    # nats a token of the model on each token row if, at a site, its states are changed so; None
    # where it cannot be run
    loss: Callable[[str, Int[Tensor, "B T"], Change], Float[Tensor, " B"]] | None = None


def cross_entropy(logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Nats a token of each row, of all its tokens but the first."""
    flat = logits[:, :-1].double().flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(
        flat, ids[:, 1:].flatten().to(flat.device), reduction="none"
    )
    return nats.view(len(ids), -1).mean(1).cpu()


# ---- A defence at work: what passes a site, or is stored in the cache, is changed while the model goes on with it.


@contextlib.contextmanager
def applied(lens: Lens, site: str, change: Change) -> Iterator[None]:
    """In this context the states at a site are `change(states)`, in every forward pass, and the
    model goes on with them.

    Raises BadInput for a site whose values the model computes in another shape, or in several calls
    of one module.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> with applied(lens, "block.1", torch.zeros_like):
    ...     float(lens.run([[1, 2]], sites="block.1")["block.1"].abs().max())
    0.0
    """
    tap = lens.tap(site)
    if tap.calls > 1 or tap.shape_from is not None or site == "head":
        raise BadInput(f"What passes {site} of '{lens.name}' cannot be changed on its way.")

    def changed(states: Tensor) -> Tensor:
        return change(states.float()).to(states.dtype)

    def after(_: Any, __: Any, output: Any) -> Any:
        states = first_tensor(output)
        return (
            changed(output)
            if states is None or states is output
            else (changed(states), *output[1:])
        )

    def before(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        states = input_tensor(args, kwargs)
        assert states is not None
        new = changed(states)
        given = tuple(new if value is states else value for value in args)
        return given, {name: new if value is states else value for name, value in kwargs.items()}

    module = tap.module
    with contextlib.ExitStack() as hooks:
        if tap.where == "output":
            hooks.callback(module.register_forward_hook(after, prepend=True).remove)
        else:
            hooks.callback(
                module.register_forward_pre_hook(before, with_kwargs=True, prepend=True).remove
            )
        yield


class ChangedCache(DynamicCache):
    """A key-value cache that stores keys and values of some layers as `change` leaves them: give it
    as `past_key_values`.

    >>> cache = ChangedCache([0], torch.zeros_like, "values")
    >>> keys, values = cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    >>> float(keys.sum()), float(values.sum())
    (24.0, 0.0)
    """

    def __init__(self, layers: Sequence[int], change: Change, part: str = "both") -> None:
        super().__init__()
        self.changed = set(layers)
        self.change = change
        self.part = part

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *rest: Any, **options: Any
    ) -> Any:
        if layer_idx in self.changed:
            key_states = self._of(key_states) if self.part != "values" else key_states
            value_states = self._of(value_states) if self.part != "keys" else value_states
        return super().update(key_states, value_states, layer_idx, *rest, **options)

    def _of(self, stored: Tensor) -> Tensor:
        rows = self.change(stored.transpose(1, 2).flatten(2).float())
        return torch.as_tensor(
            rows.unflatten(2, (stored.shape[1], -1)).transpose(1, 2).to(stored.dtype)
        )


@torch.no_grad()
def loss_with(
    lens: Lens, site: str, ids: Int[Tensor, "B T"], change: Change
) -> Float[Tensor, " B"]:
    """Nats a token of the model on each row if the states at a site are changed so."""
    with applied(lens, site, change):
        return cross_entropy(lens.run(ids, sites="head")["head"], ids)


@torch.no_grad()
def loss_with_cache(
    lens: Lens, layer: int, part: str, ids: Int[Tensor, "B T"], change: Change
) -> Float[Tensor, " B"]:
    """Nats a token of the model on each row if what a layer stores in the cache is changed so, and
    read back by attention.
    """
    cache = ChangedCache([layer], change, part)
    inputs = lens.inputs.forward(ids, None, None, None, ("head",)) | {
        "past_key_values": cache,
        "use_cache": True,
    }
    with evaluating(lens.model):
        return cross_entropy(lens.model(**inputs).logits, ids)


# ---- Number formats in which what leaks may be held: floating point of few bits, and integers with a scale a group.

FLOATS = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of one vector are held.

    Integers are asymmetric: the group's least number is the offset and its range over 2^bits − 1
    the step, both held in half precision. "fp8" is e4m3 without a scale, clipped to ±448.

    >>> read_format("int2/4")(torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0, 10.0, 20.0, 31.0]))
    tensor([ 0.0000,  1.0000,  2.0000,  3.0000,  0.0000, 10.3359, 20.6719, 31.0078])
    >>> read_format("fp8")(torch.tensor([1.06, 1000.0]))
    tensor([  1., 448.])
    """

    name: str  # "fp16", "int4", "int4/32"
    bits: int  # of each number
    group: int | None = (
        None  # numbers that share a scale and an offset, None for the whole vector (a token)
    )

    def __call__(self, values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        if (dtype := FLOATS.get(self.name)) is not None:
            limit = torch.finfo(dtype).max
            return values.float().clamp(-limit, limit).to(dtype).float()
        width = values.shape[-1]
        group = min(self.group or width, width)
        if width % group:
            raise BadInput(f"{width} numbers do not fall into groups of {group}.")
        parts = values.float().unflatten(-1, (-1, group))
        low = parts.amin(-1, keepdim=True).half().float()
        step = (
            ((parts.amax(-1, keepdim=True) - low) / (2**self.bits - 1))
            .half()
            .float()
            .clamp_min(2.0**-24)
        )
        codes = ((parts - low) / step).round().clamp(0, 2**self.bits - 1)
        return torch.as_tensor((codes * step + low).flatten(-2))

    def each(self, widths: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """The same for vectors put together from parts of these widths, each with scales of its
        own.
        """
        return lambda values: torch.cat([self(part) for part in values.split(list(widths), -1)], -1)


def read_format(text: str) -> NumberFormat:
    """A format from its name.

    >>> read_format("int4/32")
    NumberFormat(name='int4/32', bits=4, group=32)
    >>> read_format("int3")
    Traceback (most recent call last):
    headscan.BadInput: There is no number format 'int3'; there are: fp32, fp16, bf16, fp8, int8, int4, int2, and int4/32 for ...
    """
    integer = re.fullmatch(r"(int(?:8|4|2))(?:/(\d+))?", text)
    if text in FLOATS:
        return NumberFormat(text, FLOATS[text].itemsize * 8)
    if integer is None or integer[2] == "0":
        raise BadInput(
            f"There is no number format '{text}'; there are: {', '.join(FLOATS)}, int8, int4, "
            "int2, and int4/32 for "
            "groups of 32 numbers."
        )
    return NumberFormat(text, int(integer[1][3:]), int(integer[2]) if integer[2] else None)


Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]


@dataclass(frozen=True)
class Fitted:
    """A defence made ready for one site."""

    # from states to what is released, in coordinates in which the noise is equal and independent
    seen: Map
    back: Map  # from what is released to states, for whoever goes on with them
    kept: Map | None = (
        None  # what the receiver has in place of `seen`, where he knows more than the attacker
    )


def same(values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    return values


UNCHANGED = Fitted(same, same)


@dataclass(frozen=True, kw_only=True)
class Mechanism(Settings, Named, ABC):
    """A map that the attacker knows, before Gaussian noise. Its fields are its parameters: options.

    All bounds hold for what is seen after it: a known rotation before the noise changes no distance
    and therefore no bit.
    """

    rounds: ClassVar[bool] = False
    """Whether it makes some releases equal, so that there are bits without noise."""
    keyed: ClassVar[bool] = False
    """Whether it rests on a secret that the bounds give to the attacker: then they are ceilings for
    one who lacks it.
    """

    def stored(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        """What lies in memory in place of a cache's entries of T tokens, with fresh secrets; where
        there are none, `seen`.
        """
        return self.fit(rows, 0, None).seen(rows)  # type: ignore[arg-type]

    @abstractmethod
    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """Made ready on states of the site."""


MECHANISMS: Registry[type[Mechanism]] = Registry("defence")
"""All defences by name."""


def working(seen: Map, back: Map, sigma: float, generator: torch.Generator) -> Change:
    """From states to what whoever goes on with them has of them: released, with Gaussian noise, and
    brought back.
    """

    def change(states: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        out = seen(states)
        noise = (
            torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
            if sigma
            else 0.0
        )
        return back(out + sigma * noise)

    return change


@torch.no_grad()
def protected(
    exposure: Exposure,
    defence: Mechanism | None,
    form: NumberFormat | None,
    windows: Int[Tensor, "B T"],
    seed: int,
) -> Exposure:
    """An exposure behind a mechanism, then a number format: candidates pass both as the release
    did.
    """
    if defence is None and form is None:
        return exposure
    lens = exposure.together.lens
    raw = (
        exposure.together.run(windows.to(lens.device))[:, 1:]
        .flatten(0, 1)
        .float()
        .split(list(exposure.widths), 1)
    )
    fits = [UNCHANGED if defence is None else defence.fit(part, seed, lens) for part in raw]
    shapes = [
        fit.seen(torch.zeros_like(part[:1])).shape[-1] for fit, part in zip(fits, raw, strict=True)
    ]
    parts = (
        exposure.parts
        if defence is None and exposure.parts
        else tuple((width,) for width in shapes)
    )
    maps = [_then(fit.seen, form, part) for fit, part in zip(fits, parts, strict=True)]
    label = " and ".join(item.name for item in (defence, form) if item)
    what = f"{label} {defence}" if defence else label

    def every(values: Tensor) -> Tensor:
        pieces = values.float().split(list(exposure.widths), -1)
        return torch.cat([apply(piece) for apply, piece in zip(maps, pieces, strict=True)], -1)

    def alone(name: str) -> Mapped:
        return Mapped(exposure.alone(name), maps[exposure.names.index(name)], what)

    def change(name: str, sigma: float, generator: torch.Generator) -> Change:
        place = exposure.names.index(name)
        fit = fits[place]
        return working(_then(fit.kept or fit.seen, form, parts[place]), fit.back, sigma, generator)

    return replace(
        exposure,
        together=Mapped(exposure.together, every, what),
        widths=tuple(shapes),
        alone=alone,
        defence=label,
        rounded=(form is not None and form.name != "fp32")
        or (defence is not None and defence.rounds),
        working=change,
        loss=None if defence is not None and exposure.parts else exposure.loss,
    )


def _then(seen: Map, form: NumberFormat | None, parts: Sequence[int]) -> Map:
    if form is None:
        return seen
    each: Map = form if len(parts) == 1 else form.each(tuple(parts))
    return lambda values: (each if values.shape[-1] == sum(parts) else form)(seen(values))


# ---- The mechanisms by which a channel may be protected.


@MECHANISMS.register("permutation")
class SecretOrder(Mechanism):
    """Coordinates of every token in a secret order of its own: what remains are the numbers, here
    sorted, then noise.

    Without noise the sorted numbers are all that such a release tells. With noise they tell no
    less: whoever has them can shuffle them, so the upper bound holds for the shuffled release, too,
    and the lower one for the sorted. The receiver knows the order. A search by sorted numbers is
    the attack of arXiv:2505.18332.
    """

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(lambda x: x.float().sort(-1).values, same, kept=lambda x: x.float())

    def stored(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        return rows.gather(
            1, torch.rand(rows.shape, generator=generator).argsort(1).to(rows.device)
        )


@MECHANISMS.register("kv-cloak")
class KVCloak(Mechanism):
    """KV-Cloak (arXiv:2508.09442): each block of tokens of a head, [b, d], is stored as S P (K + A)
    M.

    S [b, b] and M [d, d] are secret orthogonal matrices, P orders each block's tokens anew, A adds
    a secret vector to one row. Whoever has the secrets takes it back: attention is unchanged, and
    so are bits and exact search, which give them to the attacker: ceilings for one who lacks them.
    A rest shorter than a block has M alone. Kin: `block=1,mask=0` is a secret rotation,
    `rotate=false,mask=0` mixes tokens only.

    Held against an implementation's source, a public copy of defense/core/kvcloak.py, not against
    the paper's body. There M turns pairs of entries by secret angles, as rotary positions do; the
    masked row has all entries above the largest one of the head; S, M and the row stay the same for
    a deployment, and P alone is drawn anew, one for keys and values of all heads; a rest is padded
    to a block. Here M is any orthogonal matrix, the masked row is Gaussian, and all secrets are new
    for each window.
    """

    keyed: ClassVar[bool] = True
    block: Annotated[int, Option("Tokens of a block.", low=1)] = 16
    width: Annotated[int, Option("Entries that M mixes, a head's; at most all of them.", low=1)] = (
        64
    )
    mask: Annotated[
        float, Option("Size of the secret vector, in rms of the head's entries.", low=0)
    ] = 3.0
    rotate: Annotated[bool, Option("Whether M mixes entries.")] = True

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return UNCHANGED

    def stored(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        return self.cloaked(rows, generator)[0]

    def cloaked(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "T w"], Map]:
        """What is stored, and the way back for whoever has the secrets."""
        width = math.gcd(self.width, rows.shape[1])
        whole = len(rows) // self.block * self.block
        x = rows.unflatten(1, (-1, width)).transpose(0, 1)  # [heads, T, d]
        drawn = [
            torch.randn(len(x), n, n, generator=generator, dtype=torch.float64)
            for n in (self.block, width)
        ]
        mixed, turn = (torch.linalg.qr(one).Q.to(rows) for one in drawn)
        turn = turn if self.rotate else torch.eye(width).to(turn).expand_as(turn)
        blocks = x[:, :whole].unflatten(1, (-1, self.block))
        shape = blocks.shape[:3]
        order = (
            torch.rand(shape, generator=generator)
            .argsort(2)
            .to(rows.device)[..., None]
            .expand_as(blocks)
        )
        vector = (
            self.mask
            * x.square().mean().sqrt()
            * torch.randn(len(x), width, generator=generator).to(rows)
        )
        beacon = torch.nn.functional.one_hot(
            torch.randint(self.block, shape[:2], generator=generator), self.block
        ).to(rows)
        added = beacon[..., None] * vector[:, None, None]
        out = [
            (mixed[:, None] @ (blocks + added).gather(2, order) @ turn[:, None]).flatten(1, 2),
            x[:, whole:] @ turn,
        ]

        def back(stored: Tensor) -> Tensor:
            y = stored.unflatten(1, (-1, width)).transpose(0, 1) @ turn.mT
            plain = mixed.mT[:, None] @ y[:, :whole].unflatten(1, (-1, self.block))
            plain = torch.zeros_like(plain).scatter(2, order, plain) - added
            return torch.cat([plain.flatten(1, 2), y[:, whole:]], 1).transpose(0, 1).flatten(1)

        return torch.cat(out, 1).transpose(0, 1).flatten(1), back


@MECHANISMS.register("projection")
class Projection(Mechanism):
    """Released are the coordinates along the first principal directions of the site's states, as
    many as `dimensions`.
    """

    dimensions: Annotated[int, Option("Directions that are released.", low=1)] = 8

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        if self.dimensions > states.shape[1]:
            raise BadInput(
                f"dimensions={self.dimensions} is more than the {states.shape[1]} of the site."
            )
        mean = states.mean(0)
        centred = (states - mean).double()
        directions = (
            torch.linalg.eigh(centred.T @ centred)
            .eigenvectors.flip(1)[:, : self.dimensions]
            .to(states.dtype)
        )
        return Fitted(lambda x: (x.float() - mean) @ directions, lambda y: y @ directions.T + mean)


@MECHANISMS.register("rotation")
class Rotation(Mechanism):
    """Coordinates are mixed by a random rotation that the attacker knows: distances stay, and with
    them every bit.
    """

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        width = states.shape[1]
        drawn = torch.randn(
            width, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        turned = torch.linalg.qr(drawn).Q.to(states)
        return Fitted(lambda x: x.float() @ turned, lambda y: y @ turned.T)


@MECHANISMS.register("rounding")
class Rounding(Mechanism):
    """Every coordinate in so many bits, with a scale and an offset a token; before the noise, where
    there is any.
    """

    rounds: ClassVar[bool] = True
    bits: Annotated[int, Option("Bits of each coordinate.", low=1, high=8)] = 1

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(NumberFormat(f"{self.bits} bits", self.bits), same)


@MECHANISMS.register("per-coordinate")
class Scaling(Mechanism):
    """Noise in proportion to each coordinate's own spread: few large coordinates do not take it all
    on themselves.
    """

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        spread = states.std(0, unbiased=False)
        spread = spread.where(
            spread > 0, spread.new_ones(())
        )  # a constant coordinate is released as it is
        return Fitted(lambda x: x.float() / spread, lambda y: y * spread)


@MECHANISMS.register("sparsification")
class Sparsification(Mechanism):
    """Of each token the coordinates of largest size, as a split model sends them; the others are 0."""

    largest: Annotated[
        float, Option("Share of a token's coordinates that is sent.", above=0, high=1)
    ] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        count = max(1, round(self.largest * states.shape[1]))

        def seen(x: Tensor) -> Tensor:
            kept = x.float().abs().topk(count, -1).indices
            return torch.zeros_like(x, dtype=torch.float32).scatter(
                -1, kept, x.float().gather(-1, kept)
            )

        return Fitted(seen, same)
