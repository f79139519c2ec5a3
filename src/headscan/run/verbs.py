"""The decorator under every verb: options checked, a run opened around the work, its result
completed and saved.
"""

import errno
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar, cast

from headscan.run.errors import BadInput, disk_is_full, nearest
from headscan.run.findings import Passed
from headscan.run.result import Result
from headscan.run.rows import Json
from headscan.run.run import Run
from headscan.run.settings import OptionField, check_value, option_of, parsed

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E")
R = TypeVar("R", bound=Result)


class Given(dict[str, Any]):
    """The arguments of a call of a verb by their names, defaults included, checked by their
    options.
    """

    def chosen(self, kind: type[T]) -> T:
        """A dataclass (`Loading`, `Reading`) made of the arguments that are named like its fields."""
        return kind(
            **{
                field.name: self[field.name]
                for field in fields(cast(Any, kind))
                if field.name in self
            }
        )


class VerbRecord:
    """What the command line needs of a verb: its name, its function, its options, and the function
    of its estimates.
    """

    def __init__(
        self, name: str, function: Callable[..., Result], *, continues: bool = False
    ) -> None:
        self.name = name
        self.function = function
        self.continues = continues
        self.call: Callable[..., Result] = function
        self.estimate: Callable[..., Sequence[object]] | None = None
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError:  # a type that only type checkers import
            hints = function.__annotations__
        plain = inspect.signature(function)
        self._options = {
            key: option
            for key, one in plain.parameters.items()
            if (
                option := option_of(
                    key, hints.get(key), one.default, one.kind is not one.KEYWORD_ONLY
                )
            )
            is not None
        }
        self.subject = next((key for key in plain.parameters if key not in self._options), None)
        bare = [
            one.replace(
                annotation=self._options[key].type
                if key in self._options
                else hints.get(key, one.annotation)
            )
            for key, one in plain.parameters.items()
        ]
        self.signature = inspect.Signature(
            bare, return_annotation=hints.get("return", plain.return_annotation)
        )

    def options(self) -> tuple[OptionField, ...]:
        """The parameters that have an `Option`."""
        return tuple(self._options.values())

    def given(self, places: tuple[Any, ...], named: dict[str, Any]) -> Given:
        """The arguments of a call; TypeError, which names the verb, for a wrong name, BadInput for
        a wrong value.
        """
        try:
            bound = self.signature.bind(*places, **named)
        except TypeError as error:
            unknown = [key for key in named if key not in self.signature.parameters]
            if not unknown:
                raise TypeError(f"{self.name}(): {error}") from None
            near = nearest(unknown[0], self.signature.parameters)
            raise TypeError(f"{self.name}() has no option {unknown[0]!r}.{near}") from None
        bound.apply_defaults()
        given = Given(bound.arguments)
        for key, option in self._options.items():
            given[key] = parsed(option, given[key])
            check_value(option, given[key])
        return given

    def run(self, given: Given) -> Run:
        """The run of a call: its folder, and the options by which a resume knows it."""
        shared = {
            key: given[key]
            for key in ("out", "resume", "seed", "progress", "command")
            if key in given
        }
        options = [(option, given[key]) for key, option in self._options.items()]
        subject = _named(given[self.subject]) if self.subject is not None else None
        return Run(self.name, **shared, options=options, subject=subject, continues=self.continues)


VERBS: dict[str, VerbRecord] = {}
"""Every verb that was defined so far, by its name."""
_GIVEN: ContextVar[tuple[Given, Run]] = ContextVar("the call of a verb that is running")


def running() -> tuple[Given, Run]:
    """Inside a verb: the arguments of its call, and its run."""
    return _GIVEN.get()


def _named(one: Any) -> Json:
    """What the verb is of, as far as it can be named: ids, folders; of live objects their name."""
    if isinstance(one, list | tuple):
        return [_named(item) for item in one]
    if one is None or isinstance(one, bool | int | float | str):
        return one
    return str(getattr(one, "name", type(one).__name__))


@contextmanager
def float32_in_full() -> Iterator[None]:
    """No product of a card in TF32, whatever a script allowed; what it allowed is put back."""
    backends = getattr(sys.modules.get("torch"), "backends", None)
    switches = [] if backends is None else [backends.cuda.matmul, backends.cudnn]
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = False
        yield
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed


def verb(name: str, *, continues: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function into a verb: its parameters with an `Option` are the options of `headscan
    NAME`, too.

    The options are checked; the folder `out` is checked, made and locked; then the function runs,
    in which `running()` gives its arguments and its run; the protocol of its result is completed
    and it is saved. A full disk is bad input. `continues`: a run that is over may be resumed, too
    (a training goes on for more steps).
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        record = VERBS[name] = VerbRecord(name, function, continues=continues)

        @functools.wraps(function)
        def called(*places: P.args, **named: P.kwargs) -> R:
            given = record.given(places, named)
            passed = Passed.of(given, name)
            with float32_in_full(), record.run(given) as run:
                token = _GIVEN.set((given, run))
                try:
                    return run.finish(passed.mark(function(**given)))  # type: ignore[call-arg]
                except BadInput:
                    run.refused()
                    raise
                except Exception as error:
                    if (
                        getattr(error, "errno", None) == errno.ENAMETOOLONG
                    ):  # asked for what no file can be called
                        run.refused()
                        raise BadInput(
                            f"There is no file or folder of so long a name: {str(error)[:80]}..."
                        ) from None
                    if not disk_is_full(error):
                        raise
                    advice = "make room and continue with the same command and --resume"
                    raise BadInput(f"The disk is full ({error}): {advice}.") from error
                finally:
                    _GIVEN.reset(token)

        record.call = called
        called.__signature__ = record.signature  # type: ignore[attr-defined]
        called.verb = record  # type: ignore[attr-defined]
        return called

    return decorate


def estimates(of: Callable[P, Result]) -> Callable[[Callable[[Given], E]], Callable[P, E]]:
    """Decorate `f(given)` into a function that takes what the verb `of` takes; the command line
    prints it for --dry-run.
    """

    def decorate(function: Callable[[Given], E]) -> Callable[P, E]:
        record: VerbRecord = of.verb  # type: ignore[attr-defined]

        @functools.wraps(function)
        def called(*places: P.args, **named: P.kwargs) -> E:
            return function(record.given(places, named))

        called.__signature__ = record.signature.replace(return_annotation=inspect.Signature.empty)  # type: ignore[attr-defined]
        record.estimate = cast(Any, called)
        return called

    return decorate
