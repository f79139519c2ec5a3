"""What a probe may look at: the model before the pass, and what the pass left behind; and what it will cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.states import VectorSource
from headscan.states.expected import operations_a_second
from headscan.statistics import Accumulator, Cloud, SiteStatistics
from headscan.text import PairSet

__all__ = ["Clouds", "Cost", "ProbeData", "ProbeSetup", "tables"]


@dataclass(frozen=True)
class Cost:
    """What a probe will take, beside the pass itself: floating-point operations and bytes held at once."""

    operations: float
    bytes: float

    @property
    def seconds(self) -> float:
        """On this machine, from the speed of one matrix product measured once."""
        return self.operations / speed()

    def __str__(self) -> str:
        return f"about {max(self.seconds, 1):.0f} s and {max(self.bytes, 1e6) / 1e6:.0f} MB"


@cache
def speed() -> float:
    """Floating-point operations a second of this machine, as probes were seen to get them."""
    # Elementwise work, softmax and float64 run slower than the product alone: a third of it is what probes were seen to get.
    return operations_a_second() / 3


@dataclass
class ProbeSetup:
    """What a probe may look at before the pass: the source, the sites of the scan, the text's expected length in tokens."""

    source: VectorSource
    sites: tuple[str, ...]
    context: int
    tokens: int | None
    skip_first: int = 0
    seed: int = 0
    device: torch.device | str = "cpu"
    pairs: tuple[PairSet, ...] = ()

    @cached_property
    def counts(self) -> npt.NDArray[np.int64] | None:
        """How often each token id [V] stands in the text, before the pass: it is read once more, without the model. None
        where no ids are known."""
        if not self.source.vocabulary:
            return None
        counts = np.zeros(self.source.vocabulary, dtype=np.int64)
        for batch in self.source.batches():
            counts += np.bincount(batch.ids[:, self.skip_first :].ravel(), minlength=len(counts))
        return counts

    @cached_property
    def deepest(self) -> str:
        """The last block of the scan's sites, or the last of them where no block is among them."""
        blocks = [site for site in self.sites if is_block(site)]
        return (blocks or [*self.sites])[-1]

    @property
    def lens(self) -> Lens:
        """The model, for probes that need one."""
        assert self.source.lens is not None
        return self.source.lens

    def width(self, site: str) -> int:
        """Numbers of a vector at a site."""
        return self.source.width(site)

    @cached_property
    def last(self) -> str:
        """The site that the head reads: the final norm, or the last block where there is none."""
        return self.source.default_sites[-1]


@dataclass(frozen=True)
class Clouds(Mapping[str, Cloud]):
    """The finished clouds of all positions, by site in the order of depth; each is made when it is asked for, and let go."""

    statistics: Mapping[str, SiteStatistics]
    sites: tuple[str, ...]

    def __getitem__(self, site: str) -> Cloud:
        return Cloud.of_sums(self.statistics[site].all)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)


@dataclass
class ProbeData:
    """What a probe may look at after the pass: the clouds by site, the accumulators of its own, sample, counts, ids."""

    clouds: Mapping[str, Cloud]
    own: dict[str, Accumulator]
    sample: dict[str, Tensor]
    counts: npt.NDArray[np.int64]
    windows: Tensor  # ids of the first windows [w, T]
    statistics: dict[str, SiteStatistics] = field(default_factory=dict)
    count_parts: list[npt.NDArray[np.int64]] = field(default_factory=list)  # `counts` by blocks of windows
    blocks: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    first: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


def tables(setup: ProbeSetup) -> dict[str, npt.NDArray[np.float64]]:
    """The input embedding table and, where it is another, the output's; float64 [V, d]."""
    found = {"input embeddings": setup.lens.input_embeddings}
    output = setup.lens.output_embeddings
    if output is not None:
        if output.data_ptr() == setup.lens.input_embeddings.data_ptr():
            found = {"tied embeddings": output}
        else:
            found["output embeddings"] = output
    return {name: table.detach().double().cpu().numpy() for name, table in found.items()}
