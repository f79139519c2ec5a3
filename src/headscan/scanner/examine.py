"""One model of a scan: its pass over the text, its null's, and the rows that follow from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from headscan.measures.measure import Measure
from headscan.measures.probe import Clouds, Probe
from headscan.run import ModelRecord, Row, Run, TextRecord
from headscan.run.parts import Part
from headscan.run.result import Arrays
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.differences import Estimates
from headscan.scanner.memory import finishing, memory_bound
from headscan.scanner.picture import coordinates, picture
from headscan.scanner.probe_runner import PassOptions, ProbeRunner
from headscan.scanner.result import Picture
from headscan.scanner.site_cells import gaussian_cells, site_cells
from headscan.scanner.sources import Subject, readable
from headscan.states import VectorSource
from headscan.states.plan import ReadingPlan
from headscan.statistics import Cloud, merged, process_count, process_rank
from headscan.statistics.errors import Errors
from headscan.statistics.parallel import side_by_side
from headscan.statistics.uncertainty import Cells
from headscan.text import Batch

ANNOUNCED_BYTES = 2**30
"""A scan that may hold more than this announces its memory before it begins."""


@dataclass
class Examined:
    """The rows, pictures and records of one model of a scan."""

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
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FinishedSite:
    """The numbers of one site, their errors and the coordinates of its picture."""

    site: str
    cells: Cells
    errors: Errors
    arrays: Arrays


@dataclass(frozen=True, kw_only=True)
class SourcePass:
    """One pass over a source: its name among the stored parts, and the name that users read.

    `store`: whether further passes follow, and so its finished state is stored for a resume.
    """

    name: str
    label: str
    source: VectorSource
    sites: tuple[str, ...]
    runner: ProbeRunner
    store: bool


@dataclass
class Examiner:
    """Examines one source after the other with the same measures and probes.

    Attributes:
        plan: how the sources are read; its text can be read as often as is needed.
        options: those of each pass.
        null: whether the architecture with random weights is read, too.
        master: the Spark cluster that reads stored states; None where this process reads them.
        colour: the column of a table that colours its picture.
    """

    measures: Sequence[Measure]
    probes: Sequence[Probe]
    plan: ReadingPlan
    options: PassOptions
    run: Run
    null: bool = False
    master: str | None = None
    colour: str | None = None

    def examine(self, subject: Subject, number: int, *, last: bool) -> Examined:
        """Read one model and, with `null`, the same architecture with random weights.

        The model's weights are given back before the random ones are drawn: the two are not in
        memory at once, unless the caller holds the model. `last`: no model follows.
        """
        examined, control = self._trained(subject, number, store=self.null or not last)
        subject.release()
        if self.null:
            random_source = control()
            self._add_gaussian(examined)
            if random_source is not None:
                self._add_random(examined, random_source, number, store=not last)
        return examined

    def _trained(
        self, subject: Subject, number: int, *, store: bool
    ) -> tuple[Examined, Callable[[], VectorSource | None]]:
        """Read the model itself; return its rows, and a function that makes its control.

        Neither of the two holds the weights of the model.
        """
        source = subject.source(self.plan.text)
        sites = subject.sites(source)
        runner = ProbeRunner(self.probes, source, sites, self.options, announce=self.run.announce)
        one_pass = SourcePass(
            name=f"{number}",
            label=source.name,
            source=source,
            sites=sites,
            runner=runner,
            store=store,
        )
        accumulated, text = self._read(one_pass)
        examined = Examined(source.record(), text, source.batch, notes=source.sentences())
        finished = self._finished_sites(source, sites, accumulated, pictured=True)
        for depth, at_site in enumerate(finished):
            examined.rounding.append(at_site.errors.rounding)
            leading: Cells = {"model": source.name, "depth": depth}
            examined.sites.append(Row(leading | at_site.cells))
            examined.estimates.append(
                Estimates(source.name, at_site.site, at_site.cells, at_site.errors)
            )
            examined.arrays |= at_site.arrays
        examined.picture = picture(source, accumulated, self.options.sample, self.colour)
        clouds = Clouds(accumulated.sites, runner.setup.sites)
        examined.tables = runner.rows(accumulated, clouds, {"model": source.name})
        examined.seconds = runner.seconds
        examined.reasons = runner.reasons
        return examined, subject.control(source, self.plan.text)

    def _add_gaussian(self, examined: Examined) -> None:
        """Add the Gaussian null of every site."""
        for depth, row in enumerate(examined.sites):
            leading: Cells = {
                "model": examined.record.name,
                "depth": depth,
                "site": row.text("site"),
            }
            cells = gaussian_cells(dict(row), self.measures, seed=self.options.seed)
            examined.nulls.append(Row(leading | cells))

    def _add_random(
        self, examined: Examined, source: VectorSource, number: int, *, store: bool
    ) -> None:
        """Add the rows of the random-weight control, each before the Gaussian null of its site.

        The expensive probes are left out.
        """
        model = examined.record.name
        sites = tuple(row.text("site") for row in examined.sites)
        cheap_probes = [probe for probe in self.probes if not probe.words.expensive]
        runner = ProbeRunner(cheap_probes, source, sites, self.options, announce=_say_nothing)
        one_pass = SourcePass(
            name=f"{number}-random-init",
            label=f"{model}, random weights",
            source=source,
            sites=sites,
            runner=runner,
            store=store,
        )
        accumulated, _ = self._read(one_pass)
        finished = self._finished_sites(source, sites, accumulated, pictured=False)
        gaussian_rows = examined.nulls
        examined.nulls = []
        for depth, at_site in enumerate(finished):
            leading: Cells = {
                "model": model,
                "depth": depth,
                "site": at_site.site,
                "null": "random-init",
            }
            examined.nulls.append(Row(leading | at_site.cells))
            examined.nulls.append(gaussian_rows[depth])
            examined.estimates.append(
                Estimates(model, at_site.site, at_site.cells, at_site.errors, null=True)
            )
            examined.rounding.append(at_site.errors.rounding)

        clouds = Clouds(accumulated.sites, runner.setup.sites)
        tables = runner.rows(accumulated, clouds, {"model": model, "null": "random-init"})
        for name, rows in tables.items():
            examined.tables.setdefault(name, []).extend(rows)
        for name, seconds in runner.seconds.items():
            examined.seconds[name] = examined.seconds.get(name, 0.0) + seconds

    def _finished_sites(
        self,
        source: VectorSource,
        sites: tuple[str, ...],
        accumulated: Accumulation,
        *,
        pictured: bool,
    ) -> list[FinishedSite]:
        """Return the numbers of these sites; several are computed at once where memory allows."""
        devices = [accumulated.sites[site].device for site in sites]
        device = next((device for device in devices if device.type != "cpu"), devices[0])
        widest = max(source.width(site) for site in sites)
        finish = partial(self._finished_site, source, accumulated, pictured)
        return list(side_by_side(finish, sites, finishing(widest), device))

    def _finished_site(
        self, source: VectorSource, accumulated: Accumulation, pictured: bool, site: str
    ) -> FinishedSite:
        """Return the numbers of a site; `pictured`: with the coordinates of its sampled tokens."""
        statistics = accumulated.sites[site]
        errors = Errors.of(statistics, self.measures)
        if not pictured:
            cells, _ = site_cells(site, statistics, self.measures, errors=errors)
            return FinishedSite(site, cells, errors, {})

        arrays = Arrays()

        def add_coordinates(group: str, cloud: Cloud) -> None:
            if group == "without_sinks":
                size = self.options.sample
                words = bool(source.vocabulary)
                arrays.update(coordinates(source.name, site, cloud, accumulated, size, words=words))

        cells, _ = site_cells(
            site, statistics, self.measures, source.words, errors, add_coordinates
        )
        return FinishedSite(site, cells, errors, arrays)

    def _read(self, one_pass: SourcePass) -> tuple[Accumulation, TextRecord]:
        """Read a source once, from where a stored pass stopped.

        Returns the statistics of all processes and the record of the text.
        """
        source = one_pass.source
        runner = one_pass.runner
        self._announce_memory(one_pass)
        stored = self.run.parts.read(one_pass.name)
        accumulated = self._begun(one_pass, stored)
        batches = source.batches(
            start=accumulated.next,
            process=process_rank(),
            processes=process_count(),
            expected=stored.note if stored else None,
        )

        def after(_: Batch) -> None:
            next_window = accumulated.next
            self.run.progress(
                one_pass.label, source.read(next_window), source.expects(next_window), "tokens"
            )
            if self.run.parts.due():
                self._store(one_pass, accumulated)

        try:
            accumulate(
                source,
                batches,
                accumulated,
                after=after,
                watch=runner.watch(accumulated),
                passing=runner.passing(),
                skip_first=self.options.skip_first,
            )
        except KeyboardInterrupt:
            self._store(one_pass, accumulated, always=True)
            raise
        # Probes may be interrupted, too: a finished pass is stored before it is merged with those
        # of other processes.
        if one_pass.store or runner.probes or process_count() > 1:
            self._store(one_pass, accumulated)
        text = source.text()
        return merged(accumulated), text

    def _begun(self, one_pass: SourcePass, stored: Part | None) -> Accumulation:
        """Return the accumulation that a pass begins with: empty, stored, or a cluster's."""
        runner = one_pass.runner
        accumulated = runner.empty_pass()
        if stored:
            accumulated = accumulated.restored(dict(stored.tensors))
        if process_count() == 1 and self.master is not None:
            from headscan.scanner.cluster import on_cluster

            source = readable(one_pass.source)
            first = accumulated.next
            accumulated.merge(on_cluster(source, self.plan, runner, first, self.master))
        return accumulated

    def _announce_memory(self, one_pass: SourcePass) -> None:
        source = one_pass.source
        needed = memory_bound(
            [source.width(site) for site in one_pass.sites],
            context=source.context,
            tokens=source.tokens,
            batch=source.batch * source.context,
        )
        if needed > ANNOUNCED_BYTES:
            self.run.announce(
                f"The scan of {one_pass.label} takes at most {needed / 1e9:.2g} GB beside the "
                "model."
            )

    def _store(
        self, one_pass: SourcePass, accumulated: Accumulation, *, always: bool = False
    ) -> None:
        """Store the state of a pass for a resume, where that takes little of the time.

        `always`: also where it takes long. A batch that is only partly added is not stored.
        """
        if self.run.folder is None or not accumulated.complete:
            return
        accumulated.pending.finish()
        state = accumulated.state()
        size = sum(tensor.nbytes for tensor in state.values())
        parts = self.run.parts
        if always or parts.affordable(size):
            parts.write(one_pass.name, state, note=one_pass.source.mark())


def _say_nothing(_: str) -> None:
    """Announce nothing."""
