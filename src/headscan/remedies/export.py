"""A fitted remedy written for use: a module, a rewritten column, a whole sentence encoder."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from headscan.remedies.data import RemedyData, rows_of
from headscan.remedies.remedy import REMEDIES, Remedy
from headscan.remedies.result import ExportedRemedy
from headscan.run import BadInput
from headscan.states import VectorSource
from headscan.statistics import Cloud

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
    """All vectors of a store, remedied, float32, row by row in its order; memory is that of a batch.

    A single Parquet file keeps its other columns; anything else becomes an .npy [n, k].
    """
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
            values = pa.array(remedy(rows).astype(np.float32).ravel())
            columns = list(batch.columns)
            columns[place] = pa.FixedSizeListArray.from_arrays(values, type=kind)
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return path


# ---- A remedy as a transformer of scikit-learn.


class RemedyTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a remedy (by its name in `headscan.remedies.REMEDIES`, with its own parameters, as {"remove": 3}) to the rows of a
    matrix, apply it to any rows: in pipelines, grid searches, `cross_val_score`. `remedy_` is the fitted map.

    >>> rows = np.random.default_rng(0).standard_normal((200, 4)) + 5
    >>> float(np.abs(RemedyTransformer("centre").fit_transform(rows).mean(0)).max()) < 1e-12
    True
    """

    def __init__(self, remedy: str = "all-but-the-top", parameters: Mapping[str, Any] | None = None) -> None:
        self.remedy = remedy
        self.parameters = parameters

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        method = REMEDIES.build(self.remedy, self.parameters)
        fitted = method.fit(Cloud.of_rows(rows))
        if fitted is None:
            raise BadInput(f"The remedy '{self.remedy}' cannot be fitted to these vectors: all are alike.")
        self.remedy_: Remedy = fitted
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The mapped rows [n, k]."""
        check_is_fitted(self)
        return self.remedy_(validate_data(self, X, dtype=np.float64, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.remedy_.widths[1]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """A fitted transformer of what `Remedy.save` or `headscan remedy` wrote."""
        loaded = Remedy.load(folder)
        transformer = cls(loaded.name)
        transformer.remedy_, transformer.n_features_in_ = loaded, loaded.widths[0]
        return transformer
