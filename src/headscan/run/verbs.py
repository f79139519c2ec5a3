"""The decorator under every verb: it checks the options, opens a run, and saves the result."""

import errno
import functools
import inspect
import os
import random
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from headscan.run.errors import BadInput, MachineLimit, disk_is_full, nearest
from headscan.run.exhaustion import exhausted, memory_ran_out
from headscan.run.findings import Passed
from headscan.run.locks import models_locked
from headscan.run.result import Result
from headscan.run.rows import Json
from headscan.run.run import Run
from headscan.run.settings import (
    RUN_DEFAULTS,
    OptionField,
    check_value,
    is_alias,
    option_of,
    parsed,
)

P = ParamSpec("P")
E = TypeVar("E")
R = TypeVar("R", bound=Result)


class VerbRecord:
    """What the command line and `help()` read of a verb.

    Attributes:
        name: the verb, as the command line spells it.
        function: the function as written, which takes its run first.
        call: the function that users call.
        signature: the parameters that users give, each with the name of its type.
        subject: the parameter without an `Option`: what the verb examines; None where it has none.
        estimate: the function behind --dry-run; None where there is none.
        continues: whether a finished run may be resumed.
    """

    def __init__(
        self, name: str, function: Callable[..., Result], *, continues: bool = False
    ) -> None:
        self.name = name
        self.function = function
        self.continues = continues
        self.call: Callable[..., Result] = function
        self.estimate: Callable[..., Sequence[object]] | None = None

        hints = _type_hints(function)
        run, *parameters = inspect.signature(function).parameters.values()
        if run.name != "run":
            raise TypeError(f"The first parameter of the verb {name} must be its run.")

        self._options: dict[str, OptionField] = {}
        shown = []
        self._run_options: frozenset[str] = frozenset()
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                expanded = _run_parameters(hints[parameter.name])
                self._run_options = frozenset(run_parameter.name for run_parameter in expanded)
                shown += [self._shown(run_parameter) for run_parameter in expanded]
                continue
            hint = hints.get(parameter.name, parameter.annotation)
            shown.append(self._shown(parameter.replace(annotation=hint)))
        names = [parameter.name for parameter in shown]
        self.subject = next((name for name in names if name not in self._options), None)
        self.signature = inspect.Signature(shown, return_annotation=hints.get("return"))

    def _shown(self, parameter: inspect.Parameter) -> inspect.Parameter:
        """Return a parameter as signatures show it; one with an `Option` becomes an option."""
        hint = parameter.annotation
        positional = parameter.kind is not parameter.KEYWORD_ONLY
        option = option_of(parameter.name, hint, parameter.default, positional)
        if option is not None:
            self._options[parameter.name] = option
        return parameter.replace(annotation=_shown_type(hint, option))

    def options(self) -> tuple[OptionField, ...]:
        """Return the parameters that have an `Option`."""
        return tuple(self._options.values())

    def arguments(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked arguments of a call by name, defaults included.

        Raises:
            TypeError: for a name that the verb does not have; the message names the verb.
            BadInput: for a value that its option does not allow.
        """
        try:
            bound = self.signature.bind(*positional, **named)
        except TypeError as error:
            unknown = [key for key in named if key not in self.signature.parameters]
            if not unknown:
                raise TypeError(f"{self.name}(): {error}") from None
            suggestion = nearest(unknown[0], self.signature.parameters)
            raise TypeError(f"{self.name}() has no option {unknown[0]!r}.{suggestion}") from None
        bound.apply_defaults()

        arguments = dict(bound.arguments)
        for key, option in self._options.items():
            arguments[key] = parsed(option, arguments[key])
            check_value(option, arguments[key])
        return arguments

    def read_by_function(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments without those that the decorator reads (`RunOptions`)."""
        return {key: value for key, value in arguments.items() if key not in self._run_options}

    def given(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of the parameters that a caller gave, also with the default's value."""
        bound = self.signature.bind(*positional, **named)
        return frozenset(key for key, value in bound.arguments.items() if value is not None)

    def open_run(self, arguments: Mapping[str, Any], given_names: frozenset[str]) -> Run:
        """Return the run of a call: its folder, and the options by which a resume recognises it."""
        shared = ("out", "resume", "overwrite", "seed", "progress", "command")
        subject = None if self.subject is None else _subject_name(arguments[self.subject])
        return Run(
            self.name,
            **{key: arguments[key] for key in shared if key in arguments},
            options=[(option, arguments[key]) for key, option in self._options.items()],
            given=given_names,
            subject=subject,
            continues=self.continues,
        )

    def names(self) -> list[str]:
        """Return the names of the options."""
        return list(self._options)

    def documentation(self) -> str:
        """Return the docstring with one entry for each option: type, default and meaning."""
        text = inspect.cleandoc(self.function.__doc__ or "")
        entries = []
        for option in self._options.values():
            parameter = self.signature.parameters[option.name]
            kind = inspect.formatannotation(parameter.annotation)
            default = "required" if option.required else f"default {option.default!r}"
            entry = f"{option.name} ({kind}, {default}): {option.option.help}"
            entries.append(
                textwrap.fill(entry, 100, initial_indent="    ", subsequent_indent=" " * 8)
            )
        section = "\n".join(["Options:", *entries]) + "\n"
        head, marker, tail = text.partition("\nReturns:")
        if marker:
            return f"{head}\n{section}{marker}{tail}"
        return f"{text}\n\n{section}"


VERBS: dict[str, VerbRecord] = {}
"""Every verb that was defined so far, by its name."""


def _run_parameters(hint: Any) -> list[inspect.Parameter]:
    """Return the parameters that `**_run_options: Unpack[RunOptions]` stands for."""
    (group,) = typing.get_args(hint)
    parameters = []
    for name, kind in typing.get_type_hints(group, include_extras=True).items():
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=RUN_DEFAULTS[name],
                annotation=kind,
            )
        )
    return parameters


def _type_hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:  # a type that only type checkers import
        return dict(function.__annotations__)


def _shown_type(hint: Any, option: OptionField | None) -> Any:
    """Return what a signature shows: an alias by its name, another type without its `Option`."""
    if option is None or is_alias(hint):
        return hint
    return option.type


def _subject_name(subject: Any) -> Json:
    """Return the subject by which a run is recognised: ids and folders; a live object's name."""
    if isinstance(subject, list | tuple):
        return [_subject_name(item) for item in subject]
    if subject is None or isinstance(subject, bool | int | float | str):
        return subject
    return str(getattr(subject, "name", type(subject).__name__))


@contextmanager
def float32_in_full() -> Iterator[None]:
    """Forbid TF32 products on a GPU for a while, and restore what was allowed before."""
    backends = getattr(sys.modules.get("torch"), "backends", None)
    switches = [] if backends is None else [backends.cuda.matmul, backends.cudnn]
    allowed_before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = False
        yield
    finally:
        for switch, allowed in zip(switches, allowed_before, strict=True):
            switch.allow_tf32 = allowed


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Restore the global random states of Python, numpy and torch behind the context.

    A training seeds them, and libraries draw from them when they are imported.
    """
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.get_rng_state()
    has_cuda = torch is not None and torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if torch is not None and has_cuda else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)
        if torch is not None and torch_state is not None:
            torch.set_rng_state(torch_state)
        if torch is not None and cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)


@contextmanager
def _refusals(run: Run, options: Iterable[str]) -> Iterator[None]:
    """Turn limits of the machine into one sentence; tidy up after a refusal."""
    try:
        yield
    except BadInput:
        run.refused()
        raise
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # the tokenizers library, on a hostile rule
            run.refused()
            message = " ".join(str(error).split())[:200]
            raise BadInput(f"The tokenizer fails on this text: {message}.") from None
        if not isinstance(error, Exception):
            raise
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            run.refused()
            message = f"There is no file or folder of so long a name: {str(error)[:80]}..."
            raise BadInput(message) from None
        if exhausted(error):
            raise memory_ran_out(error, options) from error
        advice = "continue with the same command and --resume"
        if disk_is_full(error):
            message = f"The disk is full ({error}): free some space and {advice}."
            raise MachineLimit(message) from error
        if _is_lost(error, run):
            message = f"A file or folder of the output is gone ({error}): {advice}."
            raise MachineLimit(message) from error
        raise


def _is_lost(error: Exception, run: Run) -> bool:
    """Return whether the output folder or a file in it was deleted, or its disk taken away."""
    if not isinstance(error, OSError) or run.folder is None or error.filename is None:
        return False
    path = os.path.abspath(os.fsdecode(error.filename))
    is_output = path.startswith(str(run.folder.absolute()))
    return is_output and (error.errno == errno.ENOENT or not run.folder.is_dir())


def verb(
    name: str, *, continues: bool = False
) -> Callable[[Callable[Concatenate[Run, P], R]], Callable[P, R]]:
    """Decorate a function into a verb; its parameters with an `Option` are `headscan NAME`'s.

    The function takes its run first, as `run`, and then the parameters that users give, which it
    reads like any function. The options that the decorator itself reads (the folder, the resume,
    ...) stand as `**_run_options: Unpack[RunOptions]`; the public signature lists each of them.

    Before the function is called, the options are checked, and the folder `out` is checked, made
    and locked. Afterwards the protocol of its result is completed and the result is saved.
    `continues`: a finished run may be resumed (a training goes on for more steps).
    """

    def decorate(function: Callable[Concatenate[Run, P], R]) -> Callable[P, R]:
        record = VerbRecord(name, function, continues=continues)
        VERBS[name] = record

        @functools.wraps(function)
        def called(*positional: P.args, **named: P.kwargs) -> R:
            arguments = record.arguments(positional, named)
            passed = Passed.of(arguments.get("ignore"), arguments.get("baseline"), name)
            given_names = record.given(positional, named)
            with (
                models_locked(arguments.values()),
                random_states_kept(),
                float32_in_full(),
                record.open_run(arguments, given_names) as run,
                _refusals(run, record.names()),
            ):
                own_arguments = record.read_by_function(arguments)
                result = cast(Callable[..., R], function)(run=run, **own_arguments)
                return run.finish(passed.mark(result))

        record.call = called
        called.__doc__ = record.documentation()
        called.__signature__ = record.signature  # type: ignore[attr-defined]
        called.verb = record  # type: ignore[attr-defined]
        return called

    return decorate


class _CallablePackage(types.ModuleType):
    """A package that is called like the verb of its name; its function `run` is that verb."""

    run: Callable[..., Result]

    def __call__(self, *positional: Any, **named: Any) -> Result:
        return self.run(*positional, **named)


def make_callable(package: str) -> None:
    """Let `headscan.ntp(...)` mean `headscan.ntp.run(...)`, for a package named like its verb."""
    module = sys.modules[package]
    module.__class__ = _CallablePackage
    call = module.run
    module.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]


def estimates(of: Callable[P, Result]) -> Callable[[Callable[..., E]], Callable[P, E]]:
    """Decorate the estimate of a verb, which --dry-run prints.

    The function declares those parameters of the verb that it reads; the decorated one takes all
    that the verb takes, and checks them as the verb does.
    """

    def decorate(function: Callable[..., E]) -> Callable[P, E]:
        record: VerbRecord = of.verb  # type: ignore[attr-defined]
        parameters = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def called(*positional: P.args, **named: P.kwargs) -> E:
            arguments = record.arguments(positional, named)
            return function(**{key: arguments[key] for key in parameters})

        shown = record.signature.replace(return_annotation=inspect.Signature.empty)
        called.__signature__ = shown  # type: ignore[attr-defined]
        record.estimate = cast(Any, called)
        return called

    return decorate
