"""Write docs/schemas/KIND.json, the JSON schema of every kind of result, from the result classes.

python scripts/schemas.py [--check]
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from headscan.run import Result

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
MODULES = (
    "headscan.attribution",
    "headscan.comparison",
    "headscan.diagnosis",
    "headscan.flow",
    "headscan.inversion",
    "headscan.leaks",
    "headscan.ntp",
    "headscan.remedies.result",
    "headscan.scanner",
    "headscan.states",
    "headscan.training.result",
    "headscan.weights",
    "headscan_lab.evaluation.result",
    "headscan_lab.ledger.run",
    "headscan_lab.tournament.table",
)


def schemas() -> dict[Path, str]:
    """The text of each file."""
    for name in MODULES:
        import_module(name)
    kinds = {
        kind: result_class
        for kind, result_class in Result.kinds.items()
        if result_class.__module__.startswith("headscan")
    }
    return {
        FOLDER / f"{kind}.json": json.dumps(
            result_class.json_schema(), indent=1, ensure_ascii=False
        )
        + "\n"
        for kind, result_class in sorted(kinds.items())
    }


if __name__ == "__main__":
    expected = schemas()
    if "--check" in sys.argv:
        stale = [
            path.name
            for path, text in expected.items()
            if not path.is_file() or path.read_text("utf-8") != text
        ]
        stale += [path.name for path in FOLDER.glob("*.json") if path not in expected]
        sys.exit(f"{', '.join(stale)} out of date: run python scripts/schemas.py" if stale else 0)
    FOLDER.mkdir(exist_ok=True)
    for path, text in expected.items():
        path.write_text(text, encoding="utf-8")
