"""The lowest versions that pyproject.toml declares, as constraints for pip: `make lowest` runs the
tests under them.

    python scripts/lowest.py [NAME==VERSION ...] > lowest.txt

What is needed and every extra for users count, not what only the tests need. A version given
replaces the declared one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
OWN = ("dev", "docs")


def lowest(project: dict[str, object]) -> dict[str, str]:
    """The name of every requirement and its lower bound; those without one are left out.

    >>> extras = {"x": ["a>=1.5", "b"], "dev": ["c>=3"]}
    >>> lowest({"dependencies": ["numpy>=2.0", "a>=1,<2"], "optional-dependencies": extras})
    {'numpy': '2.0', 'a': '1.5'}
    """
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    groups = [
        project["dependencies"],
        *(needed for name, needed in extras.items() if name not in OWN),
    ]
    bounds: dict[str, str] = {}
    for requirement in (item for group in groups for item in group):
        match = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
        if match:
            name, version = match.groups()
            bounds[name] = max(
                bounds.get(name, version), version, key=lambda v: [int(p) for p in v.split(".")]
            )
    return bounds


if __name__ == "__main__":
    bounds = lowest(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"])
    bounds |= dict(argument.split("==") for argument in sys.argv[1:])
    print(*(f"{name}=={version}" for name, version in bounds.items()), sep="\n")
