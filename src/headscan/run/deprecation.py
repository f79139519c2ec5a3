"""Old public names: they work for one version more, and say what they are called now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def renamed(module: str, name: str, table: Mapping[str, str]) -> Any:
    """What a module's old name stands for, with a DeprecationWarning; for the module's `__getattr__`.

    `table` gives for an old name its new home: "package" where the name stayed, or "package:new_name".
    Raises AttributeError for a name that is not in it.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     renamed("headscan", "root", {"root": "math:sqrt"})(4.0), str(caught[0].message)
    (2.0, 'headscan.root is now math.sqrt; the old name goes with the next version.')
    """
    if name not in table:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home, _, new = table[name].partition(":")
    message = f"{module}.{name} is now {home}.{new or name}; the old name goes with the next version."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(import_module(home), new or name)
