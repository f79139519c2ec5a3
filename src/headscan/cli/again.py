"""Commands made from a saved result: the same run again, and what to run next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
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
    "damage": ("--limit 0.05 --fail-on HS701",),
    "ntp": ("--model MODEL",),
    "privacy": ("--defence all",),
    "attribute": ("--method occlusion", "--generate 8"),
    "flow": ("--cut attention,mlp",),
}
"""What the same command looks at closer with, by verb: the first that it does not have yet.

`compare --changes` is listed as "changes", `compare --damage` as "damage".
"""

UNUSED = {"--damage": ("--sites", "--measures", "--nulls", "--draws")}
"""Options of the command that the one with this addition does not use."""

FOLLOWING = {
    "scan": "headscan checkup {subject} --text {text}",
    "compare": "headscan scan {subject} {second} --text {text}",
    "states": "headscan scan {folder}",
    "invert": "headscan privacy {subject} --text TEXT",
    "channel": "headscan privacy {subject} --text TEXT",
    "weights": "headscan checkup {subject} --text TEXT",
    "train": "headscan scan {folder}/model --text {text}",
    "recover": "headscan scan {folder}/model --text {text}",
}
"""The next command, by verb, where the same one says no more."""

OF_VECTORS = {
    "scan": "headscan checkup {subject}",
    "compare": "headscan remedy {second} --against {subject}",
}
"""The next command after a run on stored vectors, which have no text."""


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
    if protocol.verb == "remedy" and getattr(result, "exported", []):
        return _application(result)
    if not protocol.command:
        return ""
    words = analysis(protocol.command)
    if protocol.verb == "remedy":
        return _further_remedy(words)
    return _closer(result, words) or _following(result, words, folder)


def _closer(result: headscan.Result, words: list[str]) -> str:
    """Return the same command with an option that looks closer, or nothing."""
    impossible = set()
    if _is_stored(result):
        impossible |= {"--null", "--damage"}
    shapes = {(record.depth, record.width, record.vocabulary) for record in result.models}
    if len(shapes) > 1:
        impossible.add("--damage")
    if "--controls" in words:
        impossible.add("--control-text")
    modes = [mode for mode in ("changes", "damage") if f"--{mode}" in words]
    for addition in FURTHER.get(modes[0] if modes else result.protocol.verb, ()):
        option = addition.split()[0]
        if option not in words and option not in impossible:
            kept = without(words, UNUSED.get(option, ()))
            return f"{shlex.join(['headscan', *kept])} {addition}"
    return ""


def _following(result: headscan.Result, words: list[str], folder: Path) -> str:
    """Return the command of another verb that goes on from a result, or nothing."""
    protocol = result.protocol
    template = FOLLOWING.get(protocol.verb, "")
    if _is_stored(result):
        template = OF_VECTORS.get(protocol.verb, "" if "{text}" in template else template)
    subject = words[1] if len(words) > 1 and not words[1].startswith("-") else "MODEL"
    second = words[2] if len(words) > 2 and not words[2].startswith("-") else ""
    if "{second}" in template and not second:
        return ""
    values = {
        "subject": subject,
        "second": second,
        "text": "TEXT" if protocol.text is None else str(protocol.text.source),
        "folder": str(folder),
    }
    command = template.format(**{key: shlex.quote(value) for key, value in values.items()})
    return command + (_window_option(result) if protocol.verb in ("train", "recover") else "")


def _window_option(result: headscan.Result) -> str:
    """Return the option by which a model reads shorter windows than the default; often empty."""
    from headscan.text.source import CONTEXT

    longest = min((record.context or CONTEXT for record in result.models), default=CONTEXT)
    return f" --context {longest}" if longest < CONTEXT else ""


def _is_stored(result: headscan.Result) -> bool:
    """Return whether a result is of stored vectors, which have no weights."""
    return not any(record.parameters for record in result.models)


def _further_remedy(words: list[str]) -> str:
    """Return the command that judges remedies by queries, or else tries compressions."""
    judged = any(word.startswith(("--partners", "--pairs")) for word in words)
    if judged and "--compress" in words:
        return ""
    addition = "--compress BYTES" if judged else "--partners QUERIES"
    return f"{shlex.join(['headscan', *words])} {addition}"


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
            str | None,
            Parameter(help="Folder of the new result. Default: a new one."),
        ] = None,
    ) -> int:
        words = stored_command(result) + ([] if out is None else ["--out", out])
        print(f"$ {shlex.join(['headscan', *words])}", file=sys.stderr)
        sys.argv = ["headscan", *words]
        return run(words)

    return app
