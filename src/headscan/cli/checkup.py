"""`headscan checkup`: the four questions in one run."""

from __future__ import annotations

from typing import Any

import typer

import headscan
from headscan.cli.command import Command
from headscan.cli.scan import SOURCE_HELP

FOUND = 3
"""The exit status where a finding that --fail-on names is there."""


def _before(options: dict[str, Any]) -> bool:
    """Credentials are looked for before anything is measured; and nothing is done otherwise."""
    if options.get("push") is not None:
        from headscan.diagnosis import check_push

        check_push(options["push"])
    return False


def _after(result: headscan.Result, options: dict[str, Any]) -> None:
    assert isinstance(result, headscan.CheckupResult)
    if options.get("push") is not None:
        from headscan.diagnosis import push

        typer.echo(f"pull request: {push(result, options['push'])}", err=True)
    if result.failed:
        raise typer.Exit(FOUND)


COMMAND = Command(
    lambda: headscan.checkup, subject="SOURCE...", subject_help=SOURCE_HELP, before=_before, after=_after,
    extra={
        "push": (
            str,
            "Send the checkup to this model on the hub (OWNER/NAME), as a pull request to its card, with your own credentials.",
        )
    },
)  # fmt: skip
