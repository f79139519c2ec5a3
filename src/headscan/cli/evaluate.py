"""`headscan evaluate`: what a model can do, by sets of tasks in a folder."""

from __future__ import annotations

from importlib import import_module

from headscan.cli.command import Command

COMMAND = Command(verb=lambda: import_module("headscan_lab.evaluation.run").evaluate)
