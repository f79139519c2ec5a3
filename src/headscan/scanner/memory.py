"""The memory that a scan will hold, bounded from the widths of its sites before it begins."""

from collections.abc import Sequence

from headscan.run import Parts
from headscan.statistics.clusters import CLUSTERS, KINDS, sample_tokens
from headscan.statistics.gram import waiting_rows
from headscan.statistics.parallel import ROOM
from headscan.statistics.sinks import CELLS
from headscan.statistics.site import FINE_BLOCKS

FLOAT64 = 8.0
FLOAT32 = 4.0

GRAM_BYTES = 5.0
"""Bytes of an entry of a second moment: a Gram matrix in panels."""

LENGTHS_BYTES = 2**30
"""The sums at shorter lengths of the text, which the last block has, may take so many bytes."""


def finishing(width: int, tokens: int | None = None) -> float:
    """Return the bytes that finishing a site holds beside its statistics: eight float64 matrices.

    There are at most two clouds, each with its covariance and its decomposition (a matrix, and a
    reflection where the mean is far away); besides, the sums that the second one is made of, or
    the working memory of its decomposition. Fewer `tokens` than dimensions are kept as they are,
    with their products. Only where such few vectors lie far from the origin for their spread (3,000
    times) whole matrices are needed all the same.
    """
    rows = width if tokens is None else min(width, tokens)
    return 8 * FLOAT64 * rows * width


def affordable_lengths(width: int) -> int:
    """Return at how many lengths of the text the last block's numbers are known.

    The lengths are n, n/2, n/4 and n/8 tokens, as long as the sums have room.

    >>> affordable_lengths(8192), affordable_lengths(12288)
    (4, 2)
    """
    return 1 + min(3, int(LENGTHS_BYTES // (5 * width**2)))


def memory_bound(widths: Sequence[int], *, context: int, batch: int, tokens: int | None) -> float:
    """Return the most bytes that a scan holds beside the model and its own forward pass.

    It is the sum of what each site keeps; and, once, of the sample and the largest of: a batch in
    float64, the finishing of sites (as many at once as have room), a part on its way to the disk.

    Args:
        widths: of the sites.
        context: tokens of a window.
        batch: tokens of a batch.
        tokens: of the text; None for a text of any length.

    >>> round(memory_bound([4096, 4096, 300], context=128, batch=2048, tokens=4096) / 1e9, 1)
    1.7
    """
    widest = max(widths)
    adding = 8 * FLOAT64 * batch * widest
    finishing_one = finishing(widest, tokens)
    finishing_several = min(ROOM, finishing_one * len(widths))
    storing = FLOAT32 * max(Parts.PIECE, 8 * widest * (widest // 4))
    total = 64 * 2**20 + max(adding, finishing_one, finishing_several, storing)

    # The widest site may be the last block, which keeps sums at several lengths of the text.
    *narrower, last = sorted(widths)
    total += sum(_site_bytes(width, context, tokens, lengths=1) for width in narrower)
    return total + _site_bytes(last, context, tokens, lengths=affordable_lengths(last))


def _site_bytes(width: int, context: int, tokens: int | None, *, lengths: int) -> float:
    """Return what a site keeps to the end: second moments, sums for its intervals, its sample."""
    matrix = GRAM_BYTES * width**2
    ordinary = lengths * matrix
    # Vectors of first tokens (at each length) and of sinks: rows, or a matrix where that is less,
    # and the rows that wait for it.
    few = matrix + FLOAT64 * width * waiting_rows(width)
    first_tokens = lengths * few
    first_tokens_of_blocks = few
    sinks = few
    sample = sample_tokens(width)
    if tokens is not None:
        windows = tokens // context
        vector = FLOAT64 * width
        ordinary = min(ordinary, vector * tokens)
        first_tokens = min(first_tokens, vector * windows)
        first_tokens_of_blocks = min(first_tokens_of_blocks, vector * windows)
        sinks = min(sinks, vector * (tokens // 2))
        sample = min(sample, tokens)

    vector_sums = FLOAT64 * (2 * width + 4)
    blocks = 2 * FINE_BLOCKS * vector_sums
    clusters = len(CELLS) * len(KINDS) * CLUSTERS * vector_sums
    moments = ordinary + first_tokens + first_tokens_of_blocks + sinks
    return moments + blocks + clusters + 3 * FLOAT32 * width * sample
