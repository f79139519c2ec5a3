"""`headscan recover`: a head for a model that was trained without one."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(verb=lambda: headscan.training.recover)
