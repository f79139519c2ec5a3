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
from headscan_lab.ledger.statement import Observation, Region, Statement, enter

CODES = 1024  # tokens that are told apart
DRAWS = 3  # of the noise
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

    The noise is in units of the mean spread of a feature.
    """
    width = book.shape[1]
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(width, generator=generator)[:features]
    seen = book[:, chosen]
    spread = float(book.std(0).mean())
    hits = []
    for _ in range(DRAWS):
        noisy = seen + noise * spread * torch.randn(seen.shape, generator=generator)
        nearest = torch.cdist(noisy, seen).argmin(1)
        hits.append((nearest == torch.arange(len(seen))).double())
    return torch.stack(hits, 1).numpy()


def _share(kind: str, noise: float, seed: int, features: int = 10**6) -> Measurement:
    book = codes(kind, seed)
    return share_of(f"noise of {noise:g} spreads", [told_apart(book, noise, features, seed)])


def _worse_code(model: str, seed: int) -> Observation:
    require_small(model)
    twin = f"{RANDOM_TWIN}{model}"
    trained = {noise: _share(model, noise, seed) for noise in NOISES}
    untrained = {noise: _share(twin, noise, seed) for noise in NOISES}
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
        book = torch.randn(CODES, 64, generator=generator)
        shares.append(share_of("", [told_apart(book, 2.0, 64, seed + draw)]))
    return difference_of("two Gaussian code books", shares[0], shares[1])


enter(
    Statement(
        id="A11",
        document="article",
        place="Noise on a Discreet Channel",
        statement="Training makes a block's output a worse code for its input token.",
        measured="share of 1,024 tokens found from the first block's output under noise, untrained "
        "less trained",
        counts=Region(0.02, None),
        control="two Gaussian code books of one size",
        turned_by="a difference below 0.02",
        range="noise of 0.5 to 16 spreads of a feature, wherever the untrained or the trained "
        "finds a tenth and not both find all",
        observe=_worse_code,
        planted=_equal_books,
        command="headscan channel MODEL --text TEXT",
    )
)


def _cliff(model: str, seed: int) -> Observation:
    require_small(model)
    width = codes(model, seed).shape[1]
    values = []
    controls = []
    for noise in (0.5, 1.0, 2.0):
        sizes = [max(1, width * part // 16) for part in range(1, 17)]
        shares = [_share(model, noise, seed, size) for size in sizes]
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
    book = torch.randn(CODES, 64, generator=torch.Generator().manual_seed(seed))
    more = share_of("", [told_apart(book, 1.0, 16, seed)])
    fewer = share_of("", [told_apart(book, 1.0, 12, seed)])
    return difference_of("a Gaussian code book, 16 less 12 of 64 features", more, fewer)


enter(
    Statement(
        id="A12",
        document="article",
        place="Noise on a Discreet Channel",
        statement="Recovery falls from all tokens to none at one number of features.",
        measured="steepest fall of the share of tokens found as a sixteenth of the features goes",
        counts=Region(0.8, None),
        control="a Gaussian code book",
        turned_by="a fall below 0.8",
        range="noise of 0.5, 1 and 2 spreads of a feature; features drawn by chance",
        published="Llama-7b: all with 2,202 of 4,096 features, none with 2,201",
        observe=_cliff,
        planted=_smooth,
        command="headscan channel MODEL --text TEXT",
    )
)
