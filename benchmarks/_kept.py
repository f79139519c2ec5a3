"""Rows that were measured once and stay measured: a series that was stopped goes on where
it was.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["kept"]


def kept(key: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `work` gives, from headscan-results/benchmarks/SCRIPT.jsonl where it stands there
    under this key.

    A change of the script's code forgets what it measured before.
    """
    script = Path(sys.argv[0])
    file = Path(__file__).parent.parent / "headscan-results" / "benchmarks" / f"{script.stem}.jsonl"
    # without the first docstring
    code = ast.dump(ast.Module(ast.parse(script.read_text()).body[1:], []))
    key = f"{hashlib.sha256(code.encode()).hexdigest()[:12]} {key}"
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    stored: dict[str, Any] | None = next((row["row"] for row in rows if row["key"] == key), None)
    if stored is None:
        stored = work()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as out:
            out.write(json.dumps({"key": key, "row": stored}) + "\n")
    return stored
