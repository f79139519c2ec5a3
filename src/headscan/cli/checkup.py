"""`headscan checkup`: the four questions in one run."""

from __future__ import annotations

from typing import Any

import typer

import headscan
from headscan.cli.command import Command
from headscan.cli.scan import SOURCE_HELP

__all__ = ["COMMAND"]

FOUND = 3
"""The exit status where a finding that --fail-on names is there."""


def _fail(result: headscan.Result, options: dict[str, Any]) -> None:
    failed = getattr(result, "failed", [])
    if failed:
        raise typer.Exit(FOUND)


COMMAND = Command(lambda: headscan.checkup, subject="SOURCE...", subject_help=SOURCE_HELP, after=_fail)
