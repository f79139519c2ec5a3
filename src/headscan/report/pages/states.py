"""The page of stored states: what is in the folder, and how it is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Head, Prose, Section, Term, page, section, table
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan.states.writing import StatesResult


@page("states")
def states(result: StatesResult) -> Head:
    """Whose states, and how many."""
    said = (
        f"{result.tokens:,} vectors at each of {len(result.sites)} sites, "
        f"{result.bytes / 1e6:,.1f} MB, in {result.folder}."
    )
    return Head([f"States of {named(result.models[0].name)}"], said)


@section("states", 10)
def stored(result: StatesResult) -> Section:
    """The sites, and the command that reads them."""
    said = (
        f"headscan scan {result.folder} reads them back: the numbers are those of a scan of the "
        "model on this text. Each "
    )
    said += f"window has {result.context} tokens; token ids and documents are beside the vectors."
    lead = "A tensor [windows, tokens, width] a site and file."
    return Section(
        "What is stored", lead, [Prose(said), table(result.sites, "site", "width", "dtype")]
    )


@section("states", 20)
def shards(result: StatesResult) -> Section:
    """The files."""
    windows = Term("windows"), lambda one: one.last - one.first
    digest = Term("SHA-256 begins"), lambda one: one.sha256[:16]
    files = table(result.shards, "file", windows, "bytes", digest, folded=len(result.shards) > 12)
    return Section("Files", "The index, states.json, names them with their checksums.", [files])
