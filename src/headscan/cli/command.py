"""A verb's command, made of its options by cyclopts: every option is said once, in the verb's
settings.
"""

import gc
import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    show,
)
from headscan.cli.processes import joined
from headscan.cli.progress import progress_bar
from headscan.run.findings import listed, named, new_alarms
from headscan.run.settings import HelpGroup, is_alias, names_in

DOCS = "https://github.com/headscan/headscan/blob/main/docs/"
MODEL_HELP = (
    "Hugging Face id, local folder, .gguf file, or an example model (see `headscan models`)."
)
SOURCE_HELP = (
    "A model (Hugging Face id, local folder, .gguf file, example model), which reads --text; "
    "or stored states: a file, folder or URL (.npy, .npz, .safetensors, .parquet, a datasets "
    "folder, ...)."
)
GROUPS = {
    name: Group(name, sort_key=position) for position, name in enumerate(typing.get_args(HelpGroup))
}
DRY_RUN = "dry_run"
FAIL_ON = "fail_on"
FAIL_ON_HELP = (
    "Exit with status 3 where one of these was found: codes or names, comma-separated, with *."
)
FINDING = 3
"""The exit status of a run that found what was asked to fail on."""


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
        """Return a function with the signature that cyclopts reads; it returns the exit status."""
        record: Any = self.verb().verb  # type: ignore[attr-defined]
        _freeze()
        fields = {field.name: field for field in record.options() if not field.option.python}
        signature = inspect.Signature(list(self._parameters(fields)))

        def run(*positional: Any, **named: Any) -> int:
            arguments = signature.bind(*positional, **named).arguments
            return Invocation(self, name, record, arguments).run()

        run.__name__ = name
        run.__annotations__ = {}
        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    @property
    def _many(self) -> bool:
        """Return whether the command takes several subjects."""
        return self.subject.endswith("...")

    def _parameter_lines(self) -> Iterable[str]:
        """Yield, for the help, the parameters that the items of each registry take."""
        for option in self.verb().verb.options():  # type: ignore[attr-defined]
            if not hasattr(option.option.choices, "parameters") or option.option.python:
                continue
            items_by_help: dict[str, list[str]] = {}
            for name, parameters in option.option.choices.parameters().items():
                for parameter in parameters:
                    items_by_help.setdefault(_parameter_help(parameter), []).append(name)
            if items_by_help:
                heading = f"**Parameters, written `{option.flag} NAME:KEY=VALUE,...`**"
                lines = [f"- {', '.join(names)}: {text}" for text, names in items_by_help.items()]
                yield "\n".join([heading, "", *lines])

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
        if "baseline" in fields and FAIL_ON not in fields:
            yield _parameter(FAIL_ON, str, FAIL_ON_HELP, group="Output")
        yield _parameter(
            "json", bool, "Print result.json, and nothing else, on standard output.", group="Output"
        )


class Invocation:
    """One call of a command: its subject, the verb's options, and those of the command line alone.

    Args:
        command, name, record: what is called.
        arguments: as cyclopts read them; None, () and [] mean that an option was not given.
    """

    def __init__(
        self, command: Command, name: str, record: Any, arguments: Mapping[str, Any]
    ) -> None:
        self.command = command
        self.name = name
        self.record = record
        values = dict(arguments)
        self.as_json = bool(values.pop("json", False))
        self.dry_run = command.estimate is not None and bool(values.pop(DRY_RUN, False))
        of_verb = {option.name for option in record.options()}
        fail_on = None if FAIL_ON in of_verb else values.pop(FAIL_ON, None)
        self.fail_on = listed(fail_on, "--fail-on")
        self.extra = {key: values.pop(key, None) for key in command.extra}
        self.options = {
            key: value
            for key, value in values.items()
            if value is not None and value not in ((), [])
        }

    def run(self) -> int:
        """Do what was asked, show it, and return the exit status."""
        command = self.command
        if command.before is not None and command.before(self.options | self.extra):
            return 0
        subject = self._subject()
        if self.dry_run and command.estimate is not None:
            print(*command.estimate()(*subject, **self.options), sep="\n")
            return 0

        with self._folder(subject) as folder:
            return self._run_in(folder, subject)

    def _run_in(self, folder: Path, subject: list[Any]) -> int:
        """Show a finished result again, or call the verb; return the exit status."""
        self.options["out"] = folder
        finished = finished_before(
            folder,
            resume=bool(self.options.get("resume")),
            overwrite=bool(self.options.get("overwrite")),
            continues=self.record.continues,
        )
        if finished is not None:
            self._show(finished, folder)
            return self._status(finished)

        result = self._call(subject)
        if _speaks():
            self._show(result, folder)
        status = self._status(result)
        if not status and self.options.get("baseline") and new_alarms(result.findings):
            return FINDING
        return status

    def _subject(self) -> list[Any]:
        """Return what the verb examines, as the positional arguments of its call."""
        if self.command.subject.endswith("..."):
            subjects = list(self.options.pop("subjects", ()))
            if not subjects:
                raise headscan.BadInput(
                    f"Say what is examined: headscan {self.name} {self.command.subject}."
                )
            return [subjects]
        return [self.options.pop("subject")] if "subject" in self.options else []

    def _folder(self, subject: list[Any]) -> AbstractContextManager[Path]:
        """Return the folder of the result; a default one is held while the command runs."""
        if "out" not in self.options:
            names = _folder_names(subject, self.options, self.command.arguments)
            default = default_folder(self.name, *names)
            return free_folder(default, resume=bool(self.options.get("resume")))
        if not self.options["out"]:
            raise headscan.BadInput("--out is empty.")
        return nullcontext(Path(os.path.expanduser(self.options["out"])))

    def _call(self, subject: list[Any]) -> headscan.Result:
        """Return the result of the verb, with progress on standard error."""
        wanted = self.record.signature.parameters
        with joined(wanted=self.command.distributed), progress_bar(visible=_speaks()) as progress:
            added = {"progress": progress, "command": command_line()}
            known = {key: value for key, value in added.items() if key in wanted}
            return self.command.verb()(*subject, **self.options, **known)

    def _show(self, result: headscan.Result, folder: Path) -> None:
        show(result, folder, as_json=self.as_json, whole=bool(self.extra.get("verbose")))

    def _status(self, result: headscan.Result) -> int:
        status = 0
        if self.command.after is not None:
            status = self.command.after(result, self.extra) or 0
        globs = self.fail_on or names_in(self.options.get(FAIL_ON))
        if not status and not hasattr(result, "failed") and named(result.findings, globs):
            return FINDING
        return status


def _speaks() -> bool:
    """Return whether this process prints: the first of a group of processes."""
    return os.environ.get("RANK", "0") == "0"


def _parameter_help(field: Any) -> str:
    default = _default_text(field)
    suffix = f" Default: {default}." if default else ""
    return f"`{field.name}=` {field.option.help}{suffix}"


def _folder_names(
    subject: list[Any], options: Mapping[str, Any], arguments: Mapping[str, str]
) -> list[str]:
    """Return what the default folder is named after: the subject, the arguments, and the text."""
    values = [*subject, *(options.get(name) for name in (*arguments, "objective", "text"))]
    names: list[str] = []
    for value in values:
        if isinstance(value, str):
            names.append(value)
        elif isinstance(value, list | tuple):
            names += map(str, value)
    distinct = dict.fromkeys(names)
    return [name[-60:] for name in distinct if "\n" not in name]


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


def _whole(_kind: Any, tokens: Any) -> int:
    """A whole number, where cyclopts would round another one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is no whole number.") from None


def _option(field: Any) -> inspect.Parameter:
    """Return an option of a verb as a parameter that cyclopts reads."""
    text = field.option.help
    literals = _literals(field.type)
    if literals and not all(word in text for word in literals):
        text += f" One of {', '.join(literals)}."
    if hasattr(field.option.choices, "names"):  # a registry, plug-ins included
        text += f" One of {', '.join(field.option.choices.names())}."
    return _parameter(
        field.name,
        _plain_type(field),
        text,
        required=field.required,
        default=_default_text(field),
        flag=field.flag,
        group=field.option.group,
        negative=bool in _members(field.type) and field.default is not False,
    )


def _default_text(field: Any) -> str:
    """Return a default as the help writes it; "" where there is none to write."""
    default = field.default
    if field.required or default in (None, False, (), []) or "Default:" in field.option.help:
        return ""
    if default is True:
        return "on"
    if isinstance(default, list | tuple):
        return ",".join(map(str, default))
    if isinstance(default, str | int | float):
        return str(default)
    return str(getattr(default, "name", ""))


def _members(kind: Any) -> list[Any]:
    """Return the members of a union without None, aliases resolved."""
    kind = kind.__value__ if is_alias(kind) else kind
    if kind is type(None):
        return []
    if typing.get_origin(kind) not in (typing.Union, UnionType):
        return [kind]
    members = []
    for alternative in typing.get_args(kind):
        members += _members(alternative)
    return members


def _literals(kind: Any) -> list[str]:
    """Return the words of a type that allows nothing else, for the help."""
    members = _members(kind)
    if not members or any(typing.get_origin(member) is not Literal for member in members):
        return []
    words = []
    for member in members:
        words += [str(word) for word in typing.get_args(member)]
    return words


def _plain_type(field: Any) -> Any:
    """Return what the command line reads: a flag, a number, several texts, or a text.

    The option itself checks which texts are allowed.
    """
    members = _members(field.type)
    if field.option.repeat:
        return list[str]
    if bool in members:
        return bool
    for kind in (int, float):
        if members == [kind]:
            return kind
    return str


@cache
def _freeze() -> None:
    """Let the garbage collector leave alone what was imported, once a process."""
    gc.freeze()
