"""Three phases over checkpoints: planted trajectories are found, shuffled ones are not, and the fit is the best there is."""

from itertools import product

import numpy as np
import pytest
from headscan_lab.theory.phases import phases

from headscan import BadInput

STEPS = [0, 1, 2, 5, 10, 20, 50, 100, 200]


def monotone(values, rising):
    """The least squares of a monotone trajectory, by trying every way to pool neighbours."""
    best = np.inf
    n = len(values)
    if not n:
        return 0.0
    for cuts in product([False, True], repeat=n - 1):
        groups = np.cumsum([0, *cuts])
        means = np.array([values[groups == g].mean() for g in range(groups[-1] + 1)])
        if (np.diff(means) >= 0).all() if rising else (np.diff(means) <= 0).all():
            best = min(best, float(((values - means[groups]) ** 2).sum()))
    return best


def test_the_fit_is_the_best_of_all_trajectories():
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal(6)
        least = min(
            monotone(values[:a], False) + monotone(values[a:b], True) + monotone(values[b:], False)
            for a in range(7)
            for b in range(a, 7)
        )
        found = phases(range(6), values, draws=1)
        assert found.fit == pytest.approx(1 - least / ((values - values.mean()) ** 2).sum())


def test_a_planted_course_is_found_and_the_missing_phase_is_not():
    trajectory = np.array([40, 10, 4, 6, 12, 20, 30, 25, 18]) + 0.3 * np.random.default_rng(0).standard_normal(9)
    found = phases(STEPS, trajectory, draws=200)
    assert (found.lowest, found.highest) == (2, 50)
    assert found.present == ("collapse", "expansion", "compression")
    assert found.fit > 0.99 > found.shuffled
    assert found.p < 0.05
    assert phases(STEPS, np.arange(9.0), draws=20).present == ("expansion",)
    assert phases(STEPS, -np.arange(9.0), draws=20).present in (("collapse",), ("compression",))


def test_shuffled_courses_have_even_p_values():
    generator = np.random.default_rng(1)
    low = [phases(range(7), generator.standard_normal(7), draws=19, seed=k).p <= 0.2 for k in range(40)]
    assert 1 <= sum(low) <= 18  # of 40 at .2: beyond is a chance of 1 in 1,000


@pytest.mark.parametrize("given", [([0, 1, 2], [1, 2, 3]), ([0, 1, 1, 2], [1, 2, 3, 4]), (range(4), [1, 1, 1, 1])])
def test_what_has_no_course_is_refused(given):
    with pytest.raises(BadInput, match="Phases need"):
        phases(*given)
