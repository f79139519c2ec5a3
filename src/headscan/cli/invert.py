"""`headscan invert`: from hidden states back to the text, with a certificate."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(lambda: headscan.invert)
