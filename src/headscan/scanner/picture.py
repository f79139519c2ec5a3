"""The picture of a scan: its sampled tokens, where each site puts them, and which of them are
nearest to each other there.
"""

import numpy as np
import numpy.typing as npt
import torch

from headscan.run.result import Arrays
from headscan.scanner.accumulate import Accumulation
from headscan.scanner.result import Picture
from headscan.states import VectorSource
from headscan.statistics import Cloud
from headscan.statistics.sinks import sinks

NEAR = 2000
NEIGHBOURS = 10
"""Of how many sampled tokens the neighbours are kept, and how many of each."""


def nearest(
    states: torch.Tensor, ids: torch.Tensor
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """The nearest neighbours of each vector by cosine in all its dimensions, the nearest first.

    Args:
        states: [k, d]; ids: [k], what each stands for. Of several with one id the nearest alone is
            a neighbour, so that ten times the same word does not fill the list; a vector is never
            its own.

    Returns:
        Their rows [k, 10] and cosines [k, 10]; −1 and NaN where there are fewer, and of vectors
        that are zero or not finite. Costs k² d multiplications: 20 ms of one core for 600 vectors
        of 768 dimensions.

    >>> states = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]])
    >>> nearest(states, torch.tensor([5, 5, 7]))[0][:, :2].tolist()
    [[1, 2], [0, 2], [1, -1]]
    """
    count = len(states)
    kinds = np.unique(ids.numpy(), return_inverse=True)[1]
    near = np.full((count, NEIGHBOURS), -1, np.int16)
    cosines = np.full((count, NEIGHBOURS), np.nan, np.float32)
    lengths = states.float().norm(dim=1, keepdim=True)
    known = (torch.isfinite(lengths) & (lengths > 0))[:, 0].numpy()
    if known.sum() < 2:
        return near, cosines
    unit = (states.float() / lengths).numpy()
    unit[~known] = 0
    every = unit @ unit.T
    every[:, ~known] = -2
    np.fill_diagonal(every, -2)
    order = np.argsort(kinds, kind="stable")
    of_kind = np.empty((count, kinds.max() + 1), np.float32)
    which = np.empty(of_kind.shape, np.int16)
    for kind, members in enumerate(np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)):
        found = every[:, members].argmax(axis=1)
        which[:, kind], of_kind[:, kind] = members[found], every[np.arange(count), members[found]]
    best = np.argsort(-of_kind, axis=1, kind="stable")[:, :NEIGHBOURS]
    there = np.take_along_axis(of_kind, best, axis=1)
    right = (there > -2) & known[:, None]
    near[:, : best.shape[1]] = np.where(right, np.take_along_axis(which, best, axis=1), -1)
    cosines[:, : best.shape[1]] = np.where(right, np.clip(there, -1, 1), np.nan)
    return near, cosines


def coordinates(
    model: str, site: str, cloud: Cloud, accumulated: Accumulation, size: int, *, words: bool
) -> Arrays:
    """Coordinates of the sampled tokens on the top three directions of the site's tokens that are
    no sinks, each turned so that its mean is positive; those directions' shares of the energy; and
    which of the sampled are sinks among them.
    """
    states = accumulated.sample.columns.get(f"state.{site}")
    if states is None or not cloud.count:
        return {}
    directions = cloud.strongest(3)
    directions = directions * np.where(cloud.mean @ directions < 0, -1.0, 1.0)
    total = cloud.energies.sum()
    # The sample may be larger where measures are taken of it; its first tokens are a sample of the
    # smaller size.
    shown = states[:size]
    ids = accumulated.sample.columns["id"][:size] if words else torch.arange(len(shown))
    near, cosines = nearest(shown[:NEAR], ids[:NEAR])
    return {
        f"picture_near/{model}/{site}": near,
        f"picture_near_cosine/{model}/{site}": cosines,
        f"picture/{model}/{site}": (shown.double().numpy() @ directions).astype(np.float32),
        f"picture_share/{model}/{site}": cloud.energies[:3] / total if total > 0 else np.zeros(3),
        f"picture_sink/{model}/{site}": sinks(shown[None])[0].numpy()
        if len(shown)
        else np.zeros(0, dtype=bool),
    }


def picture(source: VectorSource, accumulated: Accumulation, size: int) -> Picture:
    """The sampled tokens with their neighbours, as people can read them; vectors without ids by
    their numbers.
    """
    sample = accumulated.sample
    if not len(sample):
        return Picture()
    places = sample.places[:size].tolist()
    position = [place for _, place in places]
    if not source.vocabulary:
        names = [f"vector {window * source.context + place:,}" for window, place in places]
        nothing = [""] * len(places)
        return Picture(names, nothing, nothing, [0] * len(places), [-1] * len(places), position)
    ids = sample.columns["id"][:size].tolist()
    contexts = sample.columns["context"][:size]
    middle = contexts.shape[1] // 2

    def words(row: torch.Tensor) -> str:
        return "".join(source.words([i for i in row.tolist() if i >= 0]))

    before, after = (
        [words(row) for row in side] for side in (contexts[:, :middle], contexts[:, middle + 1 :])
    )
    return Picture(
        source.words(ids),
        before,
        after,
        [int(accumulated.counts.counts[i]) for i in ids],
        ids,
        position,
    )
