"""`compare`: how alike the representations of two or more models are, site against site, on the same tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Annotated, Literal

import torch
from torch import Tensor

from headscan.comparison.cells import TESTED_RUN, ComparedSources, adjusted, cells_of, top_shares
from headscan.comparison.parties import Party, parties
from headscan.comparison.reading import Gathering, Passed, Sampled, Shapes, aligned, passed, spilled
from headscan.comparison.result import Alignment, CompareResult, findings
from headscan.comparison.settings import ComparisonSettings
from headscan.model import Lens
from headscan.model.settings import Device, Dtype, Revisions, Sites, TokenizerName
from headscan.run import BadInput, Given, ModelRecord, Run, estimates, running, verb
from headscan.run.settings import CommandLine, Option, Out, Progressing, Resume, Seed
from headscan.states import SourcesLike, VectorSource, given_sources
from headscan.states.estimate import Estimate, expected_reader, operations_a_second
from headscan.text.source import TEXT, BatchSize, Documents, FieldName, MaxTokens, TextLike

SIDE_BY_SIDE = 0.4  # of the machine's memory that the models may take to be in it together
LARGEST = 0.5  # of the machine's memory that the moments may take


@verb("compare")
def compare(
    models: SourcesLike, text: Annotated[TextLike | None, TEXT] = None, *,
    context: Annotated[int, Option("Tokens of a window; one window is one row of a forward pass.", low=2)] = 128,
    sites: Sites = None,
    skip_first: Annotated[
        int, Option("Leave out the first so many positions of each window: many models keep a sink there.", low=0)
    ] = 1,
    measures: Annotated[str, Option("Which measures: globs, comma-separated.", metavar="GLOBS")] = "*",
    nulls: Annotated[
        str,
        Option(
            "What chance would give, comma-separated; the first is the one of p: permutation, rotation, random-init."
        ),
    ] = "permutation",
    draws: Annotated[int, Option("Draws of a null: the least p is 1/(draws + 1).", low=19)] = 99,
    sample: Annotated[int, Option("Tokens of the sample, for RSA, neighbours and nulls.", low=64)] = 1024,
    against: Annotated[
        Literal["8bit", "4bit"] | None,
        Option("Compare each model with itself in so few bits, too (needs headscan[quantize])."),
    ] = None,
    revisions: Revisions = None,
    shape: Annotated[
        bool, Option("Paired differences of all measures of shape as well, as the scan of both would have them.")
    ] = False,
    batch: BatchSize = None,
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> CompareResult:  # fmt: skip
    """How alike two or more models' representations are: every site of one against every site of the other.

    Args:
        models: two or more of what `headscan.scan` takes: models, or stored vectors of the same tokens in files and arrays.
            The rows of an array [n, d] are documents of their own (two versions of an embedding column); tokens of windows
            are [windows, T, d]. One may be named twice.
        text: as for `headscan.scan`; not needed for stored vectors.
        Further options: see `headscan compare --help`.

    Returns:
        A `CompareResult`: one cell a pair of models, pair of sites and measure, with an interval by documents and p values.

    Raises:
        BadInput: fewer than two, what `headscan.scan` raises, stored vectors that do not fit, moments larger than half of the
            memory.

    All models read the text at once, side by side, where their weights take less than .4 of the machine's memory; else one
    after another, the vectors of all but the last in temporary files. Tokens are compared where they are the same: with one
    tokenizer all of them, with several those whose last character is the same (their windows may begin elsewhere).

    Cost: one forward pass of each model and 2·d·d' operations a token and pair of sites. Memory: 8·d·d' bytes a pair of sites.

    >>> from headscan import compare
    >>> result = compare(["gpt-vanilla", "gpt-vanilla"], "stories", max_tokens=640, context=64, sites="block.*")
    >>> round(result.cell("cka", "block.2").value, 9)
    1.0
    """
    asked, run = running()
    settings = asked.chosen(ComparisonSettings)
    found = _read(models, settings, run)
    gathering, sampled, similarities = found.gathering, found.sample, settings.chosen()
    chance = settings.chance()
    cells = []
    for a, b in combinations(range(len(found.records)), 2):
        cells += cells_of(found, (a, b), similarities, chance, settings, run)
    cells = adjusted(cells, chance)
    shares = top_shares(found)
    run_length = sampled.states[0].shape[1] if sampled.states else 0
    tested = len(sampled.numbers) * len(range(0, run_length, max(1, run_length // TESTED_RUN)))
    notes = [
        *found.notes,
        f"Sample: {run_length} tokens of each of {len(sampled.numbers)} windows, by hashes; nulls: {tested} of these tokens.",
        f"Intervals: 95 %, from {len(gathering.groups.parts())} groups of {gathering.clusters} left out one at a time.",
        f"p values: one-sided, {settings.draws} draws; adjusted by Benjamini and Hochberg over all cells.",
    ]
    return CompareResult(
        protocol=run.protocol(
            text=found.text, device=found.records[0].device, dtype=found.records[0].dtype, notes=notes
        ),
        models=found.records,
        cells=cells,
        measures={name: measure.words for name, measure in similarities.items()},
        nulls={name: null.words for name, null in chance.items()},
        alignment=found.alignment,
        tokens=gathering.tokens,
        sampled=len(sampled.numbers) * run_length,
        tested=tested,
        clusters=gathering.clusters,
        top_shares=shares,
        differences=found.differences,
        findings=findings(cells, shares, found.alignment),
    )


def _read(given: SourcesLike, settings: ComparisonSettings, run: Run) -> ComparedSources:
    """One pass of every source."""
    every = parties(given, settings, run)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    together = sum(party.bytes for party in every) <= SIDE_BY_SIDE * memory
    tokenizers = {party.tokenizer for party in every} - {None}
    by_text = len(tokenizers) > 1
    if by_text and any(party.tokenizer is None for party in every):
        raise BadInput(
            "Stored vectors say nothing of where their tokens end: compare them with models of one tokenizer."
        )
    reading = _SourceReading(settings, by_text)
    readers: list[Iterator[Passed]] = []
    for number, party in enumerate(every):
        reader = reading.reader(number, party)
        readers.append(reader if together or number + 1 == len(every) else spilled(reader, party.release))
    if together:
        for party in every:
            party.load()
    gathering: Gathering | None = None
    for part in aligned(readers, by_place=not by_text):
        if gathering is None:
            _check_size(part.states, memory)
            owners = [model for model, states in enumerate(part.states) for _ in states]
            gathering = Gathering(owners, sample=settings.sample, seed=settings.seed)
        gathering.add(part)
        run.progress("compare", gathering.tokens, settings.max_tokens, "tokens")
    if gathering is None:
        raise BadInput("No token ends where one of every other model does: nothing can be compared on this text.")
    alignment = [
        Alignment(model=party.name, tokens=reading.tokens[k], compared=gathering.tokens)
        for k, party in enumerate(every)
    ]
    how = "side by side" if together else "one after another, vectors in temporary files"
    same = "the same character of the text" if by_text else "the same place of the same window"
    notes = [f"The sources were read {how}; tokens are the same where they end at {same}."]
    return ComparedSources(
        gathering, gathering.sampled(), reading.sites, reading.records, alignment, reading.sources[0].text(), notes,
        reading.shapes.differences() if reading.shapes else [], reading.redrawn(),
    )  # fmt: skip


def moments_bytes(widths: Sequence[Sequence[int]]) -> float:
    """What the moments of all pairs of sites take, from the widths of each source's."""
    return 8.0 * sum(sum(one) * sum(two) for one, two in combinations(widths, 2))


def _check_size(states: Sequence[Sequence[Tensor]], memory: float) -> None:
    widths = [[rows.shape[1] for rows in model] for model in states]
    needed = moments_bytes(widths)
    if needed > LARGEST * memory:
        pairs = sum(len(one) * len(two) for one, two in combinations(widths, 2))
        raise BadInput(
            f"The moments of {pairs:,} pairs of sites take {needed / 2**30:.0f} GiB, of this machine's {memory / 2**30:.0f}: "
            "choose fewer sites, such as --sites 'block.?' or --sites embedding,block.9,final_norm."
        )


class _SourceReading:
    """Makes the readers of all sources, and keeps what is said of each."""

    def __init__(self, settings: ComparisonSettings, by_text: bool) -> None:
        self.settings, self.by_text = settings, by_text
        self.sources: list[VectorSource] = []
        self.records: list[ModelRecord] = []
        self.sites: list[tuple[str, ...]] = []
        self.tokens: list[int] = []
        self.twins: dict[int, list[Callable[[], Lens]]] = {}
        self.shapes = Shapes(settings.skip_first) if settings.shape else None

    def reader(self, number: int, party: Party) -> Iterator[Passed]:
        """The pass of one source; nothing is read or loaded before it is asked for its first batch."""
        settings = self.settings
        source = party.source(ends=self.by_text)
        sites = party.sites(source)
        self.sources.append(source)
        self.sites.append(sites)
        self.records.append(party.record(source))
        self.tokens.append(0)
        lens = source.lens
        # Those whose windows are the sample's can be drawn anew: the first, and all where there is one tokenizer.
        if "random-init" in settings.chance() and lens is not None and (number == 0 or not self.by_text):
            self.twins[number] = [lens.twin(settings.seed + 1 + draw) for draw in range(settings.draws)]
        watch = self.shapes.watch(party.name, source, sites) if self.shapes else None
        skipped = settings.skip_first if source.context > 1 else 0
        every = passed(source, sites, skip_first=settings.skip_first, by_text=self.by_text, watch=watch)
        for part in every:
            self.tokens[number] += len(part.numbers) * (part.ids.shape[1] - skipped)
            yield part

    def redrawn(self) -> dict[int, Callable[[int, Sampled], list[Tensor]]]:
        """For each model that can be drawn anew: its sampled vectors with fresh random weights."""
        return {number: partial(self._redrawn, number) for number in self.twins}

    def _redrawn(self, number: int, draw: int, sample: Sampled) -> list[Tensor]:
        lens = self.twins[number][draw]()
        held: list[list[Tensor]] = [[] for _ in self.sites[number]]
        for ids, at in zip(sample.ids.split(16), sample.positions.split(16), strict=True):
            found = lens.run(ids.to(lens.device), sites=self.sites[number])
            for u, site in enumerate(self.sites[number]):
                states = found[site].float().cpu()
                held[u].append(states.gather(1, at[..., None].expand(-1, -1, states.shape[2])))
        return [torch.cat(parts) for parts in held]


# ---- What a comparison will take in memory and time, said before weights are read; for `--dry-run`.


@estimates(compare)
def estimate_compare(given: Given) -> list[Estimate]:
    """What `headscan.compare` will take, as one estimate, without reading weights and without writing anything.

    Raises BadInput as `compare` does for what can be known without the weights.

    >>> import numpy as np
    >>> one, = estimate_compare([np.zeros((900, 16)), np.zeros((900, 8))])
    >>> one.tokens, one.memory > 8 * 16 * 8
    (900, True)
    """
    settings = given.chosen(ComparisonSettings)
    readers = [expected_reader(one, settings) for one in given_sources(given["models"])]
    if len(readers) < 2:
        raise BadInput("A comparison needs two models or more.")
    widths = [list(reader.widths.values()) for reader in readers]
    counted = [reader.tokens for reader in readers if reader.tokens is not None]
    tokens = min(counted) if len(counted) == len(readers) else None
    forward = sum(reader.forward for reader in readers)
    products = sum(2.0 * sum(one) * sum(two) for one, two in combinations(widths, 2))
    rows = sum(map(sum, widths)) * (settings.sample + 2 * max(reader.batch for reader in readers))
    return [
        Estimate(
            " and ".join(reader.name for reader in readers), tokens, sum(reader.weights for reader in readers),
            moments_bytes(widths) + 8.0 * rows, (forward + 2 * products) * (tokens or 1_000_000) / operations_a_second(),
            note=f"The {settings.draws} draws of each null come on top.",
        )
    ]  # fmt: skip
