"""From a model's folder to what it can do: `headscan train evaluate`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headscan.results import Result, check_writable
from headscan.training.evaluate import evaluate, harness
from headscan.training.loading import load_trained

__all__ = ["EvaluationResult", "evaluate_model"]

HARNESS = "lm-eval:"


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """`document`: protocol, model, scores {task: {number: value}}."""

    kind = "evaluation"

    def frame(self):
        """A pandas table, one row a number."""
        import pandas as pd

        return pd.DataFrame(self.document["rows"], columns=["task", "number", "value"])


def evaluate_model(
    model: str,
    sets: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tasks: list[str] | None = None,
    limit: int | None = None,
    command: str | None = None,
) -> EvaluationResult:
    """Evaluate the model in a folder (or of an id) on a folder of evaluation sets, and write the result to `out`.

    tasks: see `headscan.training.evaluate.evaluate`; "lm-eval:NAME" is a task of lm-evaluation-harness, with its data
    from the Hub. Default: all that the folder holds and the model can do. A headless model is taken as the body it is.
    Raises BadInput where model, sets or tasks cannot be used.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    folder = check_writable(out)
    found, words, _ = load_trained(model)
    own = None if tasks is None else [task for task in tasks if not task.startswith(HARNESS)]
    theirs = [task.removeprefix(HARNESS) for task in tasks or [] if task.startswith(HARNESS)]
    scores: dict[str, Any] = {}
    if own or own is None:
        scores |= evaluate(found, words, Path(sets), tasks=own, limit=limit)
    if theirs:
        scores |= {HARNESS + name: numbers for name, numbers in harness(found, words, theirs, limit=limit).items()}
    result = EvaluationResult(
        {
            "headscan": version("headscan"),
            "protocol": {
                "command": command,
                "sets": str(sets),
                "limit": limit,
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - clock, 1),
                "versions": {name: version(name) for name in ("headscan", "torch", "transformers")},
            },
            "model": {"name": model, "class": type(found).__name__},
            "scores": scores,
            "rows": [row for task, numbers in scores.items() for row in _rows(task, "", numbers)],
        }
    )
    result.save(folder)
    return result


def _rows(task: str, prefix: str, value: Any) -> list[tuple[str, str, float]]:
    if isinstance(value, dict):
        return [row for key, each in value.items() for row in _rows(task, f"{prefix} {key}".strip(), each)]
    return [(task, prefix, value)]
