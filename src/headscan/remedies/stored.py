"""What a remedy is fitted on, and what it is judged by: stored vectors, in one pass over each store."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.remedies.material import RemedyMaterial
from headscan.remedies.remedy import FittingData
from headscan.remedies.retrieval import HeldOutPairs
from headscan.remedies.settings import RemedySettings
from headscan.run import BadInput, Run
from headscan.states import VectorSource, counted_source
from headscan.statistics import Cloud, DirectionTally, Reservoir, SiteBatch, Sums
from headscan.text import Batch

__all__ = ["material_of_store", "read_site", "rows_of"]

SAMPLE = 4096
"""Vectors of which quantiles are taken."""
Floats = npt.NDArray[np.float64]


def material_of_store(source: VectorSource, settings: RemedySettings, run: Run) -> RemedyMaterial:
    """Some vectors, drawn by document (by row where there are none), are held out; all others are fitted on.

    Memory: that of the held-out ones, and of sums. Raises BadInput where stores do not go together, or values are not finite.
    """
    if settings.pairs:
        raise BadInput("--pairs are of texts, for a model: stored vectors take --partners SOURCE.")
    site = read_site(source, settings.site)
    assert source.tokens is not None  # by `counted_source`
    picked = _Picked(source.tokens, settings)
    width = source.width(site)
    sums, tally, sample = Sums(width), DirectionTally(width), Reservoir(SAMPLE, settings.seed)
    held, groups = list[Tensor](), list[npt.NDArray[np.int64]]()
    several = _documents(source)
    for batch, rows, first in rows_of(source, site):
        units = batch.documents.ravel() if several else np.arange(first, first + len(rows))
        out = torch.from_numpy(picked(units))
        held.append(rows[out])
        groups.append(units[out.numpy()])
        kept = rows[~out]
        if len(kept):
            sums.merge(Sums.of_rows(kept))
            windows = [int(batch.indices[0])]
            tally.update(SiteBatch(site, kept[None], torch.zeros(1, len(kept), dtype=torch.long), windows))
            chosen = sample.offer(windows, len(kept))
            if len(chosen):
                sample.put(chosen, {"rows": chosen.of(kept[None])})
        run.progress("fit", first + len(rows), source.tokens, "vectors")
    vectors, own = torch.cat(held).numpy(), np.concatenate(groups)
    if len(vectors) < 2 or sums.count < 2:
        raise BadInput(f"{source.name} has {source.tokens} vectors in all: too few to fit on some and judge by others.")
    sets, other = list[HeldOutPairs](), None
    if settings.partners is not None:
        queries = _beside(settings.partners, source, several, picked, settings, "--partners")
        if queries.shape[1] != width:
            raise BadInput(f"--partners are of width {queries.shape[1]}, {source.name} of {width}.")
        many = np.arange(len(vectors))
        sets = [HeldOutPairs(source.name, len(vectors) + many, many, many, own)]
        vectors = np.concatenate([vectors, queries])
    if settings.against is not None:
        other = _beside(settings.against, source, several, picked, settings, "--against")
    unit = "documents" if several else "rows"
    notes = [f"Fitted on {sums.count:,} vectors in one pass; judged by {len(own):,} others, drawn by {unit}."]
    if not sets:
        notes.append("Without --partners no recall is known: only the shape of what was held out.")
    return RemedyMaterial(
        source.name, source.record(), site, FittingData(Cloud.of_sums(sums), tally.total(), sample.columns["rows"].numpy()),
        sums.count, vectors, own, sets, text=source.text(), other=other, source=source, notes=tuple(notes),
    )  # fmt: skip


def read_site(source: VectorSource, site: str | None) -> str:
    """The site that is meant; BadInput where several might be."""
    found = source.sites if site is None else source.match(site)
    if len(found) != 1:
        raise BadInput(f"{source.name} has several sites: choose one with --site ({', '.join(found[:6])}).")
    return found[0]


def rows_of(source: VectorSource, site: str) -> Iterator[tuple[Batch, Tensor, int]]:
    """The vectors of a site batch by batch [n, d] float64, and the number of the first. BadInput: not finite."""
    first = 0
    for batch in source.batches():
        held = dict[str, Tensor]()
        source.visit(batch, (site,), held.__setitem__)
        rows = held[site].flatten(0, 1).double().cpu()
        last = first + len(rows)
        if not bool(torch.isfinite(rows).all()):
            raise BadInput(
                f"{source.name} holds NaN or infinite values at {site}, among vectors {first:,} to {last:,}."
            )
        yield batch, rows, first
        first = last


def _documents(source: VectorSource) -> bool:
    return getattr(getattr(source, "vectors", None), "documents", None) is not None


class _Picked:
    """Which units (rows or documents) are held out: by a hash of their number, so that every store has the same."""

    def __init__(self, many: int, settings: RemedySettings) -> None:
        self.share, self.seed = min(0.5, settings.held_out / many), settings.seed

    def __call__(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        known, place = np.unique(units, return_inverse=True)
        hashes = np.array([zlib.crc32(f"{self.seed}/{unit}".encode()) for unit in known.tolist()])
        found: npt.NDArray[np.bool_] = (hashes < self.share * 2**32)[place]
        return found


def _beside(
    given: Any, source: VectorSource, several: bool, picked: _Picked, settings: RemedySettings, flag: str
) -> Floats:
    """The held-out rows of another store of the same rows."""
    other = counted_source(given, context=source.context, field=settings.field)
    if other is None or other.tokens != source.tokens:
        many = "a model" if other is None else f"{other.tokens:,} vectors"
        raise BadInput(f"{flag} must hold as many vectors as {source.name}, {source.tokens:,}, not {many}.")
    found = list[Tensor]()
    documents = iter(source.batches()) if several else None
    pending = np.zeros(0, dtype=np.int64)
    for _, rows, first in rows_of(other, read_site(other, settings.site if settings.site in other.sites else None)):
        units = np.arange(first, first + len(rows))
        while documents is not None and len(pending) < len(rows):
            pending = np.concatenate([pending, next(documents).documents.ravel()])
        if documents is not None:
            units, pending = pending[: len(rows)], pending[len(rows) :]
        found.append(rows[torch.from_numpy(picked(units))])
    vectors: Floats = torch.cat(found).numpy()
    return vectors
