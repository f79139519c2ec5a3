"""The accumulators of classes, tallies and kept windows are monoids: any split gives the same
result.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.statistics import ClassSums, ContextTally, DirectionTally, FollowTally, SiteBatch
from headscan.statistics.counts import FirstWindows


def batches(seed, windows=9, length=5, width=4):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(windows, length, width, generator=generator)
    states[torch.rand(windows, length, generator=generator) < 0.1] = 0.0
    return states, torch.randint(0, 20, (windows, length), generator=generator)


def split(seed, windows, parts):
    return np.random.default_rng(seed).integers(0, parts, windows)


def same(one, other):
    a = one.state()
    b = other.state()
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-9, atol=1e-9, msg=name)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([None, 5]))
def test_classes_in_any_split(seed, parts, limit):
    states, ids = batches(seed)
    rows = states.reshape(-1, 4)
    labels = ids.reshape(-1)
    whole = ClassSums(4, limit=limit)
    whole.update(labels, rows)
    where = split(seed, len(rows), parts)
    merged = ClassSums(4, limit=limit)
    for part in range(parts):
        own = ClassSums(4, limit=limit)
        for k in np.flatnonzero(where == part):
            own.update(labels[k : k + 1], rows[k : k + 1])
        merged.merge(ClassSums.restore(own.state()))
    same(merged, whole)
    if limit is not None:
        assert len(whole) == min(limit, len(labels.unique()))
    for k, label in enumerate(whole.labels.tolist()):
        mine = rows[labels == label].double()
        torch.testing.assert_close(whole.sums[k], mine.sum(0))
        torch.testing.assert_close(
            whole.units[k], torch.nn.functional.normalize(mine, dim=-1).sum(0)
        )
        assert whole.counts[k] == len(mine)
        assert whole.zeros[k] == (mine == 0).all(1).sum()
        assert whole.squares[k].item() == pytest.approx(mine.square().sum().item())


def test_labels_below_zero_are_left_out():
    sums = ClassSums(1)
    sums.update(torch.tensor([-1, -1]), torch.ones(2, 1))
    assert len(sums) == 0


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.sampled_from([DirectionTally, ContextTally, FollowTally]),
)
def test_tallies_in_any_split(seed, parts, kind):
    states, ids = batches(seed, windows=40)
    table = torch.nn.functional.normalize(
        torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    )
    where = split(seed, 40, parts)
    whole = kind(4)
    merged = kind(4)
    for tally in (whole, merged):
        if kind is FollowTally:
            tally.table = table
    whole.update(SiteBatch("s", states, ids, list(range(40))))
    for part in range(parts):
        own = kind(4)
        if kind is FollowTally:
            own.table = table
        members = np.flatnonzero(where == part).tolist()
        for k in range(0, len(members), 3):
            chosen = members[k : k + 3]
            own.update(SiteBatch("s", states[chosen], ids[chosen], chosen))
        merged.merge(kind.restore(own.state()) if members else own)
    same(merged, whole)


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)), st.integers(1, 7))
def test_kept_windows_are_the_first_ones_in_any_order(order, keep):
    ids = torch.arange(12).reshape(6, 2)
    kept = FirstWindows(2 * keep)
    for window in order:
        part = FirstWindows(2 * keep)
        part.update(ids[window][None], [window])
        kept.merge(FirstWindows.restore(part.state()))
    assert kept.ids.tolist() == ids[:keep].tolist()


def test_skipped_positions_are_seen_by_nobody():
    batch = SiteBatch("s", torch.randn(1, 4, 2), torch.tensor([[1, 2, 3, 4]]), [0], skip_first=2)
    assert batch.rows.shape == (1, 2, 2)
    assert batch.next_ids.tolist() == [[4, -1]]
