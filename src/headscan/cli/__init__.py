"""The command line: one short file a verb; each parses, calls one public function and prints."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, NoReturn

import typer

from headscan import BadInput, __version__
from headscan.cli.attribute import attribute
from headscan.cli.models import models
from headscan.cli.scan import scan

__all__ = ["app", "main"]

app = typer.Typer(
    help="A CAT scanner for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (scan, attribute, models):
    app.command()(verb)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headscan {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """A CAT scanner for language models."""


def _stop(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line: exit 0 when done, 2 on bad input (one sentence), 130 when interrupted, 1 on a fault."""
    signal.signal(signal.SIGTERM, _stop)  # a polite kill saves its state as Ctrl-C does
    try:
        app()
    except BadInput as error:
        print(f"headscan: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("headscan: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
