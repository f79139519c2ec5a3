"""The windows that a monitor measures on, taken from the data sets of a Trainer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset
from transformers import Trainer

from headscan.run import BadInput

log = logging.getLogger(__name__)

WINDOWS = 24
"""Windows that are taken of the Trainer's own data."""

FAILURES = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError)
"""Errors that a collator raises on rows that do not suit it."""


@dataclass(frozen=True)
class TokenRow:
    """The token ids of a row [T], and which of them are no padding."""

    ids: npt.NDArray[Any]
    real: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PaddedWindows:
    """Windows of token ids int [n, context], and which of them are no padding, bool [n, context];
    None: all of them.
    """

    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, ids: npt.NDArray[np.integer], mask: npt.ArrayLike | None) -> PaddedWindows:
        """Return the windows without columns and windows that are padding alone; BadInput where the
        shapes differ.
        """
        if mask is None:
            return cls(ids)
        real = np.asarray(mask).astype(bool)
        if real.shape != np.shape(ids):
            raise BadInput(
                f"The attention mask has the shape {list(real.shape)}, the windows have "
                f"{list(np.shape(ids))}."
            )
        if real.all():
            return cls(ids)
        rows = real.any(1)
        columns = real.any(0)
        return cls(ids[rows][:, columns], real[rows][:, columns])

    @classmethod
    def of_trainer(cls, trainer: Trainer) -> PaddedWindows:
        """Return the first windows of the Trainer's eval_dataset, of each of its sets; without one,
        of its train_dataset.

        Rows are padded to the longest. Rows without input_ids go through the Trainer's collator.
        BadInput where no row has two tokens, or there is no data.
        """
        name = "eval_dataset" if trainer.eval_dataset is not None else "train_dataset"
        data: Any = getattr(trainer, name)
        if data is None:
            raise BadInput(
                "What shall be measured? Give windows, or a trainer that has an eval_dataset or a "
                "train_dataset."
            )
        datasets = list(data.values()) if isinstance(data, Mapping) else [data]
        count = max(1, WINDOWS // max(1, len(datasets)))
        rows: list[TokenRow] = []
        fields: dict[str, None] = {}
        for dataset in datasets:
            first_rows = _first_rows(dataset, count, name)
            for row in first_rows:
                fields |= dict.fromkeys(row if isinstance(row, Mapping) else ())
            token_rows = _token_rows(first_rows, trainer)
            rows += [row for row in token_rows if row.real.sum() > 1]
        if not rows:
            raise BadInput(
                f"The Trainer's {name} has no windows of two tokens or more in 'input_ids' (its "
                f"rows hold: {', '.join(map(str, fields)) or 'no fields'}): give windows of token "
                "ids; a model that reads no tokens has no monitor."
            )
        if name == "train_dataset":
            log.warning(
                "The Trainer has no eval_dataset: the geometry is measured on the first %d "
                "windows of its training data, which are not held out. Give windows to measure on "
                "others.",
                len(rows),
            )
        padding = getattr(getattr(trainer.model, "config", None), "pad_token_id", None) or 0
        return _padded(rows, padding)


def _padded(rows: list[TokenRow], padding: int) -> PaddedWindows:
    """Return the rows as one array, padded to the longest."""
    length = max(len(row.ids) for row in rows)
    ids = np.full((len(rows), length), padding, dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=bool)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        mask[index, : len(row.ids)] = row.real
    return PaddedWindows.of(ids, mask)


def _first_rows(data: Any, count: int, name: str) -> list[Any]:
    """Return the first rows of a data set, or of a stream."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        stream = iter(data)
        if stream is data:
            raise BadInput(f"The Trainer's {name} can be read only once: give windows.")
        return list(islice(stream, count))
    return [data[index] for index in range(min(count, len(data)))]


def _token_rows(rows: list[Any], trainer: Trainer) -> list[TokenRow]:
    """Return the token ids of each row; [] where neither rows nor collator have token ids."""
    if not rows:
        return []
    if not all(isinstance(row, Mapping) and "input_ids" in row for row in rows):
        try:
            rows = _collated(rows, trainer)
        except FAILURES:
            return []
    return [_token_row(row) for row in rows]


def _collated(rows: list[Any], trainer: Trainer) -> list[dict[str, Any]]:
    """Return the rows as the Trainer's collator makes them."""
    copies = [dict(row) if isinstance(row, Mapping) else row for row in rows]
    with torch.random.fork_rng():
        batch = trainer.data_collator(copies)
    names = [name for name in ("input_ids", "attention_mask") if name in batch]
    return [
        {name: batch[name][index] for name in names} for index in range(len(batch["input_ids"]))
    ]


def _token_row(row: Mapping[str, Any]) -> TokenRow:
    ids = np.asarray(row["input_ids"]).ravel()
    mask = row.get("attention_mask")
    if mask is not None:
        real = np.asarray(mask).ravel().astype(bool)
        if len(real) == len(ids):
            return TokenRow(ids, real)
    return TokenRow(ids, np.ones(len(ids), dtype=bool))
