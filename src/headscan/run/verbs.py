"""The decorator under every verb: settings made and checked, a run opened around the work, its result completed."""

from __future__ import annotations

import errno
import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from headscan.run.errors import BadInput, disk_is_full, nearest
from headscan.run.plaindata import Json
from headscan.run.result import Result
from headscan.run.run import Run
from headscan.run.settings import OptionField, Running, options_of, signature_of, split_arguments

P = ParamSpec("P")
S = TypeVar("S", bound=Running)
S_contra = TypeVar("S_contra", contravariant=True)
A = TypeVar("A")
R = TypeVar("R", bound=Result)


class VerbRecord:
    """What the command line needs of a verb: its name, settings class, function as users call it, and subject."""

    def __init__(self, name: str, settings: type[Running], call: Callable[..., Result], subject: str | None) -> None:
        self.name, self.settings, self.call, self.subject = name, settings, call, subject

    def options(self) -> tuple[OptionField, ...]:
        """The fields of the settings."""
        return options_of(self.settings)

    def __repr__(self) -> str:
        return f"VerbRecord({self.name!r}, {self.settings.__name__})"


VERBS: dict[str, VerbRecord] = {}
"""Every verb that was defined so far, by its name."""


class _Verb(Generic[P, S_contra]):
    def __init__(self, name: str, settings: Callable[..., Any]) -> None:
        self.name, self.settings = name, settings

    @overload
    def __call__(self, function: Callable[[S_contra, Run], R]) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: Callable[[A, S_contra, Run], R]) -> Callable[Concatenate[A, P], R]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name, settings = self.name, self.settings
        leading = list(inspect.signature(function).parameters.values())[:-2]

        @functools.wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            first, options = split_arguments(leading, arguments, options)
            try:
                made = settings(*arguments[len(first) :], **options)
            except TypeError as error:  # it names the settings' class, which no user knows
                unknown = [option for option in options if option not in called.__signature__.parameters]  # type: ignore[attr-defined]
                if not unknown:
                    raise TypeError(str(error).replace(f"{settings.__name__}.__init__()", f"{name}()")) from None
                near = nearest(unknown[0], called.__signature__.parameters)  # type: ignore[attr-defined]
                raise TypeError(f"{name}() has no option {unknown[0]!r}.{near}") from None
            with Run(name, made, subject=_subject(first)) as run:
                try:
                    return run.finish(function(*first, made, run))
                except BadInput:
                    run.refused()
                    raise
                except Exception as error:
                    if getattr(error, "errno", None) == errno.ENAMETOOLONG:  # asked for what no file can be called
                        run.refused()
                        raise BadInput(f"There is no file or folder of so long a name: {str(error)[:80]}...") from None
                    if not disk_is_full(error):
                        raise
                    raise BadInput(
                        f"The disk is full ({error}): make room and continue with the same command and --resume."
                    ) from error

        called.__signature__ = signature_of(leading, settings, function)  # type: ignore[attr-defined]
        VERBS[name] = VerbRecord(name, settings, called, leading[0].name if leading else None)  # type: ignore[arg-type]
        called.verb = VERBS[name]  # type: ignore[attr-defined]
        return called


def _subject(first: list[Any]) -> Json:
    """What the verb is of, as far as it can be named: ids, folders; of live objects their name."""

    def named(one: Any) -> Json:
        if isinstance(one, list | tuple):
            return [named(item) for item in one]
        if one is None or isinstance(one, bool | int | float | str):
            return one
        return str(getattr(one, "name", type(one).__name__))

    return named(first[0]) if first else None


def verb(name: str, settings: Callable[P, S]) -> _Verb[P, S]:
    """Decorate `f(settings, run)` or `f(subject, settings, run)` into a verb: `f(subject, *, field=..., ...)`.

    Users see the fields of the settings as typed keywords. The settings are checked, the folder is checked, made and
    locked, then the function runs; its result's protocol is completed and it is saved. A full disk is bad input.
    """
    return _Verb(name, settings)
