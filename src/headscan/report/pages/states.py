"""The page of stored states: what is in the folder, and how it is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Head, Prose, Section, Term, page, section, table
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan.states.writing import StatesResult

MOST_OPEN_ROWS = 12  # a longer table is folded


@page("states")
def states(result: StatesResult) -> Head:
    """Return the model whose states they are, their number and their folder."""
    megabytes = result.bytes / 1e6
    places = f"each of {len(result.sites)} sites" if len(result.sites) > 1 else "1 site"
    sentence = f"{result.tokens:,} vectors at {places}, {megabytes:,.1f} MB, in {result.folder}."
    return Head([f"States of {named(result.models[0].name)}"], sentence)


@section("states", 10)
def stored(result: StatesResult) -> Section:
    """Return the sites, and the command that reads them."""
    sentence = (
        f"headscan scan {result.folder} reads them back: the numbers are those of a scan of the "
        f"model on this text. Each window has {result.context} tokens; token ids and documents "
        "are beside the vectors."
    )
    lead = "A file has a tensor [windows, tokens, width] for a site."
    sites = table(result.sites, "site", "width", "dtype")
    return Section("What is stored", lead, [Prose(sentence), sites])


@section("states", 20)
def shards(result: StatesResult) -> Section:
    """Return the files with their windows, sizes and checksums."""
    files = table(
        result.shards,
        "file",
        (Term("windows"), lambda shard: shard.last - shard.first),
        "bytes",
        (Term("SHA-256 begins"), lambda shard: shard.sha256[:16]),
        folded=len(result.shards) > MOST_OPEN_ROWS,
    )
    return Section("Files", "The index, states.json, names them with their checksums.", [files])
