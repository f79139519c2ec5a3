"""`compare`: how alike the representations of two or more models are, site against site, on the
same tokens.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Literal

from torch import Tensor

from headscan.comparison.cells import TESTED_RUN, ComparedSources, adjusted, cells_of
from headscan.comparison.damage import check_options, measure_damage
from headscan.comparison.reading import Gathering, SourceReader, aligned, spilled
from headscan.comparison.result import Alignment, CompareResult, SimilarityCell, findings
from headscan.comparison.settings import Against, ComparisonSettings, compared_subjects
from headscan.model.identity import tokenizer_identity
from headscan.model.sentence import SENTENCE
from headscan.model.settings import Device, Dtype, Sites, TokenizerName
from headscan.run import BadInput, Finding, Given, Run, estimates, verb
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
from headscan.scanner.findings import UNREAD, unread
from headscan.states import SourcesLike, VectorSource, given_sources
from headscan.states.writing import Estimate, expected_reader, operations_a_second
from headscan.text.source import (
    TEXT,
    BatchSize,
    Documents,
    FieldName,
    MaxTokens,
    SeveralTokensContext,
    TextLike,
)

SIDE_BY_SIDE = 0.4  # of the machine's memory that the models may take to be in it together
LARGEST = 0.5  # of the machine's memory that the moments may take


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
            "Draws of a null: the least p is 1/(draws + 1).", low=19, high=2**24, group="Limits"
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
            "Compare each model with itself in so few bits, too; those of .gguf files (q8_0 to "
            "q2_k) with --damage only.",
            group="Input",
        ),
    ] = None,
    damage: Annotated[
        bool,
        Option("What the second model (rounded, fine-tuned) costs, block by block.", group="Input"),
    ] = False,
    keep: Annotated[
        float | None,
        Option("With --damage: bytes to spend on blocks that stay as in the first.", above=0),
    ] = None,
    limit: Annotated[
        float | None,
        Option(
            "With --damage: divergence in nats a token that is too much (HS701).",
            low=0,
            group="Limits",
        ),
    ] = None,
    fail_on: Annotated[
        Literal["HS701"] | None, Option("With --damage: a finding at which it exits with status 3.")
    ] = None,
    batch: BatchSize = None,
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
) -> CompareResult:
    """How alike two or more models' representations are: every site of one against every site of
    the other.

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

    With `damage`, a `DamageResult`: docs/damage.md.

    Cost: one forward pass of each model and 2·d·d' operations a token and pair of sites. Memory:
        8·d·d' bytes a pair of sites.

    >>> from headscan import compare
    >>> result = compare(["gpt-vanilla", "gpt-vanilla"], "stories", max_tokens=640, context=64, sites="block.*")
    >>> round(result.cell("cka", "block.2").value, 9)
    1.0
    """
    asked = Given(locals())
    check_options(asked)
    if damage:
        return measure_damage(models, asked, run)
    settings = asked.chosen(ComparisonSettings)
    compared = _read(models, settings, run)
    gathering = compared.gathering
    sampled = compared.sample
    similarities = settings.chosen()
    chance = settings.chance()
    cells = []
    for pair in combinations(range(len(compared.records)), 2):
        cells += cells_of(compared, pair, similarities, chance, settings, run)
    cells = adjusted(cells, chance)
    shares = compared.top_shares()
    run_length = sampled.states[0].shape[1] if sampled.states else 0
    tested = len(sampled.numbers) * len(range(0, run_length, max(1, run_length // TESTED_RUN)))
    notes = [
        *compared.notes,
        f"Sample: {run_length} tokens of each of {len(sampled.numbers)} windows, by hashes; "
        f"nulls: {tested} of these tokens.",
        f"Intervals: 95 %, from {len(gathering.groups.parts())} groups of {gathering.clusters} "
        "left out one at a time.",
        f"p values: one-sided, {settings.draws} draws; adjusted by Benjamini and Hochberg over "
        "all cells.",
    ]
    record = compared.records[0]
    return CompareResult(
        protocol=run.protocol(
            text=compared.text, device=record.device, dtype=record.dtype, notes=notes
        ),
        models=compared.records,
        cells=cells,
        alignment=compared.alignment,
        top_shares=shares,
        measures={name: measure.words for name, measure in similarities.items()},
        nulls={name: null.words for name, null in chance.items()},
        tokens=gathering.tokens,
        sampled=len(sampled.numbers) * run_length,
        tested=tested,
        clusters=gathering.clusters,
        findings=_findings(cells, shares, compared),
    )


def _findings(
    cells: Sequence[SimilarityCell], shares: Mapping[str, float], compared: ComparedSources
) -> list[Finding]:
    """Each with what was read; of a text that the first model cannot read, that alone."""
    text, read = compared.text, None if compared.text is None else compared.text.read
    missing = unread(text, compared.records[0].name)
    told = (
        []
        if text is not None and text.unknown_share >= UNREAD
        else findings(cells, shares, compared.alignment)
    )
    return [replace(one, read=read) for one in (*([missing] if missing else []), *told)]


def _read(given: SourcesLike, settings: ComparisonSettings, run: Run) -> ComparedSources:
    """One pass of every source."""
    subjects = compared_subjects(given, settings, run)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    together = sum(subject.bytes for subject in subjects) <= SIDE_BY_SIDE * memory
    models = [subject.ready for subject in subjects if not isinstance(subject.ready, VectorSource)]
    by_text = (
        settings.sites != SENTENCE
        and len({tokenizer_identity(model.tokenizer) for model in models}) > 1
    )
    if by_text and len(models) < len(subjects):
        raise BadInput(
            "Stored vectors say nothing of where their tokens end: compare them with models of "
            "one tokenizer."
        )
    draws = settings.draws if "random-init" in settings.chance() else 0
    # Those whose windows are the sample's can be drawn anew: the first, and all where there is one
    # tokenizer.
    readers = [
        SourceReader(
            subject, settings, by_text=by_text, draws=draws if number == 0 or not by_text else 0
        )
        for number, subject in enumerate(subjects)
    ]
    passes = [reader.batches() for reader in readers]
    if together:
        for subject in subjects:
            if not isinstance(subject.ready, VectorSource):
                subject.load()
    else:
        passes[:-1] = [
            spilled(one, subject.release)
            for one, subject in zip(passes[:-1], subjects, strict=False)
        ]
    gathering: Gathering | None = None
    for parts in aligned(passes, by_place=not by_text):
        if gathering is None:
            _check_size([part.states for part in parts], memory)
            owners = [model for model, part in enumerate(parts) for _ in part.states]
            gathering = Gathering(owners, sample=settings.sample, seed=settings.seed)
        gathering.add(parts)
        run.progress("compare", gathering.tokens, settings.max_tokens, "tokens")
    for one in passes:
        one.close()
    if gathering is None:
        raise BadInput(
            "No token ends where one of every other model does: nothing can be compared on this "
            "text."
        )
    alignment = [
        Alignment(model=one.subject.name, tokens=one.tokens, compared=gathering.tokens)
        for one in readers
    ]
    how = "side by side" if together else "one after another, vectors in temporary files"
    same = "the same character of the text" if by_text else "the same place of the same window"
    notes = [f"The sources were read {how}; tokens are the same where they end at {same}."]
    return ComparedSources(
        gathering,
        gathering.sampled(),
        [reader.sites for reader in readers],
        [reader.record for reader in readers],
        alignment,
        readers[0].text,
        notes,
        {number: reader.redrawn for number, reader in enumerate(readers) if reader.controls},
    )


def moments_bytes(widths: Sequence[Sequence[int]]) -> float:
    """What the moments of all pairs of sites take, from the widths of each source's."""
    return 8.0 * sum(sum(one) * sum(two) for one, two in combinations(widths, 2))


def _check_size(states: Sequence[Sequence[Tensor]], memory: float) -> None:
    widths = [[rows.shape[1] for rows in model] for model in states]
    needed = moments_bytes(widths)
    if needed > LARGEST * memory:
        pairs = sum(len(one) * len(two) for one, two in combinations(widths, 2))
        raise BadInput(
            f"The moments of {pairs:,} pairs of sites take {needed / 2**30:.0f} GiB, of this "
            f"machine's {memory / 2**30:.0f}: choose fewer sites, such as --sites 'block.?' or "
            "--sites embedding,block.9,final_norm."
        )


# ---- What a comparison will take in memory and time, said before weights are read; for `--dry-run`.


@estimates(compare)
def estimate_compare(given: Given) -> list[Estimate]:
    """What `headscan.compare` will take, as one estimate, without reading weights and without
    writing anything.

    Raises BadInput as `compare` does for what can be known without the weights.

    >>> import numpy as np
    >>> one, = estimate_compare([np.zeros((900, 16)), np.zeros((900, 8))])
    >>> one.tokens, one.memory > 8 * 16 * 8
    (900, True)
    """
    if given["damage"]:
        raise BadInput("--dry-run estimates no --damage: docs/damage.md says what it takes.")
    settings = given.chosen(ComparisonSettings)
    readers = [expected_reader(one, settings) for one in given_sources(given["models"])]
    if len(readers) < 2:
        raise BadInput("A comparison needs two models or more.")
    for reader in readers:
        if reader.weights:  # a model, not stored states
            settings.check_window(reader.context, alone=reader.alone)
    widths = [list(reader.widths.values()) for reader in readers]
    counted = [reader.tokens for reader in readers if reader.tokens is not None]
    tokens = min(counted) if len(counted) == len(readers) else None
    forward = sum(reader.forward for reader in readers)
    products = sum(2.0 * sum(one) * sum(two) for one, two in combinations(widths, 2))
    rows = sum(map(sum, widths)) * (settings.sample + 2 * max(reader.batch for reader in readers))
    return [
        Estimate(
            " and ".join(reader.name for reader in readers),
            tokens,
            sum(reader.weights for reader in readers),
            moments_bytes(widths) + 8.0 * rows,
            (forward + 2 * products) * (tokens or 1_000_000) / operations_a_second(settings.device),
            note=f"The {settings.draws} draws of each null come on top.",
        )
    ]
