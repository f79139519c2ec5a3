"""`headscan ntp`: the geometry that next-token prediction on a text leads to, and models held against it."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(
    verb=lambda: headscan.ntp.run,
    subject="TEXT",
    subject_help="A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, a datasets id, "
    "or an embedded text.",
)
