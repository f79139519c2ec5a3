"""`headscan compare`: how alike the representations of two or more models are."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command
from headscan.cli.scan import SOURCE_HELP

COMMAND = Command(
    lambda: headscan.compare, subject="SOURCE...", subject_help=SOURCE_HELP, estimate=lambda: headscan.estimate_compare
)
