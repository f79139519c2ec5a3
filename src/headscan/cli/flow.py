"""`headscan flow`: what one token's output knows of another token."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(
    verb=lambda: headscan.flow.run,
    subject="MODEL...",
    subject_help="Hugging Face ids, local folders, .gguf files, or embedded specimens.",
)
