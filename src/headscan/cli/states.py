"""`headscan states`: hidden states written for later, or for others."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(lambda: headscan.states.run, estimate=lambda: headscan.estimate_states)
