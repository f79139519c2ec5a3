"""`headscan evaluate`: what a model can do, by sets of tasks in a folder."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

__all__ = ["COMMAND"]

COMMAND = Command(verb=lambda: headscan.training.evaluate)
