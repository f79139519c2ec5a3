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


def same(first, second):
    a = first.state()
    b = second.state()
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-9, atol=1e-9, msg=name)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([None, 5]))
def test_classes_in_any_split(seed, parts, limit):
    states, ids = batches(seed)
    rows = states.reshape(-1, 4)
    labels = ids.reshape(-1)
    at_once = ClassSums(4, limit=limit)
    at_once.update(labels, rows)
    where = split(seed, len(rows), parts)
    merged = ClassSums(4, limit=limit)
    for part in range(parts):
        own_sums = ClassSums(4, limit=limit)
        for k in np.flatnonzero(where == part):
            own_sums.update(labels[k : k + 1], rows[k : k + 1])
        merged.merge(ClassSums.restore(own_sums.state()))
    same(merged, at_once)
    if limit is not None:
        assert len(at_once) == min(limit, len(labels.unique()))
    for k, label in enumerate(at_once.labels.tolist()):
        mine = rows[labels == label].double()
        torch.testing.assert_close(at_once.sums[k], mine.sum(0))
        torch.testing.assert_close(
            at_once.units[k], torch.nn.functional.normalize(mine, dim=-1).sum(0)
        )
        assert at_once.counts[k] == len(mine)
        assert at_once.zeros[k] == (mine == 0).all(1).sum()
        assert at_once.squares[k].item() == pytest.approx(mine.square().sum().item())


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
    at_once = kind(4)
    merged = kind(4)
    for tally in (at_once, merged):
        if kind is FollowTally:
            tally.table = table
    at_once.update(SiteBatch("s", states, ids, list(range(40))))
    for part in range(parts):
        part_tally = kind(4)
        if kind is FollowTally:
            part_tally.table = table
        members = np.flatnonzero(where == part).tolist()
        for k in range(0, len(members), 3):
            members_of_part = members[k : k + 3]
            part_tally.update(
                SiteBatch("s", states[members_of_part], ids[members_of_part], members_of_part)
            )
        merged.merge(kind.restore(part_tally.state()) if members else part_tally)
    same(merged, at_once)


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)), st.integers(1, 7))
def test_kept_windows_are_the_first_ones_in_any_order(order, keep):
    ids = torch.arange(12).reshape(6, 2)
    windows = FirstWindows(2 * keep)
    for window in order:
        part = FirstWindows(2 * keep)
        part.update(ids[window][None], [window])
        windows.merge(FirstWindows.restore(part.state()))
    assert windows.ids.tolist() == ids[:keep].tolist()


def test_skipped_positions_are_seen_by_nobody():
    batch = SiteBatch("s", torch.randn(1, 4, 2), torch.tensor([[1, 2, 3, 4]]), [0], skip_first=2)
    assert batch.rows.shape == (1, 2, 2)
    assert batch.next_ids.tolist() == [[4, -1]]
