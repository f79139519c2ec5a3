"""What yields vectors: batches of named sites, with the tokens and documents that they are of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from headscan.model.lens import Lens
from headscan.model.sites import match_sites
from headscan.run import Json, ModelRecord, TextRecord
from headscan.text import Batch

__all__ = ["Each", "VectorSource"]

Each = Callable[[str, Tensor], object]
"""Called with a site and its states [B, T, width]; the tensor is the live one: copy it before keeping or changing it."""


class VectorSource(ABC):
    """Vectors of named sites in windows of tokens: a model reading a text, stored states, arrays. What follows does not
    know which.

    Use: `for batch in source.batches(): source.visit(batch, sites, each)`. Batches are the same whatever the number of
    processes, and memory is that of one site of one batch.

    Attributes:
        name: in tables and messages.
        sites: the names of all sites, in the order of depth.
        context: vectors of a window. batch: windows of a batch.
        vocabulary: token ids are below this; 0 where none are known, and the ids of batches are −1 then.
        tokens: vectors of a site in all, as far as it is known; None where it is not.
        device: where the vectors are.
        lens: the model, where there is one.
    """

    name: str
    sites: tuple[str, ...]
    context: int
    batch: int
    vocabulary: int
    tokens: int | None
    device: torch.device
    lens: Lens | None = None

    @property
    def default_sites(self) -> tuple[str, ...]:
        """What is looked at where nobody says which."""
        return self.sites

    def match(self, globs: str | Iterable[str]) -> tuple[str, ...]:
        """The sites that globs match, in the order of depth; BadInput where one matches nothing."""
        return match_sites(globs, self.sites, self.name)

    @abstractmethod
    def width(self, site: str) -> int:
        """Numbers of a vector at a site."""

    @abstractmethod
    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """The batches of one process, from window `start` on.

        All windows have `context` tokens; after them may come a batch of one shorter window, the rest. `expected` is the
        `mark` of a reading that is continued: BadInput where this is not the same text.
        """

    @abstractmethod
    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """Call `each` with the vectors [B, T, width] of each site in turn, of the batch that was given last.

        Raises:
            BadInput: they cannot be read.
        """

    @abstractmethod
    def identity(self) -> str:
        """A hash by which a resumed run knows the source again."""

    @abstractmethod
    def record(self) -> ModelRecord:
        """What it is, for the protocol of a result."""

    @abstractmethod
    def text(self) -> TextRecord:
        """What has been read up to now."""

    @abstractmethod
    def words(self, ids: Sequence[int]) -> list[str]:
        """Token ids as people can read them."""

    def mark(self) -> Json:
        """How far it has been read, and what it said: what a resumed reading is to find again."""
        return None

    def expects(self, windows: int) -> int | None:
        """Tokens in all, when so many windows have been read."""
        return self.tokens

    def __repr__(self) -> str:
        many = "" if self.tokens is None else f"{self.tokens:,} vectors at "
        return f"{type(self).__name__}({self.name!r}: {many}{len(self.sites)} sites)"
