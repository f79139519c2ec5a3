"""One registration, visible everywhere: a table of named things that finds its items by itself and
takes plug-ins.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any, ClassVar, Generic, TypeVar, cast

from headscan.run.code import plugins
from headscan.run.errors import BadInput, nearest
from headscan.run.settings import PARAMETERS, OptionField, check_value, from_text, options_of

T = TypeVar("T")
R = TypeVar("R")
# a comma between items: what follows it is no parameter KEY=VALUE
SEPARATOR = re.compile(r",(?![^,:]*=)")
PLUGINS = "headscan.plugins"
"""The group of entry points by which an installed package brings items: each names a module, whose
import registers them.
"""


@cache
def _load_plugins() -> None:
    for entry in plugins(PLUGINS):
        try:
            entry.load()
        except Exception as error:
            raise BadInput(
                f"The plug-in {entry.name!r} ({entry.value}) cannot be loaded: {error}"
            ) from error


class Named:
    """A parent of classes that are told the name under which they are registered."""

    name: ClassVar[str]


class Registry(Mapping[str, T], Generic[T]):
    """Named items of one kind, in the order in which they were registered.

    Items are classes (frozen dataclasses whose `Option` fields are their parameters) or functions'
    records. Their modules are imported when the registry is first looked at, then the plug-ins.

    Args:
        kind: what an item is called in sentences: "measure", "attribution method".
        homes: modules that register items, and packages all of whose modules do; none where items
            register themselves.

    >>> shapes: Registry[str] = Registry("shape")
    >>> _ = shapes.add("cone", "a cone")
    >>> shapes["cone"], shapes.names(), shapes.match("c*")
    ('a cone', ['cone'], ['cone'])
    >>> shapes["ball"]
    Traceback (most recent call last):
    headscan.BadInput: There is no shape 'ball'; there are: cone.
    """

    def __init__(self, kind: str, *homes: str) -> None:
        self.kind = kind
        self.homes = homes
        self._items: dict[str, T] = {}
        self._loaded = False

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for home in self.homes:
            module = importlib.import_module(home)
            submodules = pkgutil.iter_modules(getattr(module, "__path__", ()))
            for name in sorted(submodule.name for submodule in submodules):
                importlib.import_module(f"{home}.{name}")
        _load_plugins()
        # The order is that of the modules, whoever imported one of them first; plug-ins come last.
        self._items = dict(sorted(self._items.items(), key=lambda pair: self._place(pair[1])))

    def _place(self, item: object) -> tuple[int, str]:
        module = getattr(item, "__module__", type(item).__module__)
        ranks = [
            rank for rank, home in enumerate(self.homes) if f"{module}.".startswith(f"{home}.")
        ]
        return (ranks[0], module) if ranks else (len(self.homes), "")

    def add(self, name: str, item: T) -> T:
        """Register an item; BadInput where the name is taken by another."""
        registered = self._items.get(name)
        if registered is not None and _home(registered) != _home(item):
            raise BadInput(
                f"There are two {self.kind}s named {name!r}: {_home(registered)} and {_home(item)}."
            )
        self._items[name] = item
        if isinstance(item, type):
            if issubclass(item, Named) and "name" not in vars(item):
                item.name = name
            is_settings = hasattr(item, "__dataclass_transform__")
            if is_settings and "__dataclass_params__" not in vars(item):
                dataclass(frozen=True, kw_only=True)(item)  # in place
            PARAMETERS.add(item)
        return item

    def register(self, name: str) -> Callable[[R], R]:
        """`add` as a decorator of a class or function."""
        return cast(Callable[[R], R], partial(self.add, name))

    def __getitem__(self, name: str) -> T:
        self._load()
        if isinstance(name, list | tuple):  # several, where a field takes one
            raise BadInput(
                f"Only one {self.kind} can be chosen; there are: {', '.join(self._items)}."
            )
        if name not in self._items:
            suggestion = nearest(str(name), self._items)
            known = ", ".join(self._items)
            raise BadInput(f"There is no {self.kind} {name!r}; there are: {known}.{suggestion}")
        return self._items[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the item of this name, or `default` where there is none."""
        self._load()
        return self._items.get(name, default)

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._items)

    def __len__(self) -> int:
        self._load()
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._items

    def names(self) -> list[str]:
        """All names, in order."""
        return list(self)

    def match(self, globs: str) -> list[str]:
        """The names that any of the comma-separated globs matches, in order; BadInput where one
        matches nothing.
        """
        matched: set[str] = set()
        for glob in (part.strip() for part in globs.split(",")):
            hits = [name for name in self if fnmatchcase(name, glob)]
            if not hits:
                raise BadInput(f"There is no {self.kind} {glob!r}; there are: {', '.join(self)}.")
            matched.update(hits)
        return [name for name in self if name in matched]

    def build(self, spec: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Return the item that a text asks for, NAME or NAME:KEY=VALUE,..., made with these
        parameters and those in `parameters`.

        Raises:
            BadInput: for a parameter that this item does not have, or a value that it cannot be.
        """
        name = spec.partition(":")[0].strip() if isinstance(spec, str) else spec
        item: Any = self[name]
        return item(**self._parameters_of(spec, parameters))

    def _parameters_of(
        self, spec: str, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the checked parameters of NAME:KEY=VALUE,..., over those in `defaults`."""
        name, _, assignments = spec.partition(":")
        name = name.strip()
        item = self[name]
        parameters = dict(defaults or {}) | self._assigned(name, assignments)

        options = options_of(item) if isinstance(item, type) else ()
        fields = {option.name: option for option in options}
        for key, value in parameters.items():
            if key not in fields:
                raise BadInput(self._unknown_parameter(name, key, fields))
            if isinstance(value, str):
                parameters[key] = from_text(fields[key], value)
            check_value(fields[key], parameters[key])
        return parameters

    def _assigned(self, name: str, assignments: str) -> dict[str, Any]:
        """Return the values in KEY=VALUE,KEY=VALUE, still as texts."""
        values = {}
        for assignment in assignments.split(","):
            if not assignment.strip():
                continue
            key, equals, value = assignment.strip().partition("=")
            if not equals:
                raise BadInput(
                    f"Parameters of the {self.kind} {name} are written {name}:KEY=VALUE,..., not "
                    f"{assignment.strip()!r}."
                )
            values[key.strip().replace("-", "_")] = value.strip()
        return values

    def _unknown_parameter(self, name: str, key: str, fields: Mapping[str, OptionField]) -> str:
        """Return the sentence for a parameter that an item does not have."""
        users = []
        for user, options in self.parameters().items():
            if key in {option.name for option in options}:
                users.append(user)
        if users:
            known = f"belongs to {', '.join(sorted(users))}"
        else:
            known = f"has {', '.join(fields) or 'none'}"
        return (
            f"{key} is not a parameter of the {self.kind} {name}; it {known}.{nearest(key, fields)}"
        )

    def name_of(self, instance: object) -> str:
        """Return the name of the item that an instance is of, or its class's where that is not
        registered.
        """
        for name, item in self.items():
            if item is type(instance):
                return name
        return type(instance).__name__

    def specs(self, text: str) -> list[str]:
        """Return the items that a text names, with their parameters: NAME or NAME:KEY=VALUE,...,
        commas between them; "all" stands for every name.

        Raises:
            BadInput: for a name, parameter or value that cannot be, and for commas alone.
        """
        parts = [part.strip() for part in SEPARATOR.split(text) if part.strip()]
        if text and not parts:
            raise BadInput(f"{text!r} names no {self.kind}; there are: {', '.join(self)}.")
        specs: list[str] = []
        for part in parts:
            specs += self.names() if part == "all" else [part]
        for spec in specs:
            self._parameters_of(spec)
        return specs

    def build_each(self, specs: Any) -> list[Any]:
        """Return several items from a text (see `specs`), an instance, or a list of both.

        Where two have the same name, the last is returned.
        """
        items: dict[str, Any] = {}
        for entry in specs if isinstance(specs, list | tuple) else [specs]:
            if not isinstance(entry, str):
                items[str(getattr(entry, "name", len(items)))] = entry
                continue
            for spec in self.specs(entry):
                items[spec.partition(":")[0].strip()] = self.build(spec)
        return list(items.values())

    def parameters(self) -> dict[str, list[OptionField]]:
        """Return the parameters of each item that has any."""
        options = {
            name: list(options_of(item)) for name, item in self.items() if isinstance(item, type)
        }
        return {name: fields for name, fields in options.items() if fields}


def _home(item: object) -> str:
    """Return where an item is defined: MODULE.NAME."""
    module = getattr(item, "__module__", type(item).__module__)
    name = getattr(item, "__qualname__", type(item).__name__)
    return f"{module}.{name}"
