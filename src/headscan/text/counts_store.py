"""Where counts are kept: parts of Parquet (contexts) and safetensors (CSR) under one manifest, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file

from headscan.errors import BadInput

__all__ = ["ContextCounts", "CountStore"]

_MANIFEST = "counts.json"


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Distinct contexts in lexicographic order and the tokens that followed them.

    `contexts` int32 [m, order]; CSR arrays `indptr` int64 [m + 1], `indices` int32 [nnz] (next tokens, ascending in a
    row), `counts` int64 [nnz]. `tokens` and `documents` are those of the corpus; `settings` the protocol of the count.

    For full prefixes (`headscan.text.counts_prefix`) contexts have no fixed length: then `contexts` is int32 [m, 2],
    the row of the prefix one token shorter (-1: empty) and the last token.
    """

    contexts: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    vocabulary: int
    order: int
    tokens: int
    documents: int
    settings: dict[str, Any]

    @property
    def occurrences(self) -> np.ndarray:
        """How often each context was seen, int64 [m]."""
        return np.add.reduceat(self.counts, self.indptr[:-1]) if len(self.counts) else np.zeros(0, dtype=np.int64)

    def matrix(self) -> sp.csr_matrix:
        """The counts as scipy CSR [m, vocabulary], float64."""
        shape = (len(self.indptr) - 1, self.vocabulary)
        return sp.csr_matrix((self.counts.astype(np.float64), self.indices, self.indptr), shape=shape)

    def save(self, folder: str | Path) -> Path:
        """Write counts.json, contexts.parquet and counts.safetensors."""
        store = CountStore(Path(folder), self.settings, resume=False)
        store.add(0, self.contexts, self.indptr, self.indices, self.counts)
        store.finish()
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> ContextCounts:
        """Read what `save` or a count with a folder wrote. Raises `BadInput` where there is no finished count."""
        path = Path(folder) / _MANIFEST
        try:
            manifest = json.loads(path.read_text())
        except (OSError, ValueError):
            raise BadInput(f"{folder} holds no counts.") from None
        if not manifest.get("finished"):
            raise BadInput(f"The count in {folder} is not finished; resume it.")
        store = CountStore(Path(folder), manifest["settings"], resume=True)
        return store.result()


class CountStore:
    """Parts as they are finished. Part n holds the contexts of the n-th key range, so parts in order are sorted."""

    def __init__(self, folder: Path | None, settings: dict[str, Any], *, resume: bool) -> None:
        self.folder, self.settings = folder, settings
        self.parts: dict[int, Any] = {}
        self.finished = False
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / _MANIFEST
        if resume and manifest.exists():
            kept = json.loads(manifest.read_text())
            if kept["settings"] != json.loads(json.dumps(settings)):
                changed = [k for k in settings if kept["settings"].get(k) != settings[k]]
                raise BadInput(
                    f"The count to resume in {folder} was another one ({', '.join(changed) or 'settings'} differ); "
                    f"start afresh in another folder."
                )
            self.parts = {int(number): None for number in kept["parts"]}
            self.finished = kept["finished"]
        else:
            self._write_manifest()

    def needs(self, number: int) -> bool:
        """Whether a part is still to be counted."""
        return number not in self.parts

    def add(
        self, number: int, contexts: np.ndarray, indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray
    ) -> None:
        """Keep one part: in memory, or on disk first and then in the manifest."""
        arrays: dict[str, np.ndarray] = {
            "contexts": np.asarray(contexts, dtype=np.int32),
            "indptr": np.asarray(indptr, dtype=np.int64),
            "indices": np.ascontiguousarray(indices, dtype=np.int32),
            "counts": np.ascontiguousarray(counts, dtype=np.int64),
        }
        if self.folder is None:
            self.parts[number] = arrays
            return
        tensors, table = self._paths(number)
        aside = tensors.with_suffix(".new")
        save_file({name: array for name, array in arrays.items() if name != "contexts"}, aside)
        aside.replace(tensors)
        seen = np.add.reduceat(arrays["counts"], arrays["indptr"][:-1]) if len(contexts) else np.zeros(0, np.int64)
        columns = {f"token_{place}": arrays["contexts"][:, place] for place in range(arrays["contexts"].shape[1])}
        aside = table.with_suffix(".new")
        pq.write_table(pa.table(columns | {"occurrences": seen}), aside, compression="zstd")
        aside.replace(table)
        self.parts[number] = None
        self._write_manifest()

    def finish(self) -> ContextCounts:
        """Declare the count complete."""
        self.finished = True
        if self.folder is not None:
            self._write_manifest()
        return self.result()

    def result(self) -> ContextCounts:
        """All parts joined."""
        parts = [self._load(number) for number in sorted(self.parts)]
        one = len(parts) == 1
        offsets = np.cumsum([0] + [int(part["indptr"][-1]) for part in parts])
        indptr = [part["indptr"][:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
        s = self.settings
        return ContextCounts(
            contexts=parts[0]["contexts"] if one else np.concatenate([part["contexts"] for part in parts]),
            indptr=parts[0]["indptr"] if one else np.append(np.concatenate(indptr), offsets[-1]).astype(np.int64),
            indices=parts[0]["indices"] if one else np.concatenate([part["indices"] for part in parts]),
            counts=parts[0]["counts"] if one else np.concatenate([part["counts"] for part in parts]),
            vocabulary=s["vocabulary"],
            order=s["order"],
            tokens=s["tokens"],
            documents=s["documents"],
            settings=s,
        )

    def _paths(self, number: int) -> tuple[Path, Path]:
        assert self.folder is not None
        return self.folder / f"counts-{number:05d}.safetensors", self.folder / f"contexts-{number:05d}.parquet"

    def _load(self, number: int) -> dict[str, np.ndarray]:
        if self.parts[number] is not None:
            return self.parts[number]
        tensors, table = self._paths(number)
        columns = pq.read_table(table)
        names = [name for name in columns.column_names if name.startswith("token_")]
        contexts = np.stack([columns[name].to_numpy() for name in names]).astype(np.int32, copy=False).T
        return load_file(tensors) | {"contexts": contexts}

    def _write_manifest(self) -> None:
        assert self.folder is not None
        aside = self.folder / f"{_MANIFEST}.new"
        state = {"settings": self.settings, "parts": sorted(self.parts), "finished": self.finished}
        aside.write_text(json.dumps(state, indent=1))
        aside.replace(self.folder / _MANIFEST)
