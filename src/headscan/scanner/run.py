"""The scan: text, lens and statistics strung together; one command, every site, every measure."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Literal

from headscan.measures.measure import Measure, group
from headscan.measures.outliers import RULE
from headscan.measures.probe import Probe
from headscan.model.sentence import SENTENCE
from headscan.model.settings import Device, Dtype, Revisions, Sites, TokenizerName
from headscan.run import BadInput, Finding, Given, Row, Run, estimates, verb
from headscan.run.settings import (
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
    Seed,
)
from headscan.scanner.differences import differences
from headscan.scanner.examine import SUFFIXES, Examined, Examiner
from headscan.scanner.findings import UNREAD, findings, on_few, unread
from headscan.scanner.result import ProbeRecord, ScanResult
from headscan.scanner.settings import Scanning, choose, memory_bound
from headscan.scanner.sources import subjects
from headscan.states import SourcesLike
from headscan.states.writing import Estimate, expected_reader, operations_a_second
from headscan.statistics import process_count, process_rank, same_everywhere
from headscan.statistics.errors import allowed
from headscan.text.source import (
    TEXT,
    BatchSize,
    Context,
    Documents,
    FieldName,
    Master,
    MaxTokens,
    TextLike,
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
    measures: Annotated[
        str | Sequence[str] | None,
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
            "A file of pairs of texts that mean the same, for --measures alignment (again for "
            "more): .tsv of two columns, .csv as STS-B, .json as PUD; FILE or NAME=FILE. Default: "
            "a list of English synonyms.",
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
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> ScanResult:
    """Scan the representations of one or more models on a text, or stored states: cones, spectra,
    norms, site by site.

    Args:
        sources: one or several, each a model (Hugging Face id, local folder, name of an embedded
            specimen, Lens, live model of transformers, or SentenceTransformer, which gives the
            numbers of its folder) or stored states: a path or URL (see `headscan.states.FORMATS`),
            an array [n, d] or [windows, T, d], a dict of such by site.
        text: for models: a file, folder, `-`, `datasets` id, name of an embedded text, a text, or a
        list of texts.

    Returns:
        A `ScanResult`. Under `torchrun`, process 0's is complete; the others return theirs with
        what they have seen.

    Raises:
        BadInput: whenever a model, the text or options cannot be used: all models are checked
            before the first pass; NaN or infinite activations, by site; on a resumed scan, a text,
            weights or a tokenizer that changed.

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
    asked = Given(locals())
    settings = asked.chosen(Scanning)
    chosen, probes = choose(settings.measures)
    if settings.text is not None:
        check_text(settings.text)
    every = subjects(sources, settings, run)
    found: list[Examined] = []
    passes = (
        len(every)
        * (2 if settings.null else 1)
        * max((probe.passes for probe in probes), default=1)
    )
    with _rereadable(settings.text, passes=passes) as text:
        examiner = Examiner(chosen, probes, text, settings, run)
        for number, subject in enumerate(every):
            found.append(examiner.examine(subject, number, last=number + 1 == len(every)))
    return _result(found, chosen, probes, settings, run)


def _result(
    found: list[Examined],
    measures: list[Measure],
    probes: list[Probe],
    settings: Scanning,
    run: Run,
) -> ScanResult:
    """All models' rows, with the words of what was measured and the findings."""
    sites = [row for one in found for row in one.sites]
    nulls = [row for one in found for row in one.nulls]
    tables = {
        probe.name: [row for one in found for row in one.tables[probe.name]] for probe in probes
    }
    skipped = (
        f"all but the first {settings.skip_first} of each window" if settings.skip_first else "all"
    )
    last = found[-1]
    notes = [
        f"Positions: {skipped}; {last.batch} windows a forward pass.",
        RULE,
        allowed([share for one in found for share in one.rounding]),
        "Intervals (95 %) are for another text of the same length and kind, with documents as "
        "clusters; of fewer than three documents, windows are the clusters, and the interval "
        "speaks of this text alone.",
    ]
    protocol = run.protocol(
        text=last.text, device=last.record.device, dtype=last.record.dtype, notes=notes
    )
    groups = [measure.words.group for measure in measures] + [probe.words.group for probe in probes]
    return ScanResult(
        protocol=protocol,
        models=[model.record for model in found],
        sites=sites,
        nulls=nulls,
        measures={measure.name: measure.words for measure in measures},
        probes=[_record(probe, found) for probe in probes],
        groups={name: group(name) for name in dict.fromkeys(groups)},
        tables=tables,
        pictures={model.record.name: model.picture for model in found},
        arrays={name: array for model in found for name, array in model.arrays.items()},
        differences=differences(
            [each for model in found for each in model.estimates], list(SUFFIXES.values())
        ),
        findings=_findings(found, sites, nulls, tables),
    )


def _findings(
    found: list[Examined], sites: list[Row], nulls: list[Row], tables: dict[str, list[Row]]
) -> list[Finding]:
    """Those of all models, each with what was read; none but one of a model that cannot read the
    text.
    """
    texts = {one.record.name: one.text for one in found}
    missing = [unread(text, name) for name, text in texts.items()]
    readable = {name for name, text in texts.items() if text.unknown_share < UNREAD}
    kept = list[Finding]()
    for one in findings(sites, nulls, tables):
        if one.model in readable:
            text = texts[one.model]
            read = text.windows if one.site == SENTENCE else text.tokens
            few = on_few(read, one.site) if one.level == "alert" else ""
            level = "notice" if few else one.level
            kept.append(replace(one, level=level, sentence=one.sentence + few, read=text.read))
    return [*(one for one in missing if one is not None), *kept]


def _record(probe: Probe, found: list[Examined]) -> ProbeRecord:
    """A probe's words, with the time that it took and the models that have none of it."""
    took = [one.seconds[probe.name] for one in found if probe.name in one.seconds]
    missing = [one for one in found if probe.name in one.reasons]
    return ProbeRecord(
        **vars(probe.words),
        seconds=round(sum(took), 2) if took else None,
        notes=[f"{one.record.name} has none: {one.reasons[probe.name]}" for one in missing],
    )


@contextmanager
def _rereadable(text: TextLike | None, *, passes: int) -> Iterator[TextLike | None]:
    """The text itself; standard input, where it must be read more than once, as a temporary file.

    Several processes share one standard input: the first writes it down, and all read what it
    wrote.
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
        same_everywhere(copy.name)  # nobody is still reading when the file goes


@estimates(scan)
def estimate_scan(given: Given) -> list[Estimate]:
    """An estimate for each source of a scan with these options, without reading weights and without
    writing anything.

    Raises BadInput as `scan` does for what can be known without the weights.

    >>> one, = estimate_scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> one.tokens, one.weights > 1e6, one.seconds > 0
    (1280, True, True)
    """
    settings = given.chosen(Scanning)
    found = list[Estimate]()
    rate = operations_a_second(settings.device)
    for reader in [
        expected_reader(source, settings) for source in settings.sources(given["sources"])
    ]:
        widths = list(reader.widths.values())
        tokens = reader.tokens
        settings.check_window(reader.context, alone=reader.alone)
        memory = memory_bound(widths, context=reader.context, batch=reader.batch, tokens=tokens)
        # Second moments take d² in float64, at half the speed, and as much again.
        each = reader.forward * (2 if settings.null else 1) + sum(
            4.0 * width**2 for width in widths
        )
        seconds = (each * reader.counted + sum(20.0 * width**3 for width in widths)) / rate
        found.append(Estimate(reader.name, tokens, reader.weights, memory, seconds))
    return found
