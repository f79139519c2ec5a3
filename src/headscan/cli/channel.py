"""`headscan channel`: how narrow and noisy an output may be and still tell its token."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(
    verb=lambda: headscan.flow.channel,
    subject="MODEL...",
    subject_help="Hugging Face ids, local folders, .gguf files, or embedded specimens.",
)
