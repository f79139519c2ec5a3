"""Defences of a release: maps before the noise that the attacker knows, with the way back."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.number_formats import NumberFormat
from headscan.run import BadInput, Named, Option, Registry, Settings

Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]
"""A map of one vector, the same at every position."""
Change = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch w"]]
"""A map that returns vectors of the same width."""


def same(values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    """Return the values as they are."""
    return values


@dataclass(frozen=True)
class Fitted:
    """A defence made ready for one site.

    Attributes:
        release: from states to what is released, in coordinates in which the noise is equal and
            independent.
        restore: from what is released to states, for whoever goes on with them.
        receive: what the receiver has in place of `release`; None where the receiver knows no more
            than the attacker.
    """

    release: Map
    restore: Map
    receive: Map | None = None

    @property
    def received(self) -> Map:
        """Return the map from states to what the receiver has."""
        return self.receive or self.release


UNCHANGED = Fitted(same, same)


def working(release: Map, restore: Map, sigma: float, generator: torch.Generator) -> Change:
    """Return the map from states to what whoever goes on with them has: released, with Gaussian
    noise of standard deviation `sigma`, and restored.
    """

    def change(states: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        released = release(states)
        if not sigma:
            return restore(released)
        noise = torch.randn(released.shape, generator=generator, dtype=torch.float64)
        return restore(released + sigma * noise.to(released))

    return change


@dataclass(frozen=True, kw_only=True)
class Mechanism(Settings, Named, ABC):
    """A map that the attacker knows, before Gaussian noise. Its fields are its parameters: options.

    All bounds hold for what is seen after it: a known rotation before the noise changes no distance
    and therefore no bit.
    """

    rounds: ClassVar[bool] = False
    """True if it makes some releases equal, so that there are bits without noise."""
    keyed: ClassVar[bool] = False
    """True if it rests on a secret that the bounds give to the attacker: then they are ceilings for
    an attacker who lacks it.
    """

    def stored(
        self, rows: Float[Tensor, "T w"], _generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        """Return what lies in memory in place of a cache's entries of T tokens.

        Secrets are drawn from the generator; a defence without secrets stores what it releases.
        """
        return self.fit(rows, 0).release(rows)

    @abstractmethod
    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        """Return the defence made ready on states of a site."""


MECHANISMS: Registry[type[Mechanism]] = Registry("defence")
"""All defences by name."""


@MECHANISMS.register("permutation")
class SecretOrder(Mechanism):
    """Coordinates of every token in a secret order of its own: what remains are the numbers, here
    sorted, then noise.

    Without noise the sorted numbers are all that such a release tells. With noise they tell no
    less: whoever has them can shuffle them, so the upper bound holds for the shuffled release, too,
    and the lower one for the sorted. The receiver knows the order. A search by sorted numbers is
    the attack of arXiv:2505.18332.
    """

    def fit(self, _states: Float[Tensor, "N d"], seed: int) -> Fitted:
        def in_order(values: Tensor) -> Tensor:
            return values.float().sort(-1).values

        return Fitted(in_order, same, receive=Tensor.float)

    def stored(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        order = torch.rand(rows.shape, generator=generator).argsort(1)
        return rows.gather(1, order.to(rows.device))


@dataclass(frozen=True)
class _CloakSecrets:
    """The secrets of KV-Cloak for the entries of one layer: `heads` heads, `blocks` whole blocks.

    Attributes:
        mixing: S of each head.
        rotation: M of each head.
        order: P of each block, as indices of its tokens, repeated over the entries.
        added: A of each block: a vector in one row, zeros elsewhere.
    """

    mixing: Float[Tensor, "heads b b"]
    rotation: Float[Tensor, "heads d d"]
    order: Tensor
    added: Float[Tensor, "heads blocks b d"]


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

    def fit(self, _states: Float[Tensor, "N d"], seed: int) -> Fitted:
        return UNCHANGED

    def stored(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> Float[Tensor, "T w"]:
        return self.cloaked(rows, generator)[0]

    def cloaked(
        self, rows: Float[Tensor, "T w"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "T w"], Map]:
        """Return what is stored, and the way back for whoever has the secrets."""
        width = math.gcd(self.width, rows.shape[1])
        entries = _by_head(rows, width)
        end = len(rows) // self.block * self.block  # of the whole blocks
        blocks = entries[:, :end].unflatten(1, (-1, self.block))
        secrets = self._secrets(entries, blocks, generator)
        mixing = secrets.mixing[:, None]

        ordered = (blocks + secrets.added).gather(2, secrets.order)
        cloaked = (mixing @ ordered @ secrets.rotation[:, None]).flatten(1, 2)
        remainder = entries[:, end:] @ secrets.rotation
        stored = _by_token(torch.cat([cloaked, remainder], 1))

        def restore(stored: Tensor) -> Tensor:
            turned = _by_head(stored, width) @ secrets.rotation.mT
            ordered = mixing.mT @ turned[:, :end].unflatten(1, (-1, self.block))
            plain = torch.zeros_like(ordered).scatter(2, secrets.order, ordered) - secrets.added
            return _by_token(torch.cat([plain.flatten(1, 2), turned[:, end:]], 1))

        return stored, restore

    def _secrets(
        self, entries: Tensor, blocks: Tensor, generator: torch.Generator
    ) -> _CloakSecrets:
        heads, _, width = entries.shape
        mixing = _orthogonal(heads, self.block, generator).to(entries)
        rotation = _orthogonal(heads, width, generator).to(entries)
        if not self.rotate:
            rotation = torch.eye(width).to(rotation).expand_as(rotation)
        order = torch.rand(blocks.shape[:3], generator=generator).argsort(2)
        direction = torch.randn(heads, width, generator=generator).to(entries)
        vector = self.mask * entries.square().mean().sqrt() * direction
        masked = torch.randint(self.block, blocks.shape[:2], generator=generator)
        one_hot = torch.nn.functional.one_hot(masked, self.block).to(entries)
        return _CloakSecrets(
            mixing=mixing,
            rotation=rotation,
            order=order.to(entries.device)[..., None].expand_as(blocks),
            added=one_hot[..., None] * vector[:, None, None],
        )


def _by_head(rows: Float[Tensor, "T w"], width: int) -> Float[Tensor, "heads T d"]:
    return torch.as_tensor(rows.unflatten(1, (-1, width)).transpose(0, 1))


def _by_token(entries: Float[Tensor, "heads T d"]) -> Float[Tensor, "T w"]:
    return entries.transpose(0, 1).flatten(1)


def _orthogonal(count: int, size: int, generator: torch.Generator) -> Float[Tensor, "count n n"]:
    """Return random orthogonal matrices in float64."""
    drawn = torch.randn(count, size, size, generator=generator, dtype=torch.float64)
    return torch.as_tensor(torch.linalg.qr(drawn).Q)


@MECHANISMS.register("projection")
class Projection(Mechanism):
    """Released are the coordinates along the first principal directions of the site's states, as
    many as `dimensions`.
    """

    dimensions: Annotated[int, Option("Directions that are released.", low=1)] = 8

    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        if self.dimensions > states.shape[1]:
            raise BadInput(
                f"dimensions={self.dimensions} is more than the {states.shape[1]} of the site."
            )
        mean = states.mean(0)
        centred = (states - mean).double()
        eigenvectors = torch.linalg.eigh(centred.T @ centred).eigenvectors
        directions = eigenvectors.flip(1)[:, : self.dimensions].to(states.dtype)
        return Fitted(lambda x: (x.float() - mean) @ directions, lambda y: y @ directions.T + mean)


@MECHANISMS.register("rotation")
class Rotation(Mechanism):
    """Coordinates are mixed by a random rotation that the attacker knows: distances stay, and with
    them every bit.
    """

    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        generator = torch.Generator().manual_seed(seed)
        rotation = _orthogonal(1, states.shape[1], generator)[0].to(states)
        return Fitted(lambda x: x.float() @ rotation, lambda y: y @ rotation.T)


@MECHANISMS.register("rounding")
class Rounding(Mechanism):
    """Every coordinate in so many bits, with a scale and an offset a token; before the noise, where
    there is any.
    """

    rounds: ClassVar[bool] = True
    bits: Annotated[int, Option("Bits of each coordinate.", low=1, high=8)] = 1

    def fit(self, _states: Float[Tensor, "N d"], seed: int) -> Fitted:
        return Fitted(NumberFormat(f"{self.bits} bits", self.bits), same)


@MECHANISMS.register("per-coordinate")
class Scaling(Mechanism):
    """Noise in proportion to each coordinate's own spread: few large coordinates do not take it all
    on themselves.
    """

    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        spread = states.std(0, unbiased=False)
        # A constant coordinate is released as it is.
        spread = spread.where(spread > 0, spread.new_ones(()))
        return Fitted(lambda x: x.float() / spread, lambda y: y * spread)


@MECHANISMS.register("sparsification")
class Sparsification(Mechanism):
    """Each token's coordinates of largest size, as a split model sends them; the others are 0."""

    largest: Annotated[
        float, Option("Share of a token's coordinates that is sent.", above=0, high=1)
    ] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int) -> Fitted:
        count = max(1, round(self.largest * states.shape[1]))

        def sparse(x: Tensor) -> Tensor:
            x = x.float()
            indices = x.abs().topk(count, -1).indices
            return torch.zeros_like(x).scatter(-1, indices, x.gather(-1, indices))

        return Fitted(sparse, same)
