"""What a scan is asked for: the options of `headscan.scan` and of the command line, said once."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from headscan.measures.measure import MEASURES, Measure, place
from headscan.measures.probe import PROBES, Probe
from headscan.model.finding import revisions_of
from headscan.model.settings import Loading, Revisions, Sites
from headscan.run import BadInput, Parts
from headscan.run.spark import check_engine
from headscan.states import SourceLike, SourcesLike, given_sources
from headscan.statistics.clusters import CLUSTERS, KINDS, sample_tokens
from headscan.statistics.parallel import ROOM
from headscan.statistics.sinks import CELLS
from headscan.statistics.site import FINE_BLOCKS
from headscan.text import PairSet, read_pair_files, synonyms
from headscan.text.source import BatchSize, Context, Master, Reading, TextLike

# ---- Which measures and probes a scan takes.


def ordered_measures() -> list[Measure]:
    """All measures, the core first, as they stand in tables."""
    return sorted(
        MEASURES.values(), key=lambda one: (not one.words.core, one.words.order, one.name)
    )


def ordered_probes() -> list[type[Probe]]:
    """All probes, as they stand on the page."""
    return sorted(
        PROBES.values(), key=lambda one: (one.words.order, place(one.words.group), one.words.name)
    )


def choose(measures: str | Sequence[str] | None) -> tuple[list[Measure], list[Probe]]:
    """The measures and probes that `--measures` names.

    None: the core measures only. `all`: everything but what is expensive. `expensive`: everything.
    Else globs, separated by commas, of measures, probes, `PROBE.FIELD`, or groups (of which what is
    expensive is left out); the core measures are always there. Raises BadInput where a glob matches
    nothing.

    >>> [m.name for m in choose("drift")[0]][-1], choose("drift")[1], choose(None)[1]
    ('drift', [], [])
    >>> [probe.name for probe in choose("anatomy")[1]]
    ['anatomy', 'common_direction']
    """
    parts = (
        []
        if measures is None
        else measures.split(",")
        if isinstance(measures, str)
        else list(measures)
    )
    if measures and not any(part.strip() for part in parts):
        raise BadInput(f"{measures!r} names no measure.")
    every = ordered_measures()
    probes = ordered_probes()
    chosen = {one.name for one in every if one.words.core}
    for glob in (part.strip() for part in parts if part.strip()):
        if glob in ("all", "expensive"):
            hits = {one.name for one in every}
            hits |= {
                one.words.name for one in probes if glob == "expensive" or not one.words.expensive
            }
        else:
            hits = {
                one.name
                for one in every
                if fnmatchcase(one.name, glob) or fnmatchcase(one.words.group, glob)
            }
            for one in probes:
                words = one.words
                names = [words.name, *(f"{words.name}.{field}" for field in words.fields)]
                names += [] if words.expensive else [words.group]
                hits |= {words.name} if any(fnmatchcase(name, glob) for name in names) else set()
        if not hits:
            known = ", ".join([*(one.name for one in every), *(one.words.name for one in probes)])
            raise BadInput(f"No measure matches '{glob}'; there are: all, expensive, {known}.")
        chosen |= hits
    return [one for one in every if one.name in chosen], [
        one() for one in probes if one.words.name in chosen
    ]


@dataclass(frozen=True, kw_only=True)
class SiteReading(Loading, Reading):
    """The options of every verb that reads a text or stored states site by site; see each one's
    help.
    """

    text: TextLike | None
    context: Context
    sites: Sites
    skip_first: int
    batch: BatchSize
    seed: int

    def check(self) -> None:
        super().check()
        if self.context is not None:
            self.check_window(self.context)

    def check_window(self, context: int, *, alone: bool = False) -> None:
        """Raise BadInput where windows of `context` tokens are all skipped, or not one is read;
        `alone`: a document that is shorter is a window, too.
        """
        if self.skip_first >= context:
            raise BadInput(
                f"--skip-first must leave at least one of the {context} positions of a window, "
                f"not {self.skip_first}."
            )
        if self.max_tokens is not None and self.max_tokens < context and not alone:
            raise BadInput(
                f"--max-tokens must be at least one window of {context} tokens, not "
                f"{self.max_tokens}."
            )


@dataclass(frozen=True, kw_only=True)
class Scanning(SiteReading):
    """The options of a scan; see each one's help."""

    revisions: Revisions
    null: bool
    sample: int
    measures: str | Sequence[str] | None
    pairs: Sequence[str | os.PathLike[str]]
    arithmetic: Literal["bounded", "exact"]
    engine: Literal["here", "spark"]
    master: Master

    def check(self) -> None:
        super().check()
        check_engine(self.engine, self.master)
        _, probes = choose(self.measures)
        if self.pairs and "alignment" not in {probe.name for probe in probes}:
            raise BadInput("--pairs is for the measure alignment: add --measures alignment.")
        self.pair_sets()

    def sources(self, given: SourcesLike) -> list[SourceLike]:
        """The sources one by one; with revisions those of the one model that was given."""
        sources = given_sources(given)
        if self.revisions is None:
            return sources
        if len(sources) != 1 or not isinstance(sources[0], str | os.PathLike):
            raise BadInput(
                "--revisions is for one model, named by its Hugging Face id or its folder of "
                "checkpoints."
            )
        return [*revisions_of(sources[0], self.revisions)]

    def pair_sets(self) -> tuple[PairSet, ...]:
        """The pairs in the files, or the shipped synonyms where there are none."""
        return tuple(read_pair_files(self.pairs)) or (synonyms(),)


# ---- What a scan will hold in memory, and take in time, said before it begins: bounds from widths, not a guess.


def finishing(width: int) -> float:
    """What finishing one site holds at once, beside its statistics, in bytes: at most eight
    matrices of float64.

    Two clouds (that of all tokens stays to the end) of a scatter and a covariance each; the sums
    that one is made of, or a second moment and what its decomposition works on.
    """
    return 8 * 8.0 * width**2


LENGTHS_BYTES = 2**30  # what the sums at shorter lengths, which the last block has, may take


def affordable_lengths(width: int) -> int:
    """At how many lengths of the text the last block's numbers are known: at n, n/2, n/4 and n/8
    where the sums have room.

    >>> affordable_lengths(8192), affordable_lengths(12288)
    (4, 2)
    """
    return 1 + min(3, int(LENGTHS_BYTES // (5 * width**2)))


def memory_bound(widths: Sequence[int], *, context: int, batch: int, tokens: int | None) -> float:
    """What a scan holds at most, in bytes, beside the model and its own forward pass, for sites of
    these widths, windows of `context` tokens, batches of so many tokens, a text of so many (None:
    any).

    That is what each site keeps, and once: the sample; and the largest of a batch in float64, the
    finishing of sites (as many at once as have room), and a part on its way to the disk.

    >>> round(memory_bound([4096, 4096, 300], context=128, batch=2048, tokens=4096) / 1e9, 1)
    1.9
    """
    widest = max(widths)
    adding = 8 * 8.0 * batch * widest
    finish = finishing(widest)
    finish = max(finish, min(ROOM, finish * len(widths)))
    once = 64 * 2**20 + max(adding, finish, 4.0 * max(Parts.PIECE, 8 * widest * (widest // 4)))
    # the widest may be the last block
    lengths = [1] * (len(widths) - 1) + [affordable_lengths(widest)]
    return once + sum(
        _site(width, context, tokens, k) for width, k in zip(sorted(widths), lengths, strict=True)
    )


def _site(width: int, context: int, tokens: int | None, lengths: int) -> float:
    """What one site keeps to the end: second moments, and the sums and the sample that its
    intervals are made of.
    """
    matrix = 5.0 * width**2  # of a Gram matrix in panels
    # of first tokens and sinks: as they are, or a matrix where that is less
    rows = [lengths * matrix, matrix, matrix]
    sample = sample_tokens(width)
    if tokens is not None:
        windows = tokens // context
        rows = [
            min(most, 8.0 * width * count)
            for most, count in zip(rows, (windows, windows, tokens // 2), strict=True)
        ]
        sample = min(sample, tokens)
    blocks = 2 * FINE_BLOCKS * 8.0 * (2 * width + 4)
    sums = len(CELLS) * len(KINDS) * CLUSTERS * 8.0 * (2 * width + 4)
    return lengths * matrix + sum(rows) + blocks + sums + 3 * 4.0 * width * sample
