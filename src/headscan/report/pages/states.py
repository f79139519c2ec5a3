"""The page of stored states: what is in the folder, and how it is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Head, Prose, Section, Table, page, section
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan.states.writing import StatesResult


@page("states")
def states(result: StatesResult) -> Head:
    """Whose states, and how many."""
    return Head(
        [f"States of {named(result.models[0].name)}"],
        f"{result.tokens:,} vectors at each of {len(result.sites)} sites, {result.bytes / 1e6:,.1f} MB, in {result.folder}.",
    )


@section("states", 10)
def stored(result: StatesResult) -> Section:
    """The sites, and the command that reads them."""
    table = Table(["site", "width", "dtype"], [(one.site, one.width, one.dtype) for one in result.sites])
    prose = Prose(
        f"headscan scan {result.folder} reads them back: the numbers are those of a scan of the model on this text. Each "
        f"window has {result.context} tokens; token ids and documents are beside the vectors."
    )
    return Section("What is stored", "A tensor [windows, tokens, width] a site and file.", [prose, table])


@section("states", 20)
def shards(result: StatesResult) -> Section:
    """The files."""
    rows = [(one.file, one.last - one.first, one.bytes, one.sha256[:16]) for one in result.shards]
    table = Table(["file", "windows", "bytes", "SHA-256 begins"], rows, folded=len(rows) > 12)
    return Section("Files", "The index, states.json, names them with their checksums.", [table])
