"""One model of a scan: its pass over the text, its null's, and what they say."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from headscan.measures.measure import WITHOUT_FIRST, WITHOUT_SINKS, Measure, gaussian_cloud
from headscan.measures.outliers import outliers
from headscan.measures.probe import Clouds, Probe
from headscan.measures.spectrum import singular_values
from headscan.run import ModelRecord, Row, Run, TextRecord
from headscan.run.result import Arrays
from headscan.scanner.accumulate import Accumulation, ProbeRunner, accumulate, empty_pass
from headscan.scanner.differences import Estimates
from headscan.scanner.picture import coordinates, picture
from headscan.scanner.result import Picture
from headscan.scanner.settings import Scanning, choose, finishing, memory_bound
from headscan.scanner.sources import Subject, readable
from headscan.states import VectorSource
from headscan.statistics import (
    Cloud,
    SiteStatistics,
    merged,
    process_count,
    process_rank,
    same_everywhere,
)
from headscan.statistics.errors import Errors
from headscan.statistics.parallel import side_by_side
from headscan.statistics.sinks import GROUPS
from headscan.statistics.uncertainty import Cells
from headscan.text import Batch, TextLike

# ---- From finished statistics to the rows of a result: every measure of every site, with its interval, also without sinks.

SUFFIXES = {"all": "", "without_first": WITHOUT_FIRST, "without_sinks": WITHOUT_SINKS}
"""What the names of numbers end in, by the group of tokens that they are of."""


def site_cells(
    site: str,
    statistics: SiteStatistics,
    measures: Sequence[Measure] | None = None,
    shown: Callable[[list[int]], list[str]] | None = None,
    errors: Errors | None = None,
    visit: Callable[[str, Cloud], None] | None = None,
) -> tuple[Cells, Cloud]:
    """The fields of one site (see the result's documentation) and the finished cloud of all its
    positions.

    Each measure appears as NAME and NAME_interval, and both without position 0 of each window
    (NAME_without_first) and without sink tokens (NAME_without_sinks); a value that is not defined
    is None, and `notes` says why. Beside them stand `effective_clusters`: how many independent ones
    of its `clusters` (documents or windows) the text is worth, for the measure it says least of,
    and what `outliers` says of sinks and coordinates (`shown` turns token ids into words). `errors`
    are those of the same statistics and measures, where they are known already. `visit` is shown
    the cloud of each group of tokens while it is there (not of groups with the same tokens as one
    before; `without_sinks` always).
    """
    chosen = list(choose(None)[0] if measures is None else measures)
    errors = errors or Errors.of(statistics, chosen)
    values: dict[tuple[str, ...], Cells] = {}
    outlying: Cells = {}
    whole: Cloud | None = None
    for group, name in reversed(
        list(enumerate(GROUPS))
    ):  # one cloud at a time: each is several matrices
        occupied = statistics.occupied(name)
        if occupied in values and (whole is not None or group):
            continue
        points = Cloud.of_sums(statistics.sums(name))
        if occupied not in values:
            alike = [
                number
                for number, each in enumerate(GROUPS)
                if statistics.occupied(each) == occupied
            ]
            # The values come first: with eigenvectors, LAPACK finds eigenvalues of other last bits.
            own: Cells = {
                measure.name: measure(points) if points.count else None for measure in chosen
            }
            own["singular_values"] = singular_values(points).tolist() if points.count else []
            values[occupied] = own | errors.cells(alike, points, own)
        if name == "without_sinks":
            outlying = outliers(statistics, points, shown) | over_lengths(
                statistics, chosen, points.count, values[occupied]
            )
        if visit is not None:
            visit(name, points)
        if occupied == statistics.occupied("all"):
            whole = points
    assert whole is not None
    errors.sums = None  # which are large
    cells: Cells = {"site": site, "tokens": whole.count, "width": whole.width}
    notes: list[str] = []
    for name, suffix in SUFFIXES.items():
        own = values[statistics.occupied(name)]
        for measure in chosen:
            for end in ("", "_interval"):
                if measure.name + end in own:
                    cells[f"{measure.name}{suffix}{end}"] = own[measure.name + end]
            if own[measure.name] is None:
                notes.append(f"{measure.name}{suffix} is not defined: {measure.words.undefined}")
            elif own[f"{measure.name}_interval"] is None:
                notes.append(f"{measure.name}{suffix} has no interval: {errors.reason(measure)}")
        for name in ("singular_values", "effective_clusters", "clusters"):
            cells[name + suffix] = own[name]
    cells |= outlying
    if whole.zeros:
        notes.append(
            f"{whole.zeros} vectors are zero and have no direction; average_cosine leaves them out"
        )
    cells["notes"] = notes
    return cells, whole


def over_lengths(
    statistics: SiteStatistics, measures: Sequence[Measure], tokens: int, values: Cells
) -> Cells:
    """A number is one at a length: the core measures of the text's beginning, at each doubling up
    to all `tokens`, without sinks. `lengths` [k] in tokens, and NAME_without_sinks_curve [k], which
    ends with the `values` of the whole.
    """
    chosen = [measure for measure in measures if measure.words.core]
    clouds = [Cloud.of_sums(sums) for sums in statistics.prefixes()] if chosen else []
    clouds = [cloud for cloud in clouds if 1 < cloud.count < tokens]
    found: Cells = {"lengths": [*(cloud.count for cloud in clouds), tokens]} if clouds else {}
    for one in chosen if clouds else ():
        found[f"{one.name}{WITHOUT_SINKS}_curve"] = [
            *(one(cloud) for cloud in clouds),
            values[one.name],
        ]
    return found


def gaussian_cells(
    cells: Cells, measures: Sequence[Measure] | None = None, *, seed: int = 0
) -> Cells:
    """The Gaussian null of a site: each measure on round clouds of the same count, width and mean
    squared norm.

    The value is the mean over draws, the interval their range; draws are 8, or 2 beyond 1,024
    dimensions.
    """
    chosen = choose(None)[0] if measures is None else measures
    count = cells["tokens"]
    width = cells["width"]
    spectrum = cells["singular_values"]
    assert isinstance(count, int)
    assert isinstance(width, int)
    mean_square = float(np.square(np.asarray(spectrum, dtype=np.float64)).sum())
    notes: list[str] = []
    null: Cells = {"null": "gaussian", "tokens": count, "width": width, "notes": notes}
    clouds = _round_clouds(count, width, seed)
    for measure in chosen:
        # Measures of length scale with the cloud; all others do not see the scale. One set of draws
        # serves all sites.
        scale = mean_square**0.5 if measure.words.group == "norms" else 1.0
        values = [scale * value for value in map(measure, clouds) if value is not None]
        null[measure.name] = float(np.mean(values)) if values else None
        null[f"{measure.name}_interval"] = [min(values), max(values)] if values else None
        if not values:
            notes.append(f"{measure.name} is not defined: {measure.words.undefined}")
    null["singular_values"] = (
        mean_square**0.5 * np.mean([singular_values(c) for c in clouds], axis=0)
    ).tolist()
    return null


@lru_cache(maxsize=4)
def _round_clouds(count: int, width: int, seed: int) -> tuple[Cloud, ...]:
    generator = np.random.default_rng([seed, count, width])
    draws = 8 if width <= 1024 else 2
    return tuple(
        gaussian_cloud(count, width, mean_square_norm=1.0, generator=generator)
        for _ in range(draws)
    )


LARGE = 2**30  # bytes from which on a scan says what it will take


@dataclass
class Examined:
    """What a scan says of one model."""

    record: ModelRecord
    text: TextRecord
    batch: int
    sites: list[Row] = field(default_factory=list)
    nulls: list[Row] = field(default_factory=list)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    picture: Picture = field(default_factory=Picture)
    arrays: Arrays = field(default_factory=dict)
    estimates: list[Estimates] = field(default_factory=list)
    rounding: list[float] = field(default_factory=list)


@dataclass
class Examiner:
    """Examines one source after the other with the same measures and probes."""

    measures: Sequence[Measure]
    probes: Sequence[Probe]
    text: TextLike | None
    settings: Scanning
    run: Run

    def examine(self, subject: Subject, number: int, *, last: bool) -> Examined:
        """The pass of one model and, where asked, of the same architecture with random weights.

        The model's weights are given back before the random ones are drawn: the two are not in
        memory at once, unless whoever called holds the model.
        """
        model, control = self._trained(subject, number, more=self.settings.null or not last)
        subject.release()
        if self.settings.null:
            self._null(model, control(), number, more=not last)
        return model

    def _trained(
        self, subject: Subject, number: int, *, more: bool
    ) -> tuple[Examined, Callable[[], VectorSource | None]]:
        """The pass of the model itself, and what makes its random-weight control; neither holds its
        weights.
        """
        source = subject.source(self.text)
        sites = subject.sites(source)
        runner = ProbeRunner(self.probes, source, sites, self.settings, announce=self.run.announce)
        accumulated, text = self._pass(
            f"{number}", source, sites, runner, label=source.name, more=more
        )
        model = Examined(source.record(), text, source.batch)
        every = self._finished(f"{number}", source, sites, accumulated, more=more, pictured=True)
        for depth, (cells, errors, arrays) in enumerate(every):
            model.rounding.append(errors.rounding)
            model.sites.append(Row({"model": source.name, "depth": depth, **cells}))
            model.estimates.append(Estimates(source.name, sites[depth], cells, errors))
            model.arrays |= arrays
        model.picture = picture(source, accumulated, self.settings.sample)
        model.tables = runner.rows(
            accumulated, Clouds(accumulated.sites, runner.setup.sites), {"model": source.name}
        )
        model.seconds = runner.seconds
        model.reasons = runner.reasons
        return model, subject.control(source, self.text)

    def _finished(
        self,
        name: str,
        source: VectorSource,
        sites: tuple[str, ...],
        accumulated: Accumulation,
        *,
        more: bool,
        pictured: bool = False,
    ) -> list[tuple[Cells, Errors, Arrays]]:
        """The cells, errors and coordinates of every site; those that float32 products left too
        coarse are read again.
        """
        made = dict(
            zip(sites, self._sites(source, sites, accumulated, pictured=pictured), strict=True)
        )
        coarse = same_everywhere(
            "\n".join(site for site, (_, errors, _) in made.items() if errors.rounding > 1)
        )
        if coarse:
            again = tuple(coarse.split("\n"))
            self.run.announce(
                f"{source.name} is read once more, with float64 products, at {', '.join(again)}."
            )
            exact = replace(self, settings=self.settings.but(arithmetic="exact"))
            runner = ProbeRunner([], source, again, exact.settings, announce=self.run.announce)
            second, _ = exact._pass(
                f"{name}-exact", source, again, runner, label=source.name, more=more
            )
            accumulated.sites |= second.sites
            made |= zip(
                again, self._sites(source, again, accumulated, pictured=pictured), strict=True
            )
        return list(made.values())

    def _sites(
        self,
        source: VectorSource,
        sites: tuple[str, ...],
        accumulated: Accumulation,
        *,
        pictured: bool = False,
    ) -> Iterator[tuple[Cells, Errors, Arrays]]:
        """The cells of every site, their errors and, where it is pictured, the picture's
        coordinates.
        """

        def finish(site: str) -> tuple[Cells, Errors, Arrays]:
            statistics = accumulated.sites[site]
            arrays = Arrays()
            errors = Errors.of(statistics, self.measures)

            def visit(group: str, cloud: Cloud) -> None:
                if pictured and group == "without_sinks":
                    size = self.settings.sample
                    words = bool(source.vocabulary)
                    arrays.update(
                        coordinates(source.name, site, cloud, accumulated, size, words=words)
                    )

            shown = source.words if pictured else None
            return (
                site_cells(site, statistics, self.measures, shown, errors, visit)[0],
                errors,
                arrays,
            )

        devices = [accumulated.sites[site].device for site in sites]
        device = next((device for device in devices if device.type != "cpu"), devices[0])
        return side_by_side(finish, sites, finishing(max(map(source.width, sites))), device)

    def _null(
        self, found: Examined, random: VectorSource | None, number: int, *, more: bool
    ) -> None:
        """Random weights (without the expensive probes; of a model only) and the Gaussian, beside
        every site.
        """
        gaussians = []
        for depth, row in enumerate(found.sites):
            place: Cells = {"model": found.record.name, "depth": depth, "site": row.text("site")}
            gaussians.append(
                Row(place | gaussian_cells(dict(row), self.measures, seed=self.settings.seed))
            )
        if random is None:
            found.nulls += gaussians
            return
        model = found.record.name
        sites = tuple(row.text("site") for row in found.sites)
        cheap = [probe for probe in self.probes if not probe.words.expensive]
        runner = ProbeRunner(cheap, random, sites, self.settings, announce=lambda _: None)
        name = f"{number}-random-init"
        label = f"{model}, random weights"
        accumulated, _ = self._pass(name, random, sites, runner, label=label, more=more)
        every = self._finished(name, random, sites, accumulated, more=more)
        for depth, (site, (cells, errors, _)) in enumerate(zip(sites, every, strict=True)):
            found.nulls.append(
                Row({"model": model, "depth": depth, "site": site, "null": "random-init", **cells})
            )
            found.estimates.append(Estimates(model, site, cells, errors, null=True))
            found.nulls.append(gaussians[depth])
            found.rounding.append(errors.rounding)
        place = {"model": model, "null": "random-init"}
        for name, rows in runner.rows(
            accumulated, Clouds(accumulated.sites, runner.setup.sites), place
        ).items():
            found.tables.setdefault(name, []).extend(rows)
        for name, seconds in runner.seconds.items():
            found.seconds[name] = found.seconds.get(name, 0.0) + seconds

    def _pass(
        self,
        name: str,
        source: VectorSource,
        sites: tuple[str, ...],
        runner: ProbeRunner,
        *,
        label: str,
        more: bool,
    ) -> tuple[Accumulation, TextRecord]:
        """One pass of one model, continued where a stored one stands; the merged statistics and
        what was read.

        `more` passes are to come: then the finished one is stored, too, where that takes little of
        the time.
        """
        settings = self.settings
        parts = self.run.parts
        needed = memory_bound(
            [source.width(site) for site in sites],
            context=source.context,
            tokens=source.tokens,
            batch=source.batch * source.context,
        )
        if needed > LARGE:
            self.run.announce(
                f"The scan of {label} takes at most {needed / 1e9:.2g} GB beside the model."
            )
        stored = parts.read(name)
        accumulated = empty_pass(source, sites, runner, settings)
        if stored:
            accumulated = accumulated.restored(dict(stored.tensors))
        if process_count() == 1 and settings.engine == "spark":
            from headscan.scanner.cluster import on_cluster

            empty = empty_pass(source, sites, runner, settings)
            accumulated.merge(
                on_cluster(readable(source), sites, empty, accumulated.next, settings)
            )
        own = source.batches(
            start=accumulated.next,
            process=process_rank(),
            processes=process_count(),
            expected=stored.note if stored else None,
        )

        def store(*, must: bool = False) -> None:
            if self.run.folder is None or not accumulated.whole:
                return
            accumulated.settle()
            state = accumulated.state()
            if must or parts.affordable(sum(tensor.nbytes for tensor in state.values())):
                parts.write(name, state, note=source.mark())

        def after(batch: Batch) -> None:
            self.run.progress(
                label, source.read(accumulated.next), source.expects(accumulated.next), "tokens"
            )
            if parts.due():
                store()

        try:
            watch = runner.watch(accumulated)
            passing = runner.passing()
            accumulate(
                source,
                own,
                accumulated,
                after=after,
                watch=watch,
                passing=passing,
                skip_first=settings.skip_first,
            )
        except KeyboardInterrupt:
            store(must=True)
            raise
        # Probes may be interrupted too: a finished pass is stored before it is merged with others'.
        if more or runner.probes or process_count() > 1:
            store()
        text = source.text()
        accumulated = merged(accumulated)
        return accumulated, text
