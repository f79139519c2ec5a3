"""Noises that are not Gaussian: bounds and truth against numerical integration, and against the Gaussian's own path."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headscan.leaks.bounds import leak_bounds
from headscan.leaks.noise_laws import GAUSSIAN, LAPLACE, UNIFORM, Law
from headscan.run import BadInput
from tests.leaks.test_bounds import code_of
from tests.reference.leaks import mutual_information_of

DENSITIES = {
    "Gaussian": lambda x: np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi),
    "Laplace": lambda x: np.exp(-np.abs(x) * math.sqrt(2)) / math.sqrt(2),
    "uniform": lambda x: (np.abs(x) <= math.sqrt(3)) / (2 * math.sqrt(3)),
}


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE, UNIFORM], ids=lambda law: law.name)
@pytest.mark.parametrize("sigma", [0.1, 0.5, 3.0])
def test_bounds_and_truth_are_those_of_numerical_integration(law, sigma):
    code = code_of(9, 1, 3)
    points, prior = code.points[:, 0].numpy().astype(float), code.masses.numpy()
    exact = mutual_information_of(points, prior, sigma, DENSITIES[law.name], law.entropy)
    (bound,), (drawn,) = law.bounds(code, [sigma]), law.draws(code, [sigma], draws=3000)
    assert bound.lower <= exact + 1e-4
    assert exact <= bound.upper + 1e-4
    assert abs(float(drawn.bits.mean()) - exact) < 4 * float(drawn.bits.std()) / 3000**0.5 + 1e-4


def test_the_divergences_are_those_of_the_densities():
    y = np.linspace(-40, 40, 160_001)
    for law in (GAUSSIAN, LAPLACE, UNIFORM):
        density = DENSITIES[law.name]
        for apart in (0.3, 1.7):
            p, q = density(y), density(y - apart)
            overlap = -math.log(np.trapezoid(np.sqrt(p * q), y))
            assert float(law.bhattacharyya(torch.tensor([apart]))) == pytest.approx(overlap, abs=1e-3)
            if law is UNIFORM:
                assert float(law.divergence(torch.tensor([apart]))) == math.inf
            else:
                safe = np.maximum(p, 1e-300)
                divergence = np.trapezoid(p * np.log(safe / np.maximum(q, 1e-300)), y)
                assert float(law.divergence(torch.tensor([apart]))) == pytest.approx(divergence, abs=1e-3)


def test_the_general_path_is_the_gaussians_own_where_the_noise_is():
    code = code_of(40, 5, 1)
    for slow, fast in zip(Law.bounds(GAUSSIAN, code, [0.3, 2.0]), leak_bounds(code, [0.3, 2.0]), strict=True):
        assert slow.upper == pytest.approx(fast.upper, abs=1e-9)
        assert slow.lower <= fast.lower + 1e-9  # which has Fano's bound, too
    slow, fast = Law.draws(GAUSSIAN, code, [0.8], draws=2000)[0], GAUSSIAN.draws(code, [0.8], draws=2000)[0]
    error = (float(slow.bits.var() + fast.bits.var()) / 2000) ** 0.5
    assert abs(float(slow.bits.mean() - fast.bits.mean())) < 4 * error


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE, UNIFORM], ids=lambda law: law.name)
def test_noise_has_variance_one_and_its_entropy(law):
    drawn = law.draw((200_000,), torch.Generator().manual_seed(0))
    assert float(drawn.var()) == pytest.approx(1, abs=0.02)
    mean = float(law.surprise(drawn[:, None]).mean()) / math.log(2)
    constant = -math.log2(DENSITIES[law.name](np.zeros(1))[0]) - float(law.surprise(torch.zeros(1, 1))[0]) / math.log(2)
    assert mean + constant == pytest.approx(law.entropy, abs=0.02)
    with pytest.raises(BadInput, match="above 0"):
        law.bounds(code_of(3, 1, 0), [0.0])


def test_subtractive_dither_is_uniform_noise_that_does_not_depend_on_what_is_rounded():
    generator, step = torch.Generator().manual_seed(1), 0.7
    x = torch.randn(100_000, generator=generator, dtype=torch.float64)
    dither = (torch.rand(100_000, generator=generator, dtype=torch.float64) - 0.5) * step
    error = ((x + dither) / step).round() * step - dither - x
    assert float(error.abs().max()) <= step / 2 + 1e-12
    assert float(error.std()) == pytest.approx(step / math.sqrt(12), rel=0.01)
    assert abs(float(torch.corrcoef(torch.stack([error.abs(), x.abs()]))[0, 1])) < 0.02
