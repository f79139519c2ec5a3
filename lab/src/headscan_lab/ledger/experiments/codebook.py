"""Statements on how many features, and how much noise, a block's output needs to give a token."""

from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from headscan.model.slicing import Slice
from headscan.run import BadInput
from headscan_lab.ledger.measurement import Measurement, difference_of, exactly, share_of
from headscan_lab.ledger.models import RANDOM_TWIN, lens_of, require_small
from headscan_lab.ledger.statement import Observation, enter_experiment

CODES = 4096  # tokens that are told apart
FEWER_CODES = 1024  # where the features that are given vary, too
TRIALS = 4096  # draws of the noise, over all codes
NOISES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # in spreads of a feature


@cache
def codes(kind: str, seed: int) -> Tensor:
    """Return the outputs [codes, d] of the first block for single tokens, drawn with a seed."""
    lens = lens_of(kind, seed)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(lens.vocabulary_size, generator=generator)[:CODES]
    return Slice().on(lens).run(ids[:, None])[:, 0].float()


def told_apart(book: Tensor, noise: float, features: int, seed: int) -> np.ndarray:
    """Return which codes are found again [codes, draws] from some features with Gaussian noise.

    The noise is in units of the mean spread of a feature. A small book has more draws.
    """
    width = book.shape[1]
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(width, generator=generator)[:features]
    seen = book[:, chosen]
    spread = float(book.std(0).mean())
    hits = []
    for _ in range(max(4, TRIALS // len(book))):
        noisy = seen + noise * spread * torch.randn(seen.shape, generator=generator)
        nearest = torch.cdist(noisy, seen).argmin(1)
        hits.append((nearest == torch.arange(len(seen))).double())
    return torch.stack(hits, 1).numpy()


def _share(book: Tensor, noise: float, seed: int, features: int = 10**6) -> Measurement:
    return share_of(f"noise of {noise:g} spreads", [told_apart(book, noise, features, seed)])


def _worse_code(model: str, seed: int) -> Observation:
    require_small(model)
    book = codes(model, seed)
    trained = {noise: _share(book, noise, seed) for noise in NOISES}
    book = codes(f"{RANDOM_TWIN}{model}", seed)
    untrained = {noise: _share(book, noise, seed) for noise in NOISES}
    values = []
    for noise in NOISES:
        # Where both find all, or both next to nothing, the noise says nothing.
        informative = max(trained[noise].value, untrained[noise].value)
        ceiling = min(trained[noise].value, untrained[noise].value)
        if informative > 0.1 and ceiling < 0.95:
            name = f"untrained less trained, noise of {noise:g} spreads"
            values.append(difference_of(name, untrained[noise], trained[noise]))
    if not values:
        raise BadInput(f"No noise tells the codes of {lens_of(model).name} apart.")
    return Observation(values=values, controls=[*trained.values()])


def _equal_books(seed: int) -> Measurement:
    generator = torch.Generator().manual_seed(seed)
    shares = []
    for draw in range(2):
        book = torch.randn(FEWER_CODES, 64, generator=generator)
        shares.append(share_of("", [told_apart(book, 2.0, 64, seed + draw)]))
    return difference_of("two Gaussian code books", shares[0], shares[1])


enter_experiment("A11", _worse_code, _equal_books)


def _cliff(model: str, seed: int) -> Observation:
    require_small(model)
    book = codes(model, seed)[:FEWER_CODES]
    width = book.shape[1]
    values = []
    controls = []
    for noise in (0.5, 1.0, 2.0):
        sizes = [max(1, width * part // 16) for part in range(1, 17)]
        shares = [_share(book, noise, seed, size) for size in sizes]
        falls = [difference_of("", more, fewer) for fewer, more in pairwise(shares)]
        steepest = max(falls, key=lambda fall: fall.value)
        values.append(
            Measurement(
                name=f"steepest fall, noise of {noise:g} spreads",
                value=steepest.value,
                interval=steepest.interval,
            )
        )
        half = next(
            (size for size, share in zip(sizes, shares, strict=True) if share.value >= 0.5), width
        )
        name = f"share of the features at which half is found, noise of {noise:g}"
        controls.append(exactly(name, half / width, unit="share of features"))
    return Observation(values=values, controls=controls)


def _smooth(seed: int) -> Measurement:
    """Return the fall of a Gaussian code book between 12 and 16 of 64 features."""
    book = torch.randn(FEWER_CODES, 64, generator=torch.Generator().manual_seed(seed))
    more = share_of("", [told_apart(book, 1.0, 16, seed)])
    fewer = share_of("", [told_apart(book, 1.0, 12, seed)])
    return difference_of("a Gaussian code book, 16 less 12 of 64 features", more, fewer)


enter_experiment("A12", _cliff, _smooth)
