"""`headscan attribute`: which tokens of a prompt a prediction rests on."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(verb=lambda: headscan.attribute)
