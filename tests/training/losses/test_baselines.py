"""Cross-entropy in all its forms."""

import pytest
import torch

from headscan import BadInput
from headscan.training import ce_loss, gather_rows, has_fused

FORMS = ["full", "chunked", *(["fused"] if has_fused() else [])]


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
    full = full_ce_loss(hidden, table, labels, bias=bias)
    part = ce_loss(*_swap(gather_rows(hidden, labels), table), form, bias=bias, chunk=4)
    assert part.item() == pytest.approx(full.item(), abs=1e-10)
    for actual, expected in zip(
        torch.autograd.grad(part, (hidden, table)),
        torch.autograd.grad(full, (hidden, table)),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def full_ce_loss(hidden, table, labels, bias=None):
    """Every position is projected, and those labelled -100 are then ignored."""
    logits = hidden @ table.T if bias is None else hidden @ table.T + bias
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="sum"
    )
    return losses / (labels != -100).sum().clamp_min(1)


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


def test_unknown_forms_are_refused():
    arguments = (torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([1]))
    with pytest.raises(BadInput, match="form"):
        ce_loss(*arguments, form="cheap")
    with pytest.raises(BadInput, match="fit together"):
        gather_rows(torch.zeros(2, 3, 4), torch.zeros(2, 2))
