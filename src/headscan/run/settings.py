"""Settings: a frozen dataclass says each option once, for Python and for the command line."""

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from operator import gt, le, lt
from typing import Annotated, Any, Literal

from typing_extensions import TypeAliasType

from headscan.run.errors import BadInput

HelpGroup = Literal["Input", "Limits", "Method", "Output", "Advanced"]
"""The headings under which the help of a verb lists its options."""


@dataclass(frozen=True)
class Option:
    """What a reader must know of an option, and which values it takes.

    Args:
        help: one sentence, with the unit.
        low, high: inclusive bounds of a number. NaN and infinities are never allowed.
        above: an exclusive lower bound.
        choices: the names that may be given: a tuple of words, or a `Registry`, whose items may be
            given with parameters of their own, NAME:KEY=VALUE,...
        metavar: how the help writes the value; by default the field's name.
        name: how the command line writes the option; by default the field's name.
        python: the option exists in Python only.
        content: a resume compares the content (the verb does that), not this value.
        identity: whether a resume with another value is refused.
        repeat: the command line takes the option several times, and hands on a list of texts.
        group: the heading under which the help lists it.
    """

    help: str
    _: dataclasses.KW_ONLY
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: Container[str] | None = None
    metavar: str | None = None
    name: str | None = None
    python: bool = False
    content: bool = False
    identity: bool = True
    repeat: bool = False
    group: HelpGroup = "Method"


@dataclass(frozen=True)
class OptionField:
    """One field of a settings class with its type (without `Annotated`), default and `Option`."""

    name: str
    type: Any
    default: Any
    option: Option
    required: bool
    positional: bool
    parameter: bool = False

    @property
    def flag(self) -> str:
        """How messages call it: --NAME, or the bare name of a parameter of a registered item."""
        return (
            self.name
            if self.parameter
            else "--" + (self.option.name or self.name).replace("_", "-")
        )


PARAMETERS: set[object] = set()
"""The classes of registered items, whose fields are no options but parameters: NAME:KEY=VALUE."""


def options_of(settings: type) -> tuple[OptionField, ...]:
    """The fields of a dataclass whose types are annotated with an `Option`, in order; those of
    parents come first.
    """
    return _options_of(settings) if dataclasses.is_dataclass(settings) else ()


@functools.cache
def _options_of(settings: Any) -> tuple[OptionField, ...]:
    hints = typing.get_type_hints(settings, include_extras=True)
    options = []
    for field in dataclasses.fields(settings):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        options.append(option_of(field.name, hints[field.name], default, not field.kw_only))
    parameter = settings in PARAMETERS
    return tuple(
        dataclasses.replace(option, parameter=parameter) for option in options if option is not None
    )


def is_alias(hint: Any) -> bool:
    """Return whether a type is an alias with a name of its own (`TypeAliasType`)."""
    return isinstance(hint, TypeAliasType)


def option_of(name: str, hint: Any, default: Any, positional: bool) -> OptionField | None:
    """A parameter or field as an option; None where its type is not annotated with one."""
    hint = hint.__value__ if is_alias(hint) else hint
    kind, *extra = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    option = next((item for item in extra if isinstance(item, Option)), None)
    if option is None:
        return None
    required = default is inspect.Parameter.empty
    return OptionField(name, kind, None if required else default, option, required, positional)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What options a verb, a method or an objective takes. Every field is checked when an object is
    made.

    A field of several numbers (`Sequence[float]`) may be written as one text with commas, as on the
    command line.

    Subclasses are frozen dataclasses (what a `Registry` takes becomes one). Each field is written
    as `Annotated[type, Option("...")] = default`. Subclasses inherit from the settings that they
    share with others. `check` is for what concerns several fields.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Windowing(Settings):
    ...     context: Annotated[int, Option("Tokens of a window.", low=1)] = 128
    >>> Windowing(context=0)
    Traceback (most recent call last):
    headscan.BadInput: --context must be at least 1, not 0.
    """

    def __post_init__(self) -> None:
        for field in options_of(type(self)):
            value = parsed(field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            check_value(field, value)
        self.check()

    def check(self) -> None:
        """Raise BadInput where fields do not fit together."""

    def part(self, kind: "type[Settings]") -> dict[str, Any]:
        """The fields of one of the classes that these settings inherit from, ready to be handed on
        as keywords.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(kind)}

    def but(self, **changes: Any) -> typing.Self:
        """The same with some fields changed."""
        return dataclasses.replace(self, **changes)


def check_value(field: OptionField, value: object) -> None:
    """Raise BadInput, naming the option, for a value that it does not allow; None is allowed.

    The entries of a list or tuple are checked one by one.
    """
    if value is None:
        return
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, bool):
            _check_bool(field, item)
        elif isinstance(item, int | float):
            _check_number(field.option, field.flag, item)
        elif isinstance(item, str):
            _check_text(field, item)


def _check_bool(field: OptionField, value: bool) -> None:
    kinds = list(_members(field.type))
    if bool not in kinds and (int in kinds or float in kinds):
        raise BadInput(f"{field.flag} takes a number, not {value}.")


def _check_text(field: OptionField, value: str) -> None:
    option = field.option
    if not value and not option.content and field.default != value:
        raise BadInput(f"{field.flag} is empty.")
    words = _literals(field.type)
    if words and value not in words:
        raise BadInput(f"{field.flag} must be {_alternatives(words)}, not {value!r}.")

    choices: Any = option.choices
    if hasattr(choices, "specs") and choices.parameters():
        choices.specs(value)
    if isinstance(choices, tuple) and value not in choices:
        known = ", ".join(map(str, choices))
        raise BadInput(f"{field.flag} must be one of {known}, not {value!r}.")


def _alternatives(words: Sequence[str]) -> str:
    """Return words as a sentence lists them.

    >>> _alternatives(["a", "b", "c"]), _alternatives(["a"])
    ('a, b or c', 'a')
    """
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _check_number(option: Option, flag: str, value: float) -> None:
    if not math.isfinite(value):
        raise BadInput(f"{flag} must be a finite number, not {value}.")
    high = option.high
    if high is None and isinstance(value, int):
        high = 2**63 - 1
    bounds = (
        ("at least", option.low, lt),
        ("at most", high, gt),
        ("greater than", option.above, le),
    )
    for relation, bound, violates in bounds:
        if bound is not None and violates(value, bound):
            limit = _written(bound)
            raise BadInput(f"{flag} must be {relation} {limit}, not {_written(value)}.")


def _written(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _members(kind: Any) -> Iterable[Any]:
    """Yield the members of a union, or the type itself; aliases are resolved."""
    kind = kind.__value__ if is_alias(kind) else kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        for member in typing.get_args(kind):
            yield from _members(member)
    else:
        yield kind


def _numbers_of(kind: Any) -> type[int] | type[float] | None:
    """Return int or float for a type that is a sequence of them and takes no text, else None."""
    members = list(_members(kind))
    if str in members:
        return None
    for member in members:
        if typing.get_origin(member) in (Sequence, list, tuple):
            element_type = typing.get_args(member)[0]
            return element_type if element_type in (int, float) else None
    return None


def parsed(field: OptionField, value: Any) -> Any:
    """Return the value; for an option of several numbers, a tuple, also of one number or of a text
    with commas.
    """
    kind = _numbers_of(field.type)
    if kind is None or not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return (value,)
    try:
        return tuple(kind(number) for number in value.split(",") if number.strip())
    except ValueError:
        expected = "whole numbers" if kind is int else "numbers"
        raise BadInput(
            f"{field.flag} takes {expected}, separated by commas, not {value!r}."
        ) from None


def names_in(names: str | Iterable[str] | None) -> list[str]:
    """Return the names in a text with commas between them, or in several such texts.

    >>> names_in("HS101, SINK,,"), names_in(["a", "b,c"]), names_in(None)
    (['HS101', 'SINK'], ['a', 'b', 'c'], [])
    """
    texts = [names] if isinstance(names, str) else names or ()
    parts = ",".join(texts).split(",")
    return [part.strip() for part in parts if part.strip()]


def from_text(field: OptionField, text: str) -> Any:
    """Return the value of a parameter that is written as a text, by the parameter's type.

    Raises:
        BadInput: where the text is no such value.
    """
    kinds = [kind for kind in _members(field.type) if kind is not type(None)]
    if text.lower() == "none" and len(kinds) < len(list(_members(field.type))):
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return kind(text)
    if str in kinds or _literals(field.type):
        return text
    if _numbers_of(field.type):
        return parsed(field, text.replace("/", ","))
    alternatives = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise BadInput(f"{field.name} takes {alternatives}, not {text!r}.")


def _literals(kind: Any) -> list[str]:
    """Return the words of a Literal, or of one and None; [] where any string would do."""
    members = list(_members(kind))
    if str in members:
        return []
    words = []
    for member in members:
        if typing.get_origin(member) is Literal:
            words += [str(word) for word in typing.get_args(member)]
    return words


# ---- The options that every verb takes.

Progress = Callable[[str, int, int | None, str], None]
"""Called as work goes on with (stage, done, all or None where that is not known, unit such as
"tokens").

What stands behind " · " in the stage's name may change as the stage goes on.
"""


def no_progress(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
    """Ignore progress."""


Out = TypeAliasType(
    "Out",
    Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Folder of the result; one with a finished result needs --overwrite. Default: under "
            "headscan-results/.",
            metavar="FOLDER",
            identity=False,
            group="Output",
        ),
    ],
)
Resume = TypeAliasType(
    "Resume",
    Annotated[
        bool,
        Option(
            "Continue what was interrupted in --out; refused where anything changed.",
            identity=False,
            group="Output",
        ),
    ],
)
Overwrite = TypeAliasType(
    "Overwrite",
    Annotated[bool, Option("Replace a finished result in --out.", identity=False, group="Output")],
)
Seed = TypeAliasType(
    "Seed", Annotated[int, Option("Random seed.", low=0, high=2**63 - 1, group="Advanced")]
)
# where it is handed to what takes no more
Seed32 = TypeAliasType(
    "Seed32", Annotated[int, Option("Random seed.", low=0, high=2**32 - 1, group="Advanced")]
)
Ignore = TypeAliasType(
    "Ignore",
    Annotated[
        str | Sequence[str] | None,
        Option(
            "Findings that do not count, by code or name, comma-separated: 'HS101,SINK'.",
            metavar="CODES",
            identity=False,
            group="Output",
        ),
    ],
)
Baseline = TypeAliasType(
    "Baseline",
    Annotated[
        str | os.PathLike[str] | None,
        Option(
            "A saved result: findings that it has do not count, and a new alarm is exit status 3.",
            metavar="RESULT",
            identity=False,
            group="Output",
        ),
    ],
)
Progressing = TypeAliasType(
    "Progressing",
    Annotated[Progress | None, Option("Called as work goes on.", python=True, identity=False)],
)
CommandLine = TypeAliasType(
    "CommandLine",
    Annotated[
        str | None, Option("The command line, for the protocol.", python=True, identity=False)
    ],
)


class RunOptions(typing.TypedDict, total=False):
    """The options of every verb that `@verb` itself reads: where a run is stored, its progress."""

    out: Out
    resume: Resume
    overwrite: Overwrite
    progress: Progressing
    command: CommandLine


class FindingOptions(RunOptions, total=False):
    """`RunOptions`, and those of verbs whose findings may be passed over."""

    ignore: Ignore
    baseline: Baseline


RUN_DEFAULTS: dict[str, Any] = {
    "ignore": None,
    "baseline": None,
    "out": None,
    "resume": False,
    "overwrite": False,
    "progress": None,
    "command": None,
}
"""The defaults of `RunOptions` and `FindingOptions`."""
