"""The verb `remedy`: post-processing of embeddings, fitted, judged on retrieval, exported."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack, cast

import numpy as np

from headscan.model.lens import ModelLike
from headscan.model.sentence import Pooling
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.remedies.compress import CHOICES, Compression, compressions
from headscan.remedies.compressed import compression_findings, judged_compressions, recommended
from headscan.remedies.data import (
    Encoding,
    RemedyData,
    data_of_judgements,
    data_of_model,
    data_of_store,
    rows_of,
)
from headscan.remedies.drift import Drift, drift
from headscan.remedies.judge import best_of, findings, judged
from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod
from headscan.remedies.result import NONE, ExportedRemedy, RemedyResult
from headscan.run import (
    BadInput,
    Option,
    Row,
    Run,
    Seed,
    names_in,
    verb,
)
from headscan.run.files import read_at_most
from headscan.run.settings import FindingOptions
from headscan.states import SourceLike, VectorSource, stored_source
from headscan.text import read_pair_files
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, Reading, TextLike

DENSE = "sentence_transformers.models.Dense"


def check_exports(
    formats: Sequence[str], source: VectorSource | None, folder: str | os.PathLike[str] | None
) -> None:
    """Raise BadInput where a format does not go with what is remedied."""
    if "column" in formats and source is None:
        raise BadInput("--formats column rewrites stored vectors: a model has none.")
    if "model" in formats and not (Path(folder or "") / "modules.json").is_file():
        raise BadInput(
            "--formats model is for a folder of sentence-transformers: there is no modules.json."
        )


def exported(
    written: Remedy | Compression, formats: Sequence[str], folder: Path, data: RemedyData
) -> list[ExportedRemedy]:
    """Write a remedy into a folder in each format, and return what was written.

    Of a compression compression.npz is written beside them; `dense` and `model` are its linear map.
    """
    exports = []
    if isinstance(written, Compression):
        path = written.save(folder / "compression.npz")
        exports.append(ExportedRemedy(remedy=written.name, format="npz", path=str(path)))
        remedy = written.remedy
    else:
        remedy = written
    for name in formats:
        if name == "dense":
            path = remedy.save(folder / "remedy")
        elif name == "column":
            assert data.source is not None  # by `check_exports`
            path = rewrite_column(written, data.source, data.site, folder)
        else:
            path = append_to(remedy, str(data.folder), folder / "model")
        exports.append(ExportedRemedy(remedy=written.name, format=name, path=str(path)))
    return exports


def append_to(remedy: Remedy, model: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Copy a saved sentence-transformers model to `out` with a remedy as one more module; a last
    Normalize is repeated behind it.

    `SentenceTransformer(out)` then gives remedied embeddings, with no code of headscan's. Raises
    BadInput where `model` has no modules.json.
    """
    source = Path(model)
    target = Path(out)
    try:
        modules = json.loads(read_at_most(source / "modules.json"))
    except (OSError, ValueError):
        raise BadInput(
            f"{source} is no saved sentence-transformers model: it has no modules.json."
        ) from None
    shutil.copytree(source, target, dirs_exist_ok=True)
    index = len(modules)
    name = f"{index}_Dense"
    remedy.save(target / name)
    modules.append({"idx": index, "name": str(index), "path": name, "type": DENSE})
    if modules[index - 1]["type"].endswith("Normalize"):
        modules.append(modules[index - 1] | {"idx": index + 1, "name": str(index + 1)})
    (target / "modules.json").write_text(json.dumps(modules, indent=1))
    return target


def rewrite_column(
    written: Remedy | Compression, source: VectorSource, site: str, folder: Path
) -> Path:
    """Write all vectors of a store, remedied in float32 or as codes, in its order; return the file.

    A single Parquet file keeps its other columns where a remedy is written; anything else becomes
    an .npy [n, k]. Memory is that of a batch.
    """
    where = Path(str(getattr(source, "where", "") or ""))
    if isinstance(written, Remedy) and where.suffix == ".parquet" and where.is_file():
        return _rewrite_parquet(written, where, site, folder / "column.parquet")
    path = folder / "column.npy"
    assert source.tokens is not None
    transform = written if isinstance(written, Remedy) else written.encode
    example = transform(np.zeros((1, source.width(site))))
    shape = (source.tokens, example.shape[1])
    dtype = np.uint8 if example.dtype == np.uint8 else np.float32
    column: Any = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    for _, rows, first in rows_of(source, site):
        column[first : first + len(rows)] = transform(rows.numpy())
    column.flush()
    return path


def _rewrite_parquet(remedy: Remedy, stored: Path, site: str, path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headscan.states.location import site_of_hook

    file = pq.ParquetFile(stored)
    names = file.schema_arrow.names
    position = next(number for number, name in enumerate(names) if site_of_hook(name) == site)
    kind = pa.list_(pa.float32(), remedy.widths[1])
    schema = file.schema_arrow.set(position, pa.field(names[position], kind))
    with pq.ParquetWriter(path, schema) as writer:
        for batch in file.iter_batches(batch_size=4096):
            column = batch.column(position)
            if not pa.types.is_primitive(column.type.value_type):
                raise BadInput(
                    f"{stored}, column {site} holds windows: only a column of one vector a row is "
                    "rewritten."
                )
            values = column.flatten().to_numpy(zero_copy_only=False)
            rows = np.asarray(values, dtype=np.float64).reshape(len(batch), -1)
            remedied = pa.array(remedy(rows).astype(np.float32).ravel())
            columns = list(batch.columns)
            columns[position] = pa.FixedSizeListArray.from_arrays(remedied, type=kind)
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return path


FORMATS = ("dense", "column", "model")
LEVEL = 0.95


@verb("remedy")
def remedy(
    run: Run,
    source: SourceLike,
    text: Annotated[TextLike | None, TEXT] = None,
    *,
    pairs: Annotated[
        Sequence[str | os.PathLike[str]],
        Option(
            "For a model: a file of pairs of texts that mean the same, to judge it by (again "
            "for more): .tsv of two columns, .csv as STS-B, .json as PUD; FILE or NAME=FILE.",
            metavar="FILE",
            repeat=True,
            group="Input",
        ),
    ] = (),
    partners: Annotated[
        Any,
        Option(
            "Query vectors, row k matching row k of the stored vectors.",
            metavar="SOURCE",
            group="Input",
        ),
    ] = None,
    qrels: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Relevance judgements of the queries in --partners, several documents a query: TREC's "
            "four columns or BEIR's three.",
            metavar="FILE",
            group="Input",
        ),
    ] = None,
    against: Annotated[
        Any,
        Option(
            "The same rows or texts by another model, to measure drift.",
            metavar="SOURCE",
            group="Input",
        ),
    ] = None,
    remedies: Annotated[
        str | RemedyMethod | Sequence[RemedyMethod],
        Option("Remedies that are tried: names, comma-separated, or all.", choices=REMEDIES),
    ] = "all",
    compress: Annotated[
        int | None,
        Option(
            "Bytes a vector: also try truncation, int8, bits and product quantisation of that "
            "size; the one that finds most is exported.",
            low=1,
            metavar="BYTES",
        ),
    ] = None,
    site: Annotated[
        str | None, Option("Site. Default: a model's last; the only one of stored vectors.")
    ] = None,
    pooling: Annotated[
        Pooling | None,
        Option(
            "Pooling of tokens' vectors into a text's. Default: as the model's folder says, else "
            "mean."
        ),
    ] = None,
    held_out: Annotated[
        int, Option("Stored vectors held out for judging, not for fitting.", low=16)
    ] = 5000,
    export: Annotated[
        str,
        Option(
            "Name of the remedy or compression that is written, none, or best (the remedy "
            "with the largest significant gain; with --compress the compression that finds "
            "most).",
            group="Output",
        ),
    ] = "best",
    formats: Annotated[
        str,
        Option(
            "Formats: dense (safetensors; sentence-transformers' module), column (stored vectors, "
            "rewritten), model (a copy of the sentence-transformers folder with the remedy in it).",
            group="Output",
        ),
    ] = "dense",
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> RemedyResult:
    """Try remedies on a sentence encoder, or on a column of embeddings: which of them make texts
    find their partners?

    Args:
        source: a model, with `pairs` of texts that mean the same; or stored vectors, as
            `headscan.scan` takes them, with `partners` (vectors of the same number, row k to find
            row k) where recall is to be known, or the queries' vectors with `qrels`.
        text: what a model's remedies are fitted on, a vector a document (see `documents`). Default:
        half of the pairs' texts.

    Returns:
        A `RemedyResult`: a row a remedy and set of pairs. Nothing is fitted on what judges.

    Raises BadInput for neither pairs nor vectors, stores that do not go together, values that are
    not finite, unknown names.

    Cost: one pass over the vectors (or one forward pass a text), O(d³) a remedy, O(m·N·d) for the
        exact neighbours of m queries; with `compress` the same for 16 compressions.

    >>> import numpy as np
    >>> from headscan import remedy
    >>> rng = np.random.default_rng(0)
    >>> shared, loud = rng.standard_normal((600, 8)), 20 * np.eye(8)[0]
    >>> column, partners = (shared + rng.standard_normal((600, 1)) * loud for _ in range(2))
    >>> result = remedy(column, partners=partners, remedies="whiten", held_out=300)
    >>> result.row("whiten").number("recall_at_1") > result.row("none").number("recall_at_1") + 0.3
    True
    """
    methods = _methods(remedies)
    _check_export(export, [*methods, *(CHOICES if compress is not None else ())])
    wanted_formats = names_in(formats)
    unknown = set(wanted_formats) - set(FORMATS)
    if unknown:
        raise BadInput(f"--formats must be among {', '.join(FORMATS)}, not {min(unknown)!r}.")
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens)
    encoding = Encoding(
        Loading(tokenizer=tokenizer, dtype=dtype, device=device), site=site, pooling=pooling
    )
    pair_sets = read_pair_files(pairs)

    stored = stored_source(source, max_tokens=max_tokens, field=field)
    _check_inputs(stored, pairs=pairs, partners=partners, qrels=qrels, against=against)
    if stored is None:
        data = data_of_model(
            cast(ModelLike, source),
            pair_sets,
            encoding,
            text=text,
            reading=reading,
            against=against,
            seed=seed,
            run=run,
        )
    elif qrels is not None:
        data = data_of_judgements(
            stored, partners, qrels, site=site, field=field, seed=seed, run=run
        )
    else:
        data = data_of_store(
            stored,
            site=site,
            field=field,
            partners=partners,
            against=against,
            held_out=held_out,
            seed=seed,
            run=run,
        )
    check_exports(wanted_formats, stored, data.folder)

    fitted = _fitted(methods, data)
    sets = 1 if data.relevance is not None else len(data.sets)
    tried = len(fitted) + (0 if compress is None else len(CHOICES))
    comparisons = max(1, tried * sets)
    level = 1 - (1 - LEVEL) / comparisons
    choices: dict[str, Compression] = {}
    if compress is not None:
        choices = _choices(data, compress, seed, run)
    rows = judged(
        data,
        fitted,
        level=level,
        progress=lambda done, total: run.progress("judge", done, total, "remedies"),
    )

    compressed: list[Row] = []
    if choices:
        compressed = judged_compressions(data, choices.values(), level=level, seed=seed)

    best = export
    if export == "best":
        best = recommended(compressed) if compressed else best_of(rows) or NONE
    exports = _exports(best, {**fitted, **choices}, wanted_formats, data, run)

    notes = [
        *data.notes,
        "Neighbours are exact, by cosine; a query is not its own neighbour; items as near as the "
        "partner count as nearer.",
        f"Intervals 95 %, by queries that share no text; of gains {level:.2%}, so that all "
        f"{comparisons} hold at once.",
    ]
    if compressed:
        notes.append(
            "Codes and maps are fitted on what the remedies are fitted on; documents are "
            "compressed, queries are not. Speeds are of numpy on one processor of this machine."
        )
    abouts = {name: _about(methods[name]) for name in fitted}
    return _result(data, rows, compressed, exports, abouts, level, notes, run)


def _check_inputs(
    stored: VectorSource | None, *, pairs: Any, partners: Any, qrels: Any, against: Any
) -> None:
    """Refuse files that go with the other kind of source.

    Raises:
        BadInput: for pairs of texts beside stored vectors, and stored vectors beside a model.
    """
    if stored is None and partners is not None:
        raise BadInput(
            "--partners are stored vectors, for stored vectors: a model takes --pairs FILE."
        )
    if stored is not None and pairs:
        raise BadInput("--pairs are of texts, for a model: stored vectors take --partners SOURCE.")
    if qrels is not None and partners is None:
        raise BadInput("--qrels is for stored vectors whose queries are given with --partners.")
    if qrels is not None and against is not None:
        raise BadInput("--against is not used with --qrels.")


def _fitted(methods: Mapping[str, RemedyMethod], data: RemedyData) -> dict[str, Remedy]:
    """Return the remedies that can be fitted to these vectors, by name."""
    fitted = {}
    for name, method in methods.items():
        remedy_of_method = method.fit(data.cloud)
        if remedy_of_method is not None:
            fitted[name] = remedy_of_method
    return fitted


def _choices(data: RemedyData, budget: int, seed: int, run: Run) -> dict[str, Compression]:
    """Return the compressions that fit a budget of bytes, by name."""
    choices = {}
    for choice in compressions(data.cloud, data.sample, budget, seed):
        choices[choice.name] = choice
        run.progress("compress", len(choices), len(CHOICES), "compressions")
    return choices


def _exports(
    name: str,
    candidates: Mapping[str, Remedy | Compression],
    formats: Sequence[str],
    data: RemedyData,
    run: Run,
) -> list[ExportedRemedy]:
    """Write what is exported into the run's folder, and return what was written.

    Raises:
        BadInput: where it could not be fitted.
    """
    if run.folder is None or name == NONE:
        return []
    if name not in candidates:
        raise BadInput(f"'{name}' cannot be fitted to these vectors.")
    return exported(candidates[name], formats, run.folder, data)


def _result(
    data: RemedyData,
    rows: list[Row],
    compressed: list[Row],
    exports: list[ExportedRemedy],
    abouts: dict[str, str],
    level: float,
    notes: list[str],
    run: Run,
) -> RemedyResult:
    """Return the result of a judgement, with the drift to another version where there is one."""
    judging = len(data.groups)
    width = data.vectors.shape[1]
    drifted: list[Drift] = []
    if data.other is not None:
        drifted = drift(data.vectors[:judging], data.other, data.groups)
    judgement = findings(rows, data.name, data.site, data.cloud.count, width)
    if compressed:
        judgement += compression_findings(compressed, data.name, data.site)
    return RemedyResult(
        protocol=run.protocol(
            text=data.text, device=data.record.device, dtype=data.record.dtype, notes=notes
        ),
        models=[data.record],
        rows=rows,
        site=data.site,
        width=width,
        fitted=data.cloud.count,
        held_out=judging,
        level=level,
        about=abouts,
        drift=drifted,
        exported=exports,
        compressed=compressed,
        recommended=recommended(compressed) if compressed else "",
        findings=judgement,
    )


def _methods(remedies: str | RemedyMethod | Sequence[RemedyMethod]) -> dict[str, RemedyMethod]:
    """Return the remedies that are tried, by name."""
    names = {kind: name for name, kind in REMEDIES.items()}
    methods = {}
    for method in REMEDIES.build_each(remedies):
        if type(method) in names:
            methods[names[type(method)]] = method
    return methods


def _check_export(export: str, names: Sequence[str]) -> None:
    if export not in ("best", NONE, *names):
        raise BadInput(
            f"--export must be best, none or one of what is tried ({', '.join(names)}), not "
            f"{export!r}."
        )


def _about(method: object) -> str:
    return " ".join((type(method).__doc__ or "").split("\n\n")[0].split())
