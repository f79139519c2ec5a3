"""`headscan tournament`: cures of training side by side, at equal tokens, time and loss."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

__all__ = ["COMMAND"]

COMMAND = Command(verb=lambda: headscan.training.tournament, subject="")
