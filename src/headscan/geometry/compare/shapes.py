"""The measures of shape of every model in the same pass, for their paired differences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headscan.geometry.choose import choose
from headscan.geometry.compare.reading import Watch
from headscan.geometry.differences import Difference, Estimates, differences
from headscan.geometry.errors import Errors
from headscan.geometry.linearisation import Linearisation
from headscan.geometry.summary import SUFFIXES, site_cells
from headscan.states import VectorSource
from headscan.statistics import SiteStatistics
from headscan.text import Batch

__all__ = ["Shapes"]


class Shapes:
    """Keeps a scan's statistics of every model's sites; `differences` are those that a scan of all would have."""

    def __init__(self, skip_first: int) -> None:
        self.skip_first = skip_first
        self.measures, _ = choose(None)
        self.kept: dict[str, dict[str, SiteStatistics]] = {}

    def watch(self, name: str, source: VectorSource, sites: Sequence[str]) -> Watch:
        """What is to see every batch of a source."""
        derive = Linearisation(self.measures)
        device = "cpu" if source.device.type == "mps" else source.device
        skipped = self.skip_first if source.context > 1 else 0
        own = {
            site: SiteStatistics(source.width(site), skip_first=skipped, device=device, derive=derive) for site in sites
        }
        self.kept[name] = own

        def see(site: str, states: Tensor, batch: Batch) -> None:
            ids, documents = torch.from_numpy(batch.ids), torch.from_numpy(batch.documents)
            own[site].update(states, batch.indices.tolist(), documents, ids)

        return see

    def differences(self) -> list[Difference]:
        """Of the sites of one name, between models."""
        found = [
            Estimates(name, site, site_cells(site, statistics, self.measures)[0], Errors.of(statistics, self.measures))
            for name, sites in self.kept.items()
            for site, statistics in sites.items()
        ]
        return [one for one in differences(found, list(SUFFIXES.values())) if one.model_a != one.model_b]
