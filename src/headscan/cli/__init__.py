"""The command line: one short file a verb; each parses, calls one public function and prints."""

from __future__ import annotations

import errno
import functools
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from headscan import BadInput, __version__
from headscan.cli.attribute import attribute
from headscan.cli.flow import flow
from headscan.cli.invert import invert
from headscan.cli.models import models
from headscan.cli.ntp import ntp
from headscan.cli.reproduce import reproduce
from headscan.cli.scan import scan
from headscan.cli.train import train

__all__ = ["app", "main"]

app = typer.Typer(
    help="A CAT scanner for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _guarded(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, with bad input and interruption turned into one sentence and an exit status.

    It is done here and not around `app()`, because typer has an answer of its own to an interruption.
    """

    @functools.wraps(verb)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            verb(*arguments, **options)
        except BadInput as error:
            print(f"headscan: {error}", file=sys.stderr)
            sys.exit(2)
        except Exception as error:
            if not disk_is_full(error):
                raise
            resume = " and continue with the same command and --resume" if "resume" in options else ""
            print(f"headscan: The disk is full ({error}): make room{resume}.", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            resume = " Continue with the same command and --resume." if "resume" in options else ""
            print(f"headscan: interrupted.{resume}", file=sys.stderr)
            sys.exit(130)

    return run


def disk_is_full(error: BaseException) -> bool:
    """Whether the system had no room for a file, told by its own error or as safetensors words it.

    >>> disk_is_full(OSError(28, "No space left on device")), disk_is_full(OSError(2, "No such file"))
    (True, False)
    """
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)


for verb in (scan, ntp, invert, attribute, flow, train, reproduce, models):
    app.command()(_guarded(verb))


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
    app()
