"""A model reading a text as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from headscan.model.lens import Lens
from headscan.run import Json, ModelRecord, TextRecord
from headscan.states.source import Each, VectorSource
from headscan.text import Batch, Windows, batches, display
from headscan.text.identity import TextMark
from headscan.text.settings import Reading, TextLike

__all__ = ["ModelSource"]


class ModelSource(VectorSource):
    """A model reading a text: each window is one row of a forward pass, and a site's states are there when it is passed.

    Every call of `batches` reads the text anew. With `ends` its batches say where in their documents tokens end.
    """

    lens: Lens

    def __init__(
        self, lens: Lens, text: TextLike, reading: Reading, *, context: int, batch: int | None = None,
        ends: bool = False,
    ) -> None:  # fmt: skip
        self.ends = ends
        self.lens, self.given, self.reading, self.context = lens, text, reading, context
        self.name, self.sites, self.device = lens.name, lens.sites, lens.device
        self.vocabulary, self.tokens = lens.vocabulary_size, reading.max_tokens
        self.batch = batch or max(1, (2048 if lens.device.type == "cpu" else 16384) // context)
        self._windows: Windows | None = None

    @property
    def default_sites(self) -> tuple[str, ...]:
        """Embedding, blocks, final norm."""
        return self.lens.default_sites

    def width(self, site: str) -> int:
        """See `VectorSource`."""
        return self.lens.width(site)

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """See `VectorSource`. A rest of the text that fills no window is dropped."""
        self._windows = Windows(
            self.given, self.lens.require_tokenizer(), self.context, documents=self.reading.documents,
            field=self.reading.field, max_tokens=self.reading.max_tokens, start=start, expected=_mark(expected),
            ends=self.ends,
        )  # fmt: skip
        return batches(self._windows, self.batch, process=process, processes=processes)

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """See `VectorSource`; any batch can be visited."""
        ids = torch.from_numpy(np.ascontiguousarray(batch.ids))
        self.lens.run(ids.to(self.lens.device), sites=sites, each=each)

    def mark(self) -> Json:
        """How far the text of the last `batches` has been read."""
        return None if self._windows is None else asdict(self._windows.mark())

    def text(self) -> TextRecord:
        """What the last `batches` has read."""
        return TextRecord(source=str(self.given)) if self._windows is None else self._windows.record()

    def expects(self, windows: int) -> int | None:
        """Known from `max_tokens`, else extrapolated from the share of the file that has been read."""
        if self.tokens is not None:
            return self.tokens
        try:
            path = Path(str(self.given))
            size = path.stat().st_size if path.is_file() and path.suffix in (".txt", ".jsonl") else None
        except (ValueError, OSError):
            return None
        read = 0 if self._windows is None else self._windows.mark().characters
        return None if not size or not read else max(windows, int(windows * size / read)) * self.context

    def identity(self) -> str:
        """That of the weights."""
        return self.lens.identity()

    def record(self) -> ModelRecord:
        """See `Lens.provenance`."""
        return self.lens.provenance()

    def words(self, ids: Sequence[int]) -> list[str]:
        """By the model's tokenizer."""
        return display(self.lens.tokenizer, ids)


def _mark(note: Json) -> TextMark | None:
    if not isinstance(note, dict):
        return None
    return TextMark(int(str(note["documents"])), int(str(note["characters"])), str(note["sha256"]))
