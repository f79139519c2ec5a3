"""`headscan scan`: the shape of models' representations on a text."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

__all__ = ["COMMAND"]

COMMAND = Command(lambda: headscan.scan, subject="MODEL...", distributed=True)
