"""A verb's command made of its settings: every field that is an option there is an option here, said once."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

import headscan
from headscan.cli.output import command_line, default_folder, progress_bar, show
from headscan.cli.processes import joined

FIGURES, DRY_RUN = "figures_folder", "dry_run"


@dataclass(frozen=True)
class Command:
    """How a verb is called from the command line.

    Args:
        verb: gives the public function, which is imported only when the command is used.
        subject: how the help writes what it is applied to: "MODEL", "MODEL..." (several), "TEXT".
        subject_help: what may stand there.
        arguments: fields of the settings that are written without their names, each with its metavar.
        before: may do without the verb: given the parsed options, prints something and returns True.
        estimate: gives the function of the verb's estimates, which takes what the verb takes; --dry-run prints them and stops.
        after: called with the result and the options when it was shown, for what only the command line does.
        extra: options that only the command line has: name -> (type, help).
        figures: whether --figures FOLDER writes the page's figures; a verb may have an option of that name itself.
        distributed: under `torchrun` the processes are joined before the verb runs (a Trainer joins them itself).
    """

    verb: Callable[[], Callable[..., headscan.Result]]
    subject: str = "MODEL"
    subject_help: str = "Hugging Face id, local folder, .gguf file, or an embedded specimen."
    arguments: dict[str, str] = field(default_factory=dict)
    extra: dict[str, tuple[type, str]] = field(default_factory=dict)
    figures: bool = True
    distributed: bool = False
    before: Callable[[dict[str, Any]], bool] | None = None
    estimate: Callable[[], Callable[..., Sequence[object]]] | None = None
    after: Callable[[headscan.Result, dict[str, Any]], None] | None = None

    def function(self, name: str) -> Callable[..., None]:
        """A function with the signature that typer reads."""
        call = self.verb()
        record: Any = call.verb  # type: ignore[attr-defined]
        fields = {one.name: one for one in record.options() if not one.option.python}
        registries = {n: one.option.choices for n, one in fields.items() if hasattr(one.option.choices, "options")}
        items: dict[str, tuple[Any, list[str]]] = {}
        for registry in registries.values():
            items |= registry.options()

        def run(**given: Any) -> None:
            as_json, figures = given.pop("json", False), given.pop(FIGURES, None)
            dry = self.estimate is not None and given.pop(DRY_RUN, False)
            if figures is not None:
                headscan.check_kaleido()
            extra = {one: given.pop(one) for one in self.extra}
            chosen = {one: value for one, value in given.items() if value is not None and value != ()}
            if self.before is not None and self.before(chosen | extra):
                return
            if self.estimate is not None and dry:
                print(*self.estimate()(chosen.pop("subject"), **chosen), sep="\n")
                return
            subject = chosen.pop("subject", None)
            own = {key: chosen.pop(key) for key in list(chosen) if key in items and key not in fields}
            for key, registry in registries.items():
                mine = {one: own.pop(one) for one in list(own) if one in registry.options()}
                if mine:
                    chosen[key] = _built(registry, chosen.get(key, fields[key].default), fields[key].flag, mine)
            chosen.setdefault("out", default_folder(name, *_words(subject, chosen, self.arguments, record)))
            chosen["out"] = Path(chosen["out"])
            speaks = os.environ.get("RANK", "0") == "0"
            with joined(wanted=self.distributed), progress_bar(visible=speaks) as progress:
                positional = [] if not self.subject else [subject]
                result = call(*positional, **chosen, progress=progress, command=command_line())
            if speaks:
                if figures is not None:
                    result.save_figures(figures)
                show(result, chosen["out"], as_json=as_json)
            if self.after is not None:
                self.after(result, extra)

        run.__name__ = name
        run.__signature__ = inspect.Signature(list(self._parameters(fields, items)))  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    def _parameters(
        self, fields: dict[str, Any], items: dict[str, tuple[Any, list[str]]]
    ) -> Iterable[inspect.Parameter]:
        if self.subject:
            many = self.subject.endswith("...")
            info = typer.Argument(metavar=self.subject, help=escape(self.subject_help))
            yield _parameter("subject", list[str] if many else str, info, required=True)
        for name, metavar in self.arguments.items():
            one = fields[name]
            info = typer.Argument(metavar=metavar, help=escape(one.option.help))
            yield _parameter(name, _plain_type(one), info, required=one.required)
        for name, one in fields.items():
            if name not in self.arguments:
                yield _parameter(name, _plain_type(one), _option(one), required=one.required)
        for name, (one, users) in items.items():
            if name not in fields:
                yield _parameter(name, _plain_type(one), _option(one, users), required=False)
        for name, (kind, said) in self.extra.items():
            yield _parameter(
                name, kind | None, typer.Option(f"--{name.replace('_', '-')}", help=escape(said)), required=False
            )
        if self.estimate is not None:
            said = "Print what it would take in memory and time, and stop: no weights are read, nothing is written."
            yield _parameter(DRY_RUN, bool, typer.Option("--dry-run", help=said), required=False, default=False)
        said = "Write the page's figures into this folder, as SVG and PDF (needs headscan[figures] and Chrome or Chromium)."
        info = typer.Option("--figures", help=escape(said), metavar="FOLDER")
        if self.figures:
            yield _parameter(FIGURES, str | None, info, required=False)
        said = "Print result.json, and nothing else, on standard output."
        yield _parameter("json", bool, typer.Option("--json", help=said), required=False, default=False)


def _built(registry: Any, chosen: Any, flag: str, given: dict[str, Any]) -> Any:
    """The items that were chosen, with the parameters that were given."""
    names = [part.strip() for part in str(chosen).split(",") if part.strip()]
    names = registry.names() if names == ["all"] else names
    unknown = [one for one in names if one not in registry]
    if unknown:
        first, users = next(iter(given)), registry.options()[next(iter(given))][1]
        raise headscan.BadInput(
            f"--{first.replace('_', '-')} belongs to {' or '.join(users)}: say which by {flag}, which is {chosen!r} now."
        )
    made = registry.build_all(names, given)
    return made[0] if len(made) == 1 else made


def _words(subject: Any, chosen: dict[str, Any], arguments: dict[str, str], record: Any) -> list[str]:
    """What the default folder is named after: the subject, the arguments, and the text."""
    found: list[str] = []
    for value in (subject, *(chosen.get(name) for name in (*arguments, "objective", "text"))):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [str(one) for one in value]
    return [word if len(word) <= 60 else word[-60:] for word in dict.fromkeys(found) if "\n" not in word]


def _parameter(name: str, kind: Any, info: Any, *, required: bool, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[kind if required or default is not None else kind | None, info],
    )


def _option(one: Any, users: list[str] | None = None) -> Any:
    """The typer option of a field; an item's own parameter says whose it is."""
    flag, said = one.flag, one.option.help
    if users:
        said += f" ({', '.join(users)})"
    if hasattr(one.option.choices, "names"):  # a registry, plug-ins included
        said += f" One of {', '.join(one.option.choices.names())}."
    shown = _default_text(one)
    if shown:
        said += f" Default: {shown}."
    if _is_boolean(one.type):
        flag = f"{flag}/--no-{flag.removeprefix('--')}" if one.default is not False else flag
    metavar = one.option.metavar or (f"[{'|'.join(words)}]" if (words := _literals(one.type)) else None)
    return typer.Option(flag, help=escape(said), metavar=metavar, show_default=False)


def _default_text(one: Any) -> str:
    if one.required or one.default in (None, False, (), []) or "Default:" in one.option.help:
        return ""
    if one.default is True:
        return "on"
    return ",".join(map(str, one.default)) if isinstance(one.default, list | tuple) else f"{one.default}"


def _members(kind: Any) -> list[Any]:
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return [member for one in typing.get_args(kind) for member in _members(one)]
    return [] if kind is type(None) else [kind]


def _literals(kind: Any) -> list[str]:
    """The words that are all there is to choose from, for the help: what is none of them is refused by the setting itself."""
    members = _members(kind)
    literal = bool(members) and all(typing.get_origin(one) is Literal for one in members)
    return [str(word) for one in members for word in typing.get_args(one)] if literal else []


def _is_boolean(kind: Any) -> bool:
    return bool in _members(kind)


def _plain_type(one: Any) -> Any:
    """What the command line reads: a flag, a whole number, a number, several texts, or a text (the setting says which)."""
    members = _members(one.type)
    if one.option.repeat:
        return list[str]
    if bool in members:
        return bool
    for kind in (int, float):
        if members == [kind]:
            return kind
    return str
