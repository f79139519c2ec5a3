"""How texts are read and counted: the names, defaults and help of these options, for every verb that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from headscan.run import BadInput, Option, Settings
from headscan.run.spark import MASTER, check_engine
from headscan.text.source import TextLike

__all__ = ["TEXT", "Counting", "Reading", "TextLike", "parse_bytes"]

TEXT = Option(
    "A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, a datasets id, or the name "
    "of an embedded text; in Python also the text itself, or a list of texts.",
    content=True,
    metavar="TEXT",
)
"""What every verb says of its text."""

_UNITS = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1, "": 1}


def parse_bytes(size: str | int) -> int:
    """Bytes from a number or a word such as "512MiB", "4GiB", "2GB".

    >>> parse_bytes("4GiB"), parse_bytes("10 MB"), parse_bytes(4096)
    (4294967296, 10000000, 4096)
    """
    if isinstance(size, int):
        return size
    word = size.strip().upper()
    unit = next(unit for unit in _UNITS if word.endswith(unit))
    try:
        return int(float(word.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise BadInput(f'"{size}" is no amount of memory; write for example 512MiB or 4GiB.') from None


@dataclass(frozen=True, kw_only=True)
class Reading(Settings):
    """How a text falls into documents, and how much of it is read; see `headscan.text.documents`."""

    documents: Annotated[
        str, Option("How a .txt falls into documents: whole (a file is one), lines, paragraphs, or a separator.")
    ] = "whole"
    field: Annotated[str, Option("The field of a .jsonl, .parquet or datasets row that is its document.")] = "text"
    max_tokens: Annotated[int | None, Option("Stop reading after so many tokens.", low=1)] = None

    def check(self) -> None:
        """A separator has a character."""
        super().check()
        if not self.documents:
            raise BadInput("--documents must be whole, lines, paragraphs or a separator that is not empty.")


@dataclass(frozen=True, kw_only=True)
class Counting(Settings):
    """Which contexts are counted, and with what; see `headscan.text.counts.count`."""

    order: Annotated[int, Option("Tokens of a context, K (with --prefixes: of the longest prefix).", low=1)]
    min_count: Annotated[int, Option("Leave out contexts seen fewer times.", low=1)] = 1
    memory: Annotated[
        str | int, Option("What counting may hold at once, such as 512MiB; the rest goes to disk.", low=1)
    ] = "4GiB"
    engine: Annotated[
        Literal["sort", "spark"], Option("What counts: sort (on this machine, out of core) or spark (on a cluster).")
    ] = "sort"
    master: Annotated[str | None, MASTER] = None

    def check(self) -> None:
        """The memory is an amount; Spark has a master, and nothing else has one."""
        super().check()
        if parse_bytes(self.memory) < 1:
            raise BadInput(f"--memory must be at least a byte, not {self.memory}.")
        check_engine(self.engine, self.master)
