"""How many features of an output are needed to find its tokens again, by which search and from which start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.inversion import Descent, descend, exact
from headscan.model import Lens
from headscan.model.slicing import Slice

__all__ = ["Threshold", "threshold", "width_sweep"]

SEARCHES: dict[str, Descent | None] = {
    "exact": None,
    "adam": Descent(steps=200),
    "zeros": Descent(init="zeros", steps=200),
    "noise": Descent(init="noise", steps=200),
}
"""Name -> how the tokens are looked for: by exact search, or by Adam from a start at the embeddings' scale, from zeros,
or from standard normal noise."""


@dataclass(frozen=True)
class Threshold:
    """The fewest features that reach an accuracy, and every width that was tried on the way: {width: accuracy}."""

    width: int | None
    tried: dict[int, float]


def accuracy(lens: Lens, slice_: Slice, prompts: Tensor, search: str | Descent = "exact") -> float:
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
    with torch.no_grad():
        target = cut.run(prompts)
    if settings is None:
        tokens = torch.tensor([found.tokens for found in exact(cut, list(target))])
    else:
        tokens = descend(cut, target, prompts.shape[1], settings).tokens.cpu()
    return float((tokens == prompts.cpu()).float().mean())


def width_sweep(
    lens: Lens, site: str, prompts: Tensor | Sequence[Sequence[int]], widths: Sequence[int], *,
    searches: Sequence[str] = ("exact", "adam", "noise"), subsets: Sequence[str] = ("contiguous", "random"),
    seed: int = 0, **cut: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Token accuracy against the number of features kept.

    Args:
        lens: the model.
        site: whose output is kept in part.
        prompts: token ids [N, T].
        widths: numbers of features.
        searches: names of `SEARCHES`; that curves of one model differ between them is the point: a threshold of one
            search from one start is no property of the model.
        subsets: "contiguous" (the first features) or "random".
        seed: of random subsets.
        cut: further attributes of the slice, such as only="attention".

    Returns:
        a list of {width, subset, search, accuracy}.
    """
    ids = torch.as_tensor(prompts)
    found = []
    for width in widths:
        for subset in subsets:
            features = f":{width}" if subset == "contiguous" else f"random({width},{seed})"
            part = Slice(sites=(site,), features=features, **cut)
            for search in searches:
                right = accuracy(lens, part, ids, search)
                found.append({"width": width, "subset": subset, "search": search, "accuracy": right})
    return found


def threshold(
    lens: Lens, site: str, prompts: Tensor | Sequence[Sequence[int]], search: str | Descent = "adam", *,
    wanted: float = 1.0, first: int = 0, subset: str = "contiguous", seed: int = 0, **cut: Any,
) -> Threshold:  # fmt: skip
    """Bisect the fewest features with which `wanted` of the tokens are found: contiguous from `first` on, or random.

    Bisection takes accuracy to grow with the width; `tried` shows where it did not. None where even all features are
    too few.

    Cost: log2(width) searches.
    """
    ids = torch.as_tensor(prompts)
    size = lens.width(site) - (first if subset == "contiguous" else 0)
    tried: dict[int, float] = {}

    def enough(width: int) -> bool:
        features = f"random({width},{seed})" if subset == "random" else f"{first}:{first + width}"
        part = Slice(sites=(site,), features=features, **cut)
        tried[width] = accuracy(lens, part, ids, search)
        return tried[width] >= wanted - 1e-9

    if not enough(size):
        return Threshold(None, tried)
    low, high = 0, size  # `high` is enough, `low` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Threshold(high, dict(sorted(tried.items())))
