"""The cells of a comparison: values of all tokens, intervals, and what nulls say, for one pair of models after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.comparison.covariance import (
    CrossCovariance,
    MomentMeasure,
    Prepared,
    RelationMeasure,
    SimilarityMeasure,
    SiteCovariance,
    alike,
)
from headscan.comparison.nulls import NullModel, NullTask, benjamini_hochberg
from headscan.comparison.reading import Gathering, Sampled
from headscan.comparison.result import Alignment, NullTest, SimilarityCell
from headscan.comparison.settings import ComparisonSettings
from headscan.run import ModelRecord, Run, TextRecord
from headscan.scanner.differences import Difference
from headscan.statistics import Sums
from headscan.statistics.gram import unbiased_hsic
from headscan.statistics.uncertainty import StandardError

# ---- Intervals of similarities by documents: what each measure would have been without a group of them.
#
# A pair's own moments of every group of documents would take a matrix of d × d' a pair and group. What a group adds to the
# error of a measure shows in the strongest directions, so groups keep moments of 24 principal components a site, and the
# spread of the measure taken there, with a group left out, is the spread of the measure. benchmarks/comparisons_cover.py
# measures how often such intervals hold what endless text would give: .92 to 1.00 of the time.

Floats = npt.NDArray[np.float64]
SAMPLE_GROUPS = 16


@dataclass(frozen=True)
class GroupSpread:
    """A measure of all pairs of sites with each of G groups left out [G, S, T], and of all [S, T]; the groups' sizes [G]
    and what they are of."""

    whole: Floats
    left_out: Floats
    sizes: Floats
    clusters: str

    def interval(
        self, s: int, t: int, value: float, bounds: tuple[float, float]
    ) -> tuple[tuple[float, float] | None, float | None]:
        """The 95 % interval of the measure of a pair of sites, and how far few tokens are expected to shift it.

        With h = n/n_g the jackknife expects of the estimate a bias of Σ(1 − 1/h)θ₋ − (G − 1)θ (Busing, Meijer and van der
        Leeden 1999); the interval lies around the value less its bias.
        """
        whole, left = self.whole[s, t], self.left_out[:, s, t]
        if len(left) < 3 or not np.isfinite(value) or not np.isfinite([whole, *left]).all():
            return None, None
        total = self.sizes.sum()
        bias = float(((1 - self.sizes / total) * left).sum() - (len(left) - 1) * whole)
        influences = (whole - left) * (total - self.sizes)
        make = StandardError.of_documents if self.clusters == "documents" else StandardError.of_text
        deviation = make(influences, self.sizes)
        if deviation is None:
            return None, None
        return deviation.interval(value, biases=[bias], bounds=bounds), bias


def of_groups(
    gathering: Gathering, measures: Mapping[str, SimilarityMeasure], pair: tuple[int, int]
) -> dict[str, GroupSpread]:
    """The spread of each measure made of covariances, between the sites of two models.

    Cost: 16 times the measures on matrices of 24 × 24.
    """
    parts = gathering.groups.parts()
    whole = gathering.groups.total()
    sizes = np.array([part.count for part in parts], dtype=np.float64)
    chosen = {name: measure for name, measure in measures.items() if isinstance(measure, MomentMeasure)}
    every = [_measured(gathering, sums, chosen, pair) for sums in (whole, *(whole.without(part) for part in parts))]
    return {
        name: GroupSpread(every[0][name], np.stack([one[name] for one in every[1:]]), sizes, gathering.clusters)
        if parts
        else GroupSpread(every[0][name], np.zeros((0, *every[0][name].shape)), sizes, gathering.clusters)
        for name in chosen
    }


def _measured(
    gathering: Gathering, sums: Sums, measures: Mapping[str, MomentMeasure], pair: tuple[int, int]
) -> dict[str, Floats]:
    assert sums.gram is not None
    table = (sums.gram.scatter() / max(sums.count - 1, 1)).cpu()
    places = [slice(end - basis.shape[1], end) for end, basis in zip(gathering.ends, gathering.bases, strict=True)]
    size = max(basis.shape[1] for basis in gathering.bases)
    one, two = ([places[u] for u, model in enumerate(gathering.models) if model == wanted] for wanted in pair)

    def block(rows: slice, columns: slice) -> Tensor:
        found = table[rows, columns]
        return torch.nn.functional.pad(found, (0, size - found.shape[1], 0, size - found.shape[0]))

    x = SiteCovariance(torch.stack([block(s, s) for s in one])[:, None], sums.count)
    y = SiteCovariance(torch.stack([block(t, t) for t in two])[None], sums.count)
    xy = torch.stack([torch.stack([block(s, t) for t in two]) for s in one])
    reduced = CrossCovariance(x, y, xy)
    return {name: measure.value(reduced).numpy() for name, measure in measures.items()}


def of_sample(x: Prepared, y: Prepared, sample: Sampled, clusters: str, name: str) -> GroupSpread:
    """The spread of a measure of the sample, its tokens left out by groups of documents or of windows."""
    units = sample.documents if clusters == "documents" else torch.arange(x.windows)
    _, number = units.unique(return_inverse=True)
    group = number * min(SAMPLE_GROUPS, int(number.max()) + 1) // (int(number.max()) + 1)
    count = int(group.max()) + 1
    run = x.coordinates.shape[1] // x.windows
    belongs = torch.zeros(count, x.windows, dtype=torch.float64)
    belongs[group, torch.arange(x.windows)] = 1.0
    one, two = x.relations[name], y.relations[name]
    sums_xx, sums_yy, sums_xy = (
        belongs @ table.cpu() @ belongs.T for table in (one.by_windows(), two.by_windows(), one.by_windows(two))
    )
    left = [
        _without(sums_xy, g) / (_without(sums_xx, g)[:, None] * _without(sums_yy, g)[None]).sqrt() for g in range(count)
    ]
    whole = one.cosines(two).cpu().numpy()
    return GroupSpread(whole, torch.stack(left).numpy(), belongs.sum(1).numpy() * run, clusters)


def _without(sums: Tensor, group: int) -> Tensor:
    return sums.sum((-2, -1)) - sums[..., group, :].sum(-1) - sums[..., :, group].sum(-1) + sums[..., group, group]


# ---- Cells held against nulls: the statistic on the sample, its draws, p values, and their correction.

TESTED_RUN = 8  # of the tokens of a sampled window


def thinned(rows: Tensor) -> Tensor:
    """The part of the sampled rows [windows, m, d] that nulls are drawn of: every k-th token of a window, about eight."""
    return rows[:, :: max(1, rows.shape[1] // TESTED_RUN)]


def tested(
    name: str, null: NullModel, task: NullTask, progress: Callable[[int], None]
) -> dict[str, list[list[NullTest]]]:
    """Every measure of every pair of sites [S][T] against one null."""
    observed: dict[str, Tensor] | None = None
    draws: list[dict[str, Tensor]] = []
    for x, y in null.pairs(task):
        found = alike(x, y, task.measures)
        if observed is None:
            observed = found
        else:
            draws.append(found)
            progress(len(draws))
    if observed is None or not draws:
        return {measure: [[NullTest(null=name) for _ in task.y] for _ in task.x] for measure in task.measures}
    return {
        measure: _each(name, observed[measure], torch.stack([draw[measure] for draw in draws]))
        for measure in task.measures
    }


def _each(name: str, observed: Tensor, draws: Tensor) -> list[list[NullTest]]:
    return [
        [_one(name, float(observed[s, t]), draws[:, s, t]) for t in range(draws.shape[2])]
        for s in range(draws.shape[1])
    ]


def _one(name: str, statistic: float, draws: Tensor) -> NullTest:
    values = draws.double().numpy()
    if not np.isfinite(statistic) or not np.isfinite(values).all():
        return NullTest(null=name)
    # A draw that differs by rounding alone counts as equal.
    reached = int((values >= statistic - 1e-9 * max(1.0, abs(statistic))).sum())
    return NullTest(
        null=name, statistic=statistic, mean=float(values.mean()), threshold=float(np.quantile(values, 0.95)),
        draws=len(values), p=(1 + reached) / (len(values) + 1),
    )  # fmt: skip


def adjusted(cells: Sequence[SimilarityCell], nulls: Mapping[str, NullModel]) -> list[SimilarityCell]:
    """The cells with their p values corrected, null by null, over all cells; the first null's stand in the cell itself."""
    corrected: dict[tuple[int, str], float] = {}
    for name in nulls:
        known = [
            (k, test.p)
            for k, cell in enumerate(cells)
            for test in cell.tests
            if test.null == name and test.p is not None
        ]
        for (k, _), p in zip(known, benjamini_hochberg([p for _, p in known]), strict=True):
            corrected[k, name] = p
    found = []
    for k, cell in enumerate(cells):
        tests = [replace(test, p_adjusted=corrected.get((k, test.null))) for test in cell.tests]
        first = tests[0] if tests else NullTest(null="")
        found.append(replace(cell, tests=tests, p=first.p, p_adjusted=first.p_adjusted))
    return found


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
