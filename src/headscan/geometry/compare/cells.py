"""The cells of a comparison: values of all tokens, intervals, and what nulls say, for one pair of models after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance, SiteCovariance
from headscan.geometry.compare.gathering import Gathering, Sampled
from headscan.geometry.compare.intervals import GroupSpread, of_groups, of_sample
from headscan.geometry.compare.null import NullModel, NullTask
from headscan.geometry.compare.prepared import Prepared
from headscan.geometry.compare.result import Alignment, NullTest, SimilarityCell
from headscan.geometry.compare.settings import ComparisonSettings
from headscan.geometry.compare.similarity import MomentMeasure, RelationMeasure, SimilarityMeasure
from headscan.geometry.compare.testing import tested, thinned
from headscan.geometry.differences import Difference
from headscan.run import ModelRecord, Run, TextRecord
from headscan.statistics.cross import unbiased_hsic

__all__ = ["ComparedSources", "cells_of", "top_shares"]

Values: TypeAlias = dict[str, list[list[float]]]


@dataclass
class ComparedSources:
    """What a pass left: moments, sample, the sites of each model, records, and `redrawn`, which gives a model's sampled
    vectors with fresh random weights. `covariances` of sites are kept once they are made."""

    gathering: Gathering
    sample: Sampled
    sites: Sequence[tuple[str, ...]]
    records: list[ModelRecord]
    alignment: list[Alignment]
    text: TextRecord | None = None
    notes: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    redrawn: Mapping[int, Callable[[int, Sampled], list[Tensor]]] = field(default_factory=dict)
    covariances: dict[int, SiteCovariance] = field(default_factory=dict)

    def members(self, model: int) -> list[int]:
        """The numbers of a model's sites among all."""
        return [u for u, owner in enumerate(self.gathering.models) if owner == model]

    def covariance(self, u: int) -> SiteCovariance:
        """The covariance of a site."""
        if u not in self.covariances:
            moments = self.gathering.moments
            self.covariances[u] = SiteCovariance(moments.covariance(u, u).cpu(), moments.count)
        return self.covariances[u]

    def pair(self, u: int, v: int) -> CrossCovariance:
        """The covariance of two sites, with their dependence debiased."""
        moments = self.gathering.moments
        hsic = None
        if moments.count > 3:
            sums = (moments.pair(u, v), moments.pair(u, u), moments.pair(v, v))
            hsic = (unbiased_hsic(sums[0]).cpu(), unbiased_hsic(sums[1]).cpu(), unbiased_hsic(sums[2]).cpu())
        return CrossCovariance(self.covariance(u), self.covariance(v), moments.covariance(u, v).cpu(), hsic)


def top_shares(found: ComparedSources) -> dict[str, float]:
    """The share of each site's variance on its strongest direction."""
    shares = {}
    for model, record in enumerate(found.records):
        for site, u in zip(found.sites[model], found.members(model), strict=True):
            share = float(found.covariance(u).top_share)
            if share == share:
                shares[f"{record.name}/{site}"] = share
    return shares


def cells_of(
    found: ComparedSources, models: tuple[int, int], measures: Mapping[str, SimilarityMeasure], nulls: Mapping[str, NullModel],
    settings: ComparisonSettings, run: Run,
) -> list[SimilarityCell]:  # fmt: skip
    """All cells of one pair of models, measure after measure."""
    values, spreads = _relations(found, models, measures)
    values |= _values(found, models, measures)
    spreads |= of_groups(found.gathering, measures, models)
    tests = [_tests(found, models, measures, name, null, settings, run) for name, null in nulls.items()]
    names = [found.records[model].name for model in models]
    cells = []
    for name, measure in measures.items():
        for s, site_a in enumerate(found.sites[models[0]]):
            for t, site_b in enumerate(found.sites[models[1]]):
                value = values[name][s][t]
                interval, bias = (
                    spreads[name].interval(s, t, value, measure.words.range) if name in spreads else (None, None)
                )
                cells.append(
                    SimilarityCell(
                        model_a=names[0], site_a=site_a, model_b=names[1], site_b=site_b, measure=name,
                        value=value if value == value else None, interval=interval, bias=bias,
                        tests=[one[name][s][t] for one in tests],
                    )
                )  # fmt: skip
    return cells


def _values(found: ComparedSources, models: tuple[int, int], measures: Mapping[str, SimilarityMeasure]) -> Values:
    """Measures made of covariances [S][T], of all tokens."""
    one, two = (found.members(model) for model in models)
    moments = {name: measure for name, measure in measures.items() if isinstance(measure, MomentMeasure)}
    values: Values = {name: [] for name in moments}
    for u in one:
        rows: dict[str, list[float]] = {name: [] for name in moments}
        for v in two:
            pair = found.pair(u, v)
            for name, measure in moments.items():
                rows[name].append(float(measure.value(pair)))
        for name in moments:
            values[name].append(rows[name])
    return values


def _relations(
    found: ComparedSources, models: tuple[int, int], measures: Mapping[str, SimilarityMeasure]
) -> tuple[Values, dict[str, GroupSpread]]:
    """Measures of the sample [S][T] and their spreads."""
    own = {name: measure for name, measure in measures.items() if isinstance(measure, RelationMeasure)}
    if not own or len(found.sample.numbers) < 2:
        sizes = [len(found.members(model)) for model in models]
        return {name: [[float("nan")] * sizes[1]] * sizes[0] for name in own}, {}
    x, y = (Prepared.of(_sampled(found, model), own) for model in models)
    clusters = found.gathering.clusters
    values: Values = {name: x.relations[name].cosines(y.relations[name]).tolist() for name in own}
    return values, {name: of_sample(x, y, found.sample, clusters, name) for name in own}


def _sampled(found: ComparedSources, model: int) -> list[Tensor]:
    return [found.sample.states[u] for u in found.members(model)]


def _tests(
    found: ComparedSources, models: tuple[int, int], measures: Mapping[str, SimilarityMeasure], name: str, null: NullModel,
    settings: ComparisonSettings, run: Run,
) -> dict[str, list[list[NullTest]]]:  # fmt: skip
    """One null of one pair of models."""
    redraw, sample = found.redrawn.get(models[0]), found.sample
    if len(sample.numbers) < 2:
        none = [[NullTest(null=name) for _ in found.members(models[1])] for _ in found.members(models[0])]
        return dict.fromkeys(measures, none)
    x, y = ([thinned(rows) for rows in _sampled(found, model)] for model in models)
    redrawn = None if redraw is None else lambda draw: [thinned(rows) for rows in redraw(draw, sample)]
    generator = torch.Generator().manual_seed(settings.seed)
    task = NullTask(x, y, measures, settings.draws, generator, redrawn)
    return tested(name, null, task, lambda done: run.progress(f"null: {name}", done, settings.draws, "draws"))
