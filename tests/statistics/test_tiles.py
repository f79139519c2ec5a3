"""Float32 products of tiles: every field within what is allowed of float64's, any split, bit for
bit after an interruption, and caught where they are coarser than they were measured to be.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

import headscan
from headscan.measures import MEASURES
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.site_cells import site_cells
from headscan.statistics import SiteStatistics, errors, gram, site, tiles
from headscan.statistics.gram import Gram
from headscan.statistics.tiles import EVERY
from headscan.statistics.transfer import sent_together
from headscan.text import Batch
from tests.card import CARD, Card, Event

WIDTH = 24
LENGTH = 32
WINDOWS = 48
CORE = [measure for measure in MEASURES.values() if measure.words.core]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Tiles of 64 tokens, at any width."""
    monkeypatch.setattr(site, "WIDE", 1)
    monkeypatch.setattr(site, "TILE", 64)


def states(kind: str = "cone", seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Windows [48, 32, 24] with sinks at position 0, a cone, and what `kind` says."""
    x = torch.randn(
        WINDOWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    x *= torch.logspace(0, -2, WIDTH, dtype=torch.float64)
    x[..., 7] += {"cone": 2.0, "far": 600.0, "round": 0.0, "drifting": 1.0, "rogue": 1.0}[kind]
    if kind == "drifting":
        x[..., 3] += torch.linspace(-20, 20, WINDOWS, dtype=torch.float64)[:, None]
    if kind == "rogue":
        x[..., 5] *= 300
    x[:, 0] *= 50
    return x.to(dtype)


def made(
    x: torch.Tensor, batches: list[list[int]], *, bounded: bool = True, turned: bool = False
) -> SiteStatistics:
    site_statistics = SiteStatistics(WIDTH, intervals=True, lengths=4, bounded=bounded)
    for batch in batches:
        site_statistics.update(x[batch].mT.contiguous().mT if turned else x[batch], batch)
    return site_statistics


def restored(site_statistics: SiteStatistics) -> SiteStatistics:
    return SiteStatistics.restore(
        load(
            save(
                {
                    name: tensor.contiguous().clone()
                    for name, tensor in site_statistics.state().items()
                }
            )
        )
    )


def batches(size: int = 4) -> list[list[int]]:
    return [list(range(k, min(k + size, WINDOWS))) for k in range(0, WINDOWS, size)]


def cells_of(statistics: SiteStatistics):
    estimated = errors.Errors.of(statistics, CORE)
    return site_cells("block.0", statistics, CORE, errors=estimated)[0], estimated.rounding


def assert_allowed(cells, exact, share=1.0):
    """Every number of a measure is within `share` of 1e-6 of it, or of a thousandth of its
    interval.
    """
    for measure in CORE:
        for suffix in ("", "_without_first", "_without_sinks"):
            name = measure.name + suffix
            low, high = exact[name + "_interval"]
            allowed = share * max(1e-6 * abs(exact[name]), 1e-3 * (high - low))
            assert abs(cells[name] - exact[name]) <= allowed, name
    for suffix in ("", "_without_first", "_without_sinks"):
        squares, expected = (np.square(row["singular_values" + suffix]) for row in (cells, exact))
        assert np.linalg.norm(squares - expected) <= share * 1e-6 * expected.sum()


@settings(max_examples=8)
@given(
    kind=st.sampled_from(["cone", "far", "round", "drifting", "rogue"]),
    seed=st.integers(0, 99),
    size=st.sampled_from([3, 8]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_every_number_is_as_near_to_that_of_float64_as_is_measured(kind, seed, size, dtype):
    x = states(kind, seed, dtype)
    cells, rounding = cells_of(made(x, batches(size)))
    exact, none = cells_of(made(x, batches(size), bounded=False))
    assert none == 0
    assert rounding > 0 or kind in ("far", "drifting")
    assert_allowed(cells, exact, share=rounding)


@pytest.mark.parametrize("kind", ["cone", "round"])
def test_ordinary_states_are_far_within_what_is_allowed(kind):
    assert 0 < cells_of(made(states(kind), batches()))[1] < 0.5


def test_where_the_mean_has_nearly_all_of_the_energy_float64_sums():
    site_statistics = made(states("far"), batches())
    assert site_statistics.tiles is None
    site_statistics.merge(restored(made(states("cone"), batches())))
    assert site_statistics.tiles.tiles > 0


@pytest.mark.parametrize("kind", ["cone", "round"])
def test_parts_with_other_centres_make_the_whole(kind):
    x = states(kind)
    all_batches = batches()
    parts = [made(x, all_batches[k::3], turned=k == 1) for k in range(3)]
    assert len({tuple(part.tiles.centre.tolist()) for part in parts}) == 3
    parts[2].merge(restored(parts[0]))
    parts[2].merge(restored(parts[1]))
    cells, rounding = cells_of(parts[2])
    assert_allowed(
        cells, cells_of(made(x, all_batches, bounded=False))[0], share=max(rounding, 1e-3)
    )


@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_pass_goes_on_bit_for_bit(at):
    x = states()
    all_batches = batches()
    resumed = restored(made(x, all_batches[:at]))
    for batch in all_batches[at:]:
        resumed.update(x[batch], batch)
    at_once = made(x, all_batches)
    assert cells_of(resumed) == cells_of(at_once)
    for name, tensor in at_once.state().items():
        assert torch.equal(tensor, resumed.state()[name]), name


def test_products_of_16_bits_about_the_origin_are_exact():
    x = states("round", dtype=torch.bfloat16)
    site_statistics = made(x, batches())
    assert not site_statistics.tiles.centre.any()
    row = x[0, 5].float()
    exact = row[:, None].double() @ row[None].double()
    assert torch.equal((row[:, None] @ row[None]).double(), exact)


def test_coarser_products_than_float32_are_caught(monkeypatch):
    """As where a library multiplies in TF32 or bfloat16."""
    fine = Gram.add_tile

    def coarse(self, rows, centre):
        return fine(self, rows.bfloat16().float(), centre)

    monkeypatch.setattr(Gram, "add_tile", coarse)
    x = states()
    cells, rounding = cells_of(made(x, batches()))
    assert rounding > 10
    assert_allowed(cells, cells_of(made(x, batches(), bounded=False))[0], share=rounding)


def test_states_in_float64_and_narrow_sites_are_summed_in_float64(monkeypatch):
    x = states(dtype=torch.float64)
    assert made(x, batches()).tiles.tiles == 0
    assert cells_of(made(x, batches()))[0] == cells_of(made(x, batches(), bounded=False))[0]
    monkeypatch.setattr(site, "WIDE", WIDTH + 1)
    assert made(x.float(), batches()).tiles is None


def test_a_huge_vector_is_summed_in_float64_all_the_same():
    x = states().double()
    x[40, 3] *= 1e30
    site_statistics = made(x.float(), batches())
    assert site_statistics.tiles.tiles > EVERY
    assert np.isfinite(site_statistics.all.gram.dense().numpy()).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "length", "bounded", "most"),
    [
        ((1, 4096, 64), torch.bfloat16, 10**9, False, 30),
        ((1, 4096, 64), torch.float32, 10**9, True, 32),
        ((32, 128, WIDTH), torch.float32, 10**9, True, 36),
        ((32, 128, WIDTH), torch.bfloat16, 50, True, 37),
        ((32, 128, WIDTH), torch.bfloat16, 50, False, 34.5),
    ],
)
def test_a_batch_at_a_site_makes_few_operations_of_a_card_and_waits_for_none(
    shape, dtype, length, bounded, most, monkeypatch
):
    """4,096 tokens at once, with sinks, at two sites behind an addition each. Of tiles every eighth
    is checked in float64: with it they are 40 at most on average. In long windows the first tokens
    are fewer than the dimensions, and are stored as they are; in short ones they have a matrix of
    their own.
    """
    windows, context, width = shape
    states = torch.randn(shape).to(dtype)
    states[::2, 0] *= 30
    counts = []
    passes = {}
    numbers = np.arange(29 * 4096).reshape(29, windows, context)
    batches = [Batch(k, x[:, 0] // context, x, x // length) for k, x in enumerate(numbers)]
    source = SimpleNamespace(
        lens=None, vocabulary=0, context=context, alone=False, pooled=lambda site: False
    )
    card = Card()
    monkeypatch.setattr(torch, "Event", lambda device: Event(card=card))
    # The processor's own pass is not counted, and in tiles of its own size: it takes less time so.
    for device, x, counting in (("meta", Card.of(states), card), ("cpu", states, nullcontext())):
        source.visit = lambda batch, names, take, x=x: [take(name, x + 0.0) for name in names]
        monkeypatch.setattr(site, "TILE", 64 if device == "meta" else 1024)
        with counting:
            accumulation = Accumulation(
                {"a": width, "b": width},
                0,
                intervals=True,
                bounded=bounded,
                lengths={"b": 4},
                device=device,
            )
            accumulate(
                source, batches, accumulation, after=lambda batch: counts.append(card.counts())
            )
            passes[device] = (
                [site.sums("all").sums for site in accumulation.sites.values()],
                accumulation.sample.columns,
            )
    per_batch = np.diff(counts[18:29], axis=0)  # between two doublings of the text
    operations = per_batch[:, 0] / 2 - 1  # of a site, without the addition
    assert np.median(operations) <= most, card.names
    assert operations.mean() <= 40, card.names
    assert per_batch[:, 1].tolist() == [0] * 10
    # Both sites wait once where a matrix opens and twice where tiles begin.
    assert counts[28][1] <= 28
    (device_sums, sample), (host_sums, host_sample) = passes.values()
    torch.testing.assert_close([sums.held for sums in device_sums], host_sums, rtol=1e-5, atol=0.1)
    assert all(torch.equal(sample[name], column) for name, column in host_sample.items())


def _copied_to_host(x):
    host = torch.empty(x.shape)
    host.copy_(x)


@pytest.mark.parametrize(
    "reading",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: bool((x > 0).any()),
        lambda x: x.cpu(),
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: x[x > 0],
        lambda x: x[torch.tensor([1, 0])],
        lambda x: (x > 0).nonzero(),
        lambda x: torch.equal(x, x),
        _copied_to_host,
    ],
)
def test_the_card_notes_what_the_processor_waits_for(reading):
    x = Card.of(torch.tensor([1.0, -2.0]))
    with Card() as card:
        assert not (x + 1).sum().isnan().held
        assert card.waits == 0
        reading(x)
        assert card.waits > 0


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("no sinks", 2),
        ("first tokens are sinks", 2),
        ("some first tokens are sinks", 3),
        ("sinks elsewhere", 3),
        ("rogue", 3),
        ("far from the origin", 2),
    ],
)
def test_a_site_is_finished_on_the_card_with_a_decomposition_for_each_group_of_tokens(
    kind, most, monkeypatch
):
    """No d x d matrix goes to the processor, and the numbers are those of the processor."""
    # 64 tokens a window
    x = torch.randn(6, 64, 300, generator=torch.Generator().manual_seed(1)) + 0.5
    if kind in ("first tokens are sinks", "sinks elsewhere", "rogue"):
        x[:, 0] *= 30
    if kind == "some first tokens are sinks":
        x[1:, 0] *= 30
    if kind == "sinks elsewhere":
        x[::2, 7] *= 30
    if kind == "rogue":  # its numbers are also those without this coordinate
        x[..., 5] += 40
    if kind == "far from the origin":
        x += 3e4
    rows = {}
    with Card() as card:
        monkeypatch.setattr(torch, "Event", lambda device: Event(card=card))
        for device, states in (("meta", Card.of(x)), ("cpu", x)):
            site_statistics = SiteStatistics(300, device=device, intervals=True)
            site_statistics.update(states, list(range(6)))
            card.fetched.clear()
            card.names.clear()
            rows[device] = site_cells("block.0", site_statistics, CORE)[0]
            if device == "meta":
                decompositions = {n: k for n, k in card.names.items() if "eig" in n and k}
                assert decompositions == {"_linalg_eigh": most}
                assert (300, 300) not in card.fetched
    assert rows["cpu"]["rogue_coordinates"] == ([5] if kind == "rogue" else [])
    for name, value in rows["cpu"].items():
        if isinstance(value, float):
            assert rows["meta"][name] == pytest.approx(value, rel=1e-6), name
        if name.endswith("_interval"):
            assert rows["meta"][name] == pytest.approx(value, rel=1e-4), name


def test_a_stored_pass_goes_on_where_its_device_is(monkeypatch):
    x = torch.randn(6, 64, WIDTH, generator=torch.Generator().manual_seed(1))
    with Card() as card:
        monkeypatch.setattr(torch, "Event", lambda device: Event(card=card))
        fresh = SiteStatistics(WIDTH, device="meta", intervals=True, bounded=True)
        begun = SiteStatistics(WIDTH, intervals=True, bounded=True)
        begun.update(x[:3], [0, 1, 2])
        resumed = fresh.restored(begun.state())
        assert resumed.device == CARD
        resumed.update(Card.of(x[3:]), [3, 4, 5])
        begun.update(x[3:], [3, 4, 5])
        sums = resumed.sums("all")
        assert sums.sums.device == CARD
        torch.testing.assert_close(sums.sums.held, begun.sums("all").sums, rtol=1e-5, atol=1e-3)


def test_tensors_that_are_sent_together_arrive_in_one_copy():
    tensors = [torch.arange(3), torch.rand(2, 5), torch.rand(0, 4), torch.rand(7).double()]
    with Card() as card:
        arrived = sent_together(tensors, CARD)
    assert card.all == 1
    for tensor, copy in zip(tensors, arrived, strict=True):
        assert torch.equal(copy.held, tensor)
        assert copy.dtype == tensor.dtype


def test_arithmetic_is_chosen_by_what_a_device_does_well(monkeypatch):
    seconds = {torch.float32: 2.64, torch.float64: 2.55}  # of an H100
    monkeypatch.setattr(tiles, "_seconds", lambda rows: seconds[rows.dtype])
    tiles.float64_pays.cache_clear()
    assert tiles.float64_pays(CARD)
    assert not tiles.float64_pays(torch.device("cpu"))
    tiles.float64_pays.cache_clear()
    seconds[torch.float64] = 80.0  # a consumer card
    assert not tiles.float64_pays(CARD)
    tiles.float64_pays.cache_clear()


def _half_product(left, right, out=None):
    """What matrix units for 16 bits do: exact products, summed in float32."""
    assert left.dtype == right.dtype == torch.bfloat16
    return torch.mm(left.float(), right.float(), out=out)


def _coarse_product(left, right, out=None):
    product = _half_product(left, right, out)
    return product.copy_(product.bfloat16())


def _no_product(left, right, out=None):
    raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")


@pytest.mark.parametrize(
    ("product", "seconds", "expected"),
    [
        (_half_product, 0.7, True),
        (_half_product, 3.0, False),
        (_coarse_product, 0.7, False),
        (_no_product, 0.7, False),
    ],
)
def test_16_bits_are_multiplied_where_it_is_exact_and_fast(monkeypatch, product, seconds, expected):
    times = {torch.bfloat16: seconds, torch.float32: 2.64}
    monkeypatch.setattr(gram, "half_product", product)
    monkeypatch.setattr(tiles, "_seconds", lambda rows, _multiply=None: times[rows.dtype])
    rows = torch.randn(256, 96, generator=torch.Generator().manual_seed(0))
    assert tiles._half_pays(rows.bfloat16()) is expected
    assert not tiles.half_pays(torch.device("cpu"), torch.bfloat16)


@pytest.mark.parametrize(("kind", "used"), [("round", True), ("far", False)])
def test_tiles_of_16_bits_are_within_the_bound_of_float64(monkeypatch, kind, used):
    """States whose mean has most of their energy are multiplied about it, in float32."""
    calls = []

    def product(left, right, out=None):
        calls.append(len(left))
        return _half_product(left, right, out)

    monkeypatch.setattr(gram, "half_product", product)
    monkeypatch.setattr(tiles, "half_pays", lambda device, dtype: dtype == torch.bfloat16)
    x = states(kind, dtype=torch.bfloat16)
    batches = [list(range(start, start + 8)) for start in range(0, WINDOWS, 8)]
    half = made(x, batches).sums("all")
    exact = made(x, batches, bounded=False).sums("all")
    assert bool(calls) is used
    scatter = exact.second_moments.scatter()
    error = torch.linalg.matrix_norm(half.second_moments.scatter() - scatter)
    assert error < 1e-6 * torch.linalg.matrix_norm(exact.second_moments.dense())


OPTIONS = {"max_tokens": 4096, "context": 64, "sites": "block.0,block.3,final_norm"}


@pytest.fixture(scope="module")
def exact():
    return headscan.scan("gpt-vanilla", "stories", arithmetic="exact", **OPTIONS)


def test_bounded_is_within_what_the_protocol_says(exact):
    result = headscan.scan("gpt-vanilla", "stories", **OPTIONS)
    for row, exact_row in zip(result.sites, exact.sites, strict=True):
        assert_allowed(row, exact_row)
    assert "Second moments of 3 of 3 sites from float32 products" in " ".join(result.protocol.notes)
    assert "Sums in float64." in exact.protocol.notes
    assert result.sites[0]["effective_rank"] != exact.sites[0]["effective_rank"]


def test_what_is_coarser_than_is_allowed_is_said(exact, monkeypatch):
    monkeypatch.setattr(errors, "RELATIVE", 1e-14)
    monkeypatch.setattr(errors, "SHARE", 1e-12)
    result = headscan.scan("gpt-vanilla", "stories", **OPTIONS)
    notes = " ".join(result.protocol.notes)
    assert "At 3 sites that is more than is allowed. --arithmetic exact" in notes
    assert result.sites != exact.sites


def test_products_that_are_far_coarser_than_float32_are_not_used(monkeypatch):
    monkeypatch.setattr(tiles, "COARSE", 1e-12)
    assert made(states(), batches()).tiles is None


def test_more_than_the_core_measures_is_exact(exact):
    result = headscan.scan("gpt-vanilla", "stories", measures="rankme", **OPTIONS)
    assert "Sums in float64." in result.protocol.notes
    assert result.sites[0]["effective_rank"] == exact.sites[0]["effective_rank"]
