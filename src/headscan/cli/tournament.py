"""`headscan tournament`: cures of training side by side, at equal tokens, time and loss."""

from __future__ import annotations

from importlib import import_module

from headscan.cli.command import Command

COMMAND = Command(verb=lambda: import_module("headscan_lab.tournament.run").tournament, subject="")
