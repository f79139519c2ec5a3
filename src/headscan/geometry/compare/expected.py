"""What a comparison will take in memory and time, said before weights are read; for `--dry-run`."""

from __future__ import annotations

from itertools import combinations

from headscan.geometry.compare.run import moments_bytes
from headscan.geometry.compare.settings import ComparisonSettings
from headscan.run import BadInput, takes
from headscan.states import SourcesLike, given_sources
from headscan.states.expected import Estimate, expected_reader, operations_a_second

__all__ = ["estimate_compare"]


@takes(ComparisonSettings)
def estimate_compare(models: SourcesLike, settings: ComparisonSettings) -> list[Estimate]:
    """What `headscan.compare` will take, as one estimate, without reading weights and without writing anything.

    Raises BadInput as `compare` does for what can be known without the weights.

    >>> import numpy as np
    >>> one, = estimate_compare([np.zeros((900, 16)), np.zeros((900, 8))])
    >>> one.tokens, one.memory > 8 * 16 * 8
    (900, True)
    """
    readers = [expected_reader(one, settings) for one in given_sources(models)]
    if len(readers) < 2:
        raise BadInput("A comparison needs two models or more.")
    widths = [list(reader.widths.values()) for reader in readers]
    counted = [reader.tokens for reader in readers if reader.tokens is not None]
    tokens = min(counted) if len(counted) == len(readers) else None
    forward = sum(reader.forward for reader in readers)
    products = sum(2.0 * sum(one) * sum(two) for one, two in combinations(widths, 2))
    rows = sum(map(sum, widths)) * (settings.sample + 2 * max(reader.batch for reader in readers))
    return [
        Estimate(
            " and ".join(reader.name for reader in readers), tokens, sum(reader.weights for reader in readers),
            moments_bytes(widths) + 8.0 * rows, (forward + 2 * products) * (tokens or 1_000_000) / operations_a_second(),
            note=f"The {settings.draws} draws of each null come on top.",
        )
    ]  # fmt: skip
