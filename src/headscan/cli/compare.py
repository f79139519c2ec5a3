"""`headscan compare`: how alike the representations of two or more models are."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(lambda: headscan.compare, subject="MODEL...")
