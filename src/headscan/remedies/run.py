"""`headscan remedy`: cures after the fact, fitted, judged on retrieval, exported."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, cast

from headscan.model.inputs import Pooling
from headscan.model.lens import ModelLike
from headscan.model.settings import Device, Dtype, TokenizerName
from headscan.remedies.data import data_of_model, data_of_store
from headscan.remedies.export import check_exports, exported
from headscan.remedies.judge import best_of, findings, judged
from headscan.remedies.remedy import REMEDIES, RemedyMethod
from headscan.remedies.result import ExportedRemedy, RemedyResult, RemedySettings
from headscan.remedies.retrieval import drift
from headscan.run import BadInput, Baseline, CommandLine, Ignore, Option, Out, Progressing, Resume, Seed, running, verb
from headscan.states import SourceLike, stored_source
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, TextLike

LEVEL = 0.95


@verb("remedy")
def remedy(
    source: SourceLike, text: Annotated[TextLike | None, TEXT] = None, *,
    pairs: Annotated[Sequence[str | os.PathLike[str]], Option(
        "Of a model: a file of pairs of texts that mean the same, by which it is judged (again for more): .tsv of two "
        "columns, .csv as STS-B, .json as PUD; FILE or NAME=FILE.", metavar="FILE", repeat=True,
    )] = (),
    partners: Annotated[Any, Option(
        "Of stored vectors: more of them; row k belongs with row k, and is to find it.", metavar="SOURCE"
    )] = None,
    against: Annotated[Any, Option(
        "Another version: the same rows, or texts, by another model. How far it drifted.", metavar="SOURCE"
    )] = None,
    remedies: Annotated[str | RemedyMethod | Sequence[RemedyMethod], Option(
        "Remedies that are tried: names, comma-separated, or all.", choices=REMEDIES
    )] = "all",
    site: Annotated[str | None, Option("Site. Default: a model's last; the only one of stored vectors.")] = None,
    pooling: Annotated[Pooling | None, Option(
        "Pooling of tokens' vectors into a text's. Default: as the model's folder says, else mean."
    )] = None,
    held_out: Annotated[int, Option("Stored vectors held out for judging, not for fitting.", low=16)] = 5000,
    export: Annotated[str, Option(
        "Which remedy is written: its name, best (the one that improves recall@1 most, for certain) or none."
    )] = "best",
    formats: Annotated[str, Option(
        "Formats: dense (safetensors; sentence-transformers' module), column (stored vectors, "
        "rewritten), model (a copy of the sentence-transformers folder with the remedy in it)."
    )] = "dense",
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    ignore: Ignore = None, baseline: Baseline = None,
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> RemedyResult:  # fmt: skip
    """Try remedies on a sentence encoder, or on a column of embeddings: which of them make texts find their partners?

    Args:
        source: a model, with `pairs` of texts that mean the same; or stored vectors, as `headscan.scan` takes them, with
            `partners` (vectors of the same number, row k to find row k) where recall is to be known.
        text: what a model's remedies are fitted on, a vector a document (see `documents`). Default: half of the pairs' texts.
        Further options: see `headscan remedy --help`.

    Returns:
        A `RemedyResult`: a row a remedy and set of pairs. Nothing is fitted on what judges.

    Raises BadInput for neither pairs nor vectors, stores that do not go together, values that are not finite, unknown names.

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
    asked, run = running()
    settings = asked.chosen(RemedySettings)
    methods = settings.methods()
    stored = stored_source(source, context=128, max_tokens=settings.max_tokens, field=settings.field)
    if stored is None and settings.partners is not None:
        raise BadInput("--partners are stored vectors, for stored vectors: a model takes --pairs FILE.")
    model = cast(ModelLike, source)
    data = data_of_model(model, settings, run) if stored is None else data_of_store(stored, settings, run)
    wanted = settings.written()
    check_exports(wanted, stored, data.folder)
    fitted = {name: remedy for name, method in methods.items() if (remedy := method.fit(data.cloud)) is not None}
    gains = max(1, len(fitted) * len(data.sets))
    level = 1 - (1 - LEVEL) / gains
    rows = judged(data, fitted, level=level, progress=lambda done, of: run.progress("judge", done, of, "remedies"))
    held_out, best, written = len(data.groups), settings.export, list[ExportedRemedy]()
    best = best_of(rows) or "none" if best == "best" else best
    if run.folder is not None and best != "none":
        if best not in fitted:
            raise BadInput(f"The remedy '{best}' cannot be fitted to these vectors.")
        written = exported(fitted[best], wanted, run.folder, data)
    return RemedyResult(
        protocol=run.protocol(text=data.text, device=data.record.device, dtype=data.record.dtype, notes=[
            *data.notes,
            "Neighbours are exact, by cosine; a query is not its own neighbour; items as near as the partner count as nearer.",
            f"Intervals 95 %, by queries that share no text; of gains {level:.2%}, so that all {gains} hold at once.",
        ]),
        models=[data.record], rows=rows, site=data.site, width=data.vectors.shape[1], fitted=data.cloud.count,
        held_out=held_out, level=level, about={name: _about(methods[name]) for name in fitted},
        drift=[] if data.other is None else drift(data.vectors[:held_out], data.other, data.groups), exported=written,
        findings=findings(rows, data.name, data.site, data.cloud.count, data.vectors.shape[1]),
    )  # fmt: skip


def _about(method: object) -> str:
    return " ".join((type(method).__doc__ or "").split("\n\n")[0].split())
