"""`headscan remedy`: cures after the fact, fitted, judged on retrieval, exported."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(
    lambda: headscan.remedy, subject="SOURCE",
    subject_help="A sentence encoder (with --pairs) or stored vectors: a file, folder or URL of a column of embeddings.",
    estimate=lambda: headscan.estimate_remedy,
)  # fmt: skip
