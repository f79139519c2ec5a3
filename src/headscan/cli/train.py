"""`headscan train`: a recipe, a text and an objective to a model, its curves and its shape."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

COMMAND = Command(verb=lambda: headscan.train, subject="RECIPE", subject_help="gpt, bert, multilingual or mixer.")
