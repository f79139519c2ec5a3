"""Commands made from a saved result: the same run again, and what to run next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import headscan

WITH_VALUE = ("--out",)
ALONE = ("--resume", "--overwrite", "--json", "--verbose", "-v")
"""Options of a command that say where a result goes and how it is shown, not what it is."""

FURTHER = {
    "scan": ("--null",),
    "compare": ("--damage",),
    "changes": ("--control-text TEXT",),
    "ntp": ("--model MODEL",),
    "privacy": ("--defence all",),
    "attribute": ("--method occlusion", "--generate 8"),
    "flow": ("--cut attention,mlp",),
}
"""What the same command looks at closer with, by verb: the first that it does not have yet.

`compare --changes` stands as "changes".
"""

UNUSED = {"--damage": ("--sites", "--measures", "--nulls", "--draws")}
"""Options of the command that the one with this addition does not use."""

FOLLOWING = {
    "scan": "headscan checkup {subject} --text {text}",
    "states": "headscan scan {folder}",
    "invert": "headscan privacy {subject} --text TEXT",
    "channel": "headscan privacy {subject} --text TEXT",
    "weights": "headscan checkup {subject} --text TEXT",
    "train": "headscan scan {folder}/model --text {text}",
    "recover": "headscan scan {folder}/model --text {text}",
}
"""The next command, by verb, where the same one says no more."""


def analysis(command: str) -> list[str]:
    """Return the words of a stored command without those that only say where its result goes.

    >>> analysis("headscan scan gpt2 --text my.txt --out DIR --overwrite")
    ['scan', 'gpt2', '--text', 'my.txt']
    """
    words = []
    rest = iter(shlex.split(command)[1:])
    for word in rest:
        name, has_value, _ = word.partition("=")
        if name in WITH_VALUE and not has_value:
            next(rest, None)
        elif name not in WITH_VALUE and word not in ALONE:
            words.append(word)
    return words


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a command without these options and their values.

    >>> without(["compare", "a", "b", "--draws", "19", "--text", "t"], ["--draws"])
    ['compare', 'a', 'b', '--text', 't']
    """
    kept = []
    rest = iter(words)
    for word in rest:
        name, has_value, _ = word.partition("=")
        if name not in options:
            kept.append(word)
        elif not has_value:
            next(rest, None)
    return kept


def next_command(result: headscan.Result, folder: Path) -> str:
    """Return the command that a user of this result would run next; empty where there is none."""
    protocol = result.protocol
    if protocol.verb == "remedy":
        return _application(result)
    if not protocol.command:
        return ""
    words = analysis(protocol.command)
    stored = not any(record.parameters for record in result.models)
    shapes = {(record.depth, record.width, record.vocabulary) for record in result.models}
    impossible = set()
    if stored:
        impossible |= {"--null", "--damage"}
    if len(shapes) > 1:
        impossible.add("--damage")
    if "--controls" in words:
        impossible.add("--control-text")
    verb = "changes" if "--changes" in words else protocol.verb
    for addition in FURTHER.get(verb, ()):
        option = addition.split()[0]
        if option not in words and option not in impossible:
            kept = without(words, UNUSED.get(option, ()))
            return f"{shlex.join(['headscan', *kept])} {addition}"
    if protocol.verb == "compare":
        return _after_comparison(result, words, stored)
    template = FOLLOWING.get(protocol.verb, "")
    if not template or (stored and "{text}" in template):
        return ""
    subject = words[1] if len(words) > 1 and not words[1].startswith("-") else "MODEL"
    text = "TEXT" if protocol.text is None else str(protocol.text.source)
    quoted = {"subject": subject, "text": text, "folder": str(folder)}
    command = template.format(**{key: shlex.quote(value) for key, value in quoted.items()})
    return command + (_window_option(result) if protocol.verb in ("train", "recover") else "")


def _window_option(result: headscan.Result) -> str:
    """Return the option by which a model reads shorter windows than the default; often empty."""
    from headscan.text.source import CONTEXT

    longest = min((record.context or CONTEXT for record in result.models), default=CONTEXT)
    return f" --context {longest}" if longest < CONTEXT else ""


def _after_comparison(result: headscan.Result, words: Sequence[str], stored: bool) -> str:
    """Return what to run after two sources were compared: search in columns, the shape of models.

    It is empty where the second model was made of the first.
    """
    sources = list(takewhile(lambda word: not word.startswith("-"), words[1:]))
    if len(sources) != 2:
        return ""
    if stored:
        return shlex.join(["headscan", "remedy", sources[1], "--against", sources[0]])
    text = "TEXT" if result.protocol.text is None else str(result.protocol.text.source)
    return shlex.join(["headscan", "scan", *sources, "--text", text])


def _application(result: headscan.Result) -> str:
    """Return the line of Python that applies the remedy that was written, if one was."""
    for export in getattr(result, "exported", []):
        if export.format == "npz":
            call = f"Compression.load({export.path!r}).encode(vectors)"
            return f"from headscan.remedies.compress import Compression; {call}"
        if export.format == "dense":
            call = f"RemedyTransformer.load({export.path!r}).transform(vectors)"
            return f"from headscan.remedies.transformer import RemedyTransformer; {call}"
    return ""


def stored_command(path: str) -> list[str]:
    """Return the words of the command that made a saved result.

    Raises:
        BadInput: for no saved result, and for one that was made in Python.
    """
    folder = Path(path)
    saved = headscan.load(folder.parent if folder.name == "result.json" else folder)
    if not saved.protocol.command:
        raise headscan.BadInput(
            f"{path} was made in Python and names no command: its protocol has the settings."
        )
    return analysis(saved.protocol.command)


def bare_app(name: str, about: str) -> App:
    """Return the application of a command that is no verb, with the help of the others."""
    app = App(
        name=f"headscan {name}",
        help=about,
        version_flags=[],
        default_parameter=Parameter(negative=(), show_default=False),
    )
    app["--help"].show = False
    return app


def rerun_app(run: Callable[[Sequence[str]], int]) -> App:
    """Return the command `rerun`; `run` runs a command line."""
    app = bare_app("rerun", "Run the command of a saved result again, into a new folder.")

    @app.default
    def again(
        result: Annotated[str, Parameter(help="A saved result: its folder or result.json.")],
        /,
        *,
        out: Annotated[
            str | None, Parameter(help="Folder of the new result. Default: a new one.")
        ] = None,
    ) -> int:
        words = stored_command(result) + ([] if out is None else ["--out", out])
        print(f"$ {shlex.join(['headscan', *words])}", file=sys.stderr)
        sys.argv = ["headscan", *words]
        return run(words)

    return app
