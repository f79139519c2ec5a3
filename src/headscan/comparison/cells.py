"""The cells of a comparison: values of all tokens, intervals and tests, for each pair of models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.alignment import Sampled
from headscan.comparison.covariance import CrossCovariance, SiteCovariance
from headscan.comparison.gathering import Gathering
from headscan.comparison.null_tests import NullTests, tested, untested
from headscan.comparison.nulls import NullTask
from headscan.comparison.result import Alignment, NullTest, SimilarityCell
from headscan.comparison.similarity import MomentMeasure, RelationMeasure, SimilarityMeasure
from headscan.comparison.spread import GroupSpread, spread_of_sample, spreads_of_groups
from headscan.run import ModelRecord, Run, TextRecord
from headscan.statistics.hsic import unbiased_hsic
from headscan.statistics.uncertainty import Floats

TESTED_RUN = 8
"""Nulls are drawn of about so many tokens of a sampled window."""


@dataclass
class ComparedSources:
    """The moments, the sample and the records that one pass over all sources left.

    Attributes:
        sites: of each model.
        alignment: how many tokens of each model were compared.
        text: the text as the first model read it.
        notes: how the sources were read.
        redrawn: by model, a function of a draw and the sample that returns the sampled vectors of
            each site with fresh random weights.
        covariances: of sites, as they were needed.
    """

    gathering: Gathering
    sample: Sampled
    sites: Sequence[tuple[str, ...]]
    records: list[ModelRecord]
    alignment: list[Alignment]
    text: TextRecord | None = None
    notes: list[str] = field(default_factory=list)
    redrawn: Mapping[int, Callable[[int, Sampled], list[Tensor]]] = field(default_factory=dict)
    covariances: dict[int, SiteCovariance] = field(default_factory=dict)

    def members(self, model: int) -> list[int]:
        """Return the numbers of a model's sites among those of all models."""
        owners = self.gathering.models
        return [site for site, owner in enumerate(owners) if owner == model]

    def covariance(self, site: int) -> SiteCovariance:
        """Return the covariance of a site, which is computed once."""
        if site not in self.covariances:
            moments = self.gathering.moments
            matrix = moments.covariance(site, site).cpu()
            self.covariances[site] = SiteCovariance(matrix, moments.count)
        return self.covariances[site]

    def pair(self, x: int, y: int) -> CrossCovariance:
        """Return the covariance of two sites, with their unbiased HSIC where tokens suffice."""
        moments = self.gathering.moments
        hsic = None
        if moments.count > 3:
            between = unbiased_hsic(moments.pair(x, y)).cpu()
            within_x = unbiased_hsic(moments.pair(x, x)).cpu()
            within_y = unbiased_hsic(moments.pair(y, y)).cpu()
            hsic = (between, within_x, within_y)
        xy = moments.covariance(x, y).cpu()
        return CrossCovariance(self.covariance(x), self.covariance(y), xy, hsic)

    def sampled(self, model: int) -> list[Tensor]:
        """Return the sampled rows [windows, m, d] of each of a model's sites."""
        return [self.sample.states[site] for site in self.members(model)]

    def top_shares(self) -> dict[str, float]:
        """Return the share of each site's variance on its strongest direction, by "MODEL/SITE"."""
        shares = {}
        for model, record in enumerate(self.records):
            for site, number in zip(self.sites[model], self.members(model), strict=True):
                share = float(self.covariance(number).top_share)
                if not np.isnan(share):
                    shares[f"{record.name}/{site}"] = share
        return shares


def cells_of(
    compared: ComparedSources,
    models: tuple[int, int],
    measures: Mapping[str, SimilarityMeasure],
    null_tests: NullTests,
    run: Run,
) -> list[SimilarityCell]:
    """Return all cells of one pair of models, measure after measure."""
    pair = _ModelPair(compared, models, measures)
    values = pair.values_of_moments()
    moment_measures = pair.moment_measures()
    spreads = spreads_of_groups(compared.gathering, moment_measures, models)
    for name, measure in measures.items():
        if isinstance(measure, RelationMeasure):
            spread = pair.spread_of_sample(measure)
            if spread is None:
                values[name] = np.full(pair.shape, np.nan)
            else:
                spreads[name] = spread
                values[name] = spread.whole
    tests = [pair.tests(null, null_tests, run) for null in null_tests.nulls]

    cells = []
    for name, measure in measures.items():
        bounds = measure.words.range
        for s, t in np.ndindex(pair.shape):
            # float32 sums exceed the range by 1e-7.
            value = float(np.clip(values[name][s, t], *bounds))
            interval = None
            bias = None
            if name in spreads:
                interval, bias = spreads[name].interval(s, t, value, bounds)
            cells.append(
                SimilarityCell(
                    model_a=compared.records[models[0]].name,
                    site_a=compared.sites[models[0]][s],
                    model_b=compared.records[models[1]].name,
                    site_b=compared.sites[models[1]][t],
                    measure=name,
                    value=None if np.isnan(value) else value,
                    interval=interval,
                    bias=bias,
                    tests=[tests_of_measure[name][s][t] for tests_of_measure in tests],
                )
            )
    return cells


@dataclass(frozen=True)
class _ModelPair:
    """Two models of a comparison, and the measures that they are compared by."""

    compared: ComparedSources
    models: tuple[int, int]
    measures: Mapping[str, SimilarityMeasure]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of sites of both models."""
        first, second = self.models
        return len(self.compared.members(first)), len(self.compared.members(second))

    def moment_measures(self) -> dict[str, MomentMeasure]:
        """Return the measures that are made of covariances."""
        return {
            name: measure
            for name, measure in self.measures.items()
            if isinstance(measure, MomentMeasure)
        }

    def values_of_moments(self) -> dict[str, Floats]:
        """Return the values [S, T] of the measures that are made of covariances."""
        measures = self.moment_measures()
        values: dict[str, Floats] = {name: np.empty(self.shape) for name in measures}
        first, second = self.models
        for s, x in enumerate(self.compared.members(first)):
            for t, y in enumerate(self.compared.members(second)):
                pair = self.compared.pair(x, y)
                for name, measure in measures.items():
                    values[name][s, t] = float(measure.value(pair))
        return values

    def spread_of_sample(self, measure: RelationMeasure) -> GroupSpread | None:
        """Return a measure of the sampled tokens; None where fewer than two windows are sampled."""
        compared = self.compared
        if len(compared.sample.numbers) < 2:
            return None
        first, second = self.models
        return spread_of_sample(
            measure,
            compared.sampled(first),
            compared.sampled(second),
            compared.sample,
            compared.gathering.clusters,
        )

    def tests(self, null: str, null_tests: NullTests, run: Run) -> dict[str, list[list[NullTest]]]:
        """Return, by measure, the tests [S][T] against one null, on a part of the sample."""
        compared = self.compared
        sample = compared.sample
        if len(sample.numbers) < 2:
            return dict.fromkeys(self.measures, untested(null, *self.shape))
        first, second = self.models
        redraw = compared.redrawn.get(first)

        def redrawn(draw: int) -> list[Tensor]:
            assert redraw is not None
            return _thinned(redraw(draw, sample))

        task = NullTask(
            _thinned(compared.sampled(first)),
            _thinned(compared.sampled(second)),
            self.measures,
            null_tests.draws,
            torch.Generator().manual_seed(null_tests.seed),
            None if redraw is None else redrawn,
        )

        def progress(done: int) -> None:
            run.progress(f"null: {null}", done, null_tests.draws, "draws")

        return tested(null, null_tests.nulls[null], task, progress)


def _thinned(sites: Sequence[Tensor]) -> list[Tensor]:
    """Return every k-th token of each sampled window [windows, m, d], about eight of them."""
    return [rows[:, :: max(1, rows.shape[1] // TESTED_RUN)] for rows in sites]
