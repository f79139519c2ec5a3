"""One registration, visible everywhere: a table of named things that finds its items by itself and takes plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from headscan.run.errors import BadInput, nearest
from headscan.run.settings import OptionField, check_value, options_of

T = TypeVar("T")
R = TypeVar("R")
PLUGINS = "headscan.plugins"
"""The group of entry points by which an installed package brings items: each names a module, whose import registers them."""


@cache
def _load_plugins() -> None:
    for entry in entry_points(group=PLUGINS):
        try:
            entry.load()
        except Exception as error:
            raise BadInput(f"The plug-in {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error


class Registry(Mapping[str, T], Generic[T]):
    """Named items of one kind, in the order in which they were registered.

    Items are classes (frozen dataclasses whose `Option` fields are their parameters) or functions' records. Their modules
    are imported when the registry is first looked at, then the plug-ins.

    Args:
        kind: what an item is called in sentences: "measure", "attribution method".
        homes: modules that register items, and packages all of whose modules do; none where items register themselves.

    >>> shapes: Registry[str] = Registry("shape")
    >>> _ = shapes.add("cone", "a cone")
    >>> shapes["cone"], shapes.names(), shapes.match("c*")
    ('a cone', ['cone'], ['cone'])
    >>> shapes["ball"]
    Traceback (most recent call last):
    headscan.BadInput: There is no shape 'ball'; there are: cone.
    """

    def __init__(self, kind: str, *homes: str) -> None:
        self.kind, self.homes = kind, homes
        self._items: dict[str, T] = {}
        self._loaded = False

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for home in self.homes:
            module = importlib.import_module(home)
            for name in sorted(found.name for found in pkgutil.iter_modules(getattr(module, "__path__", ()))):
                importlib.import_module(f"{home}.{name}")
        _load_plugins()
        # The order is that of the modules, whoever imported one of them first; plug-ins come last.
        self._items = dict(sorted(self._items.items(), key=lambda pair: self._place(pair[1])))

    def _place(self, item: object) -> tuple[int, str]:
        module = getattr(item, "__module__", type(item).__module__)
        ranks = [rank for rank, home in enumerate(self.homes) if f"{module}.".startswith(f"{home}.")]
        return (ranks[0], module) if ranks else (len(self.homes), "")

    def add(self, name: str, item: T) -> T:
        """Register an item; BadInput where the name is taken by another."""
        taken = self._items.get(name)
        if taken is not None and _home(taken) != _home(item):
            raise BadInput(f"There are two {self.kind}s named {name!r}: {_home(taken)} and {_home(item)}.")
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[R], R]:
        """`add` as a decorator of a class or function."""

        def put(item: R) -> R:
            self.add(name, item)  # type: ignore[arg-type]
            return item

        return put

    def __getitem__(self, name: str) -> T:
        self._load()
        if isinstance(name, list | tuple):  # several, where a field takes one
            raise BadInput(f"Only one {self.kind} can be chosen; there are: {', '.join(self._items)}.")
        if name not in self._items:
            near = nearest(str(name), self._items)
            raise BadInput(f"There is no {self.kind} {name!r}; there are: {', '.join(self._items)}.{near}")
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
        """The names that any of the comma-separated globs matches, in order; BadInput where one matches nothing."""
        found: set[str] = set()
        for glob in (part.strip() for part in globs.split(",")):
            hits = [name for name in self if fnmatchcase(name, glob)]
            if not hits:
                raise BadInput(f"There is no {self.kind} {glob!r}; there are: {', '.join(self)}.")
            found.update(hits)
        return [name for name in self if name in found]

    # ---- the parameters of items

    def options(self) -> dict[str, tuple[OptionField, list[str]]]:
        """The parameters of all items by name, each with the names of the items that take it."""
        found: dict[str, tuple[OptionField, list[str]]] = {}
        for name, item in self.items():
            for field in options_of(item) if isinstance(item, type) else ():
                found.setdefault(field.name, (field, []))[1].append(name)
        return found

    def build(self, name: str, given: Mapping[str, Any] | None = None) -> Any:
        """An item made with the parameters in `given` (None stands for "not given"); the others keep their defaults.

        Raises BadInput for a parameter that this item does not use, by name, and says whose it is.
        """
        return self.build_all([name], given)[0]

    def build_all(self, names: list[str], given: Mapping[str, Any] | None = None) -> list[Any]:
        """Several items from the same parameters, each of which at least one of them must use."""
        items: list[Any] = [self[name] for name in names]
        known = self.options()
        wanted = {key: value for key, value in (given or {}).items() if value is not None}
        own = [{field.name for field in options_of(item)} for item in items]
        for key in wanted:
            if any(key in fields for fields in own):
                continue
            if key not in known:
                raise BadInput(f"--{key.replace('_', '-')} is not an option of any {self.kind}.")
            field, users = known[key]
            chosen = names[0] if len(names) == 1 else " or ".join(names)
            raise BadInput(
                f"{field.flag} is not used by the {self.kind} {chosen}; it belongs to {', '.join(sorted(users))}."
            )
        for key, value in wanted.items():
            check_value(known[key][0], value)
        return [
            item(**{key: value for key, value in wanted.items() if key in fields})
            for item, fields in zip(items, own, strict=True)
        ]


def _home(item: object) -> str:
    return f"{getattr(item, '__module__', type(item).__module__)}.{getattr(item, '__qualname__', type(item).__name__)}"
