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
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar, cast

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
    for entry in entry_points(group=PLUGINS):
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
            for name in sorted(
                found.name for found in pkgutil.iter_modules(getattr(module, "__path__", ()))
            ):
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
        taken = self._items.get(name)
        if taken is not None and _home(taken) != _home(item):
            raise BadInput(
                f"There are two {self.kind}s named {name!r}: {_home(taken)} and {_home(item)}."
            )
        self._items[name] = item
        if isinstance(item, type):
            if issubclass(item, Named) and "name" not in vars(item):
                item.name = name
            if hasattr(item, "__dataclass_transform__") and "__dataclass_params__" not in vars(
                item
            ):
                dataclass(frozen=True, kw_only=True)(item)  # in place
            PARAMETERS.add(item)
        return item

    def register(self, name: str) -> Callable[[R], R]:
        """`add` as a decorator of a class or function."""
        put: Callable[[R], R] = cast(Any, partial(self.add, name))
        return put

    def __getitem__(self, name: str) -> T:
        self._load()
        if isinstance(name, list | tuple):  # several, where a field takes one
            raise BadInput(
                f"Only one {self.kind} can be chosen; there are: {', '.join(self._items)}."
            )
        if name not in self._items:
            near = nearest(str(name), self._items)
            raise BadInput(
                f"There is no {self.kind} {name!r}; there are: {', '.join(self._items)}.{near}"
            )
        return self._items[name]

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
        found: set[str] = set()
        for glob in (part.strip() for part in globs.split(",")):
            hits = [name for name in self if fnmatchcase(name, glob)]
            if not hits:
                raise BadInput(f"There is no {self.kind} {glob!r}; there are: {', '.join(self)}.")
            found.update(hits)
        return [name for name in self if name in found]

    def build(self, spec: str, given: Mapping[str, Any] | None = None) -> Any:
        """The item that a text asks for, NAME or NAME:KEY=VALUE,..., made with these parameters and
        those in `given`. Raises BadInput for a parameter that this item does not have, or a value
        that it cannot be.
        """
        item: Any = (
            self[spec] if not isinstance(spec, str) else self[spec.partition(":")[0].strip()]
        )
        return item(**self._parameters_of(spec, given))

    def _parameters_of(self, spec: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        name, _, words = spec.partition(":")
        name = name.strip()
        item = self[name]
        parameters = dict(given or {})
        for word in filter(None, (part.strip() for part in words.split(","))):
            key, equals, value = word.partition("=")
            if not equals:
                raise BadInput(
                    f"Parameters of the {self.kind} {name} are written {name}:KEY=VALUE,..., not "
                    f"{word!r}."
                )
            parameters[key.strip().replace("-", "_")] = value.strip()
        fields = {field.name: field for field in options_of(item)} if isinstance(item, type) else {}
        for key, value in parameters.items():
            if key not in fields:
                users = [
                    user
                    for user, own in self.parameters().items()
                    if key in {field.name for field in own}
                ]
                known = (
                    f"belongs to {', '.join(sorted(users))}"
                    if users
                    else f"has {', '.join(fields) or 'none'}"
                )
                raise BadInput(
                    f"{key} is not a parameter of the {self.kind} {name}; it "
                    f"{known}.{nearest(key, fields)}"
                )
            parameters[key] = from_text(fields[key], value) if isinstance(value, str) else value
            check_value(fields[key], parameters[key])
        return parameters

    def name_of(self, made: object) -> str:
        """The name of the item of which something was made; that of its class where it is not
        registered.
        """
        return next(
            (name for name, item in self.items() if item is type(made)), type(made).__name__
        )

    def specs(self, text: str) -> list[str]:
        """The items that a text names, with their parameters: NAME or NAME:KEY=VALUE,..., commas
        between them; "all" is each. Raises BadInput for a name, parameter or value that cannot be,
        and for commas alone.
        """
        found = [part.strip() for part in SEPARATOR.split(text) if part.strip()]
        if text and not found:
            raise BadInput(f"{text!r} names no {self.kind}; there are: {', '.join(self)}.")
        found = [name for spec in found for name in (self.names() if spec == "all" else [spec])]
        for spec in found:
            self._parameters_of(spec)
        return found

    def build_each(self, given: Any) -> list[Any]:
        """Several items: a text (see `specs`), an item that is made, or a list of both. Of one
        named twice the last stands.
        """
        made: dict[str, Any] = {}
        for one in given if isinstance(given, list | tuple) else [given]:
            if isinstance(one, str):
                made |= {
                    spec.partition(":")[0].strip(): self.build(spec) for spec in self.specs(one)
                }
            else:
                made[str(getattr(one, "name", len(made)))] = one
        return list(made.values())

    def parameters(self) -> dict[str, list[OptionField]]:
        """The parameters of each item that has any."""
        found = {
            name: list(options_of(item)) for name, item in self.items() if isinstance(item, type)
        }
        return {name: fields for name, fields in found.items() if fields}


def _home(item: object) -> str:
    return f"{getattr(item, '__module__', type(item).__module__)}.{getattr(item, '__qualname__', type(item).__name__)}"
