"""What `headscan states` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headscan.run import Result
from headscan.states.layout import StateShard, StoredSite

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StatesResult"]


@dataclass(frozen=True, kw_only=True, repr=False)
class StatesResult(Result):
    """Hidden states in a folder.

    Attributes:
        folder: where they are. sites: what was stored. context: tokens of a window. windows, tokens: of each site.
        bytes: of all shards. shards: the files, with their checksums.
    """

    kind: ClassVar[str] = "states"
    folder: str
    sites: list[StoredSite]
    context: int
    windows: int
    tokens: int
    bytes: int
    shards: list[StateShard]

    def frame(self) -> pd.DataFrame:
        """A row a site."""
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.sites])
