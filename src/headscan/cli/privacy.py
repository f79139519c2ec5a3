"""`headscan privacy`: what leaked states, or a leaked gradient, give away of a text."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(lambda: headscan.privacy)
