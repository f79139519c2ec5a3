"""The nearest neighbours of a scan's sampled tokens against a slow search, and what has none."""

import numpy as np
import torch

from headscan.scanner.picture import NEIGHBOURS, nearest


def slow(states: np.ndarray, ids: list[int], row: int) -> list[int]:
    """Row by row, by hand: of each id the nearest other vector, then the ten nearest of these."""
    best: dict[int, tuple[float, int]] = {}
    for k, kind in enumerate(ids):
        if k != row:
            a = states[row]
            b = states[k]
            cosine = float(a @ b / np.sqrt((a @ a) * (b @ b)))
            best[kind] = max(best.get(kind, (-2.0, k)), (cosine, k))
    return [k for _, k in sorted(best.values(), reverse=True)][:NEIGHBOURS]


def test_neighbours_are_those_of_a_slow_search():
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(90, 24, generator=generator) + 0.4
    ids = torch.randint(0, 30, (90,), generator=generator)
    neighbours, cosines = nearest(states, ids)
    exact = states.double().numpy()
    for row in range(90):
        assert neighbours[row].tolist() == slow(exact, ids.tolist(), row)
        a = exact[row]
        neighbour_states = exact[neighbours[row]]
        expected = neighbour_states @ a / np.sqrt((a @ a) * (neighbour_states**2).sum(1))
        np.testing.assert_allclose(cosines[row], expected, atol=1e-6)
    scaled, _ = nearest(states * torch.logspace(-3, 3, 90)[:, None], ids)
    assert (scaled == neighbours).all()


def test_what_has_no_direction_has_no_neighbours_and_is_none():
    states = torch.tensor([[1.0, 0], [float("nan"), 1], [0, 0], [1, 1], [float("inf"), 0]])
    neighbours, cosines = nearest(states, torch.arange(5))
    assert neighbours[:, 0].tolist() == [3, -1, -1, 0, -1]
    assert (neighbours[:, 1:] == -1).all()
    assert np.isnan(cosines).sum() == neighbours.size - 2
    for few in (states[:0], states[:1], states[1:3]):
        assert (nearest(few, torch.arange(len(few)))[0] == -1).all()
