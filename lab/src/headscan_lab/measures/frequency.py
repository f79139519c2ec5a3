"""Rows of an embedding table by how often their token occurs in the text; partition isotropy."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, tables
from headscan.statistics.uncertainty import Bounds, Cells, Floats, bounded, jackknife, normal_reach

WEIGHTS = "a property of the weights alone"
PRODUCTS_AT_ONCE = 2**23
FEW_ROWS = 10  # rows below which a bin's mean has no interval
GROUPS = 16  # of a bin's rows, of which each is left out in turn


def _log_partitions(table: Tensor, directions: Tensor) -> Tensor:
    """Return log Z(c) = log Σ_w exp(c·w) of each direction and of its opposite, [2m].

    Both come from one product. An eigenvector has no sign, and published code takes whichever its
    solver returned (or the rows of the eigenvector matrix, which are no eigenvectors at all). Here
    both ±c count, so that the value does not depend on the solver; and everything stays in log
    space, where nothing overflows.

    Args:
        directions: one a column, [d, m].
    """
    logs = torch.full((2, directions.shape[1]), -torch.inf, dtype=torch.float64)
    step = max(1, PRODUCTS_AT_ONCE // max(1, directions.shape[1]))
    for start in range(0, len(table), step):
        products = table[start : start + step] @ directions
        logs[0] = torch.logaddexp(logs[0], torch.logsumexp(products, dim=0))
        logs[1] = torch.logaddexp(logs[1], torch.logsumexp(products.neg_(), dim=0))
    return logs.flatten()


def partition_isotropy(table: npt.ArrayLike) -> dict[str, float | None]:
    """Return I(W) and I₂ of a table [V, d]: whether Σ_w exp(c·w) depends on the direction c.

    I(W) = min_c Z(c)/max_c Z(c), Z(c) = Σ_w exp(c·w), over the unit eigenvectors c of WᵀW (Mu and
    Viswanath 2018, arXiv:1702.01417, after Arora et al. 2016).

    Keys, each in [0, 1] (1: isotropic) unless said:
        partition: exp(log_partition_range), may round to 0 where the range is large;
        log_partition_range: log min Z − log max Z over both signs of every eigenvector, in nats, ≤
            0;
        partition_spread: I₂ of Wang et al. 2020, sqrt(Σ(Z − Z̄)²/(m·Z̄²)), the relative spread of
            Z; ≥ 0, 0: isotropic.

    All values change with the rows' scale: compare tables of one model, or scale them first. They
    are undefined (None) for a table without rows. Cost O(Vd² + d³).

    >>> round(partition_isotropy(torch.cat([torch.eye(2), -torch.eye(2)]))["partition"], 6)
    1.0
    >>> partition_isotropy([[3.0, 0.0]])["log_partition_range"]  # Z(c) = exp(3), Z(−c) = exp(−3)
    -6.0
    """
    w = torch.as_tensor(table, dtype=torch.float64)
    if not len(w):
        return dict.fromkeys(("partition", "log_partition_range", "partition_spread"))
    _, eigenvectors = torch.linalg.eigh(w.T @ w)
    logs = _log_partitions(w, eigenvectors)
    low = float(logs.min())
    high = float(logs.max())
    ratio = (logs - high).exp()  # Z over its maximum
    spread = ((ratio - ratio.mean()).square().mean()).sqrt() / ratio.mean()
    return {
        "partition": math.exp(low - high),
        "log_partition_range": low - high,
        "partition_spread": float(spread),
    }


def frequency_bins(
    table: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    mean_state: npt.ArrayLike | None = None,
    per_decade: int = 1,
) -> list[Cells]:
    """Return the rows of a table [V, d] in bins of equal width in log₁₀ count.

    Tokens that do not occur have a bin of their own. For each bin, from rare to frequent: `from`
    and `to` (counts, both inclusive), `tokens` (types), `share` of the text, and of its rows
        mean_norm: mean length;
        drift: ‖mean‖/mean length, in [0, 1]: do they share an offset;
        cosine_to_state: mean cosine to `mean_state` [d], the mean hidden state they are multiplied
            with; negative for tokens that are pushed away (None without one);
        average_cosine: over pairs inside the bin, exact (None for one row);
        log_partition_range: of the bin's own rows, in nats, ≤ 0 (see `partition_isotropy`).
    The first four of these have 95 % intervals (NAME_interval) that take the bin's types as the
    sample: normal ones, and for drift and average cosine those of 16 groups of rows left out. Rows
    of norm zero count in norms only. Cost O(Vd²).

    >>> table = [[1.0, 0.0], [0.0, 2.0], [0.0, 4.0]]
    >>> bins = frequency_bins(table, [100, 0, 0], mean_state=[1.0, 0.0])
    >>> [(b["from"], b["to"], b["tokens"], b["mean_norm"], b["cosine_to_state"]) for b in bins]
    [(0, 0, 2, 3.0, 0.0), (100, 999, 1, 1.0, 1.0)]
    """
    rows = np.asarray(table, dtype=np.float64)
    known_counts = np.asarray(counts, dtype=np.int64).ravel()
    missing = max(0, len(rows) - len(known_counts))
    row_counts = np.pad(known_counts, (0, missing))[: len(rows)]
    norms = np.linalg.norm(rows, axis=1)
    direction = None if mean_state is None else _unit(np.asarray(mean_state, dtype=np.float64))
    total = max(1, row_counts.sum())
    bins: list[Cells] = []
    for low, high in pairwise(_edges(per_decade)):
        in_bin = (row_counts >= low) & (row_counts < high)
        if not in_bin.any():
            continue
        cells: Cells = {
            "from": int(low),
            "to": int(high - 1),
            "tokens": int(in_bin.sum()),
            "share": float(row_counts[in_bin].sum() / total),
        }
        bins.append(cells | _bin_geometry(rows[in_bin], norms[in_bin], direction))
    return bins


def _edges(per_decade: int) -> list[int]:
    """Return the least counts of the bins: 0, then equal steps in log₁₀ up to 10^19."""
    exponents = np.arange(0, 19 * per_decade) / per_decade
    least_counts = np.unique(np.ceil(10**exponents).astype(np.int64))
    return [0, *least_counts.tolist()]


def _unit(vector: Floats) -> Floats | None:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else None


def _bin_geometry(rows: Floats, norms: Floats, direction: Floats | None) -> Cells:
    """Return the geometry of a bin's rows [n, d], with intervals."""
    unit = rows[norms > 0] / norms[norms > 0, None]
    n = len(unit)
    total = unit.sum(0)
    cosines = np.zeros(0) if direction is None else unit @ direction
    mean_norm = float(norms.mean())
    drift = float(np.linalg.norm(rows.mean(0)) / mean_norm) if mean_norm > 0 else None
    average_cosine = float((total @ total - n) / (n * (n - 1))) if n > 1 else None
    return {
        "mean_norm": mean_norm,
        "mean_norm_interval": _interval_over_rows(norms, (0.0, None)),
        "drift": drift,
        "cosine_to_state": float(cosines.mean()) if len(cosines) else None,
        "cosine_to_state_interval": _interval_over_rows(cosines, (-1.0, 1.0)),
        "average_cosine": average_cosine,
        **_intervals_over_groups(rows, norms, drift, average_cosine),
        "log_partition_range": partition_isotropy(rows)["log_partition_range"],
    }


def _interval_over_rows(values: Floats, bounds: Bounds) -> list[float] | None:
    if len(values) < FEW_ROWS:
        return None
    mean = float(values.mean())
    reach = normal_reach(values)
    return list(bounded(mean - reach, mean + reach, bounds))


def _intervals_over_groups(
    rows: Floats, norms: Floats, drift: float | None, cosine: float | None
) -> dict[str, list[float] | None]:
    """Return the intervals of drift and average cosine, from groups of rows left out in turn."""
    lengths = _without_each_group(norms)
    if len(rows) < 4 * GROUPS or not lengths.all():
        return {"drift_interval": None, "average_cosine_interval": None}
    weights = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0)
    n = _without_each_group((norms > 0).astype(float))
    totals = _without_each_group(rows * weights[:, None])
    cosines = ((totals**2).sum(1) - n) / (n * (n - 1))
    drifts = np.linalg.norm(_without_each_group(rows), axis=1) / lengths
    sizes = n.mean() * GROUPS / (GROUPS - 1) - n  # unit rows of each group
    interval = partial(jackknife, sizes=sizes, running=False)
    return {
        "drift_interval": interval(drift, drifts.tolist(), bounds=(0.0, 1.0)),
        "average_cosine_interval": interval(cosine, cosines.tolist(), bounds=(-1.0, 1.0)),
    }


def _without_each_group(values: Floats) -> Floats:
    """Return the sums of values [n, ...] without each of GROUPS groups [GROUPS, ...]."""
    sums = np.stack([values[group::GROUPS].sum(0) for group in range(GROUPS)])
    return np.asarray(sums.sum(0) - sums)


class FrequencyProbe(Probe):
    """Rows of the embedding tables by the frequency of their tokens."""

    words = ProbeWords(
        name="frequency",
        title="Embedding rows by frequency",
        group="zipf",
        sentence="Do rare tokens live elsewhere? Rows of the embedding tables by how often their "
        "token occurs in this text.",
        literature="Gao et al. 2019, arXiv:1907.12009; Biś et al. 2021",
        position="Tables and counts know no position; the mean state is that of all positions "
        "counted (--skip-first 1 leaves the first out).",
        docs="zipf.md",
        function="headscan_lab.measures.frequency.frequency_bins",
        order=10,
        fields={
            "from": Field(
                "from count",
                "Least count of the bin.",
                range=(0, None),
                interval="an edge of the bin",
            ),
            "to": Field(
                "to count",
                "Largest count of the bin.",
                range=(0, None),
                interval="an edge of the bin",
            ),
            "tokens": Field("types", "Rows in the bin.", range=(1, None), interval="a count"),
            "share": Field(
                "share of the text",
                "Of all tokens of the text.",
                range=(0, 1),
                interval="a sum of counts",
                percent=True,
            ),
            "mean_norm": Field(
                "mean norm",
                "Mean length of the rows.",
                range=(0, None),
                interval="fewer than ten rows",
            ),
            "drift": Field(
                "drift",
                "Norm of the mean row over the mean norm.",
                "‖Σw‖/Σ‖w‖",
                range=(0, 1),
                undefined="all rows are zero",
                interval="fewer than 64 rows",
            ),
            "cosine_to_state": Field(
                "cosine to mean state",
                "Mean cosine to the mean hidden state that the head reads; negative: pushed away.",
                "mean cos(w, h̄)",
                range=(-1, 1),
                undefined="the table and the last site differ in width",
                interval="fewer than ten rows",
            ),
            "average_cosine": Field(
                "average cosine",
                "Over pairs inside the bin.",
                "(‖Σŵ‖² − n)/(n(n − 1))",
                range=(-1, 1),
                undefined="one row only",
                interval="fewer than 64 rows",
            ),
            "log_partition_range": Field(
                "log I(W)",
                "Partition isotropy of the bin's rows, nats.",
                range=(None, 0),
                interval=WEIGHTS,
            ),
        },
    )

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        last = data.clouds.get(setup.last)
        for name, table in tables(setup).items():
            fits = last is not None and last.width == table.shape[1]
            mean = last.mean if last is not None and fits else None
            for cells in frequency_bins(table, data.counts, mean_state=mean):
                rows.append({"site": name, **cells})
        return rows


class PartitionProbe(Probe):
    """Partition isotropy of the embedding tables."""

    words = ProbeWords(
        name="partition",
        title="Partition isotropy",
        group="head",
        sentence="Does Σ exp(c·w) over the vocabulary depend on the direction c? I(W) with both "
        "signs of every eigenvector.",
        literature="Mu and Viswanath 2018, arXiv:1702.01417; Wang et al. 2020",
        position="Tables of weights know no position.",
        docs="partition.md",
        function="headscan_lab.measures.frequency.partition_isotropy",
        order=9,
        fields={
            "partition": Field(
                "I(W)",
                "min Z/max Z over ±eigenvectors; 1 is isotropic.",
                "min Z(c)/max Z(c)",
                range=(0, 1),
                interval=WEIGHTS,
            ),
            "log_partition_range": Field(
                "log I(W)",
                "The same in nats, which does not round to 0.",
                "log min Z − log max Z",
                range=(None, 0),
                unit="nats",
                interval=WEIGHTS,
            ),
            "partition_spread": Field(
                "I₂(W)",
                "Relative spread of Z; 0 is isotropic.",
                "sd(Z)/mean(Z)",
                range=(0, None),
                interval=WEIGHTS,
            ),
        },
    )

    def rows(self, setup: ProbeSetup, _data: ProbeData) -> list[Cells]:
        return [
            {"site": name, **partition_isotropy(table)} for name, table in tables(setup).items()
        ]
