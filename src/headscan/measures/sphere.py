"""The probes `sphere` and `hubness`: how the directions fill the sphere, and which are near to
many.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import hyp0f1, ive
from torch import Tensor
from torch.nn.functional import normalize

from headscan.measures.dimension import find_neighbours
from headscan.measures.measure import Field, ProbeWords
from headscan.measures.pairs import PairSums
from headscan.measures.probe import (
    Probe,
    ProbeData,
    ProbeSetup,
    over_blocks,
    sampled_rows,
    tally_row,
)
from headscan.statistics import Accumulator, FollowTally, SiteBatch, Tally
from headscan.statistics.uncertainty import Cells

UNDER_12 = "no more than eleven sampled vectors"
NO_NEXT = "the site's width is not the embedding's, or no token has a successor"


def uniformity(rows: npt.ArrayLike, *, t: float = 2.0, block_bytes: int = 2**26) -> float | None:
    """Return log of the mean over all ordered pairs of distinct rows of exp(−t‖x − y‖²), exact.

    Rows are scaled to length 1. In [floor, 0]: 0 when all directions are one, near
    `uniformity_floor(d, t)` when they fill the sphere (a little below it for few rows, since the
    floor is an expectation). Rows of norm zero are left out; None for fewer than two others.
    Computed as −2t + log mean exp(2t·cos), in blocks: cost O(n²d), memory O(block).

    >>> round(uniformity([[1.0, 0.0], [-2.0, 0.0]]), 6)      # squared distance 4, t = 2
    -8.0
    """
    x = torch.as_tensor(np.asarray(rows, dtype=np.float64))
    lengths = torch.linalg.vector_norm(x, dim=1)
    u = x[lengths > 0] / lengths[lengths > 0, None]
    n = len(u)
    if n < 2:
        return None
    step = max(1, block_bytes // (8 * n))
    total = -math.inf
    for start in range(0, n, step):
        cosines = u[start : start + step] @ u.T
        block_rows = torch.arange(len(cosines))
        cosines[block_rows, start + block_rows] = -torch.inf
        block_log = float(torch.logsumexp(2 * t * cosines.flatten(), 0))
        total = float(np.logaddexp(total, block_log))
    return _uniformity_of(total, n, t)


def _uniformity_of(log_sum: float, n: float, t: float) -> float:
    """Return the uniformity from log Σ exp(2t·cos) over the ordered pairs of n rows."""
    return min(0.0, log_sum - math.log(n * (n - 1)) - 2 * t)


def uniformity_by_block(
    rows: npt.ArrayLike, blocks: npt.ArrayLike, first: npt.ArrayLike, *, t: float = 2.0
) -> Cells:
    """Return `uniformity` of a sample [n, d] with its 95 % interval over blocks of text, with and
    without position 0.

    `blocks` [n] says which block a row is from, `first` [n] whether it stood at position 0.
    exp(−t‖x − y‖²) is added up for each pair of groups once; what remains without a block, or
    without position 0, is a sum of some of these. Keys `uniformity`, `uniformity_interval`, and
    both with `_without_first`. Cost O(n²d), half the products of `uniformity`.

    >>> rows = np.random.default_rng(0).standard_normal((60, 3))
    >>> cells = uniformity_by_block(rows, np.arange(60) % 4, np.arange(60) < 5)
    >>> round(cells["uniformity"], 9) == round(uniformity(rows), 9)
    True
    >>> round(cells["uniformity_without_first"], 9) == round(uniformity(rows[5:]), 9)
    True
    """
    x = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(x, axis=1)
    nonzero = lengths > 0
    labels = 2 * np.asarray(blocks) + np.asarray(first, dtype=bool)
    groups, inverse = np.unique(labels[nonzero], return_inverse=True)
    u = x[nonzero] / lengths[nonzero, None]
    members = [torch.from_numpy(u[inverse == g]) for g in range(len(groups))]
    sizes = np.array([len(member) for member in members], dtype=float)
    logs = np.full((len(groups), len(groups)), -np.inf)
    for a in range(len(members)):
        for b in range(a, len(members)):
            cosines = members[a] @ members[b].T
            if a == b:
                cosines.fill_diagonal_(-torch.inf)
            log_sum = float(torch.logsumexp(2 * t * cosines.flatten(), 0))
            logs[a, b] = log_sum
            logs[b, a] = log_sum

    def value(selected: npt.NDArray[np.bool_]) -> float | None:
        n = sizes[selected].sum()
        if n < 2:
            return None
        total = float(np.logaddexp.reduce(logs[np.ix_(selected, selected)], axis=None))
        return _uniformity_of(total, n, t)

    return over_blocks("uniformity", groups, sizes, (-4 * t, 0.0), value)


def uniformity_floor(width: int, *, t: float = 2.0) -> float:
    """Return the limit of `uniformity` for uniform directions on the sphere: −2t + log ₀F₁(; d/2;
    t²).

    E exp(2t·cos θ) of a uniform direction is Γ(ν + 1)·I_ν(2t)/tᵛ with ν = d/2 − 1, which is ₀F₁(;
    d/2; t²). One dimension has two directions only: ₀F₁(; 1/2; t²) = cosh 2t, as it must be.

    >>> round(uniformity_floor(768), 4)
    -3.9896
    >>> round(uniformity_floor(1), 4) == round(math.log(math.cosh(4)) - 4, 4)
    True
    """
    nu = width / 2 - 1
    value = float(hyp0f1(width / 2, t * t))
    if not math.isfinite(value):  # large t: through the scaled Bessel function
        return float(np.log(ive(nu, 2 * t)) + math.lgamma(nu + 1) - nu * math.log(t))
    return math.log(value) - 2 * t


class SphereProbe(Probe):
    """The uniformity of the directions, and the alignment of states to the next token."""

    words = ProbeWords(
        name="sphere",
        title="Alignment and uniformity",
        group="alignment",
        sentence="How evenly do directions fill the unit sphere (on the sample), and how near is "
        "a state to the embedding of the token that follows (on all tokens; beside it "
        "mismatched pairs)?",
        literature="Wang and Isola 2020, arXiv:2005.10242",
        position="Both numbers also without position 0 of each window.",
        docs="sphere.md",
        function="headscan.measures.sphere.uniformity",
        sample=2000,
        order=5,
        fields={
            "uniformity": Field(
                "uniformity",
                "log of the mean of exp(−2‖x − y‖²) over all pairs of sampled directions: 0 for a "
                "needle.",
                "log E exp(−t‖x − y‖²), t = 2",
                range=(-8, 0),
                unit="nats",
                undefined="fewer than two vectors that are not zero",
                first=True,
                plotted=True,
            ),
            "uniformity_floor": Field(
                "its floor",
                "The same for directions spread evenly over the sphere.",
                "−2t + log ₀F₁(; d/2; t²)",
                range=(-8, 0),
                unit="nats",
                interval="known in closed form",
            ),
            "next_alignment": Field(
                "alignment to next",
                "Mean squared distance of a state's direction from that of the next token's input "
                "embedding; 2 is unrelated.",
                "E‖ĥ − ê_next‖²",
                range=(0, 4),
                undefined=NO_NEXT,
                first=True,
                plotted=True,
            ),
            "next_unrelated": Field(
                "its null",
                "The same over all mismatched pairs: each state with the next token of every "
                "other one.",
                "E_{i≠j}‖ĥ_i − ê_j‖²",
                range=(0, 4),
                undefined=NO_NEXT,
                first=True,
            ),
            "next_relative": Field(
                "alignment over null",
                "Their ratio: 1 is no nearer than chance.",
                range=(0, None),
                undefined=NO_NEXT,
                first=True,
                plotted=True,
            ),
        },
    )

    def _table(self, setup: ProbeSetup, site: str) -> Tensor | None:
        """Return the input embeddings where they have the site's width."""
        table = setup.lens.input_embeddings
        return table if table.shape[1] == setup.lens.width(site) else None

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        sites = [site for site in setup.sites if self._table(setup, site) is not None]
        return {site: FollowTally(setup.lens.width(site), setup.device) for site in sites}

    def update(
        self, setup: ProbeSetup, _key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        assert isinstance(accumulator, FollowTally)
        table = self._table(setup, batch.site)
        if accumulator.table is None and table is not None:
            accumulator.table = normalize(table.detach().float(), dim=-1)
        accumulator.update(batch)

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site, cloud in data.clouds.items():
            row: Cells = {
                "site": site,
                "uniformity": None,
                "uniformity_floor": uniformity_floor(cloud.width),
            }
            if site in data.sample:
                row |= uniformity_by_block(data.sample[site].numpy(), data.blocks, data.first)
            names = ("next_alignment", "next_unrelated", "next_relative")
            row |= dict.fromkeys(names)
            row |= dict.fromkeys(f"{name}_interval" for name in names)
            tally = data.own.get(site)
            if isinstance(tally, FollowTally):
                row |= tally_row(tally, _next_alignment, self.fields)
            rows.append(row)
        return rows


def _next_alignment(tally: Tally) -> dict[str, float | None]:
    """Return the alignment of states to the next token's embedding, from a `FollowTally`."""
    sums = PairSums(
        pairs=float(tally["pairs"]),
        first=tally["unit"].cpu().numpy(),
        second=tally["next"].cpu().numpy(),
        cosine=float(tally["cosine"]),
    )
    return {f"next_{name}": value for name, value in sums.alignment().items()}


NEIGHBOURS = 10


def hubness(rows: npt.ArrayLike, k: int = NEIGHBOURS) -> Cells:
    """Return how unevenly directions [n, d] are among the k nearest neighbours of all others.

    With N the number of lists of neighbours (by angle) that a point is in: the skewness of N, the
    Robin Hood index ½Σ|N − k|/(nk), the share of points with N = 0, and max N/k. Radovanović et
    al. 2010; Feldbauer and Flexer 2019. Where neighbours are drawn at random N is binomial:
    skewness 1/√k, and a share e^−k with N = 0. Vectors of length zero are left out; None where no
    more than k + 1 are left. Cost O(n²d).

    >>> cells = hubness(np.random.default_rng(0).standard_normal((400, 2)))
    >>> -0.7 < cells["hub_skewness"] < 0.3, cells["antihubs"]  # on a circle N is nearly constant
    (True, 0.0)
    """
    x = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(x, axis=1)
    x = x[lengths > 0] / lengths[lengths > 0, None]
    if len(x) <= k + 1:
        return dict.fromkeys(("hub_skewness", "robin_hood", "antihubs", "largest_hub"))
    _, neighbours = find_neighbours(x, k)
    counts = np.bincount(neighbours.numpy().ravel(), minlength=len(x)).astype(np.float64)
    deviations = counts - k
    spread = float(np.sqrt((deviations**2).mean()))
    return {
        "hub_skewness": float((deviations**3).mean()) / spread**3 if spread > 0 else 0.0,
        "robin_hood": float(np.abs(deviations).sum()) / (2 * len(x) * k),
        "antihubs": float((counts == 0).mean()),
        "largest_hub": float(counts.max()) / k,
    }


POINTS = 1000


class HubnessProbe(Probe):
    """The hubness of the sampled directions."""

    needs = "vectors"
    words = ProbeWords(
        name="hubness",
        title="Hubness",
        group="alignment",
        sentence=f"Are some vectors among the {NEIGHBOURS} nearest neighbours of very many "
        f"others, and others of none? On at most {POINTS} sampled directions; beside it "
        "Gaussian ones, as many and as wide.",
        literature="Radovanović et al. 2010; Feldbauer and Flexer 2019",
        position="Position 0 is among the sampled.",
        docs="shapes.md",
        function="headscan.measures.sphere.hubness",
        sample=2000,
        order=6,
        fields={
            "hub_skewness": Field(
                "hub skewness",
                "Skewness of how often a point is a neighbour; 1/√k by chance.",
                "E(N − k)³/sd³",
                undefined=UNDER_12,
                plotted=True,
            ),
            "robin_hood": Field(
                "Robin Hood",
                "Share of neighbourships that had to move for all points to have as many.",
                "Σ|N − k|/2nk",
                range=(0, 1),
                undefined=UNDER_12,
                plotted=True,
            ),
            "antihubs": Field(
                "nobody's neighbour",
                "Share of points in no list of neighbours.",
                "P(N = 0)",
                range=(0, 1),
                undefined=UNDER_12,
                plotted=True,
            ),
            "largest_hub": Field(
                "largest hub",
                "How often the most frequent neighbour is one, over k.",
                "max N/k",
                range=(0, None),
                undefined=UNDER_12,
            ),
        },
    )

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return sampled_rows(data, self.fields, hubness, POINTS)
