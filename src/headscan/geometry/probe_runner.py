"""The probes of one pass: who sees which site, what they keep, and their rows in the result."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from headscan.geometry.probe import Probe, ProbeData, ProbeSetup
from headscan.geometry.sweep import Sweep
from headscan.model import Lens
from headscan.statistics import BlockedCounts, Cloud, FirstWindows, SiteBatch
from headscan.statistics.accumulator import Accumulator
from headscan.text import PairSet, read_pairs, synonyms

__all__ = ["ProbeRunner", "pair_sets"]

WINDOWS, COUNTS = "windows:", "counts:"
SAMPLE_BLOCKS = 8


def pair_sets(files: Sequence[str] | None) -> tuple[PairSet, ...]:
    """The pairs in the files, or the shipped synonyms where there are none."""
    return tuple(pairs for file in files for pairs in read_pairs(file)) if files else (synonyms(),)


class ProbeRunner:
    """The chosen probes of one model: `accumulators` by "PROBE:SITE" for the sweep, and `sample`, the vectors they need.

    Probes that the model cannot have are left out, and the table's `notes` say why; expensive ones are announced.
    """

    def __init__(
        self,
        probes: list[Probe],
        lens: Lens,
        sites: tuple[str, ...],
        settings: Mapping[str, Any],
        *,
        announce: Callable[[str], None],
    ):
        device = torch.device("cpu") if lens.device.type == "mps" else lens.device
        self.setup = ProbeSetup(
            lens, sites, settings["context"], settings["max_tokens"], settings["skip_first"], settings["seed"], device,
            pairs=pair_sets(settings.get("pairs")),
        )  # fmt: skip
        self.reasons: dict[str, str] = {}
        self.probes: list[Probe] = []
        self.announce = announce
        self.accumulators: dict[str, Accumulator] = {}
        for probe in probes:
            reason = probe.reason(self.setup)
            if reason is not None:
                self.reasons[probe.name] = reason
                announce(f"{lens.name} has no {probe.name}: {reason}.")
                continue
            self.probes.append(probe)
            if probe.words.expensive:
                announce(f"{probe.name} of {lens.name} is expensive: {probe.cost(self.setup)}.")
            for key, accumulator in probe.accumulators(self.setup).items():
                self.accumulators[f"{probe.name}:{key}"] = accumulator
        if self.probes:
            self.accumulators[WINDOWS] = FirstWindows()
            self.accumulators[COUNTS] = BlockedCounts(lens.vocabulary_size)

    @property
    def sample(self) -> int:
        """How many sampled vectors of each site the probes need."""
        return max((probe.words.sample for probe in self.probes), default=0)

    def watch(self, swept: Sweep) -> dict[str, list[Callable[[SiteBatch], None]]]:
        """Who sees what, by site: each probe's accumulator in the sweep (which may have been read from a store)."""
        found: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        if any(probe.words.sample for probe in self.probes):
            found[self.setup.last] = []  # its states are to be sampled, even where `sites` leaves it out
        for probe in self.probes:
            for key in self._keys(swept, probe):
                accumulator = swept.extras[f"{probe.name}:{key}"]
                found[key.split("|")[0]].append(
                    lambda batch, probe=probe, key=key, own=accumulator: probe.update(self.setup, key, own, batch)  # type: ignore[misc]
                )
        return dict(found)

    @staticmethod
    def _keys(swept: Sweep, probe: Probe) -> list[str]:
        start = f"{probe.name}:"
        return [key.removeprefix(start) for key in swept.extras if key.startswith(start)]

    def report(
        self,
        document: dict[str, Any],
        swept: Sweep,
        clouds: dict[str, Cloud],
        *,
        model: str,
        null: str | None = None,
    ) -> None:
        """Add every probe's rows to its table in the document, with the model's name; and how long they took."""
        columns = swept.sample.columns
        sample = {name.removeprefix("state."): x for name, x in columns.items() if name.startswith("state.")}
        sample |= {"id": columns["id"]} if "id" in columns else {}
        kept, counted, places = swept.extras.get(WINDOWS), swept.extras.get(COUNTS), swept.sample.places.numpy()
        place = {"model": model} | ({"null": null} if null else {})
        for probe in self.probes:
            clock = time.monotonic()
            data = ProbeData(
                clouds=clouds,
                own={key: swept.extras[f"{probe.name}:{key}"] for key in self._keys(swept, probe)},
                sample=sample,
                counts=swept.counts.counts.numpy(),
                windows=kept.ids if isinstance(kept, FirstWindows) else torch.zeros(0, 0, dtype=torch.int64),
                statistics=swept.sites,
                count_parts=[part.numpy() for part in counted.parts()] if isinstance(counted, BlockedCounts) else [],
                blocks=places[:, 0] * SAMPLE_BLOCKS // max(1, swept.next),
                first=(places[:, 1] == 0) & (self.setup.skip_first == 0),
            )
            document[probe.name] += [place | probe.noted(row) for row in probe.rows(self.setup, data)]
            described = next(entry for entry in document["probes"] if entry["name"] == probe.name)
            described["seconds"] = round(described.get("seconds", 0.0) + time.monotonic() - clock, 2)
        for name, reason in self.reasons.items():
            described = next(entry for entry in document["probes"] if entry["name"] == name)
            described.setdefault("notes", []).append(f"{model} has none: {reason}")
