"""Bounds on leaks in bits, held against slow references, against numerical integration, and in
their order.
"""

import math

import numpy as np
import pytest
import torch

from headscan.leaks.bounds import (
    Code,
    accuracy_ceiling,
    code_bits,
    draws_of,
    leak_bounds,
    pairwise_bits,
    union_accuracy,
)
from headscan.run import BadInput
from headscan.statistics.information import divergence_accuracy, entropy_bits, fano_accuracy
from tests.reference.leaks import mutual_information, pairwise_bounds


def code_of(count, width, seed, power=2.0):
    generator = torch.Generator().manual_seed(seed)
    prior = torch.rand(count, generator=generator, dtype=torch.float64) ** power
    return Code(torch.randn(count, width, generator=generator), prior / prior.sum())


@pytest.mark.parametrize("sigma", [0.1, 0.7, 3.0])
def test_one_curve_gives_both_bounds(sigma):
    """The lower bound, from Bhattacharyya divergences, is the upper one, from Kullback-Leibler, at
    twice the noise.
    """
    code = code_of(40, 3, 1)
    low, high = pairwise_bounds(code.points.numpy().astype(float), code.masses.numpy(), sigma)
    upper, doubled = pairwise_bits(code, [sigma, 2 * sigma])
    assert upper == pytest.approx(high, abs=1e-9)
    assert doubled == pytest.approx(low, abs=1e-9)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 4.0])
def test_the_truth_is_that_of_numerical_integration_and_lies_between(sigma):
    code = code_of(12, 1, 3)
    exact = mutual_information(code.points[:, 0].numpy().astype(float), code.masses.numpy(), sigma)
    (found,) = draws_of(code, [sigma], draws=4000)
    (bound,) = leak_bounds(code, [sigma])
    assert abs(found.mean - exact) < 4 * found.error + 1e-6
    assert bound.lower <= exact + 1e-9
    assert exact <= bound.upper + 1e-9


def test_no_order_is_violated_and_no_attack_passes_its_ceiling():
    sigmas = [0.1, 0.4, 1.0, 2.5]
    for seed in range(12):
        code = code_of(30 + 10 * seed, 1 + seed, seed, power=seed / 2)
        for bound, found in zip(
            leak_bounds(code, sigmas), draws_of(code, sigmas, draws=300, seed=seed), strict=True
        ):
            assert bound.lower <= found.mean + 4 * found.error + 1e-9
            assert found.mean - 4 * found.error <= bound.upper + 1e-9
            assert bound.upper <= code.entropy + 1e-9
            slack = 4 * (found.accuracy * (1 - found.accuracy) / 300) ** 0.5 + 0.01
            assert (
                union_accuracy(code, bound.noise) - slack
                <= found.accuracy
                <= bound.accuracy_upper + slack
            )


def test_what_was_not_run_is_paid_for():
    """Bounds of the likeliest half hold for the whole prior; the lower one loses little where the
    points are apart.
    """
    code = code_of(60, 2, 5)
    order = code.masses.argsort(descending=True)
    some = order[:30]
    cut = Code(code.points[some], code.masses[some], code.masses[order[30:]])
    assert cut.entropy == pytest.approx(code.entropy)
    r = float(code.masses[order[30:]].sum())
    rest = entropy_bits(code.masses[order[30:]].numpy() / r)
    assert cut.tail == pytest.approx(entropy_bits([r, 1 - r]) + r * rest)
    for sigma in (0.02, 0.3, 1.0):
        (truth,) = draws_of(code, [sigma], draws=2000)
        (bound,) = leak_bounds(cut, [sigma])
        assert bound.lower - 4 * truth.error <= truth.mean <= bound.upper + 4 * truth.error
        assert truth.accuracy <= bound.accuracy_upper + 0.03
    with pytest.raises(BadInput, match="add up to"):
        Code(code.points[some], code.masses[some])


def test_equal_points_hide_their_difference():
    points = torch.tensor([[0.0], [0.0], [50.0]])
    code = Code(points, torch.tensor([0.25, 0.25, 0.5]))
    (bound,) = leak_bounds(code, [0.5])
    assert bound.lower == pytest.approx(1.0, abs=1e-6)
    assert bound.upper == pytest.approx(1.0, abs=1e-6)
    exact = code_bits(code)
    assert (exact.lower, exact.upper, exact.accuracy_upper) == (1.0, 1.0, 0.75)


def test_nothing_is_said_without_noise_or_of_what_is_no_number():
    code = code_of(5, 2, 0)
    with pytest.raises(BadInput, match="exact inversion for"):
        leak_bounds(code, [0.0])
    with pytest.raises(BadInput, match="release is not finite"):
        Code(torch.tensor([[math.nan]]), torch.tensor([1.0]))


def test_draws_are_unbiased_with_and_without_the_rows_of_all_candidates():
    code = code_of(50, 4, 9)
    (with_all,), (without,) = (
        draws_of(code, [0.8], draws=4000, all_rows=all_rows) for all_rows in (True, False)
    )
    both = float(with_all.bits.var() + without.bits.var()) / 4000
    assert abs(float(with_all.bits.mean() - without.bits.mean())) < 4 * both**0.5
    assert float(with_all.bits.var()) < float(without.bits.var())


def test_the_divergence_form_is_fano_for_equal_names_and_tighter_for_one_likely_name():
    assert divergence_accuracy(3.0, 1 / 512) == pytest.approx(fano_accuracy(3.0, 512), abs=1e-9)
    prior = 0.3 ** torch.arange(512, dtype=torch.float64).clamp(max=100)
    code = Code(torch.zeros(512, 1), prior / prior.sum())
    assert accuracy_ceiling(code, 0.0) == pytest.approx(0.7, abs=1e-6)
    assert accuracy_ceiling(code, 0.1) < fano_accuracy(0.1, 512, code.entropy)
    assert np.isfinite(accuracy_ceiling(code, 99.0))
