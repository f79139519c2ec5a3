"""`headscan scan`: every measure at every site of models that read a text, or of stored states."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack

from headscan.measures.measure import Group, Measure, MeasureFunction, group
from headscan.measures.outliers import RULE
from headscan.measures.probe import Probe
from headscan.model.sentence import SENTENCE
from headscan.model.settings import Device, Dtype, Loading, Revisions, Sites, TokenizerName
from headscan.run import BadInput, Finding, Row, Run, estimates, verb
from headscan.run.result import Arrays
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.run.spark import check_engine
from headscan.scanner.cautions import UNREAD, on_few, things_at, unread
from headscan.scanner.colouring import colour_column
from headscan.scanner.differences import differences
from headscan.scanner.examine import Examined, Examiner
from headscan.scanner.findings import findings
from headscan.scanner.memory import memory_bound
from headscan.scanner.probe_runner import PassOptions
from headscan.scanner.result import ProbeRecord, ScanResult
from headscan.scanner.selection import MeasuresLike, choose
from headscan.scanner.site_cells import SUFFIXES
from headscan.scanner.sources import listed_sources, open_subjects
from headscan.states import SourcesLike
from headscan.states.estimate import (
    Estimate,
    ExpectedReader,
    expected_reader,
)
from headscan.states.plan import ReadingPlan
from headscan.statistics import process_count, process_rank, same_everywhere
from headscan.statistics.errors import allowed
from headscan.text import PairSet, read_pair_files, synonyms
from headscan.text.source import (
    TEXT,
    BatchSize,
    Context,
    Documents,
    FieldName,
    Master,
    MaxTokens,
    Reading,
    Start,
    StartName,
    TextLike,
    Windowing,
    check_text,
)


@verb("scan")
def scan(
    run: Run,
    sources: SourcesLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    revisions: Revisions = None,
    context: Context = None,
    sites: Sites = None,
    skip_first: Annotated[
        int, Option("Positions left out at the beginning of each window.", low=0)
    ] = 0,
    null: Annotated[
        bool,
        Option("Scan the same architecture with random weights, too, and add the Gaussian null."),
    ] = False,
    sample: Annotated[int, Option("Tokens shown in the 3-D picture.", low=0, group="Limits")] = 600,
    colour: Annotated[
        str | None,
        Option(
            "The column of a table of vectors (texts, numbers or dates) whose values colour the "
            "3-D picture.",
            metavar="COLUMN",
        ),
    ] = None,
    measures: Annotated[
        str | Sequence[str | MeasureFunction] | None,
        Option(
            "More measures: globs of names or groups, comma-separated (such as "
            "'rogue,words,spectra'), 'all' but the expensive ones, or 'expensive' for everything. "
            "Expensive ones say their time and memory first.",
            metavar="GLOBS",
        ),
    ] = None,
    pairs: Annotated[
        Sequence[str | os.PathLike[str]],
        Option(
            "Pairs of texts that mean the same, for --measures alignment (again for more): "
            ".tsv of two columns, .csv as STS-B, .json as PUD; FILE or NAME=FILE. Default: a "
            "list of English synonyms.",
            metavar="FILE",
            group="Input",
        ),
    ] = (),
    batch: BatchSize = None,
    arithmetic: Annotated[
        Literal["bounded", "exact"],
        Option(
            "Second moments: bounded (float32 products from 256 dimensions on, whose measured "
            "error stays below 1e-6 of each number or a thousandth of its interval) or exact "
            "(float64 throughout)."
        ),
    ] = "bounded",
    engine: Annotated[
        Literal["here", "spark"],
        Option(
            "Engine that reads stored states: here (these processes) or spark (a cluster).",
            identity=False,
            group="Advanced",
        ),
    ] = "here",
    master: Master = None,
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> ScanResult:
    """Scan the representations of one or more models on a text, or stored states: cones, spectra
    and norms, site by site.

    Args:
        sources: one or several, each a model (Hugging Face id, local folder, name of an example
            model, Lens, live model of transformers, or SentenceTransformer, which gives the
            numbers of its folder) or stored states: a path or URL (see `headscan.states.FORMATS`),
            an array [n, d] or [windows, T, d], a dict of such by site.
        text: for models: a file, folder, `-`, `datasets` id, name of an embedded text, a text, or a
            list of texts.

    Returns:
        A `ScanResult`. Under `torchrun`, that of process 0 is complete; the others return the
        numbers of the windows that they have read.

    Raises:
        BadInput: where a model, the text or an option cannot be used (all models are checked before
            the first pass); for NaN or infinite activations, by site; on a resumed scan, for a
            text, weights or a tokenizer that has changed.

    Cost: one forward pass of the text for each model (two with `null`) plus about a tenth of it for
    the second moments; memory does not grow with the text, nor with `null`. Several models of less
    than 2 GiB together are all loaded at once, larger ones each when its turn comes.

    >>> from headscan import scan
    >>> result = scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> 0 < result.site("block.0").number("average_cosine") < 1
    True
    >>> import numpy as np
    >>> scan(np.eye(640, 8)).site("vectors")["tokens"]
    640
    """
    plan = ReadingPlan(
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        windowing=Windowing(context=context, skip_first=skip_first, batch=batch),
        text=text,
        sites=sites,
        seed=seed,
    )
    plan.check_window(context)
    check_engine(engine, master)
    chosen_measures, probes = choose(measures)
    pair_sets = _pair_sets(pairs, probes)
    if text is not None:
        check_text(text)
    subjects = open_subjects(
        listed_sources(sources, revisions), plan, run, cluster=engine == "spark"
    )
    if colour is not None:
        for subject in subjects:
            colour_column(subject.ready, subject.name, colour)

    # Second moments with a bounded error serve core measures only.
    core_only = all(measure.words.core for measure in chosen_measures if measure.spectral)
    options = PassOptions(
        skip_first=skip_first,
        sample=sample,
        bounded=arithmetic == "bounded" and core_only,
        seed=seed,
        pairs=pair_sets,
    )
    passes_a_model = max((probe.passes for probe in probes), default=1)
    models = 2 * len(subjects) if null else len(subjects)
    with _rereadable(text, passes=models * passes_a_model) as readable_text:
        examiner = Examiner(
            chosen_measures,
            probes,
            replace(plan, text=readable_text),
            options,
            run,
            null=null,
            master=master,
            colour=colour,
        )
        examined = []
        for number, subject in enumerate(subjects):
            last = number + 1 == len(subjects)
            examined.append(examiner.examine(subject, number, last=last))
    return _Summary(examined, chosen_measures, probes).result(run, skip_first)


def _pair_sets(
    pairs: Sequence[str | os.PathLike[str]], probes: Sequence[Probe]
) -> tuple[PairSet, ...]:
    """Return the pairs of texts in the files, or the shipped synonyms where there are none."""
    if pairs and "alignment" not in {probe.name for probe in probes}:
        raise BadInput("--pairs is for the measure alignment: add --measures alignment.")
    return tuple(read_pair_files(pairs)) or (synonyms(),)


@dataclass
class _Summary:
    """Joins the numbers of all models of a scan into its result."""

    examined: list[Examined]
    measures: list[Measure]
    probes: list[Probe]

    def result(self, run: Run, skip_first: int) -> ScanResult:
        """Return the result: all rows, the descriptions of measures and probes, and the findings.

        `skip_first`: positions that were left out at the beginning of each window.
        """
        examined = self.examined
        last = examined[-1]
        protocol = run.protocol(
            text=last.text,
            device=last.record.device,
            dtype=last.record.dtype,
            notes=self._notes(skip_first),
        )
        sites = [row for model in examined for row in model.sites]
        nulls = [row for model in examined for row in model.nulls]
        tables = self._tables()
        estimates_of_sites = [estimate for model in examined for estimate in model.estimates]
        return ScanResult(
            protocol=protocol,
            models=[model.record for model in examined],
            sites=sites,
            nulls=nulls,
            measures={measure.name: measure.words for measure in self.measures},
            probes=[self._probe_record(probe) for probe in self.probes],
            groups=self._groups(),
            tables=tables,
            pictures={model.record.name: model.picture for model in examined},
            arrays=self._arrays(),
            differences=differences(estimates_of_sites, list(SUFFIXES.values())),
            findings=self._findings(sites, nulls, tables),
        )

    def _notes(self, skip_first: int) -> list[str]:
        positions = "all"
        if skip_first:
            positions = f"all but the first {skip_first} of each window"
        rounding = [share for model in self.examined for share in model.rounding]
        return [
            f"Positions: {positions}; {self.examined[-1].batch} windows a forward pass.",
            *(note for model in self.examined for note in model.notes),
            RULE,
            allowed(rounding),
            "Intervals (95 %) are for another text of the same length and kind, with documents as "
            "clusters; of fewer than three documents, windows are the clusters, and the interval "
            "is for this text alone.",
        ]

    def _tables(self) -> dict[str, list[Row]]:
        """Return the rows of each probe, of all models."""
        tables: dict[str, list[Row]] = {}
        for probe in self.probes:
            tables[probe.name] = []
            for model in self.examined:
                tables[probe.name] += model.tables[probe.name]
        return tables

    def _groups(self) -> dict[str, Group]:
        """Return the groups that the measures and probes belong to."""
        names = [measure.words.group for measure in self.measures]
        names += [probe.words.group for probe in self.probes]
        return {name: group(name) for name in dict.fromkeys(names)}

    def _arrays(self) -> Arrays:
        arrays: Arrays = {}
        for model in self.examined:
            arrays |= model.arrays
        return arrays

    def _probe_record(self, probe: Probe) -> ProbeRecord:
        """Return a probe's description, the time of its rows, and the models that have none."""
        seconds = []
        notes = []
        for model in self.examined:
            if probe.name in model.seconds:
                seconds.append(model.seconds[probe.name])
            if probe.name in model.reasons:
                notes.append(f"{model.record.name} has none: {model.reasons[probe.name]}")
        return ProbeRecord(
            **vars(probe.words),
            seconds=round(sum(seconds), 2) if seconds else None,
            notes=notes,
        )

    def _findings(
        self, sites: list[Row], nulls: list[Row], tables: dict[str, list[Row]]
    ) -> list[Finding]:
        """Return the findings of all models, each with the tokens that it is based on.

        A model that cannot read the text has one finding, which says so.
        """
        texts = {model.record.name: model.text for model in self.examined}
        unreadable = [unread(text, name) for name, text in texts.items()]
        result = [finding for finding in unreadable if finding is not None]
        units = {name: text.unit for name, text in texts.items() if text is not None}
        for finding in findings(sites, nulls, tables, units):
            text = texts.get(finding.model or "")
            if text is None or text.unknown_share >= UNREAD:
                continue
            counted = text.windows if finding.site == SENTENCE else text.tokens
            caution = ""
            if finding.level == "alarm":
                caution = on_few(counted, things_at(finding.site, text.unit))
            result.append(
                replace(
                    finding,
                    level="notice" if caution else finding.level,
                    sentence=finding.sentence + caution,
                    read=text.read,
                )
            )
        return result


@contextmanager
def _rereadable(text: TextLike | None, *, passes: int) -> Iterator[TextLike | None]:
    """Give the text; standard input that is read several times becomes a temporary file.

    Several processes share one standard input: the first writes the file, and all read it.
    """
    if text != "-" or (passes < 2 and process_count() == 1):
        yield text
        return
    if int(os.environ.get("LOCAL_WORLD_SIZE", process_count())) < process_count():
        raise BadInput(
            "Standard input reaches one machine of several: write the text to a file that all can "
            "read."
        )
    with tempfile.NamedTemporaryFile(suffix=".txt") as copy:
        if process_rank() == 0:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
        yield same_everywhere(copy.name)
        same_everywhere(copy.name)  # the file is removed after all processes have read it


@estimates(scan)
def estimate_scan(
    sources: SourcesLike,
    text: TextLike | None,
    revisions: Revisions,
    context: int | None,
    sites: str | None,
    skip_first: int,
    null: bool,
    measures: MeasuresLike,
    pairs: Sequence[str | os.PathLike[str]],
    batch: int | None,
    engine: str,
    master: str | None,
    documents: str,
    field: str | None,
    max_tokens: int | None,
    start: StartName,
    tokenizer: TokenizerName,
    dtype: Dtype,
    device: Device,
) -> list[Estimate]:
    """Estimate a scan with these options, source by source.

    No weights are read, and nothing is written. Raises BadInput as `scan` does for what can be
    known without the weights.

    >>> one, = estimate_scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> one.tokens, one.weights > 1e6, one.seconds > 0
    (1280, True, True)
    """
    plan = ReadingPlan(
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        windowing=Windowing(context=context, skip_first=skip_first, batch=batch),
        text=text,
        sites=sites,
    )
    plan.check_window(context)
    check_engine(engine, master)
    _, probes = choose(measures)
    _pair_sets(pairs, probes)

    readers = [expected_reader(source, plan) for source in listed_sources(sources, revisions)]
    estimated = []
    for reader in readers:
        plan.check_window(reader.context, alone=reader.alone)
        memory = memory_bound(
            list(reader.widths.values()),
            context=reader.context,
            batch=reader.batch,
            tokens=reader.tokens,
        )
        operations = _operations(reader, null=null)
        seconds = operations / reader.operations_a_second(device)
        estimated.append(Estimate(reader.name, reader.tokens, reader.weights, memory, seconds))
    return estimated


def _operations(reader: ExpectedReader, *, null: bool) -> float:
    """Return the floating-point operations of a scan of one source.

    Second moments take d² in float64, at half the speed, and as much again; the decompositions of a
    site take 20 d³.
    """
    forward = 2 * reader.forward if null else reader.forward
    moments = sum(4.0 * width**2 for width in reader.widths.values())
    decompositions = sum(20.0 * width**3 for width in reader.widths.values())
    return (forward + moments) * reader.counted + decompositions
