"""One live scan, and the states that it saw: what every format is held to."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

import headscan
from headscan import Lens
from headscan.scanner import ScanResult
from headscan.states import ModelSource
from headscan.text.source import Reading

CONTEXT = 64
TOKENS = 640
TEXT = ["One hen sat by the door. She saw a red fox and ran. " * 12] * 5
UNSEEN = ("model", "notes", "sink_tokens")  # names, and words that need the tokenizer


@dataclass
class Seen:
    """A live scan's result, and the states [windows, T, d] by site with token ids and documents
    [windows, T].
    """

    live: ScanResult
    states: dict[str, torch.Tensor]
    ids: torch.Tensor
    documents: torch.Tensor

    @staticmethod
    @cache
    def alone(site: str) -> ScanResult:
        """A live scan of one site, whose sums are taken in another order if it is not the last
        block.
        """
        return headscan.scan("gpt-vanilla", TEXT, context=CONTEXT, max_tokens=TOKENS, sites=site)

    @property
    def all(self) -> dict[str, torch.Tensor]:
        return self.states | {"token_ids": self.ids, "documents": self.documents}

    def compare(
        self, result: ScanResult, sites: dict[str, str] | None = None, *, within: float = 0.0
    ) -> None:
        """Every number of the sites is the live scan's: bit for bit, or within a relative
        distance.
        """
        names = sites or {site: site for site in self.states}
        assert {row["site"] for row in result.sites} == set(names)
        for stored, live in names.items():
            ours = result.site(stored)
            live_row = (self.alone(live) if sites else self.live).site(live)
            for name, value in live_row.items():
                if name in (*UNSEEN, "site", "depth"):
                    continue
                if within and isinstance(value, int | float):
                    same = ours[name] == pytest.approx(value, rel=within, abs=within)
                    assert same, (stored, name, ours[name], value)
                elif not within or value is None or isinstance(value, str):
                    assert ours[name] == value, (stored, name)


@pytest.fixture(scope="session")
def stored_states() -> Seen:
    lens = Lens.load("gpt-vanilla")
    live = headscan.scan(lens, TEXT, context=CONTEXT, max_tokens=TOKENS)
    source = ModelSource(lens, TEXT, Reading(max_tokens=TOKENS), context=CONTEXT)
    states_by_site: dict[str, list[torch.Tensor]] = {site: [] for site in source.default_sites}
    ids = []
    documents = []
    for batch in source.batches():
        ids.append(batch.ids)
        documents.append(batch.documents)
        source.visit(
            batch,
            source.default_sites,
            lambda site, states: states_by_site[site].append(states.clone()),
        )
    return Seen(
        live,
        {site: torch.cat(parts) for site, parts in states_by_site.items()},
        torch.from_numpy(np.concatenate(ids)),
        torch.from_numpy(np.concatenate(documents)),
    )
