"""Sums of clusters and the sample are the same whatever the split of the text, its order, or an
interruption.
"""

import pytest
import torch
from safetensors.torch import load, save

from headscan.statistics import Series, SiteStatistics
from headscan.statistics import clusters as module
from headscan.statistics.clusters import KINDS
from headscan.statistics.reservoir import lengths

WIDTH = 6
LENGTH = 64
WINDOWS = 200


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A sample that is less than the text."""
    monkeypatch.setattr(module, "sample_tokens", lambda width: 1000)


def states() -> torch.Tensor:
    x = torch.randn(WINDOWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0)) + 0.3
    x[:, 0] *= 30
    x[::7, 5] *= 30
    return x


def documents() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return (
        (torch.rand(WINDOWS, LENGTH, generator=generator) < 0.02)
        .long()
        .flatten()
        .cumsum(0)
        .view(WINDOWS, LENGTH)
    )


def statistics_of(
    batches: list[list[int]], statistics: SiteStatistics | None = None
) -> SiteStatistics:
    x = states()
    document_of = documents()
    statistics = statistics or SiteStatistics(WIDTH, intervals=True)
    for batch in batches:
        statistics.update(x[batch], batch, document_of[batch])
    return statistics


def restored(statistics: SiteStatistics) -> SiteStatistics:
    state = {name: tensor.contiguous().clone() for name, tensor in statistics.state().items()}
    return SiteStatistics.restore(load(save(state)))


def batches(windows: range, size: int = 10) -> list[list[int]]:
    return [list(windows[k : k + size]) for k in range(0, len(windows), size)]


def same(a: SiteStatistics, b: SiteStatistics, *, bits: bool = False) -> None:
    for kind in KINDS:
        first = a.clusters.of(kind)
        second = b.clusters.of(kind)
        assert first.size == second.size
        for mine, expected in (
            (first.states, second.states),
            (first.clusters, second.clusters),
            (first.cells, second.cells),
        ):
            assert torch.equal(mine, expected)
        torch.testing.assert_close(
            first.sums, second.sums, rtol=0 if bits else 1e-11, atol=0 if bits else 1e-11
        )


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_the_batch_does_not_matter(size):
    same(statistics_of(batches(range(WINDOWS), size)), statistics_of(batches(range(WINDOWS))))


def test_nor_does_a_split_over_processes():
    all_batches = batches(range(WINDOWS))
    parts = [statistics_of(all_batches[k::3]) for k in range(3)]
    parts[0].merge(restored(parts[2]))
    parts[0].merge(restored(parts[1]))
    same(parts[0], statistics_of(all_batches))


@pytest.mark.parametrize("at", [1, 5, 15])
def test_a_pass_goes_on_bit_for_bit_after_an_interruption(at):
    all_batches = batches(range(WINDOWS))
    same(
        statistics_of(all_batches[at:], restored(statistics_of(all_batches[:at]))),
        statistics_of(all_batches),
        bits=True,
    )


def test_clusters_have_the_sums_of_their_own_tokens_wherever_windows_are_cut():
    statistics = statistics_of(batches(range(WINDOWS), 8))
    x = states().double()
    document_of = documents()
    assert len(document_of.unique()) > 200
    norms = x.norm(dim=-1, keepdim=True)
    vectors = torch.cat(
        [x / norms, x, torch.ones_like(norms), torch.zeros_like(norms), norms, norms**2], dim=-1
    ).flatten(0, 1)
    cells = statistics._codes(lengths(states())).flatten()
    assert cells.unique().tolist() == [0, 2, 3]  # the first of every window is a sink
    windows = torch.arange(WINDOWS).repeat_interleave(LENGTH)
    for kind, units in (("documents", document_of.flatten()), ("windows", windows)):
        got = statistics.clusters.of(kind)
        expected = torch.zeros(4, got.sums.shape[1], vectors.shape[1], dtype=torch.float64)
        expected.index_put_((cells, units // got.size), vectors, accumulate=True)
        torch.testing.assert_close(got.sums, expected, rtol=1e-6, atol=1e-6)
        assert len(got.states) == 1000
        flat = {tuple(row): number for number, row in enumerate(x.flatten(0, 1).tolist())}
        numbers = torch.tensor([flat[tuple(row)] for row in got.states.double().tolist()])
        assert torch.equal(got.cells, cells[numbers])
        assert torch.equal(got.clusters, units[numbers] // got.size)


def test_no_more_than_a_quarter_of_the_sample_waits_for_it():
    assert statistics_of([list(range(WINDOWS))]).clusters._late == []


def test_series_fold_alike_in_any_order():
    values = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at_once = Series(2, 512)
    second_part = Series(2, 512)
    odd = Series(2, 512)
    Series.add(values, [(at_once, torch.arange(3000), 0)])
    for window in reversed(range(3000)):
        Series.add(
            values[window : window + 1],
            [(second_part if window % 3 else odd, torch.tensor([window]), 0)],
        )
    odd.merge(second_part)
    assert (at_once.size, odd.size) == (8, 8)
    assert torch.allclose(at_once.table, odd.table, atol=1e-12)
    assert torch.equal(Series.restore(at_once.state()).table, at_once.table)
