"""The same statistics from 1, 2 and 3 gloo processes as from one."""

from functools import partial

import pytest
import torch

from headscan.statistics import Gram, SiteStatistics, merged, process_count, process_rank
from headscan.statistics.sinks import CELLS
from tests.forked import grouped

WINDOWS = 30
LENGTH = 4
WIDTH = 5


def stream() -> torch.Tensor:
    return torch.randn(WINDOWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0)) + 0.5


def work(world: int, path: str, rank: int) -> None:
    assert (process_rank(), process_count()) == (rank, world)
    statistics = SiteStatistics(WIDTH)
    for number, start in enumerate(range(0, WINDOWS, 4)):
        if number % world == rank:
            batch = list(range(start, min(start + 4, WINDOWS)))
            statistics.update(stream()[batch], batch)
    total = merged(statistics)
    if rank == 0:
        torch.save(total.state(), path)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_processes_gives_the_same(world, tmp_path):
    grouped(partial(work, world, str(tmp_path / "state.pt")), world, tmp_path)
    state = torch.load(tmp_path / "state.pt")
    single = SiteStatistics(WIDTH)
    single.update(stream(), list(range(WINDOWS)))
    together = SiteStatistics.restore(state)
    for cell in CELLS:  # the matrices by what they say: each may be about another point
        gram = together.cell(cell).gram
        single_gram = single.cell(cell).gram
        for kind in (Gram.dense, Gram.scatter):
            torch.testing.assert_close(kind(gram), kind(single_gram), rtol=1e-12, atol=1e-12)
    for name, tensor in single.state().items():
        assert "gram" in name or torch.allclose(state[name], tensor, rtol=1e-12, atol=1e-12), name


def test_without_a_process_group_nothing_happens():
    statistics = SiteStatistics(WIDTH)
    assert merged(statistics) is statistics
    assert (process_rank(), process_count()) == (0, 1)
