"""The cells of a comparison: values of all tokens, intervals, and what nulls say, for one pair of
models after another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.stats import false_discovery_control
from torch import Tensor

from headscan.comparison.alignment import Sampled
from headscan.comparison.covariance import (
    CrossCovariance,
    MomentMeasure,
    RelationMeasure,
    SimilarityMeasure,
    SiteCovariance,
    alike,
)
from headscan.comparison.gathering import Gathering
from headscan.comparison.nulls import NullModel, NullTask
from headscan.comparison.result import Alignment, NullTest, SimilarityCell
from headscan.run import Interval, ModelRecord, Run, TextRecord
from headscan.statistics import Sums
from headscan.statistics.gram import unbiased_hsic
from headscan.statistics.uncertainty import Floats, StandardError

# ---- Intervals of similarities by documents: what each measure would have been without a group of them.
#
# A pair's own moments of every group of documents would take a matrix of d × d' a pair and group.
# What a group adds to the error of a measure shows in the strongest directions, so groups keep
# moments of 24 principal components a site, and the spread of the measure taken there, with a group
# left out, is the spread of the measure. benchmarks/comparisons_cover.py measures how often such
# intervals hold.

SAMPLE_GROUPS = 16
TESTED_RUN = 8  # tokens of a sampled window that nulls are drawn of


@dataclass(frozen=True)
class GroupSpread:
    """A measure of all pairs of sites with each of G groups left out [G, S, T], and of all [S, T];
    the groups' sizes [G] and what they are of.
    """

    whole: Floats
    left_out: Floats
    sizes: Floats
    clusters: str

    def interval(
        self, s: int, t: int, value: float, bounds: Interval
    ) -> tuple[Interval | None, float | None]:
        """The 95 % interval of the measure of a pair of sites, and how far few tokens are expected
        to shift it. With h = n/n_g the jackknife expects of the estimate a bias of Σ(1 − 1/h)θ₋ −
        (G − 1)θ (Busing, Meijer and van der Leeden 1999).
        """
        whole = self.whole[s, t]
        left = self.left_out[:, s, t]
        if len(left) < 3 or not np.isfinite([value, whole, *left]).all():
            return None, None
        total = self.sizes.sum()
        bias = float(((1 - self.sizes / total) * left).sum() - (len(left) - 1) * whole)
        make = StandardError.of_documents if self.clusters == "documents" else StandardError.of_text
        deviation = make((whole - left) * (total - self.sizes), self.sizes)
        if deviation is None:
            return None, None
        return deviation.interval(value, bounds=bounds), bias


def of_groups(
    gathering: Gathering, measures: Mapping[str, MomentMeasure], pair: tuple[int, int]
) -> dict[str, GroupSpread]:
    """The spread of each measure made of covariances, between the sites of two models. Cost: 16
    times the measures on matrices of 24 × 24.
    """
    parts = gathering.groups.parts()
    whole = gathering.groups.total()
    sizes = np.array([part.count for part in parts], dtype=np.float64)
    every = [
        _measured(gathering, sums, measures, pair)
        for sums in (whole, *(whole.without(part) for part in parts))
    ]
    return {
        name: GroupSpread(
            every[0][name],
            np.stack([values[name] for values in every[1:]]),
            sizes,
            gathering.clusters,
        )
        for name in measures
    }


def _measured(
    gathered: Gathering, sums: Sums, measures: Mapping[str, MomentMeasure], pair: tuple[int, int]
) -> dict[str, Floats]:
    assert sums.gram is not None
    table = (sums.gram.scatter() / max(sums.count - 1, 1)).cpu()
    places = [
        slice(end - basis.shape[1], end)
        for end, basis in zip(gathered.ends, gathered.bases, strict=True)
    ]
    size = max(basis.shape[1] for basis in gathered.bases)
    first, second = (
        [places[u] for u, model in enumerate(gathered.models) if model == wanted] for wanted in pair
    )

    def block(rows: slice, columns: slice) -> Tensor:
        part = table[rows, columns]
        return torch.nn.functional.pad(part, (0, size - part.shape[1], 0, size - part.shape[0]))

    x = SiteCovariance(torch.stack([block(s, s) for s in first])[:, None], sums.count)
    y = SiteCovariance(torch.stack([block(t, t) for t in second])[None], sums.count)
    reduced = CrossCovariance(
        x, y, torch.stack([torch.stack([block(s, t) for t in second]) for s in first])
    )
    return {name: measure.value(reduced).numpy() for name, measure in measures.items()}


def of_sample(
    measure: RelationMeasure,
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    sample: Sampled,
    clusters: str,
) -> GroupSpread:
    """A measure of the sampled rows [windows, m, d] of the sites of two models, with groups of
    documents or windows left out.
    """
    windows, run = x[0].shape[:2]
    units = sample.documents if clusters == "documents" else torch.arange(windows)
    _, number = units.unique(return_inverse=True)
    group = number * min(SAMPLE_GROUPS, int(number.max()) + 1) // (int(number.max()) + 1)
    belongs = torch.nn.functional.one_hot(group).double().T  # [G, windows]

    def products(one: Tensor, two: Tensor) -> Tensor:
        """The sums of products, entry by entry, of each pair of groups, of all tokens and with each
        group left out [G + 1].
        """
        by_token = (
            (one.double() * two.double()).unflatten(1, (windows, -1)).unflatten(0, (windows, -1))
        )
        sums = belongs @ by_token.sum((1, 3)).cpu() @ belongs.T
        return torch.cat(
            [sums.sum()[None], sums.sum() - sums.sum(0) - sums.sum(1) + sums.diagonal()]
        )

    first, second = ([measure.relation(rows.flatten(0, 1)) for rows in sites] for sites in (x, y))
    own = [[products(table, table) for table in tables] for tables in (first, second)]
    cosines = torch.stack(
        [
            torch.stack(
                [
                    products(one, two) / (xx * yy).sqrt()
                    for two, yy in zip(second, own[1], strict=True)
                ],
                dim=1,
            )
            for one, xx in zip(first, own[0], strict=True)
        ],
        dim=1,
    ).numpy()
    return GroupSpread(cosines[0], cosines[1:], belongs.sum(1).numpy() * run, clusters)


# ---- Cells held against nulls: the statistic on the sample, its draws, p values, and their correction.


def tested(
    name: str, null: NullModel, task: NullTask, progress: Callable[[int], None]
) -> dict[str, list[list[NullTest]]]:
    """Every measure of every pair of sites [S][T] against one null."""
    draws: list[dict[str, Tensor]] = []  # the first is what was observed
    for x, y in null.pairs(task):
        draws.append(alike(x, y, task.measures))
        progress(len(draws) - 1)
    if len(draws) < 2:
        return {
            measure: [[NullTest(null=name) for _ in task.y] for _ in task.x]
            for measure in task.measures
        }
    values = {
        measure: torch.stack([draw[measure] for draw in draws]).double().numpy()
        for measure in task.measures
    }
    return {
        measure: [
            [_test(name, table[:, s, t]) for t in range(len(task.y))] for s in range(len(task.x))
        ]
        for measure, table in values.items()
    }


def _test(name: str, values: Floats) -> NullTest:
    if not np.isfinite(values).all():
        return NullTest(null=name)
    statistic = float(values[0])
    draws = values[1:]
    # A draw that differs by rounding alone counts as equal.
    reached = int((draws >= statistic - 1e-9 * max(1.0, abs(statistic))).sum())
    return NullTest(
        null=name,
        statistic=statistic,
        mean=float(draws.mean()),
        threshold=float(np.quantile(draws, 0.95)),
        draws=len(draws),
        p=(1 + reached) / (len(draws) + 1),
    )


def adjusted(
    cells: Sequence[SimilarityCell], nulls: Mapping[str, NullModel]
) -> list[SimilarityCell]:
    """The cells with their p values corrected by Benjamini and Hochberg, null by null, over all
    cells; the first null's stand in the cell itself.

    Calling those below α discoveries, at most α of them are false on average, where the tests are
    independent or positively dependent, as those of neighbouring layers are.
    """
    corrected: dict[tuple[int, str], float] = {}
    for name in nulls:
        every = (
            (k, test) for k, cell in enumerate(cells) for test in cell.tests if test.null == name
        )
        known = {k: test.p for k, test in every if test.p is not None}
        if known:
            values = false_discovery_control(list(known.values())).tolist()
            corrected |= {(k, name): p for k, p in zip(known, values, strict=True)}
    rows = []
    for k, cell in enumerate(cells):
        tests = [replace(test, p_adjusted=corrected.get((k, test.null))) for test in cell.tests]
        first = tests[0] if tests else NullTest(null="")
        rows.append(replace(cell, tests=tests, p=first.p, p_adjusted=first.p_adjusted))
    return rows


@dataclass(frozen=True)
class NullTests:
    """The nulls that cells are tested against, how often each is drawn, and with which seed."""

    nulls: Mapping[str, NullModel]
    draws: int
    seed: int


@dataclass
class ComparedSources:
    """What a pass left: moments, sample, the sites of each model, records, and `redrawn`, which
    gives a model's sampled vectors with fresh random weights. `covariances` of sites are kept once
    they are made.
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
        return [u for u, owner in enumerate(self.gathering.models) if owner == model]

    def covariance(self, u: int) -> SiteCovariance:
        if u not in self.covariances:
            moments = self.gathering.moments
            self.covariances[u] = SiteCovariance(moments.covariance(u, u).cpu(), moments.count)
        return self.covariances[u]

    def pair(self, u: int, v: int) -> CrossCovariance:
        """The covariance of two sites, with their dependence debiased."""
        moments = self.gathering.moments
        hsic = None
        if moments.count > 3:
            between, x, y = (
                unbiased_hsic(moments.pair(*pair)).cpu() for pair in ((u, v), (u, u), (v, v))
            )
            hsic = between, x, y
        return CrossCovariance(
            self.covariance(u), self.covariance(v), moments.covariance(u, v).cpu(), hsic
        )

    def sampled(self, model: int) -> list[Tensor]:
        """The sampled rows [windows, m, d] of each of a model's sites."""
        return [self.sample.states[u] for u in self.members(model)]

    def top_shares(self) -> dict[str, float]:
        """The share of each site's variance on its strongest direction, by "MODEL/SITE"."""
        shares = {
            f"{record.name}/{site}": float(self.covariance(u).top_share)
            for model, record in enumerate(self.records)
            for site, u in zip(self.sites[model], self.members(model), strict=True)
        }
        return {name: share for name, share in shares.items() if share == share}


def cells_of(
    compared: ComparedSources,
    models: tuple[int, int],
    measures: Mapping[str, SimilarityMeasure],
    null_tests: NullTests,
    run: Run,
) -> list[SimilarityCell]:
    """All cells of one pair of models, measure after measure."""
    first, second = (compared.members(model) for model in models)
    moments = {
        name: measure for name, measure in measures.items() if isinstance(measure, MomentMeasure)
    }
    pairs = [
        [{n: float(m.value(pair)) for n, m in moments.items()} for pair in row]
        for row in ((compared.pair(u, v) for v in second) for u in first)
    ]
    values: dict[str, Floats] = {
        name: np.array([[pair[name] for pair in row] for row in pairs]) for name in moments
    }
    spreads = of_groups(compared.gathering, moments, models)
    sampled = len(compared.sample.numbers) > 1
    for name, measure in measures.items():
        if isinstance(measure, RelationMeasure):
            values[name] = np.full((len(first), len(second)), np.nan)
            if sampled:
                x, y = (compared.sampled(model) for model in models)
                spreads[name] = of_sample(
                    measure, x, y, compared.sample, compared.gathering.clusters
                )
                values[name] = spreads[name].whole
    tests = [_tests(compared, models, measures, name, null_tests, run) for name in null_tests.nulls]
    names = [compared.records[model].name for model in models]
    cells = []
    for name, measure in measures.items():
        for s, site_a in enumerate(compared.sites[models[0]]):
            for t, site_b in enumerate(compared.sites[models[1]]):
                # float32 sums pass an end by 1e-7
                value = float(np.clip(values[name][s, t], *measure.words.range))
                spread = spreads.get(name)
                interval, bias = (
                    spread.interval(s, t, value, measure.words.range) if spread else (None, None)
                )
                cells.append(
                    SimilarityCell(
                        model_a=names[0],
                        site_a=site_a,
                        model_b=names[1],
                        site_b=site_b,
                        measure=name,
                        value=value if value == value else None,
                        interval=interval,
                        bias=bias,
                        tests=[by_measure[name][s][t] for by_measure in tests],
                    )
                )
    return cells


def _tests(
    compared: ComparedSources,
    models: tuple[int, int],
    measures: Mapping[str, SimilarityMeasure],
    name: str,
    null_tests: NullTests,
    run: Run,
) -> dict[str, list[list[NullTest]]]:
    """One null of one pair of models, on every k-th token of a sampled window, about eight."""

    def thinned(sites: Sequence[Tensor]) -> list[Tensor]:
        return [rows[:, :: max(1, rows.shape[1] // TESTED_RUN)] for rows in sites]

    redraw = compared.redrawn.get(models[0])
    sample = compared.sample
    if len(sample.numbers) < 2:
        none = [
            [NullTest(null=name) for _ in compared.members(models[1])]
            for _ in compared.members(models[0])
        ]
        return dict.fromkeys(measures, none)
    x, y = (thinned(compared.sampled(model)) for model in models)
    redrawn = None if redraw is None else lambda draw: thinned(redraw(draw, sample))
    task = NullTask(
        x, y, measures, null_tests.draws, torch.Generator().manual_seed(null_tests.seed), redrawn
    )
    return tested(
        name,
        null_tests.nulls[name],
        task,
        lambda done: run.progress(f"null: {name}", done, null_tests.draws, "draws"),
    )
