"""Three things that the field holds of leaked states: that depth, quantisation, and noise of a few per cent protect a text.

Each experiment reads prompts of the trained stand-in off what is leaked, by the search that knows the model, and gives for each
arm which tokens were right, [prompts, tokens]. What is held would show as a difference of arms: a release that is said to protect
should give back clearly fewer tokens than one that is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.claims.stand_ins import lens_of, prompts
from headscan.inversion import exact
from headscan.leaks import Mapped, cache_slice, read_format, read_through_noise
from headscan.leaks.priors import prior_of
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel

__all__ = ["HELD", "Arms", "depth", "quantisation", "small_noise"]

Arms: TypeAlias = dict[str, Float[Tensor, "prompts tokens"]]
"""Of each arm 1 where a token was recovered, else 0."""

PROMPTS, TOKENS = 2, 21


def depth(seed: int, lens: Lens | None = None) -> Arms:
    """States of the first, the middle and the last block, without noise: "deep states leak less"."""
    lens, ids = _given(seed, lens)
    blocks = {"first": 0, "middle": (lens.depth - 1) // 2, "last": lens.depth - 1}
    return {name: _searched(Slice(sites=(f"block.{block}",)).on(lens), ids) for name, block in blocks.items()}


def quantisation(seed: int, lens: Lens | None = None) -> Arms:
    """States of the middle block, and the keys of its cache, in full and in few bits: "rounding hides the text".

    Candidates are rounded as the release was, as whoever has the model would.
    """
    lens, ids = _given(seed, lens)
    middle = (lens.depth - 1) // 2
    states, keys = Slice(sites=(f"block.{middle}",)).on(lens), cache_slice(lens, [middle], "keys")
    found = {"states, full": _searched(states, ids), "keys, full": _searched(keys, ids)}
    for name in ("int8", "int4"):
        form = read_format(name)
        found[f"states, {name}"] = _searched(Mapped(states, form, name), ids)
        found[f"keys, {name}"] = _searched(Mapped(keys, form.each(keys.parts), name), ids)
    return found


def small_noise(seed: int, lens: Lens | None = None) -> Arms:
    """States of the middle block with Gaussian noise of 0, 2 and 5 per cent of their spread: "a little noise is enough".

    The attack is told neither the noise nor a token.
    """
    lens, ids = _given(seed, lens)
    cut, generator = Slice(sites=(f"block.{(lens.depth - 1) // 2}",)).on(lens), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        states = cut.run(ids)
    rms = float(states[:, 1:].flatten(0, 1).var(0, unbiased=False).mean().sqrt())
    prior, found = prior_of("model", lens, []), Arms()
    for share in (0.0, 0.02, 0.05):
        seen = states + share * rms * torch.randn(states.shape, generator=generator)
        read = torch.stack([read_through_noise(cut, one, prior, beam=4)[0] for one in seen])
        found[f"noise {share:.0%}"] = (read == ids).double()
    return found


HELD: dict[str, Callable[[int], Arms]] = {
    "Deep states leak less of a text than shallow ones.": depth,
    "Quantised states and caches protect a text.": quantisation,
    "Noise of a few per cent protects a text.": small_noise,
}
"""What is held, and its experiment."""


def _given(seed: int, lens: Lens | None) -> tuple[Lens, Int[Tensor, "P T"]]:
    """The embedded specimen and pieces of the stories; of another model random tokens."""
    if lens is None:
        return lens_of("specimen"), prompts("specimen", seed, PROMPTS, TOKENS)
    return lens, torch.randint(lens.vocabulary_size, (PROMPTS, TOKENS), generator=torch.Generator().manual_seed(seed))


def _searched(cut: SlicedModel, ids: Int[Tensor, "P T"]) -> Float[Tensor, "P T"]:
    """Which tokens an exact search finds."""
    with torch.no_grad():
        targets = list(cut.run(ids).float())
    return (torch.tensor([one.tokens for one in exact(cut, targets)]) == ids).double()
