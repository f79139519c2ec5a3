"""The picture of a scan: its sampled tokens, their coordinates at each site, and which of them are
nearest to each other there.
"""

import numpy as np
import numpy.typing as npt
import torch

from headscan.run.result import Arrays
from headscan.scanner.accumulate import Accumulation
from headscan.scanner.colouring import colouring
from headscan.scanner.result import Picture
from headscan.states import VectorSource
from headscan.statistics import Cloud
from headscan.statistics.sinks import sinks
from headscan.statistics.uncertainty import Floats

COMPARED_TOKENS = 2000
"""Neighbours are found among so many sampled tokens."""

NEIGHBOURS = 10
"""The neighbours of each token that are stored."""

EXCLUDED = -2
"""Stands for the cosine of a vector with itself, and with vectors that have no direction."""


def nearest(
    states: torch.Tensor, ids: torch.Tensor
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """Return the nearest neighbours of each vector by cosine in all its dimensions.

    Args:
        states: [k, d].
        ids: [k], the token of each. Of several vectors with one id the nearest alone is a
            neighbour, so that ten times the same word does not fill the list; a vector is never its
            own neighbour.

    Returns:
        Their rows [k, 10] and cosines [k, 10], the nearest first; −1 and NaN where there are fewer,
        and of vectors that are zero or not finite. Costs k² d multiplications: 20 ms of one core
        for 600 vectors of 768 dimensions.

    >>> states = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]])
    >>> nearest(states, torch.tensor([5, 5, 7]))[0][:, :2].tolist()
    [[1, 2], [0, 2], [1, -1]]
    """
    count = len(states)
    rows = np.full((count, NEIGHBOURS), -1, np.int16)
    cosines = np.full((count, NEIGHBOURS), np.nan, np.float32)
    norms = states.float().norm(dim=1, keepdim=True)
    has_direction = (torch.isfinite(norms) & (norms > 0))[:, 0].numpy()
    if has_direction.sum() < 2:
        return rows, cosines

    directions = (states.float() / norms).numpy()
    directions[~has_direction] = 0
    all_cosines = directions @ directions.T
    all_cosines[:, ~has_direction] = EXCLUDED
    np.fill_diagonal(all_cosines, EXCLUDED)
    row_of_token, cosine_of_token = _nearest_of_each_token(all_cosines, ids.numpy())

    best = _largest(cosine_of_token, NEIGHBOURS)
    best_cosines = np.take_along_axis(cosine_of_token, best, axis=1)
    best_rows = np.take_along_axis(row_of_token, best, axis=1)
    valid = (best_cosines > EXCLUDED) & has_direction[:, None]
    neighbours = best.shape[1]
    rows[:, :neighbours] = np.where(valid, best_rows, -1)
    cosines[:, :neighbours] = np.where(valid, np.clip(best_cosines, -1, 1), np.nan)
    return rows, cosines


def _largest(values: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    """Return the columns of the largest values of each row [k, count], largest first.

    Of equal ones the first comes first, among the 2·count largest.
    """
    candidates = np.arange(values.shape[1])[None].repeat(len(values), 0)
    if values.shape[1] > 2 * count:
        candidates = np.sort(np.argpartition(-values, 2 * count, axis=1)[:, : 2 * count], axis=1)
    largest = np.take_along_axis(values, candidates, axis=1)
    order = np.argsort(-largest, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(candidates, order, axis=1)


def _nearest_of_each_token(
    cosines: Floats, ids: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """Return the nearest vector of every token to each vector: rows and cosines [k, tokens]."""
    count = len(cosines)
    tokens = np.unique(ids, return_inverse=True)[1]
    if tokens.max() + 1 == count:  # every vector is of a token of its own
        rows = np.argsort(tokens).astype(np.int16)
        return np.broadcast_to(rows, (count, count)), cosines[:, rows].astype(np.float32)
    order = np.argsort(tokens, kind="stable")
    starts = np.flatnonzero(np.diff(tokens[order])) + 1
    shape = (count, tokens.max() + 1)
    best_cosines = np.empty(shape, np.float32)
    best_rows = np.empty(shape, np.int16)
    for token, members in enumerate(np.split(order, starts)):
        best = cosines[:, members].argmax(axis=1)
        best_rows[:, token] = members[best]
        best_cosines[:, token] = cosines[np.arange(count), members[best]]
    return best_rows, best_cosines


def coordinates(
    model: str, site: str, cloud: Cloud, accumulated: Accumulation, size: int, *, words: bool
) -> Arrays:
    """Return the arrays of a site's picture by their names in the result.

    They are the coordinates of the sampled tokens on the top three directions of the tokens that
    are not sinks (`cloud`), each turned so that its mean is positive; those directions' shares of
    the energy; which sampled tokens are sinks; and the nearest neighbours of each.

    Args:
        size: tokens of the picture.
        words: whether token ids are known.
    """
    states = accumulated.sample.columns.get(f"state.{site}")
    if states is None or not cloud.count:
        return {}
    directions = cloud.strongest(3)
    signs = np.where(cloud.mean @ directions < 0, -1.0, 1.0)
    directions = directions * signs
    energy = cloud.energies.sum()
    shares = cloud.energies[:3] / energy if energy > 0 else np.zeros(3)
    # Where measures are taken of the sample it is larger; its first tokens are a sample of the
    # smaller size.
    shown = states[:size]
    ids = accumulated.sample.columns["id"][:size] if words else torch.arange(len(shown))
    rows, cosines = nearest(shown[:COMPARED_TOKENS], ids[:COMPARED_TOKENS])
    is_sink = sinks(shown[None])[0].numpy() if len(shown) else np.zeros(0, dtype=bool)
    name = f"{model}/{site}"
    return {
        f"picture_near/{name}": rows,
        f"picture_near_cosine/{name}": cosines,
        f"picture/{name}": (shown.double().numpy() @ directions).astype(np.float32),
        f"picture_share/{name}": shares,
        f"picture_sink/{name}": is_sink,
    }


def picture(
    source: VectorSource, accumulated: Accumulation, size: int, colour: str | None = None
) -> Picture:
    """Return the sampled tokens with the text around them; vectors without ids by their numbers.

    `colour`: the column of a table that colours them.
    """
    sample = accumulated.sample
    if not len(sample):
        return Picture()
    places = sample.places[:size].tolist()
    colour_values = None if colour is None else colouring(source, colour, places)
    positions = [position for _, position in places]
    if not source.vocabulary:
        names = []
        for window, position in places:
            names.append(f"vector {source.read(window) + position:,}")
        count = len(places)
        return Picture(
            tokens=names,
            before=[""] * count,
            after=[""] * count,
            frequency=[0] * count,
            id=[-1] * count,
            position=positions,
            colour=colour_values,
        )
    ids = sample.columns["id"][:size].tolist()
    contexts = sample.columns["context"][:size]
    middle = contexts.shape[1] // 2
    return Picture(
        tokens=source.words(ids),
        before=[_joined_words(source, context[:middle]) for context in contexts],
        after=[_joined_words(source, context[middle + 1 :]) for context in contexts],
        frequency=[int(accumulated.counts.counts[token]) for token in ids],
        id=ids,
        position=positions,
        colour=colour_values,
    )


def _joined_words(source: VectorSource, ids: torch.Tensor) -> str:
    """Return token ids as text; −1, beyond the window's ends, is left out."""
    return "".join(source.words([token for token in ids.tolist() if token >= 0]))
