"""The damage to the states of a site: relative errors, changes of shape, and bits about tokens."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.comparison.clusters import ANY, NOT_NEGATIVE, Bounds, Clusters, Statistic
from headscan.measures.measure import MEASURES, WITHOUT_SINKS
from headscan.run import BadInput
from headscan.scanner.differences import Estimates, differences
from headscan.scanner.site_cells import SUFFIXES, site_cells
from headscan.statistics import NonFinite, SiteStatistics
from headscan.statistics.errors import Errors
from headscan.statistics.sinks import sinks
from headscan.statistics.uncertainty import Cells, Floats

OUTLYING = 6.0
"""A coordinate is outlying from so many times the median coordinate's root mean square on."""

SHAPE_MEASURES = ("average_cosine", "effective_rank")
COUNTS = ("sink_share", "massive_coordinates", "rogue_coordinates")

NOISE = 0.5
"""The noise of `bits`, in the root of the first model's total variance at the site."""

BIT_TOKENS = 1024
"""The bits are about which of so many tokens a state is of."""


@dataclass(frozen=True)
class StatePair:
    """The states of the first and of the second model at one site, on the same windows.

    Attributes:
        first, second: states [W, T, d].
        ids: token ids [W, T].
        documents: [W, T], the document of each token.
        skipped: positions left out at the beginning of each window.
    """

    first: Tensor
    second: Tensor
    ids: Tensor
    documents: Integers
    skipped: int

    def errors(self) -> Cells:
        """Return the error of the second model's states relative to the size of the first's.

        The errors are roots of ratios of sums of squares: of all coordinates, of the mean vector,
        and of outlying coordinates (None where there are none).
        """
        rows = self._rows(self.first)
        change = self._rows(self.second) - rows
        size = rows.square().mean(0).sqrt()
        outlying = size > OUTLYING * size.median()
        columns = [
            _squares(change),
            _squares(change[:, outlying]),
            _squares(rows),
            _squares(rows[:, outlying]),
            change,
            rows,
        ]
        start_of_change = 4
        start_of_rows = start_of_change + rows.shape[1]

        def mean_direction(sums: Floats) -> float | None:
            mean_change = sums[start_of_change:start_of_rows]
            mean_row = sums[start_of_rows:]
            return _root_of_ratio((mean_change**2).sum(), (mean_row**2).sum())

        return self._clusters().cells(
            torch.cat(columns, dim=1).numpy(),
            {
                "relative_error": Statistic(
                    lambda sums: _root_of_ratio(sums[0], sums[2]), NOT_NEGATIVE
                ),
                "outlier_error": Statistic(
                    lambda sums: _root_of_ratio(sums[1], sums[3]), NOT_NEGATIVE
                ),
                "mean_direction_error": Statistic(mean_direction, NOT_NEGATIVE),
            },
        )

    def _rows(self, states: Tensor) -> Tensor:
        return states[:, self.skipped :].flatten(0, 1).double().cpu()

    def _clusters(self) -> Clusters:
        return Clusters.of_documents(self.documents[:, self.skipped :])

    def shape(self, site: str) -> Cells:
        """Return the shape of the site in both models, as a scan measures it without sinks.

        NAME_first and NAME_second are of the models, NAME_change is the second less the first with
        a paired interval.
        """
        cells = Cells(site=site)
        estimates = []
        for model, states in (("first", self.first), ("second", self.second)):
            model_cells, estimate = self._shape_of(model, states.cpu(), site)
            cells |= model_cells
            estimates.append(estimate)
        for difference in differences(estimates, list(SUFFIXES.values())):
            name = difference.measure.removesuffix(WITHOUT_SINKS)
            if name != difference.measure:
                cells[f"{name}_change"] = difference.difference
                cells[f"{name}_change_interval"] = difference.interval
        return cells | self._sink_change()

    def _shape_of(self, model: str, states: Tensor, site: str) -> tuple[Cells, Estimates]:
        """Return NAME_model of the measures and counts of one model, and its estimates."""
        measures = [MEASURES[name] for name in SHAPE_MEASURES]
        statistics = SiteStatistics(states.shape[2], skip_first=self.skipped, intervals=True)
        windows = list(range(len(states)))
        try:
            statistics.update(states, windows, torch.from_numpy(self.documents), self.ids)
        except NonFinite as error:
            raise BadInput(
                f"The {model} model gives NaN or infinite values at {site} (window "
                f"{error.window}, position {error.position}): it cannot be compared."
            ) from None
        errors = Errors.of(statistics, measures)
        site_row, _ = site_cells(site, statistics, measures, errors=errors)
        cells = Cells()
        for name in COUNTS:
            cells[f"{name}_{model}"] = site_row[name]
        for name in SHAPE_MEASURES:
            cells[f"{name}_{model}"] = site_row[f"{name}{WITHOUT_SINKS}"]
            cells[f"{name}_{model}_interval"] = site_row[f"{name}{WITHOUT_SINKS}_interval"]
        return cells, Estimates(model, site, site_row, errors)

    def _sink_change(self) -> Cells:
        """Return the change of the share of sinks; it has no interval where no token changed."""
        first = self._sinks(self.first)
        second = self._sinks(self.second)
        change = (second.double() - first.double()).numpy()
        cells = self._clusters().means({"sink_share_change": change}, {})
        if bool((first == second).all()):
            cells["sink_share_change_interval"] = None
        return cells

    def _sinks(self, states: Tensor) -> Tensor:
        return sinks(states.cpu()[:, self.skipped :]).flatten()

    def bits(self) -> Cells:
        """Return how many bits a state with Gaussian noise tells of which token it is of.

        The token is one of 1,024, all equally likely; sinks are left out. The bits are at least
        U(2σ) and at most U(σ), where U(s) is the mean over i of −log2 of the mean over tokens j of
        exp(−‖xᵢ − xⱼ‖²/2s²) (Kolchinsky and Tracey 2017), and σ is `NOISE` times the root of the
        first model's total variance.
        """
        windows = max(1, BIT_TOKENS // self.ids.shape[1])
        first = self.first[:windows, self.skipped :].cpu()
        second = self.second[:windows, self.skipped :].cpu()
        ordinary = ~(sinks(first) | sinks(second)).flatten()
        clusters = self._clusters().part(ordinary.numpy())
        rows = {
            "first": first.flatten(0, 1)[ordinary].double(),
            "second": second.flatten(0, 1)[ordinary].double(),
        }
        variance = float(rows["first"].var(0, unbiased=False).sum()) * NOISE**2 or 1.0
        # Of each number the estimate, then the estimates with a cluster left out.
        values: dict[str, Floats] = {}
        for model, states in rows.items():
            at_noise = torch.exp(torch.cdist(states, states).square() / (-2 * variance))
            at_twice_the_noise = at_noise.sqrt().sqrt()
            values[f"bits_upper_{model}"] = _mean_bits(at_noise, clusters)
            values[f"bits_lower_{model}"] = _mean_bits(at_twice_the_noise, clusters)
        for bound in ("lower", "upper"):
            change = values[f"bits_{bound}_second"] - values[f"bits_{bound}_first"]
            values[f"bits_{bound}_change"] = change

        cells = Cells()
        for name, (estimate, *left_out) in values.items():
            bounds: Bounds = ANY if name.endswith("_change") else NOT_NEGATIVE
            cells[name] = float(estimate)
            cells[f"{name}_interval"] = (
                clusters.interval(estimate, left_out, bounds) if left_out else None
            )
        return cells


def _squares(rows: Tensor) -> Tensor:
    """Return the sum of squares of each row [n, 1]."""
    return rows.square().sum(1, keepdim=True)


def _root_of_ratio(numerator: float, denominator: float) -> float | None:
    return float((numerator / denominator) ** 0.5) if denominator > 0 else None


def _mean_bits(kernel: Tensor, clusters: Clusters) -> Floats:
    """Return −log2 of the mean of each column of a kernel [n, n], averaged over the columns.

    The first entry is of all tokens; then come those with each cluster left out.
    """
    sums = clusters.sums(kernel)
    total = sums.sum(0)
    tokens = len(clusters.of_token)
    bits = [-np.log2(total / tokens).mean()]
    if clusters.enough:
        for number, size in enumerate(clusters.sizes):
            others = clusters.of_token != number
            remaining = (total - sums[number])[others] / (tokens - size)
            bits.append(-np.log2(remaining).mean())
    return np.array(bits)
