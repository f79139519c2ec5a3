"""Every accumulator is a monoid: any split of the data, any order of merging, stored and restored,
gives the same.
"""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from headscan.statistics import Gram, NonFinite, Reservoir, SiteStatistics, Sums, TokenCounts
from headscan.statistics.accumulator import unprefixed

WIDTH = 6
LENGTH = 5
VOCABULARY = 11
# of a matrix's norm; in 1,500 examples of each test two orders of summing differ by at most 1.2e-15
ROUNDING = 1e-14


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-12, atol=1e-12)


def near(a: torch.Tensor, b: torch.Tensor, size: torch.Tensor) -> bool:
    """Tell whether two matrices are equal but for the rounding of sums as large as `size`: by
    norms, not by elements.

    An element near zero is what is left of products that cancel, and keeps the absolute rounding of
    the large ones.
    """
    return a.shape == b.shape and bool((a - b).norm() <= ROUNDING * size.norm())


def same(
    a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], reference: Gram | None = None
) -> None:
    """Assert that two states hold the same; Gram matrices by what they say, whatever point they
    were taken about.

    `whole` is the Gram matrix that both were computed from, where it is larger than theirs.
    """
    assert {name for name in a if "gram" not in name} == {name for name in b if "gram" not in name}
    for name, tensor in a.items():
        if "gram" not in name:
            assert close(tensor, b[name]), name
    for name in {name.rpartition("/")[0] for name in a if "gram" in name}:
        x, y = (Gram.restore(unprefixed(name, state)) for state in (a, b))
        size = (reference or y).dense()
        assert x.count == y.count, name
        assert near(x.dense(), y.dense(), size), name
        assert near(x.scatter(), y.scatter(), size), name


@st.composite
def split_streams(draw):
    """A stream of windows, cut into batches, the batches dealt out to parts, the parts in any
    order.
    """
    windows = draw(st.integers(1, 90))
    cuts = sorted(draw(st.sets(st.integers(1, windows), max_size=8)) | {0, windows})
    batches = [list(range(a, b)) for a, b in pairwise(cuts)]
    owners = draw(st.lists(st.integers(0, 2), min_size=len(batches), max_size=len(batches)))
    order = draw(st.permutations([0, 1, 2]))
    return windows, batches, owners, order


def states(windows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(windows)
    x = torch.randn(windows, LENGTH, WIDTH, generator=generator) + 1
    x[0, 1] = 0  # a vector without a direction
    x[::3, 0] *= 40  # sinks, at the first position and elsewhere
    x[::4, 3] *= 50
    return x


def restored(accumulator):
    return type(accumulator).restore(
        load(save({k: v.contiguous() for k, v in accumulator.state().items()}))
    )


@settings(deadline=None, max_examples=60)
@given(split_streams(), st.sampled_from([1, 2, 4]))
def test_site_statistics_do_not_depend_on_the_split(stream, lengths):
    windows, batches, owners, order = stream
    x = states(windows)
    at_once = SiteStatistics(WIDTH, lengths=lengths)
    at_once.update(x, list(range(windows)))
    parts = [SiteStatistics(WIDTH, lengths=lengths) for _ in range(3)]
    for batch, owner in zip(batches, owners, strict=True):
        parts[owner].update(x[batch], batch)
    merged = SiteStatistics(WIDTH, lengths=lengths)
    for index in order:
        merged.merge(restored(parts[index]))
    same(merged.state(), at_once.state())
    for k, sums in enumerate(at_once.prefixes()):  # the whole of the first 1, 2, 4, ... windows
        shorter = SiteStatistics(WIDTH)
        shorter.update(
            x[: 2 ** (at_once.octaves.items()[k][0])],
            list(range(windows))[: 2 ** (at_once.octaves.items()[k][0])],
        )
        same(sums.state(), shorter.sums("without_sinks").state())


@settings(deadline=None, max_examples=40)
@given(split_streams(), st.integers(0, 40))
def test_reservoir_keeps_the_same_sample_whatever_the_split(stream, size):
    windows, batches, owners, order = stream
    x = states(windows)

    def fill(reservoir: Reservoir, batch: list[int]) -> None:
        offered = reservoir.offer(batch, LENGTH)
        reservoir.put(offered, {"x": offered.of(x[batch])})

    at_once = Reservoir(size, seed=3)
    fill(at_once, list(range(windows)))
    parts = [Reservoir(size, seed=3) for _ in range(3)]
    for batch, owner in zip(batches, owners, strict=True):
        fill(parts[owner], batch)
    merged = Reservoir(size, seed=3)
    for index in order:
        merged.merge(restored(parts[index]))
    assert len(at_once) == min(size, windows * LENGTH)
    assert torch.equal(merged.places, at_once.places)
    if len(at_once):
        assert torch.equal(merged.columns["x"], at_once.columns["x"])
        window, position = at_once.places[0].tolist()
        assert torch.equal(at_once.columns["x"][0], x[window, position])


def test_reservoir_is_uniform_over_positions():
    hits = torch.zeros(20, 10)
    for seed in range(400):
        reservoir = Reservoir(20, seed=seed)
        offered = reservoir.offer(list(range(20)), 10)
        reservoir.put(offered, {})
        for window, position in reservoir.places.tolist():
            hits[window, position] += 1
    expected = 400 * 20 / 200  # 40 a position, binomial standard deviation 6
    assert abs(hits.mean() - expected) < 1e-4
    assert hits.std() == pytest.approx(6.0, rel=0.25)
    assert (hits.sum(0) - 800).abs().max() < 5 * 27  # no favoured position
    assert (hits.sum(1) - 400).abs().max() < 5 * 19  # no favoured window


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60), st.integers(0, 60))
def test_token_counts_merge(ids, cut):
    tensor = torch.tensor(ids)
    left = TokenCounts(VOCABULARY)
    right = TokenCounts(VOCABULARY)
    left.update(tensor[:cut])
    right.update(tensor[cut:])
    left.merge(restored(right))
    assert torch.equal(left.counts, torch.bincount(tensor, minlength=VOCABULARY))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 17])
def test_gram_equals_the_full_product(width):
    x = torch.randn(40, width, dtype=torch.float64)
    gram = Gram(width)
    gram.add(x[:13])
    gram.add(x[13:])
    assert near(gram.dense(), x.T @ x, x.T @ x)
    centred = x - x.mean(0)
    assert near(gram.scatter(), centred.T @ centred, x.T @ x)


@settings(deadline=None, max_examples=30)
@given(split_streams(), st.sampled_from([0.0, 1e3, 1e7, -1e10]))
def test_a_gram_far_from_the_origin_keeps_its_scatter_whatever_the_split(stream, offset):
    windows, batches, owners, order = stream
    x = states(windows).double() + offset * torch.arange(1.0, WIDTH + 1)
    parts = [Gram(WIDTH) for _ in range(3)]
    for batch, owner in zip(batches, owners, strict=True):
        parts[owner].add(x[batch].reshape(-1, WIDTH))
    merged = Gram(WIDTH)
    for index in order:
        merged.combine(restored(parts[index]))
    centred = x - x[0, 0]
    rows = (centred - centred.mean((0, 1))).reshape(-1, WIDTH)
    # A part may begin with few windows: what it does not lose is set by its own spread.
    assert torch.allclose(merged.scatter(), rows.T @ rows, rtol=1e-9, atol=1e-9 * len(rows))
    merged.combine(restored(parts[order[0]]), sign=-1.0)
    merged.combine(restored(parts[order[0]]))
    assert torch.allclose(merged.scatter(), rows.T @ rows, rtol=1e-9, atol=1e-9 * len(rows))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 10**6))
def test_sums_are_a_group(n, m, seed):
    rows = torch.randn(n + m, 4, generator=torch.Generator().manual_seed(seed))
    both = Sums.of_rows(rows)
    x = Sums.of_rows(rows[:n])
    y = Sums.of_rows(rows[n:])
    same(both.without(y).state(), x.state(), reference=both.gram)


def test_groups_of_a_site_are_what_they_say():
    x = states(7)
    s = SiteStatistics(WIDTH)
    s.update(x[:4], [0, 1, 2, 3])
    s.update(x[4:], [4, 5, 6])
    norms = x.double().norm(dim=-1)
    sinks = norms > 3 * norms.median(dim=1, keepdim=True).values
    assert {(w, t) for w, t in sinks.nonzero().tolist()} >= {(0, 0), (3, 0), (6, 0), (0, 3), (4, 3)}
    groups = {"all": sinks | True, "without_first": sinks | True, "without_sinks": ~sinks}
    groups["without_first"][:, 0] = False
    for group, mask in groups.items():
        group_sums = s.sums(group)
        expected = Sums.of_rows(x[mask])
        same(group_sums.state(), expected.state())
    assert dict(s.sink_positions.most()) == Counter(sinks.nonzero()[:, 1].tolist())
    skipping = SiteStatistics(WIDTH, skip_first=2)
    skipping.update(x, list(range(7)))
    assert skipping.all.count == skipping.sums("without_first").count == 7 * (LENGTH - 2)


def test_giants_leave_no_rounding_behind():
    """A second moment less that of sinks a million times longer would have lost twelve of its
    sixteen digits.
    """
    x = torch.randn(4, 16, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 0] *= 1e6
    copy = x.clone()
    s = SiteStatistics(WIDTH)
    s.update(x, [0, 1, 2, 3])
    assert torch.equal(x, copy)
    expected = Sums.of_rows(x[:, 1:].reshape(-1, WIDTH)).gram.dense()
    assert torch.allclose(s.sums("without_sinks").gram.dense(), expected, rtol=1e-14, atol=1e-14)
    assert not torch.allclose(
        s.all.without(Sums.of_rows(x[:, 0])).gram.dense(), expected, rtol=1e-5
    )


@pytest.mark.parametrize("rows", [3, 400])
def test_few_rows_are_kept_until_a_matrix_is_smaller(rows):
    x = torch.randn(rows, 64, dtype=torch.float64)
    few = Gram(64, few=40)
    for part in x.split(7):
        few.add(part)
    assert bool(few.panels) == (rows > 40)
    restored = Gram.restore(few.state())
    twice = restored.copy()
    twice.combine(few)
    difference = twice.copy()
    difference.combine(few, sign=-1.0)
    scatter = (x - x.mean(0)).T @ (x - x.mean(0))
    for gram, times in ((few, 1), (restored, 1), (twice, 2), (difference, 1)):
        assert gram.count == times * rows
        assert torch.allclose(gram.dense(), times * x.T @ x, atol=1e-10)
        assert torch.allclose(gram.scatter(), times * scatter, atol=1e-10)
        assert torch.allclose(gram.diagonal(), gram.dense().diagonal(), atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_few_rows_wait_for_others_and_are_in_every_number(dtype):
    x = torch.randn(300, 64, dtype=torch.float64).to(dtype)
    gram = Gram(64, few=40)
    for part in x.split(7):
        gram.add_few(part)
    assert gram.panels
    assert gram.waiting
    assert gram.count + sum(len(part) for part in gram.waiting) == 300
    restored = Gram.restore(load(save(gram.state())))
    assert torch.equal(torch.cat(restored.waiting), torch.cat(gram.waiting).double())
    none = gram.copy()
    none.combine(gram, sign=-1.0)
    assert none.count == 0
    assert torch.allclose(none.dense(), torch.zeros(64, 64, dtype=torch.float64), atol=1e-10)
    exact = x.double()
    twice = torch.cat([exact, exact])
    merged = Gram(64, few=40)
    merged.combine(gram)
    merged.combine(restored)
    for sums, rows in ((gram, exact), (restored, exact), (merged, twice)):
        assert torch.allclose(sums.diagonal(), rows.square().sum(0), atol=1e-10)
        assert torch.allclose(sums.dense(), rows.T @ rows, atol=1e-10)
        centred = rows - rows.mean(0)
        assert torch.allclose(sums.scatter(), centred.T @ centred, atol=1e-10)
        assert sums.count == len(rows)


def test_blocks_are_the_same_with_intervals_and_without():
    """With intervals they are those of the clusters of windows, and of a remainder."""
    x = states(150)

    def made(*, intervals: bool, windows: range) -> SiteStatistics:
        s = SiteStatistics(WIDTH, intervals=intervals)
        for window in windows:
            s.update(x[window, None], [window], remainder=window == 149)
        return s

    expected = made(intervals=False, windows=range(150)).blocks()
    with_intervals = made(intervals=True, windows=range(150))
    parts = []
    for intervals in (True, False):
        merged = made(intervals=not intervals, windows=range(70))
        merged.merge(made(intervals=intervals, windows=range(70, 150)))
        parts.append(merged.blocks())
    for blocks in (with_intervals.blocks(), restored(with_intervals).blocks(), *parts):
        assert blocks.size == expected.size == 4
        assert close(blocks.table, expected.table)


def test_blocks_stay_bounded_and_consecutive():
    s = SiteStatistics(WIDTH)
    x = states(1)
    for window in range(1000):
        s.update(x, [window])
    other_positions, first = s.blocks().table[..., 2 * WIDTH]
    assert (other_positions + first).tolist() == [16 * LENGTH] * 62 + [8 * LENGTH, 0]
    assert first.tolist() == [16] * 62 + [8, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_vector_is_named_and_nothing_is_added(bad):
    x = states(3)
    x[1, 2, 4] = bad
    s = SiteStatistics(WIDTH)
    with pytest.raises(NonFinite) as error:
        s.update(x, [10, 11, 12])
    assert (error.value.window, error.value.position) == (11, 2)
    assert s.all.count == 0


@pytest.mark.parametrize("stop", [1, 2, 3, 7, 12, 19])
def test_sums_that_were_stored_at_any_batch_go_on_to_the_last_bit(stop):
    states = torch.randn(40, 16, 128, generator=torch.Generator().manual_seed(0)) + 0.3
    ends = []
    for stored in (None, stop):
        sums = SiteStatistics(128, intervals=True, lengths=4)
        for batch in range(20):
            if batch == stored:
                sums = SiteStatistics.restore(
                    {name: tensor.clone() for name, tensor in sums.state().items()}
                )
            sums.update(states[2 * batch : 2 * batch + 2], [2 * batch, 2 * batch + 1])
        ends.append(sums.state())
    assert {*ends[0]} == {*ends[1]}
    assert [
        name for name, tensor in ends[0].items() if not torch.equal(tensor, ends[1][name])
    ] == []
