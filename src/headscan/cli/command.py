"""A verb's command, made of its options by cyclopts: every option is said once, in the verb's
settings.
"""

import gc
import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter

import headscan
from headscan.cli.guard import console
from headscan.cli.output import (
    command_line,
    default_folder,
    finished_before,
    free_folder,
    joined,
    progress_bar,
    show,
)
from headscan.run.findings import new_alarms
from headscan.run.settings import HelpGroup, is_alias

DOCS = "https://github.com/headscan/headscan/blob/main/docs/"
MODEL_HELP = (
    "Hugging Face id, local folder, .gguf file, or an embedded specimen (see `headscan models`)."
)
SOURCE_HELP = (
    "A model (Hugging Face id, local folder, .gguf file, embedded specimen), which reads --text; "
    "or stored states: a file, folder or URL (.npy, .npz, .safetensors, .parquet, a datasets "
    "folder, ...)."
)
GROUPS = {
    name: Group(name, sort_key=position) for position, name in enumerate(typing.get_args(HelpGroup))
}
DRY_RUN = "dry_run"


@dataclass(frozen=True, kw_only=True)
class Command:
    """How a verb is called from the command line. A plug-in names one, or a bare verb, as an entry
    point of `headscan.verbs`.

    Args:
        verb: gives the public function, which is imported only when the command is used.
        subject: how the help writes what it is applied to: "MODEL", "MODEL..." (several), "TEXT",
            "" (nothing).
        subject_help: what may stand there.
        example: the arguments of a command that works, without `headscan VERB`.
        docs: the page of docs/ that explains it, or a whole address.
        about: what it does, in a sentence, for the list of verbs; of a bare verb it is the
            docstring's first line.
        arguments: fields of the settings that are written without their names, each with its
            metavar.
        before: may do without the verb: given the parsed options, prints something and returns
            True.
        estimate: gives the function of the verb's estimates, which takes what the verb takes;
            --dry-run prints them and stops.
        after: called with the result and the options when it was shown; what it returns is the exit
            status.
        extra: options that only the command line has: name -> (type, help).
        distributed: under `torchrun` the processes are joined before the verb runs (a Trainer joins
            them itself).
    """

    verb: Callable[[], Callable[..., headscan.Result]]
    subject: str = "MODEL"
    subject_help: str = MODEL_HELP
    example: str = ""
    docs: str = ""
    about: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, tuple[type, str]] = field(default_factory=dict)
    distributed: bool = False
    before: Callable[[dict[str, Any]], bool] | None = None
    estimate: Callable[[], Callable[..., Sequence[object]]] | None = None
    after: Callable[[headscan.Result, dict[str, Any]], int | None] | None = None

    def app(self, name: str, about: str = "") -> App:
        """The command as an application of cyclopts."""
        lines = [f"**Example:** `headscan {name} {self.example}`"] if self.example else []
        lines += list(self._parameter_lines())
        lines += (
            [f"**Documentation:** {self.docs if ':' in self.docs else DOCS + self.docs}"]
            if self.docs
            else []
        )
        app = App(
            name=f"headscan {name}",
            help=about,
            usage=" ".join(filter(None, ("Usage: headscan", name, self.subject, "[OPTIONS]"))),
            help_epilogue="\n\n".join(lines),
            help_format="markdown",
            version_flags=[],
            result_action="return_value",
            suppress_keyboard_interrupt=False,
            default_parameter=Parameter(negative=()),
            console=console(),
        )
        app.default(self.function(name))
        app["--help"].show = False
        return app

    def function(self, name: str) -> Callable[..., int]:
        """A function with the signature that cyclopts reads; it returns the exit status."""
        call = self.verb()
        _freeze()
        record: Any = call.verb  # type: ignore[attr-defined]
        fields = {option.name: option for option in record.options() if not option.option.python}

        def run(*places: Any, **named: Any) -> int:
            given: dict[str, Any] = dict(signature.bind(*places, **named).arguments)
            as_json = given.pop("json", False)
            dry = self.estimate is not None and given.pop(DRY_RUN, False)
            extra = {key: given.pop(key, None) for key in self.extra}
            chosen = {
                key: value
                for key, value in given.items()
                if value is not None and value not in ((), [])
            }
            if self.before is not None and self.before(chosen | extra):
                return 0
            subject = [chosen.pop("subject")] if "subject" in chosen else []
            if self._many:
                subject = [list(chosen.pop("subjects", ()))]
            if subject == [[]]:
                raise headscan.BadInput(f"Say what is examined: headscan {name} {self.subject}.")
            if dry and self.estimate is not None:
                print(*self.estimate()(*subject, **chosen), sep="\n")
                return 0
            of = subject[0] if subject else None
            resume = bool(chosen.get("resume"))
            if "out" not in chosen:
                chosen["out"] = free_folder(
                    default_folder(name, *_words(of, chosen, self.arguments)), resume=resume
                )
            if not chosen["out"]:
                raise headscan.BadInput("--out is empty.")
            chosen["out"] = Path(chosen["out"])
            speaks = os.environ.get("RANK", "0") == "0"
            before = finished_before(
                chosen["out"],
                resume=resume,
                overwrite=bool(chosen.get("overwrite")),
                continues=record.continues,
            )
            if before is not None:
                show(before, chosen["out"], as_json=as_json, whole=bool(extra.get("verbose")))
                return (self.after(before, extra) or 0) if self.after is not None else 0
            with joined(wanted=self.distributed), progress_bar(visible=speaks) as progress:
                told = {"progress": progress, "command": command_line()}
                known = {
                    key: value for key, value in told.items() if key in record.signature.parameters
                }
                result = call(*subject, **chosen, **known)
            if speaks:
                show(result, chosen["out"], as_json=as_json, whole=bool(extra.get("verbose")))
            status = (self.after(result, extra) or 0) if self.after is not None else 0
            return status or (3 if given.get("baseline") and new_alarms(result.findings) else 0)

        signature = inspect.Signature(list(self._parameters(fields)))
        run.__name__ = name  # type: ignore[attr-defined]
        run.__annotations__ = {}  # type: ignore[attr-defined]
        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    @property
    def _many(self) -> bool:
        return self.subject.endswith("...")

    def _parameter_lines(self) -> Iterable[str]:
        """What the items of a registry take, for the help."""
        for option in self.verb().verb.options():  # type: ignore[attr-defined]
            if hasattr(option.option.choices, "parameters") and not option.option.python:
                rows: dict[str, list[str]] = {}
                for name, parameters in option.option.choices.parameters().items():
                    for field in parameters:
                        default = f" Default: {text}." if (text := _default_text(field)) else ""
                        rows.setdefault(f"`{field.name}=` {field.option.help}{default}", []).append(
                            name
                        )
                lines = [f"- {', '.join(names)}: {about}" for about, names in rows.items()]
                if lines:
                    yield (
                        f"**Parameters, written `{option.flag} NAME:KEY=VALUE,...`**\n\n"
                        + "\n".join(lines)
                    )

    def _parameters(self, fields: dict[str, Any]) -> Iterable[inspect.Parameter]:
        if self.subject and not self._many:
            yield _parameter(
                "subject", str, self.subject_help, self.subject, by_place=True, required=True
            )
        for name, metavar in self.arguments.items():
            kind = _plain_type(fields[name])
            help = fields[name].option.help
            yield _parameter(
                name, kind, help, metavar, by_place=True, required=fields[name].required
            )
        if self._many:
            info = Parameter(
                name=(self.subject.rstrip("."),), help=self.subject_help, group=GROUPS["Input"]
            )
            yield inspect.Parameter(
                "subjects", inspect.Parameter.VAR_POSITIONAL, annotation=Annotated[str, info]
            )
        for name, option in fields.items():
            if name not in self.arguments:
                yield _option(option)
        for name, (kind, help) in self.extra.items():
            yield _parameter(
                name, kind, help, group="Output", short="-v" if name == "verbose" else ""
            )
        if self.estimate is not None:
            help = (
                "Print what it would take in memory and time, and stop: no weights are read, "
                "nothing is written."
            )
            yield _parameter(DRY_RUN, bool, help, group="Limits")
        yield _parameter(
            "json", bool, "Print result.json, and nothing else, on standard output.", group="Output"
        )


def _words(subject: Any, options: dict[str, Any], arguments: Mapping[str, str]) -> list[str]:
    """What the default folder is named after: the subject, the arguments, and the text."""
    words_: list[str] = []
    for value in (subject, *(options.get(name) for name in (*arguments, "objective", "text"))):
        words_ += (
            [value]
            if isinstance(value, str)
            else map(str, value)
            if isinstance(value, list | tuple)
            else []
        )
    return [
        word if len(word) <= 60 else word[-60:]
        for word in dict.fromkeys(words_)
        if "\n" not in word
    ]


def _parameter(
    name: str,
    kind: Any,
    help: str,
    metavar: str | None = None,
    *,
    by_place: bool = False,
    required: bool = False,
    group: HelpGroup = "Input",
    flag: str | None = None,
    default: str = "",
    negative: bool = False,
    short: str = "",
) -> inspect.Parameter:
    kinds = inspect.Parameter.POSITIONAL_ONLY if by_place else inspect.Parameter.KEYWORD_ONLY
    flag = flag or f"--{name.replace('_', '-')}"
    info = Parameter(
        name=(metavar or name,) if by_place else (flag, short) if short else (flag,),
        group=GROUPS[group],
        help=help + (f" Default: {default}." if default else ""),
        show_default=False,
        negative="--no-" + flag.removeprefix("--") if negative else (),
        allow_leading_hyphen=kind is not bool and not by_place,
        converter=_whole if kind is int else None,
    )
    return inspect.Parameter(
        name,
        kinds,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind if required else kind | None, info],
    )


def _whole(kind: Any, tokens: Any) -> int:
    """A whole number, where cyclopts would round another one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is no whole number.") from None


def _option(field: Any) -> inspect.Parameter:
    help = field.option.help
    if literals := _literals(field.type):
        help += (
            f" One of {', '.join(literals)}." if not all(word in help for word in literals) else ""
        )
    if hasattr(field.option.choices, "names"):  # a registry, plug-ins included
        help += f" One of {', '.join(field.option.choices.names())}."
    return _parameter(
        field.name,
        _plain_type(field),
        help,
        required=field.required,
        default=_default_text(field),
        flag=field.flag,
        group=field.option.group,
        negative=bool in _members(field.type) and field.default is not False,
    )


def _default_text(field: Any) -> str:
    if field.required or field.default in (None, False, (), []) or "Default:" in field.option.help:
        return ""
    if field.default is True:
        return "on"
    if isinstance(field.default, list | tuple):
        return ",".join(map(str, field.default))
    return (
        str(field.default)
        if isinstance(field.default, str | int | float)
        else str(getattr(field.default, "name", ""))
    )


def _members(kind: Any) -> list[Any]:
    kind = kind.__value__ if is_alias(kind) else kind
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return [member for alternative in typing.get_args(kind) for member in _members(alternative)]
    return [] if kind is type(None) else [kind]


def _literals(kind: Any) -> list[str]:
    """The words that are all there is to choose from, for the help: the setting itself refuses what
    is none of them.
    """
    members = _members(kind)
    literal = bool(members) and all(typing.get_origin(member) is Literal for member in members)
    return [str(word) for member in members for word in typing.get_args(member)] if literal else []


def _plain_type(field: Any) -> Any:
    """What the command line reads: a flag, a whole number, a number, several texts, or a text (the
    setting says which).
    """
    members = _members(field.type)
    if field.option.repeat:
        return list[str]
    if bool in members:
        return bool
    return next((kind for kind in (int, float) if members == [kind]), str)


@cache
def _freeze() -> None:
    """What was imported stays: who gives a model's memory back need not look through it. Once a
    process: to ask gc how many objects are frozen counts them all.
    """
    gc.freeze()
