"""`headscan compare`: the similarity of models' representations, site against site."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Unpack, get_args

from torch import Tensor

from headscan.comparison.alignment import SourceReader, TokenVectors, aligned, spilled
from headscan.comparison.cells import TESTED_RUN, ComparedSources, cells_of
from headscan.comparison.changed_models import DEFAULT_CONTROLS, FEWEST_CONTROLS, ChangesPlan
from headscan.comparison.changes import measure_changes
from headscan.comparison.damage import DamagePlan, measure_damage
from headscan.comparison.expected import sample_seconds
from headscan.comparison.findings import findings
from headscan.comparison.gathering import Gathering
from headscan.comparison.null_tests import NullTests, adjusted
from headscan.comparison.nulls import NULLS, NullModel
from headscan.comparison.rated_matrices import WHOLE
from headscan.comparison.recipe import measure_recipe
from headscan.comparison.result import Alignment, CompareResult, SimilarityCell
from headscan.comparison.similarity import SIMILARITIES, SimilarityMeasure
from headscan.comparison.subjects import (
    Against,
    check_against,
    compared_subjects,
)
from headscan.model.identity import tokenizer_identity
from headscan.model.rounding import RoundingName
from headscan.model.sentence import SENTENCE
from headscan.model.settings import Device, Dtype, Loading, Sites, TokenizerName
from headscan.run import BadInput, Finding, Run, estimates, verb
from headscan.run.findings import listed
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.scanner.cautions import UNREAD, unread
from headscan.scanner.sources import Subject
from headscan.states import SourcesLike, VectorSource, given_sources
from headscan.states.estimate import Estimate, expected_reader
from headscan.states.plan import ReadingPlan
from headscan.text.source import (
    TEXT,
    BatchSize,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    SeveralTokensContext,
    Start,
    StartName,
    TextLike,
    Windowing,
)

SIDE_BY_SIDE = 0.4
"""Models that take at most this share of the machine's memory are in it together."""

LARGEST = 0.5
"""The moments of a comparison may take this share of the machine's memory."""


@verb("compare")
def compare(
    run: Run,
    models: SourcesLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    context: SeveralTokensContext = None,
    sites: Sites = None,
    skip_first: Annotated[
        int,
        Option(
            "Positions left out at the beginning of each window, where many models have a sink.",
            low=0,
        ),
    ] = 1,
    measures: Annotated[str, Option("Measures: globs, comma-separated.", metavar="GLOBS")] = "*",
    nulls: Annotated[
        str,
        Option(
            "Null distributions, comma-separated; the first gives the p-values: permutation, "
            "random-init."
        ),
    ] = "permutation",
    draws: Annotated[
        int,
        Option(
            "Draws of a null (19 at least): the least p is 1/(draws + 1). With --changes: control "
            "changes (4 at least; default 9).",
            low=FEWEST_CONTROLS,
            high=2**24,
            group="Limits",
        ),
    ] = 99,
    sample: Annotated[
        int,
        Option(
            "Tokens of the sample, for RSA, neighbours, nulls and --damage.", low=64, group="Limits"
        ),
    ] = 1024,
    against: Annotated[
        Against | None,
        Option(
            "Also compare each model with its quantised version; q8_0 to q2_k, as in .gguf "
            "files, with --damage only.",
            group="Input",
        ),
    ] = None,
    damage: Annotated[
        bool,
        Option(
            "Measure what the second model (rounded, fine-tuned) costs, block by block.",
            group="Input",
        ),
    ] = False,
    keep: Annotated[
        float | None,
        Option(
            "With --damage: byte budget for blocks that are kept as in the first model.", above=0
        ),
    ] = None,
    budget: Annotated[
        float | None,
        Option(
            "With --damage: bytes for the matrices of blocks; a format is chosen for each matrix.",
            above=0,
        ),
    ] = None,
    formats: Annotated[
        str,
        Option(
            "With --budget: formats to choose from, comma-separated: q8_0, q5_0, q4_0, q4_k, q2_k, "
            "whole.",
            metavar="NAMES",
        ),
    ] = "q2_k,q4_k,q5_0,q8_0,whole",
    limit: Annotated[
        float | None,
        Option(
            "With --damage: largest divergence allowed, in nats a token (HS701).",
            low=0,
            group="Limits",
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        Option(
            "Exit with status 3 where one of these was found: codes or names, comma-separated, "
            "with *.",
            group="Output",
        ),
    ] = None,
    changes: Annotated[
        bool,
        Option(
            "Show what a fine-tune (the second model) changed: tokens, contexts and "
            "directions, compared with control changes of the same size.",
            group="Input",
        ),
    ] = False,
    controls: Annotated[
        SourcesLike | None,
        Option(
            "With --changes: other fine-tunes of the first model, as controls; again for more. "
            "Default: random changes.",
            metavar="MODEL",
            repeat=True,
            content=True,
            group="Input",
        ),
    ] = None,
    control_text: Annotated[
        TextLike | None,
        Option(
            "With --changes: a text on which short control fine-tunes are made.",
            metavar="TEXT",
            content=True,
            group="Input",
        ),
    ] = None,
    batch: BatchSize = None,
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> CompareResult:
    """Compare the representations of two or more models, every site of one with every site of the
    other.

    Args:
        models: two or more of what `headscan.scan` takes: models, or stored vectors of the same
            tokens in files and arrays. The rows of an array [n, d] are documents of their own (two
            versions of an embedding column); tokens of windows are [windows, T, d]. One may be
            named twice.
        text: as for `headscan.scan`; not needed for stored vectors.

    Returns:
        A `CompareResult`: one cell a pair of models, pair of sites and measure, with an interval by
        documents and p values.

    Raises BadInput: fewer than two, what `headscan.scan` raises, stored vectors that do not fit,
    moments larger than half of the memory.

    All models read the text at once, side by side, where their weights take less than .4 of the
    machine's memory; else one after another, the vectors of all but the last in temporary files.
    Tokens are compared where they are the same: with one tokenizer all of them, with several those
    whose last character is the same (their windows may begin elsewhere).

    With `damage`, a `DamageResult`: docs/damage.md. With `changes`, a `ChangesResult`: what the
    second model, a fine-tune of the first, changed.

    Cost: one forward pass of each model and 2·d·d' operations a token and pair of sites. Memory:
        8·d·d' bytes a pair of sites.

    >>> from headscan import compare
    >>> models = ["gpt-vanilla", "gpt-vanilla"]
    >>> result = compare(models, "stories", max_tokens=640, context=64, sites="block.*")
    >>> round(result.cell("cka", "block.2").value, 9)
    1.0
    """
    if damage and changes:
        raise BadInput("Give --damage or --changes, and not both.")
    if damage or changes:
        mode = "damage" if damage else "changes"
        run.refuse_changed(f"with --{mode}", sites=sites, measures=measures, nulls=nulls)
    if damage:
        run.refuse_changed("with --damage", draws=draws)
    else:
        run.refuse_changed("without --damage", keep=keep, budget=budget, limit=limit)
    if budget is None:
        run.refuse_changed("without --budget", formats=formats)
    else:
        run.refuse_changed("with --budget", against=against, keep=keep, limit=limit)
    if changes:
        run.refuse_changed("with --changes", sample=sample, against=against)
    else:
        run.refuse_changed("without --changes", controls=controls, control_text=control_text)
    fail_globs = listed(fail_on, "--fail-on")
    if "HS701" in fail_globs and limit is None:
        raise BadInput("--fail-on HS701 is not used without --limit.")
    plan = ReadingPlan(
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        windowing=Windowing(context=context, skip_first=skip_first, batch=batch),
        text=text,
        sites=sites,
        seed=seed,
    )
    plan.check_window(context)
    similarities = chosen_similarities(measures)
    null_models = chosen_nulls(nulls)
    check_against(against, plan.loading, damage=damage)

    if changes:
        count = draws if "draws" in run.given else DEFAULT_CONTROLS
        changes_plan = ChangesPlan(controls=controls, control_text=control_text, draws=count)
        return measure_changes(models, plan, changes_plan, run)
    if damage:
        damage_plan = DamagePlan(
            sample=sample,
            against=against,
            keep=keep,
            budget=budget,
            formats=chosen_formats(formats),
            limit=limit,
            fail_on=fail_globs,
        )
        measure = measure_damage if budget is None else measure_recipe
        return measure(models, plan, damage_plan, run)
    tests = NullTests(null_models, draws, seed)
    subjects = compared_subjects(models, plan, run, against)
    compared = _Comparison(subjects, plan, tests, run).read(sample)
    return _result(compared, similarities, tests, run)


def chosen_similarities(globs: str) -> dict[str, SimilarityMeasure]:
    """Return the measures that comma-separated globs match, by name, in the order of tables."""
    measures = [(name, SIMILARITIES[name]()) for name in SIMILARITIES.match(globs)]
    return dict(sorted(measures, key=lambda item: item[1].words.order))


def chosen_formats(names: str) -> list[str]:
    """Return the formats that comma-separated names list; two at least."""
    known = [*get_args(RoundingName), WHOLE]
    formats = list(dict.fromkeys(name.strip() for name in names.split(",")))
    unknown = [name for name in formats if name not in known]
    if unknown or len(formats) < 2:
        raise BadInput(
            f"--formats takes two or more of {', '.join(known)}, not {names!r}, to choose from."
        )
    return formats


def chosen_nulls(globs: str) -> dict[str, NullModel]:
    """Return the nulls that comma-separated globs match, by name, in the order of the globs."""
    nulls: dict[str, NullModel] = {}
    for glob in globs.split(","):
        for name in NULLS.match(glob.strip()):
            nulls.setdefault(name, NULLS[name]())
    return nulls


def _result(
    compared: ComparedSources,
    measures: dict[str, SimilarityMeasure],
    tests: NullTests,
    run: Run,
) -> CompareResult:
    """Return the cells of all pairs of models, with their tests and findings."""
    cells = []
    for models in combinations(range(len(compared.records)), 2):
        cells += cells_of(compared, models, measures, tests, run)
    cells = adjusted(cells, tests.nulls)

    gathering = compared.gathering
    sample = compared.sample
    windows = len(sample.numbers)
    run_length = sample.states[0].shape[1] if sample.states else 0
    tested_of_run = len(range(0, run_length, max(1, run_length // TESTED_RUN)))
    tested = windows * tested_of_run
    groups = len(gathering.groups.parts())
    notes = [
        *compared.notes,
        f"Sample: {run_length} tokens of each of {windows} windows, by hashes; nulls: {tested} of "
        "these tokens.",
        f"Intervals: 95 %, from {groups} groups of {gathering.clusters} left out one at a time.",
        f"p values: one-sided, {tests.draws} draws; adjusted by Benjamini and Hochberg over all "
        "cells.",
    ]
    record = compared.records[0]
    protocol = run.protocol(
        text=compared.text, device=record.device, dtype=record.dtype, notes=notes
    )
    top_shares = compared.top_shares()
    return CompareResult(
        protocol=protocol,
        models=compared.records,
        cells=cells,
        alignment=compared.alignment,
        top_shares=top_shares,
        measures={name: measure.words for name, measure in measures.items()},
        nulls={name: null.words for name, null in tests.nulls.items()},
        tokens=gathering.tokens,
        sampled=windows * run_length,
        tested=tested,
        clusters=gathering.clusters,
        findings=_findings(cells, top_shares, compared),
    )


def _findings(
    cells: Sequence[SimilarityCell], top_shares: Mapping[str, float], compared: ComparedSources
) -> list[Finding]:
    """Return the findings, each with the tokens that it is based on.

    A text that the first model cannot read has one finding, which says so.
    """
    text = compared.text
    unreadable = unread(text, compared.records[0].name)
    listed = [] if unreadable is None else [unreadable]
    if text is None or text.unknown_share < UNREAD:
        listed += findings(cells, top_shares, compared.alignment)
    read = None if text is None else text.read
    return [replace(finding, read=read) for finding in listed]


@dataclass
class _Comparison:
    """The one pass over all sources of a comparison."""

    subjects: list[Subject]
    plan: ReadingPlan
    tests: NullTests
    run: Run

    def read(self, sample: int) -> ComparedSources:
        """Read every source once; `sample`: tokens of the sample."""
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        together = sum(subject.bytes for subject in self.subjects) <= SIDE_BY_SIDE * memory
        by_text = self._by_text()
        readers = self._readers(by_text)
        passes = [reader.batches() for reader in readers]
        if together:
            self._load_models()
        else:
            for number, subject in enumerate(self.subjects[:-1]):
                passes[number] = spilled(passes[number], subject.release)

        gathering: Gathering | None = None
        for parts in aligned(passes, by_position=not by_text):
            if gathering is None:
                _check_size(parts, memory)
                gathering = Gathering(_owners(parts), sample=sample, seed=self.plan.seed)
            gathering.add(parts)
            self.run.progress("compare", gathering.tokens, self.plan.reading.max_tokens, "tokens")
        for reading in passes:
            reading.close()
        if gathering is None:
            raise BadInput(
                "No token ends where one of every other model does: nothing can be compared on "
                "this text."
            )
        return self._compared(readers, gathering, together=together, by_text=by_text)

    def _by_text(self) -> bool:
        """Return whether tokens are recognised by the text, because tokenizers differ."""
        if self.plan.sites == SENTENCE:
            return False
        tokenizers = []
        for subject in self.subjects:
            if not isinstance(subject.ready, VectorSource):
                tokenizers.append(tokenizer_identity(subject.ready.tokenizer))
        by_text = len(set(tokenizers)) > 1
        if by_text and len(tokenizers) < len(self.subjects):
            raise BadInput(
                "Stored vectors say nothing of where their tokens end: compare them with models of "
                "one tokenizer."
            )
        return by_text

    def _readers(self, by_text: bool) -> list[SourceReader]:
        """Return a reader for each source.

        Only models whose windows are those of the sample can be drawn anew: the first, and all
        where there is one tokenizer.
        """
        draws = self.tests.draws if "random-init" in self.tests.nulls else 0
        readers = []
        for number, subject in enumerate(self.subjects):
            redrawn = number == 0 or not by_text
            readers.append(SourceReader(subject, by_text=by_text, draws=draws if redrawn else 0))
        return readers

    def _load_models(self) -> None:
        for subject in self.subjects:
            if not isinstance(subject.ready, VectorSource):
                subject.load()

    def _compared(
        self, readers: list[SourceReader], gathering: Gathering, *, together: bool, by_text: bool
    ) -> ComparedSources:
        manner = "side by side" if together else "one after another, vectors in temporary files"
        same = "the same character of the text" if by_text else "the same place of the same window"
        note = f"The sources were read {manner}; tokens are the same where they end at {same}."
        alignment = []
        for reader in readers:
            alignment.append(
                Alignment(
                    model=reader.subject.name, tokens=reader.tokens, compared=gathering.tokens
                )
            )
        redrawn = {
            number: reader.redrawn for number, reader in enumerate(readers) if reader.controls
        }
        return ComparedSources(
            gathering,
            gathering.sampled(),
            [reader.sites for reader in readers],
            [reader.record for reader in readers],
            alignment,
            readers[0].text,
            [note],
            redrawn,
        )


def _owners(parts: Sequence[TokenVectors]) -> list[int]:
    """Return the number of the model of each site."""
    owners = []
    for model, part in enumerate(parts):
        owners += [model] * len(part.states)
    return owners


def moments_bytes(widths: Sequence[Sequence[int]]) -> float:
    """Return the size of the moments of all pairs of sites, from the widths of each source."""
    entries = sum(sum(first) * sum(second) for first, second in combinations(widths, 2))
    return 8.0 * entries


def _check_size(parts: Sequence[TokenVectors], memory: float) -> None:
    """Raise BadInput where the moments take too much of the machine's memory (bytes)."""
    widths = [_widths(part.states) for part in parts]
    needed = moments_bytes(widths)
    if needed > LARGEST * memory:
        pairs = sum(len(first) * len(second) for first, second in combinations(widths, 2))
        raise BadInput(
            f"The moments of {pairs:,} pairs of sites take {needed / 2**30:.0f} GiB, of this "
            f"machine's {memory / 2**30:.0f}: choose fewer sites, such as --sites 'block.?' or "
            "--sites embedding,block.9,final_norm."
        )


def _widths(states: Sequence[Tensor]) -> list[int]:
    return [rows.shape[1] for rows in states]


@estimates(compare)
def estimate_compare(
    models: SourcesLike,
    text: TextLike | None,
    context: int | None,
    sites: str | None,
    skip_first: int,
    measures: str,
    nulls: str,
    draws: int,
    sample: int,
    against: Against | None,
    damage: bool,
    batch: int | None,
    documents: str,
    field: str | None,
    max_tokens: int | None,
    start: StartName,
    tokenizer: TokenizerName,
    dtype: Dtype,
    device: Device,
) -> list[Estimate]:
    """Estimate a comparison as a whole, without reading weights and without writing anything.

    Raises BadInput as `compare` does for what can be known without the weights.

    >>> import numpy as np
    >>> one, = estimate_compare([np.zeros((900, 16)), np.zeros((900, 8))])
    >>> one.tokens, one.memory > 8 * 16 * 8
    (900, True)
    """
    if damage:
        raise BadInput("--dry-run estimates no --damage: docs/damage.md says what it takes.")
    plan = ReadingPlan(
        loading=Loading(tokenizer=tokenizer, dtype=dtype, device=device),
        reading=Reading(documents=documents, field=field, max_tokens=max_tokens, start=start),
        windowing=Windowing(context=context, skip_first=skip_first, batch=batch),
        text=text,
        sites=sites,
    )
    plan.check_window(context)
    chosen_measures = chosen_similarities(measures)
    null_models = chosen_nulls(nulls)
    check_against(against, plan.loading, damage=damage)

    readers = [expected_reader(source, plan) for source in given_sources(models)]
    if len(readers) < 2:
        raise BadInput("A comparison needs two models or more.")
    for reader in readers:
        if reader.weights:  # a model, not stored states
            plan.check_window(reader.context, alone=reader.alone)
    widths = [list(reader.widths.values()) for reader in readers]
    known_tokens = [reader.tokens for reader in readers if reader.tokens is not None]
    tokens = min(known_tokens) if len(known_tokens) == len(readers) else None

    moments = moments_bytes(widths)
    forward = sum(reader.forward for reader in readers)
    products = 2.0 * (moments / 8.0)
    operations = (forward + 2 * products) * (tokens or 1_000_000)
    sampled = min(sample, tokens or sample)
    if "random-init" in null_models:
        operations += draws * readers[0].forward * sampled
    site_counts = [len(widths_of_model) for widths_of_model in widths]
    of_sample = sample_seconds(site_counts, sampled, chosen_measures, draws * len(null_models))
    largest_batch = max(reader.batch for reader in readers)
    row_entries = sum(map(sum, widths)) * (sample + 2 * largest_batch)
    estimate = Estimate(
        " and ".join(reader.name for reader in readers),
        tokens,
        sum(reader.weights for reader in readers),
        memory=moments + 8.0 * row_entries,
        seconds=operations / readers[0].operations_a_second(device) + of_sample,
    )
    return [estimate]
