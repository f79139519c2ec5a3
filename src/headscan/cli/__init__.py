"""The command line: one short file a verb; each names a public function, whose settings become the options."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from headscan import BadInput, __version__

__all__ = ["main"]

# Each verb's file is read only when the verb is used: `headscan --help` needs no library that computes.
VERBS = {
    "checkup": "The four questions in one run: shape, cause, leak and cure, with findings that have codes.",
    "scan": "The shape of models' representations on a text: cones, spectra, norms, layer by layer.",
    "states": "Hidden states of a model on a text, written for later, or for others.",
    "compare": "How alike two models' representations are, layer against layer.",
    "ntp": "What geometry a text alone dictates: entropy bound, supports, the growing part of the logits.",
    "invert": "Hidden states turned back into the text they came from, with a certificate.",
    "privacy": "How many bits of a text leaked states, caches, logits or gradients give away: proved bounds and attacks.",
    "attribute": "Which tokens of a prompt a prediction rests on, and how far that map can be trusted.",
    "flow": "What one token's output knows of another token.",
    "channel": "How narrow and noisy an output may be and still tell its token: width, noise, capacity.",
    "train": "A language model trained without a prediction head (or with one), its shape watched.",
    "recover": "A head for a model that was trained without one.",
    "tournament": "Cures of training side by side, at equal tokens, time and loss: a leaderboard.",
    "remedy": "Cures after the fact for embeddings: fitted, judged on retrieval, exported.",
    "evaluate": "A model tried on sets of tasks in a folder, offline.",
    "reproduce": "Claims of the literature as experiments, with verdicts.",
    "models": "The models that can be named without a download.",
}


class _Verbs(TyperGroup):
    """The verbs; each is built when it is asked for. (Typer carries a click of its own, whose types it does not show.)"""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, name: str) -> Any:
        return _build(name) if name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@functools.cache
def _build(name: str) -> Any:
    module = import_module(f"headscan.cli.{name}")
    one = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    function = module.COMMAND.function(name) if hasattr(module, "COMMAND") else getattr(module, name)
    one.command(name, help=VERBS[name])(_guarded(function))
    return typer.main.get_command(one)


def _guarded(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, with bad input and interruption turned into one sentence and an exit status.

    It is done here and not around `app()`, because typer has an answer of its own to an interruption.
    """

    @functools.wraps(verb)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            verb(*arguments, **options)
            sys.stdout.flush()
        except BadInput as error:
            _refuse(error)
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except KeyboardInterrupt:
            resume = " Continue with the same command and --resume." if "resume" in options else ""
            print(f"headscan: interrupted.{resume}", file=sys.stderr)
            sys.exit(130)

    return run


def _refuse(error: BadInput) -> NoReturn:
    print(f"headscan: {error}", file=sys.stderr)
    sys.exit(2)


def _check_text(words: list[str]) -> None:
    """Say what is wrong with the text before the libraries that compute are imported, which takes seconds."""
    given = [value for flag, value in pairwise(words) if flag == "--text"]
    given += [word.removeprefix("--text=") for word in words if word.startswith("--text=")]
    # What evaluate reads is a folder of evaluation sets, in formats of their own.
    if given and words[0] in VERBS and words[0] != "evaluate" and not {"-h", "--help"} & {*words}:
        from headscan.text import check_text

        check_text(given[-1])


app = typer.Typer(
    cls=_Verbs,
    help="A CAT scanner for language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows what it can
    try:
        _check_text(sys.argv[1:])
    except BadInput as error:
        _refuse(error)
    app()
