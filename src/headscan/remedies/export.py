"""A fitted remedy written for use: a module, a rewritten column, a whole sentence encoder."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headscan.remedies.data import RemedyData, rows_of
from headscan.remedies.remedy import Remedy
from headscan.remedies.result import ExportedRemedy
from headscan.run import BadInput
from headscan.states import VectorSource

DENSE = "sentence_transformers.models.Dense"


def check_exports(formats: Sequence[str], source: VectorSource | None, folder: str | os.PathLike[str] | None) -> None:
    """BadInput where a format does not go with what is cured."""
    if "column" in formats and source is None:
        raise BadInput("--formats column rewrites stored vectors: a model has none.")
    if "model" in formats and not (Path(folder or "") / "modules.json").is_file():
        raise BadInput("--formats model is for a folder of sentence-transformers: there is no modules.json.")


def exported(remedy: Remedy, formats: Sequence[str], folder: Path, data: RemedyData) -> list[ExportedRemedy]:
    """Write a remedy in each format into a folder; what was written."""
    made = list[ExportedRemedy]()
    for form in formats:
        if form == "dense":
            path = remedy.save(folder / "remedy")
        elif form == "column":
            assert data.source is not None  # by `check_exports`
            path = rewrite_column(remedy, data.source, data.site, folder)
        else:
            path = append_to(remedy, str(data.folder), folder / "model")
        made.append(ExportedRemedy(remedy=remedy.name, format=form, path=str(path)))
    return made


def append_to(remedy: Remedy, model: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Copy a saved sentence-transformers model to `out` with a remedy as one more module; a last Normalize is repeated behind it.

    `SentenceTransformer(out)` then gives remedied embeddings, with no code of headscan's. Raises BadInput where `model` has no
    modules.json.
    """
    source, target = Path(model), Path(out)
    try:
        modules = json.loads((source / "modules.json").read_text())
    except (OSError, ValueError):
        raise BadInput(f"{source} is no saved sentence-transformers model: it has no modules.json.") from None
    shutil.copytree(source, target, dirs_exist_ok=True)
    index = len(modules)
    name = f"{index}_Dense"
    remedy.save(target / name)
    modules.append({"idx": index, "name": str(index), "path": name, "type": DENSE})
    if modules[index - 1]["type"].endswith("Normalize"):
        modules.append(modules[index - 1] | {"idx": index + 1, "name": str(index + 1)})
    (target / "modules.json").write_text(json.dumps(modules, indent=1))
    return target


def rewrite_column(remedy: Remedy, source: VectorSource, site: str, folder: Path) -> Path:
    """All vectors of a store, remedied, float32, row by row in its order; memory is that of a batch. A single Parquet file
    keeps its other columns; anything else becomes an .npy [n, k]."""
    where = Path(str(getattr(source, "where", "") or ""))
    if where.suffix == ".parquet" and where.is_file():
        return _rewrite_parquet(remedy, where, site, folder / "column.parquet")
    path = folder / "column.npy"
    assert source.tokens is not None
    out: Any = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(source.tokens, remedy.widths[1]))
    for _, rows, first in rows_of(source, site):
        out[first : first + len(rows)] = remedy(rows.numpy())
    out.flush()
    return path


def _rewrite_parquet(remedy: Remedy, given: Path, site: str, path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headscan.states.location import site_of_hook

    file = pq.ParquetFile(given)
    place = next(k for k, name in enumerate(file.schema_arrow.names) if site_of_hook(name) == site)
    kind = pa.list_(pa.float32(), remedy.widths[1])
    schema = file.schema_arrow.set(place, pa.field(file.schema_arrow.names[place], kind))
    with pq.ParquetWriter(path, schema) as writer:
        for batch in file.iter_batches(batch_size=4096):
            column = batch.column(place)
            if not pa.types.is_primitive(column.type.value_type):
                raise BadInput(f"{given}, column {site} holds windows: only a column of one vector a row is rewritten.")
            rows = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(batch), -1)
            columns = list(batch.columns)
            columns[place] = pa.FixedSizeListArray.from_arrays(pa.array(remedy(rows).astype(np.float32).ravel()), type=kind)
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return path
