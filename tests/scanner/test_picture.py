"""The nearest neighbours of a scan's sampled tokens against a slow search, and what has none."""

import numpy as np
import torch

from headscan.scanner.picture import NEIGHBOURS, nearest


def slow(states: np.ndarray, ids: list[int], row: int) -> list[int]:
    """Row by row, by hand: of each id the nearest other vector, then the ten nearest of these."""
    best: dict[int, tuple[float, int]] = {}
    for other, kind in enumerate(ids):
        if other != row:
            a = states[row]
            b = states[other]
            cosine = float(a @ b / np.sqrt((a @ a) * (b @ b)))
            best[kind] = max(best.get(kind, (-2.0, other)), (cosine, other))
    return [other for _, other in sorted(best.values(), reverse=True)][:NEIGHBOURS]


def test_neighbours_are_those_of_a_slow_search():
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(90, 24, generator=generator) + 0.4
    ids = torch.randint(0, 30, (90,), generator=generator)
    near, cosines = nearest(states, ids)
    exact = states.double().numpy()
    for row in range(90):
        assert near[row].tolist() == slow(exact, ids.tolist(), row)
        a = exact[row]
        others = exact[near[row]]
        wanted = others @ a / np.sqrt((a @ a) * (others**2).sum(1))
        np.testing.assert_allclose(cosines[row], wanted, atol=1e-6)
    scaled, _ = nearest(states * torch.logspace(-3, 3, 90)[:, None], ids)
    assert (scaled == near).all()


def test_what_has_no_direction_has_no_neighbours_and_is_none():
    states = torch.tensor([[1.0, 0], [float("nan"), 1], [0, 0], [1, 1], [float("inf"), 0]])
    near, cosines = nearest(states, torch.arange(5))
    assert near[:, 0].tolist() == [3, -1, -1, 0, -1]
    assert (near[:, 1:] == -1).all()
    assert np.isnan(cosines).sum() == near.size - 2
    for few in (states[:0], states[:1], states[1:3]):
        assert (nearest(few, torch.arange(len(few)))[0] == -1).all()
