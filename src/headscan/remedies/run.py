"""`headscan remedy`: cures after the fact, fitted, judged on retrieval, exported."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from headscan.model.opening import ModelLike
from headscan.remedies.drift import drift
from headscan.remedies.exporting import check_exports, exported
from headscan.remedies.judge import best_of, findings, judged
from headscan.remedies.material import RemedyMaterial, material_of_model
from headscan.remedies.remedy import Remedy
from headscan.remedies.result import ExportedRemedy, RemedyResult
from headscan.remedies.settings import RemedySettings
from headscan.remedies.stored import material_of_store
from headscan.run import BadInput, Row, Run, verb
from headscan.states import SourceLike, counted_source

__all__ = ["remedy"]

LEVEL = 0.95


@verb("remedy", RemedySettings)
def remedy(source: SourceLike, settings: RemedySettings, run: Run) -> RemedyResult:
    """Try remedies on a sentence encoder, or on a column of embeddings: which of them make texts find their partners?

    Args:
        source: a model, with `pairs` of texts that mean the same; or stored vectors, as `headscan.scan` takes them, with
            `partners` (vectors of the same number, row k to find row k) where recall is to be known.
        text: what a model's remedies are fitted on, a vector a document (see `documents`). Default: half of the pairs' texts.
        Further options: see `headscan remedy --help`.

    Returns:
        A `RemedyResult`: a row a remedy and set of pairs. Nothing is fitted on what judges.

    Raises:
        BadInput: neither pairs nor vectors, stores that do not go together, values that are not finite, unknown names.

    Cost: one pass over the vectors (or one forward pass a text), O(d³) a remedy, O(m·N·d) for the exact neighbours of m queries.

    >>> import numpy as np
    >>> from headscan import remedy
    >>> rng = np.random.default_rng(0)
    >>> shared, loud = rng.standard_normal((600, 8)), 20 * np.eye(8)[0]
    >>> column, partners = (shared + rng.standard_normal((600, 1)) * loud for _ in range(2))
    >>> result = remedy(column, partners=partners, remedies="whiten", held_out=300)
    >>> result.row("whiten").number("recall_at_1") > result.row("none").number("recall_at_1") + 0.3
    True
    """
    methods = settings.methods()
    stored = counted_source(source, context=128, max_tokens=settings.max_tokens, field=settings.field)
    if stored is None and settings.partners is not None:
        raise BadInput("--partners are stored vectors, for stored vectors: a model takes --pairs FILE.")
    material = (
        material_of_model(cast(ModelLike, source), settings, run)
        if stored is None
        else material_of_store(stored, settings, run)
    )
    wanted = settings.written()
    check_exports(wanted, stored, material.folder)
    found: dict[str, Remedy] = {}
    for name, method in methods.items():
        fitted = method.fit(material.fitting)
        if fitted is not None:
            found[name] = fitted
    gains = max(1, len(found) * len(material.sets))
    level = 1 - (1 - LEVEL) / gains
    rows = judged(material, found, level=level, progress=lambda done, of: run.progress("judge", done, of, "remedies"))
    held_out = len(material.groups)
    return RemedyResult(
        protocol=run.protocol(
            text=material.text, device=material.record.device, dtype=material.record.dtype,
            notes=[
                *material.notes,
                "Neighbours are exact, by cosine; a query is not in its own way; items as near as the partner count as nearer.",
                f"Intervals 95 %, by queries that share no text; of gains {level:.2%}, so that all {gains} hold at once.",
            ],
        ),
        models=[material.record], rows=rows, site=material.site, width=material.vectors.shape[1], fitted=material.fitted,
        held_out=held_out, level=level, about={name: _about(method) for name, method in methods.items() if name in found},
        drift=[] if material.other is None else drift(material.vectors[:held_out], material.other, material.groups),
        exported=_exports(rows, found, wanted, settings, run.folder, material),
        findings=findings(rows, material.name, material.site, material.fitted, material.vectors.shape[1]),
    )  # fmt: skip


def _about(method: object) -> str:
    return " ".join((type(method).__doc__ or "").split("\n\n")[0].split())


def _exports(
    rows: list[Row], found: dict[str, Remedy], wanted: list[str], settings: RemedySettings, folder: Path | None,
    material: RemedyMaterial,
) -> list[ExportedRemedy]:  # fmt: skip
    """What is written, where there is a folder and a remedy worth it."""
    name = best_of(rows) if settings.export == "best" else settings.export
    if folder is None or name in (None, "none"):
        return []
    if name not in found:
        raise BadInput(f"The remedy '{name}' cannot be fitted to these vectors.")
    return exported(found[name], wanted, folder, material)
