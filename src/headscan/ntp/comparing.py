"""Models held against a prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.model.lens import Lens
from headscan.model.opening import open_models
from headscan.model.tokenizers import load_tokenizer
from headscan.ntp.arrays import Floats, Ints
from headscan.ntp.collapse_metrics import collapse_metrics
from headscan.ntp.counted import Counted
from headscan.ntp.observe import observe, observe_in_text, start_tokens
from headscan.ntp.pictures import HeatMap, cosines
from headscan.ntp.prediction import Prediction
from headscan.ntp.result import ModelComparison
from headscan.ntp.settings import Predicting
from headscan.ntp.support_metrics import support_metrics
from headscan.run import BadInput, ModelRecord, Progress

__all__ = ["Compared", "compare", "open_compared"]


def open_compared(settings: Predicting) -> tuple[Any, Iterator[Lens]]:
    """The tokenizer at once, the models one by one when asked for: checkpoints need not be in memory together.

    Raises `BadInput` for whatever can be known of any of them before its weights are read.
    """
    lenses: Iterator[Lens] = iter(()) if settings.model is None else open_models(settings.model, settings)
    if settings.tokenizer is None:
        first = next(lenses)
        tokenizer, lenses = first.require_tokenizer(), chain([first], lenses)
    else:
        tokenizer = load_tokenizer(settings.tokenizer, None, settings.trust_remote_code)
    if not len(tokenizer):
        raise BadInput("The vocabulary is empty.")
    return tokenizer, lenses


@dataclass(frozen=True, eq=False)
class Compared:
    """What came of one model: its numbers, its record, and the arrays of its pictures."""

    comparison: ModelComparison
    record: ModelRecord
    heat: npt.NDArray[np.float32]
    scatter: npt.NDArray[np.float32]


def compare(
    lens: Lens,
    counted: Counted,
    prediction: Prediction,
    heat: HeatMap,
    tokenizer: Any,
    settings: Predicting,
    progress: Progress,
) -> Compared:
    """Run a model on the contexts of a count, and measure how far it is from the prediction."""
    labels, most, seed = prediction.labels, settings.max_contexts, settings.seed
    before = start_tokens(tokenizer)
    if settings.reading == "text":
        found, rows, notes = observe_in_text(
            lens, counted.held.tokens, counted.held.starts, counted.counts.contexts, labels.vocabulary, before=before,
            most=most * 10, progress=progress,
        )  # fmt: skip
        kept = _sample(labels.prior[rows], most, seed)
        found, rows = replace(found, contexts=found.contexts[kept]), rows[kept]
    else:
        rows = np.union1d(_sample(labels.prior, most, seed), heat.rows)
        found, notes = observe(lens, counted.counts.contexts[rows], labels.vocabulary, before=before, progress=progress)
    part = prediction if len(rows) == labels.contexts else prediction.restricted(rows)
    # Contexts of the heat map that the model did not meet stay blank.
    at = np.minimum(np.searchsorted(rows, heat.rows), len(rows) - 1)
    met = rows[at] == heat.rows
    hidden = found.contexts.astype(np.float64)
    shown = cosines(hidden[at] - hidden.mean(0))
    shown[~met], shown[:, ~met] = np.nan, np.nan
    comparison = ModelComparison(
        name=lens.name,
        compared_contexts=len(rows),
        reading=settings.reading,
        before=before,
        metrics=support_metrics(found, part, seed=seed),
        collapse=collapse_metrics(found, part.labels, seed=seed),
        notes=notes,
    )
    return Compared(comparison, lens.provenance(), shown, heat.scatter(found, part, seed))


def _sample(weight: Floats, most: int, seed: int) -> Ints:
    """All indices, or at most `most` of them drawn by weight without replacement, ascending."""
    if len(weight) <= most:
        return np.arange(len(weight))
    chosen = np.random.default_rng(seed).choice(len(weight), most, replace=False, p=weight / weight.sum())
    return np.sort(chosen)
