"""Influences are the same whatever the split of the text, its order, an interruption, or who knew the pilot first."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save

from headscan.measures import MEASURES
from headscan.statistics import Influence, Pieces, Series, SiteStatistics
from headscan.statistics.linearisation import Linearisation

WIDTH, LENGTH, WINDOWS = 6, 64, 200  # the pilot is 64 windows
MEASURED = [MEASURES[name] for name in ("average_cosine", "effective_rank", "isoscore")]


def states() -> torch.Tensor:
    x = torch.randn(WINDOWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0)) + 0.3
    x[:, 0] *= 30
    return x


def made(batches, learnt: bool = False) -> SiteStatistics:
    x, found = states(), SiteStatistics(WIDTH, derive=Linearisation(MEASURED))
    if learnt:
        found.learn(x[:70], list(range(70)))
    for batch in batches:
        found.update(x[batch], batch)
    return found


def restored(found: SiteStatistics) -> SiteStatistics:
    state = {name: tensor.contiguous().clone() for name, tensor in found.state().items()}
    return SiteStatistics.restore(load(save(state)))


def table(found: SiteStatistics) -> torch.Tensor:
    return found.influence.finished(Linearisation(MEASURED)).windows.table


def batches(windows: range, size: int = 10) -> list[list[int]]:
    return [list(windows[k : k + size]) for k in range(0, len(windows), size)]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max(0).values.max()))


def test_split_over_processes_that_learnt_the_pilot():
    every = batches(range(WINDOWS))
    whole = made(every)
    parts = [made(every[k::3], learnt=True) for k in range(3)]
    parts[0].merge(restored(parts[2]))
    parts[0].merge(restored(parts[1]))
    assert whole.influence.known is not None
    assert same(table(parts[0]), table(whole))


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_the_batch_does_not_matter(size):
    assert same(table(made(batches(range(WINDOWS), size))), table(made(batches(range(WINDOWS)))))


@pytest.mark.parametrize("at", [1, 5, 6, 7, 15])
def test_a_pass_goes_on_bit_for_bit_after_an_interruption(at):
    every, x = batches(range(WINDOWS)), states()
    part = restored(made(every[:at]))
    part.influence.derive = Linearisation(MEASURED)
    for batch in every[at:]:
        part.update(x[batch], batch)
    assert torch.equal(table(part), table(made(every)))


def test_parts_merged_within_the_pilot_wait_for_the_whole_of_it():
    every = batches(range(WINDOWS))
    first, second = made([*every[1::2][:3]]), made(every[0::2][:4])
    second.merge(restored(first))
    assert second.influence.known is not None
    assert same(table(second), table(made(every[:7])))


def test_windows_that_came_without_the_pilot_are_counted_and_nothing_is_said():
    found = made(batches(range(70, WINDOWS)))
    assert found.influence.missed == WINDOWS - 128
    assert found.influence.finished() is None


def test_a_short_text_is_its_own_pilot():
    x = states()[:20]
    found = made(batches(range(20)))
    assert found.influence.known is None
    aside, documents = found._aside, torch.zeros(x.shape[:2], dtype=torch.int64)
    exact = Linearisation(MEASURED)(x, aside).of(Pieces.of(x, documents, aside(x)))[2]
    assert same(table(found)[:20], exact)
    assert found.influence.known is None  # more text may come


def test_series_fold_alike_in_any_order():
    values = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, back, odd = Series(2), Series(2), Series(2)
    whole.add(values, list(range(3000)))
    for window in reversed(range(3000)):
        (back if window % 3 else odd).add(values[window : window + 1], [window])
    odd.merge(back)
    assert (whole.size, odd.size) == (8, 8)
    assert torch.allclose(whole.table, odd.table, atol=1e-12)
    assert torch.equal(Series.restore(whole.state()).table, whole.table)


def test_without_a_derivative_nothing_is_kept():
    assert SiteStatistics(WIDTH).influence is None
    assert Influence(WIDTH, lambda x: x).finished() is None


def test_a_document_has_the_influences_of_its_own_tokens_wherever_windows_are_cut():
    """Against the same derivative of every token alone, position 0 left out in the second treatment."""
    x = states()[:90]
    generator = torch.Generator().manual_seed(1)
    documents = (torch.rand(x.shape[:2], generator=generator) < 0.02).long().flatten().cumsum(0).view(x.shape[:2])
    found = SiteStatistics(WIDTH, derive=Linearisation(MEASURED))
    for k in range(0, 90, 8):
        found.update(x[k : k + 8], list(range(k, min(k + 8, 90))), documents[k : k + 8])
    known = found.influence.known
    *_, alone = known.derivative.of(Pieces.of(x, torch.arange(x[..., 0].numel()).view(x.shape[:2]), found._aside(x)))
    wanted = torch.zeros(int(documents.max()) + 1, known.derivative.columns, dtype=torch.float64)
    wanted.index_add_(0, documents.flatten(), alone)
    assert len(wanted) > 50
    assert same(known.documents.table[: len(wanted)], wanted)
    assert torch.equal(known.documents.table[: len(wanted), 0].long(), torch.bincount(documents.flatten()))
    assert same(known.documents.table.sum(0, keepdim=True), known.windows.table.sum(0, keepdim=True))
