"""Cross-entropy in all its forms, and the baselines that sample."""

from __future__ import annotations

import pytest
import torch

from headscan import BadInput
from headscan.training import (
    AdaptiveSoftmax,
    available_kernels,
    ce_loss,
    full_ce_loss,
    gather_rows,
    log_unigram,
    nce_loss,
    sample_noise,
    sampled_softmax_loss,
)

FORMS = ["full", "chunked", *available_kernels()]


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 7, 6, generator=generator, dtype=torch.float64).requires_grad_()
    table = torch.randn(13, 6, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(13, (3, 7), generator=generator)
    labels[torch.rand(3, 7, generator=generator) < 0.6] = -100
    return hidden, table, labels


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_gathered_cross_entropy_equals_projecting_everything(problem, form, with_bias):
    hidden, table, labels = problem
    bias = torch.randn(13, dtype=torch.float64) if with_bias else None
    whole = full_ce_loss(hidden, table, labels, bias=bias)
    part = ce_loss(*_swap(gather_rows(hidden, labels), table), form, bias=bias, chunk=4)
    assert part.item() == pytest.approx(whole.item(), abs=1e-10)
    for one, other in zip(
        torch.autograd.grad(part, (hidden, table)), torch.autograd.grad(whole, (hidden, table)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def _swap(gathered, table):
    rows, targets = gathered
    return rows, table, targets


def test_no_masked_positions_give_zero(problem):
    hidden, table, labels = problem
    nothing = torch.full_like(labels, -100)
    assert full_ce_loss(hidden, table, nothing) == 0
    rows, targets = gather_rows(hidden, nothing)
    for form in FORMS:
        assert ce_loss(rows, table, targets, form) == 0


def test_sampled_softmax_tends_to_the_full_loss():
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    table = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    targets = torch.randint(40, (50,), generator=generator)
    noise_law = log_unigram(torch.randint(1, 30, (40,), generator=generator))
    full = ce_loss(hidden, table, targets).item()

    def error(samples):
        noise = sample_noise(noise_law, samples, generator)
        return abs(sampled_softmax_loss(hidden, table, targets, noise, noise_law).item() - full)

    assert error(40_000) < 0.03
    assert error(40_000) < error(20)


def test_noise_contrast_prefers_the_true_probabilities():
    """With logits = log p the loss is at its minimum: any other tilt of them is dearer in expectation."""
    law = torch.log(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    noise_law = torch.log(torch.full((3,), 1 / 3, dtype=torch.float64))
    targets = torch.repeat_interleave(torch.arange(3), torch.tensor([5, 3, 2]))
    noise = torch.arange(3).repeat(10)

    def loss(logits):
        return nce_loss(logits.expand(10, 3), torch.eye(3, dtype=torch.float64), targets, noise, noise_law).item()

    best = loss(law)
    for tilt in torch.eye(3, dtype=torch.float64):
        assert loss(law + 0.2 * tilt) > best
        assert loss(law - 0.2 * tilt) > best


def test_adaptive_softmax_is_a_distribution_in_the_original_numbering():
    counts = torch.tensor([1, 50, 3, 9, 0, 2, 7])
    head = AdaptiveSoftmax(8, counts, cutoffs=[2, 4])
    hidden, targets = torch.randn(5, 8), torch.tensor([0, 1, 4, 6, 3])
    log_p = head.log_probabilities(hidden)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(5))
    assert head(hidden, targets).item() == pytest.approx(-log_p[torch.arange(5), targets].mean().item(), abs=1e-5)
    with pytest.raises(BadInput, match="cutoffs"):
        AdaptiveSoftmax(8, counts, cutoffs=[9])


def test_empty_noise_and_unknown_forms_are_refused():
    arguments = (torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([1]))
    law = torch.zeros(3).log_softmax(0)
    for loss in (sampled_softmax_loss, nce_loss):
        with pytest.raises(BadInput, match="noise token"):
            loss(*arguments, torch.tensor([], dtype=torch.long), law)
    with pytest.raises(BadInput, match="form"):
        ce_loss(*arguments, form="cheap")
    with pytest.raises(BadInput, match="fit together"):
        gather_rows(torch.zeros(2, 3, 4), torch.zeros(2, 2))
