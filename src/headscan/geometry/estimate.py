"""What a scan will hold in memory, said before it begins: a bound from widths, not a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headscan.geometry.linearisation import DIRECTIONS
from headscan.geometry.threads import ROOM
from headscan.run.parts import Parts
from headscan.statistics.derivative import SKETCH
from headscan.statistics.influence import pilot_tokens
from headscan.statistics.series import GROUPS as CLUSTERS
from headscan.statistics.sinks import CELLS, GROUPS
from headscan.statistics.site import FINE_BLOCKS

__all__ = ["Memory", "adding", "finishing"]


def adding(tokens: int, width: int) -> float:
    """What adding one batch to one site holds at once, in bytes: at most eight times its vectors in float64."""
    return 8 * 8.0 * tokens * width


def finishing(width: int) -> float:
    """What finishing one site holds at once, beside its statistics, in bytes: at most eight matrices of float64.

    Two clouds (that of all tokens stays to the end) of a scatter and a covariance each; the sums that one is made of, or a
    second moment and what its decomposition works on.
    """
    return 8 * 8.0 * width**2


@dataclass(frozen=True)
class Memory:
    """Bounds in bytes, beside the model and its own forward pass: `sites` by width (how many, each), and what is there
    `once`: the sample, and the largest of a batch in float64, the finishing of sites, and a part on its way to the disk.

    >>> print(Memory.of({"block.0": 4096, "block.1": 4096, "head": 300}, context=128, batch=2048, tokens=4096))
    at most 1.6 GB beside the model: 0.21 GB for each of 2 sites of width 4,096, 0.014 GB for one of width 300, and 1.1 GB once
    """

    sites: Mapping[int, tuple[int, float]]
    once: float

    @classmethod
    def of(
        cls, widths: Mapping[str, int], *, context: int, batch: int, tokens: int | None, measures: int = 7,
        sample: float = 64 * 2**20,
    ) -> Memory:  # fmt: skip
        """For sites of these widths, windows of `context` tokens, batches of so many tokens, a text of so many (None: any)."""
        many = Counter(widths.values())
        widest = max(many)
        work, finish = (
            max(one, min(ROOM, one * len(widths))) for one in (adding(batch, widest), finishing(widest))
        )  # of several sites at once
        once = sample + max(work, finish, 4.0 * max(Parts.PIECE, 8 * widest * (widest // 4)))
        each = {width: (count, _site(width, context, tokens, measures)) for width, count in many.items()}
        return cls(dict(sorted(each.items(), key=lambda item: -item[1][0] * item[1][1])), once)

    @property
    def total(self) -> float:
        """All together."""
        return self.once + sum(count * each for count, each in self.sites.values())

    def __str__(self) -> str:
        parts = [
            f"{each / 1e9:.2g} GB for {f'each of {count} sites' if count > 1 else 'one'} of width {width:,}"
            for width, (count, each) in self.sites.items()
        ]
        return (
            f"at most {self.total / 1e9:.2g} GB beside the model: {', '.join(parts)}, and {self.once / 1e9:.2g} GB once"
        )


def _site(width: int, context: int, tokens: int | None, measures: int) -> float:
    """What one site keeps to the end, and the text's first windows, from which its intervals' derivative is taken."""
    matrix = 5.0 * width**2  # of a Gram matrix in panels
    rows = [matrix] * (len(CELLS) - 1)  # of first tokens and sinks: as they are, or a matrix where that is less
    if tokens is not None:
        windows = tokens // context
        rows = [min(matrix, 8.0 * width * count) for count in (windows, windows, tokens // 2)]
    pilot = 2 * 4.0 * width * max(pilot_tokens(width), context)
    if tokens is not None:
        pilot = min(pilot, 4.0 * width * tokens)
    followed = len(GROUPS) * measures
    columns = followed + len(GROUPS) * (1 + 3 * SKETCH)
    blocks = 2 * FINE_BLOCKS * 8.0 * (2 * width + 4)
    derivative = 8.0 * followed * (2 * width + 4) + 4.0 * width * DIRECTIONS + 12.0 * followed * DIRECTIONS**2
    return matrix + sum(rows) + pilot + blocks + derivative + 2 * 2 * 8.0 * CLUSTERS * columns
