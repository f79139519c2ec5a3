"""The command line: a table of verbs, each a public function whose options become the command's;
plug-ins add verbs.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import gc
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from headscan import BadInput, __version__
from headscan.cli.guard import guarded, print_fault
from headscan.run.code import plugins
from headscan.run.errors import nearest
from headscan.run.exhaustion import exhausted, memory_ran_out
from headscan.run.files import SIGNALS

if TYPE_CHECKING:
    from headscan.cli.command import Command

__all__ = ["PLUGIN_VERBS", "VERBS", "command_of", "main", "verbs"]

# A verb's function is imported only when the verb is used: `headscan --help` needs no library that
# computes.
VERBS = {
    "checkup": "Answer the four questions about a model in one run: shape, cause, leak and remedy, "
    "with findings that have codes.",
    "scan": "Measure the shape of models' representations on a text, layer by layer: cones, "
    "spectra, norms.",
    "compare": "Measure how similar two models' representations are, layer against layer.",
    "states": "Write a model's hidden states on a text to a folder, for later or for other "
    "programs.",
    "ntp": "Compute what a text alone predicts of a model's geometry: entropy bound, supports, "
    "growing part of the logits.",
    "invert": "Recover the text from hidden states, with a certificate.",
    "privacy": "Bound in bits what leaked states, caches, logits or gradients reveal of a text, "
    "and attack them.",
    "attribute": "Show which tokens of a prompt a prediction depends on, and how reliable that "
    "map is.",
    "flow": "Measure how much each position depends on other tokens.",
    "channel": "Measure how narrow and noisy an output may be and still identify its token: "
    "width, noise, capacity.",
    "weights": "Compare the spectrum of every weight matrix with a random one's: ranks, "
    "tails, spikes. No text is read.",
    "train": "Train a language model with or without a prediction head, and watch its shape.",
    "recover": "Give a head to a model that was trained without one.",
    "remedy": "Fit post-processing methods to embeddings, judge them on retrieval, export them.",
    "figures": "Write the figures of a saved result as SVG and PDF.",
    "models": "List the models available offline.",
    "sites": "List the sites of a model: name, width, module, parameters. No text is read.",
    "rerun": "Run the command of a saved result again, into a new folder.",
    "open": "Show the page of a saved result, or a list of the results in a folder.",
}
# of malloc.h: up to so many bytes stay when they are free, at the top and a block
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
BARE = ("figures", "models", "sites", "rerun", "open")  # commands without a result of their own
EXAMPLES = ("gpt-vanilla", "gpt-headless", "gpt-vanilla-early", "gpt-headless-early")
"""The example models, known here without the libraries that compute."""
PLUGIN_VERBS = "headscan.verbs"
"""The group of entry points by which an installed package brings verbs: each names a `Command`, or
a function under `@verb`.
"""


def _plugins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in plugins(PLUGIN_VERBS) if entry.name not in VERBS}


def verbs() -> dict[str, str]:
    """Return every verb with a sentence on what it does, plug-ins included; import none of them."""
    return VERBS | {name: _about(entry) for name, entry in sorted(_plugins().items())}


def _about(entry: EntryPoint) -> str:
    """The first line of the docstring of the function that an entry point names, read without
    importing its module.
    """
    root, _, submodule = entry.module.partition(".")
    spec = find_spec(root)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, *submodule.split(".")).with_suffix(".py")
        if path.is_file():
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name == entry.attr:
                    return (ast.get_docstring(node) or "").partition("\n")[0]
                if (
                    isinstance(node, ast.Assign)
                    and getattr(node.targets[0], "id", "") == entry.attr
                ):
                    keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
                    return "".join(
                        str(ast.literal_eval(word.value))
                        for word in keywords
                        if word.arg == "about"
                    )
    return f"A verb of the plug-in {entry.module}."


def command_of(name: str) -> Command:
    """The command of a verb; BadInput, which suggests the nearest, where there is none."""
    from headscan.cli.command import Command
    from headscan.cli.commands import COMMANDS

    if name in COMMANDS:
        return COMMANDS[name]
    plugins = _plugins()
    if name not in plugins:
        hint = nearest(name, verbs())
        if not hint and (Path(name).exists() or "/" in name or name in EXAMPLES):
            hint = f" To examine a model: headscan checkup {name} --text TEXT."
        raise BadInput(f"There is no verb {name!r}.{hint} `headscan --help` lists the verbs.")
    command = plugins[name].load()
    if isinstance(command, Command):
        return command
    subject = command.verb.subject or ""
    return Command(verb=lambda: command, subject=subject.upper(), subject_help=f"The {subject}.")


HEAD = """Usage: headscan VERB [ARGUMENTS] [OPTIONS]

A CAT scanner for language models: what shape do representations have, what
caused it, what of the input is still in them, and what helps?

  headscan scan gpt-vanilla --text stories    a first scan, without a download
  headscan VERB --help                        the options of a verb, an example

Verbs:"""
TAIL = """
Options:
  --version             Print the version and leave.
  --help, -h            Show this message.
  --install-completion  Install completion for the current shell."""


def _install_completion() -> None:
    from cyclopts import App

    app = App(name="headscan", version=__version__)
    for name, about in verbs().items():
        if name not in BARE:
            app.command(command_of(name).app(name, about), name=name)
    print(app.install_completion())


def _check_text(argv: Sequence[str]) -> None:
    """Say what is wrong with the text before the libraries that compute are imported, which takes
    seconds.
    """
    texts = [value for flag, value in pairwise(argv) if flag == "--text"]
    texts += [word.removeprefix("--text=") for word in argv if word.startswith("--text=")]
    if texts and argv[0] in VERBS and not {"-h", "--help"} & {*argv}:
        from headscan.text import check_text

        check_text(texts[-1])


def run(argv: Sequence[str]) -> int:
    """Run a command line, given as words; the exit status."""
    for word in argv:
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            spelt = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise BadInput(f"The name of the file {spelt} is not UTF-8: rename it.")
    if not argv or argv[0] in ("--help", "-h"):
        fill = partial(textwrap.fill, width=78, subsequent_indent=" " * 15)
        rows = [fill(about, initial_indent=f"  {name:12} ") for name, about in verbs().items()]
        print("\n".join([HEAD, *rows, TAIL]))
        return 0
    if argv[0] == "--version":
        print(f"headscan {__version__}")
        return 0
    if argv[0] == "--install-completion":
        _install_completion()
        return 0
    name = argv[0]
    _check_text(argv)
    from cyclopts import CycloptsError

    if name in BARE:
        make_app = getattr(import_module("headscan.cli.commands"), f"{name}_app")
        app = make_app(run) if name == "rerun" else make_app()
    else:
        app = command_of(name).app(name, verbs().get(name, ""))
    arguments = list(argv[1:])
    if arguments[:1] == [
        "-"
    ]:  # standard input as the subject: behind the mark that ends the options
        arguments = [*arguments[1:], "--", "-"]
    try:
        status: Any = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise BadInput(f"{str(error).strip()} See headscan {name} --help.") from None
    sys.stdout.flush()
    return int(status or 0)


ENVIRONMENT = {
    errno.ENOSPC,
    errno.EFBIG,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ECONNRESET,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENODEV,
    errno.ENXIO,
    getattr(errno, "EREMOTEIO", errno.EIO),
}
"""Errors of the machine that no program can mend; the last nine are of network disks."""


def main() -> NoReturn:
    """Run the command line: exit 0 when done, 2 on bad input (one sentence), 74 where the machine
    refused (memory that ran out, a full disk, one that is gone), 130 when interrupted, 1 on a
    fault.
    """
    # a polite kill and a terminal that is closed save the state as Ctrl-C does
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows what it can
    sys.excepthook = print_fault
    # threads that spin while they wait may double the time of a run
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with suppress(
        AttributeError, OSError, TypeError
    ):  # glibc alone: blocks that are given back at once cost a fault a page
        for parameter, size in ((M_TRIM_THRESHOLD, 2**29), (M_MMAP_THRESHOLD, 2**28)):
            ctypes.CDLL(None).mallopt(parameter, size)
    # imports make objects that stay: look through them less often
    gc.set_threshold(100_000, 20, 100)
    with guarded():
        _main(sys.argv[1:])


def _main(argv: Sequence[str]) -> NoReturn:
    try:
        sys.exit(run(argv))
    except BadInput as error:
        print(f"headscan: {error}", file=sys.stderr)
        sys.exit(error.status)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno not in ENVIRONMENT:
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(f"headscan: {(error.strerror or str(error)).rstrip('.')}{where}.", file=sys.stderr)
        with suppress(OSError):  # what is left to be written there cannot be
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2 if error.errno == errno.ENAMETOOLONG else 74)
    except (MemoryError, RuntimeError) as error:
        if not exhausted(error):
            raise
        print(f"headscan: {memory_ran_out(error, ())}", file=sys.stderr)
        sys.exit(74)
    except KeyboardInterrupt:
        resume = "" if argv[0] in BARE else " Continue with the same command and --resume."
        print(f"headscan: interrupted.{resume}", file=sys.stderr)
        sys.exit(130)


def __dir__() -> list[str]:
    return __all__
