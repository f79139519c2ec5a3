"""How many features of an output are needed to find its tokens again, by which search and from which start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion import Descent, Search, descend, exact
from headscan.inversion.table import share_table
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput

__all__ = ["SEARCHES", "Threshold", "TriedWidth", "WidthAccuracy", "threshold", "width_sweep"]

SEARCHES: dict[str, Descent | None] = {
    "exact": None,
    "adam": Descent(steps=200),
    "zeros": Descent(init="zeros", steps=200),
    "noise": Descent(init="noise", steps=200),
}
"""Name -> how the tokens are looked for: by exact search, or by Adam from a start at the embeddings' scale, from zeros,
or from standard normal noise."""


@dataclass(frozen=True)
class WidthAccuracy:
    """The share of tokens that a search finds from so many features, the first or random ones."""

    width: int
    subset: str
    search: str
    accuracy: float


@dataclass(frozen=True)
class TriedWidth:
    """The share of tokens that were found from so many features."""

    width: int
    accuracy: float


@dataclass(frozen=True)
class Threshold:
    """The fewest features that suffice a search: contiguous ones from `first` on, or random; None: not even all do.

    `tried` has every width that was tried on the way.
    """

    search: str
    subset: str
    first: int
    width: int | None
    tried: list[TriedWidth]


def accuracy(lens: Lens, slice_: Slice, prompts: Int[Tensor, "N T"], search: str | Descent = "exact") -> float:
    """The share of tokens that are found again from what the slice keeps of its output.

    Args:
        lens: the model.
        slice_: with `features` set to what is kept.
        prompts: token ids [N, T].
        search: a name of `SEARCHES`, or a `Descent`.
    """
    if isinstance(search, str) and search not in SEARCHES:
        raise BadInput(f"There is no search '{search}'; there are: {', '.join(SEARCHES)}.")
    settings = SEARCHES[search] if isinstance(search, str) else search
    cut = slice_.on(lens)
    if settings is None and Search().ranked_by(cut) == "table":
        share_table(slice_.but(features=":").on(lens), cut)
    with torch.no_grad():
        target = cut.run(prompts)
    if settings is None:
        tokens = torch.tensor([found.tokens for found in exact(cut, list(target))])
    else:
        tokens = descend(cut, target, prompts.shape[1], settings).tokens.cpu()
    return float((tokens == prompts.cpu()).float().mean())


def width_sweep(
    lens: Lens, slice_: Slice | str, prompts: Tensor | Sequence[Sequence[int]], widths: Sequence[int], *,
    searches: Sequence[str] = ("exact", "adam", "noise"), subsets: Sequence[str] = ("contiguous", "random"), seed: int = 0,
) -> list[WidthAccuracy]:  # fmt: skip
    """Token accuracy against the number of features kept.

    Args:
        lens: the model.
        slice_: a slice of one site, or the site; what of its output is kept is varied.
        prompts: token ids [N, T].
        widths: numbers of features.
        searches: names of `SEARCHES`; that curves of one model differ between them is the point: a threshold of one
            search from one start is no property of the model.
        subsets: "contiguous" (the first features) or "random".
        seed: of random subsets.
    """
    ids, whole = torch.as_tensor(prompts), _slice(slice_)
    found = []
    for width in widths:
        for subset in subsets:
            features = f":{width}" if subset == "contiguous" else f"random({width},{seed})"
            part = whole.but(features=features)
            found += [WidthAccuracy(width, subset, search, accuracy(lens, part, ids, search)) for search in searches]
    return found


def threshold(
    lens: Lens, slice_: Slice | str, prompts: Tensor | Sequence[Sequence[int]], search: str | Descent = "adam", *,
    wanted: float = 1.0, first: int = 0, subset: str = "contiguous", seed: int = 0,
) -> Threshold:  # fmt: skip
    """Bisect the fewest features with which `wanted` of the tokens are found: contiguous from `first` on, or random.

    Bisection takes accuracy to grow with the width; `tried` shows where it did not. None where even all features are
    too few.

    Cost: log2(width) searches.
    """
    ids, whole = torch.as_tensor(prompts), _slice(slice_)
    size = lens.width(whole.sites[0]) - (first if subset == "contiguous" else 0)
    tried: dict[int, float] = {}

    def enough(width: int) -> bool:
        features = f"random({width},{seed})" if subset == "random" else f"{first}:{first + width}"
        tried[width] = accuracy(lens, whole.but(features=features), ids, search)
        return tried[width] >= wanted - 1e-9

    low, high = 0, size + 1  # `high` is enough, or beyond all there is; `low` is not
    if enough(size):
        high = size
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
    return Threshold(
        search if isinstance(search, str) else "descent", subset, first, high if high <= size else None,
        [TriedWidth(width, right) for width, right in sorted(tried.items())],
    )  # fmt: skip


def _slice(given: Slice | str) -> Slice:
    return Slice(sites=(given,)) if isinstance(given, str) else given
