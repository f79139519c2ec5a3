"""Contrastive weight tying: every form is the same function, in value and in gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan import BadInput
from headscan.training import cwt_loss, floor_of, has_fused, in_batch_accuracy
from tests.reference.contrastive import cwt as slow_cwt

FORMS = ["dense", "unique", "chunked", *(["fused"] if has_fused() else [])]


def _problem(rows, width, size, seed, scale=1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    hidden = scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    table = torch.randn(size, width, generator=generator, dtype=torch.float64)
    targets = torch.randint(size, (rows,), generator=generator)
    return hidden.to(dtype).requires_grad_(), table.to(dtype).requires_grad_(), targets


def _value_and_gradients(form, hidden, table, targets, **options):
    loss = cwt_loss(hidden, table, targets, form=form, **options)
    return loss.detach(), *torch.autograd.grad(loss, (hidden, table))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    width=st.integers(1, 9),
    size=st.integers(1, 30),
    extra=st.integers(0, 12),
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([1.0, 0.1, 3.0]),
    normalize=st.booleans(),
    chunk=st.sampled_from([1, 7, 256]),
)
def test_all_forms_agree_in_value_and_gradient(
    rows, width, size, extra, seed, temperature, normalize, chunk
):
    hidden, table, targets = _problem(rows, width, size, seed)
    pool = torch.cat([targets, torch.randint(size, (extra,))]) if extra else None
    options = {"pool": pool, "temperature": temperature, "normalize": normalize, "chunk": chunk}
    expected = _value_and_gradients("dense", hidden, table, targets, **options)
    for form in FORMS:
        for want, got in zip(
            expected, _value_and_gradients(form, hidden, table, targets, **options), strict=True
        ):
            torch.testing.assert_close(
                got, want, rtol=0, atol=1e-6 * max(1, float(want.abs().max()))
            )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extra", [0, 5])
def test_value_is_the_definition(form, extra):
    hidden, table, targets = _problem(23, 6, 11, seed=3)
    pool = torch.cat([targets, torch.arange(extra)])
    expected = slow_cwt(
        hidden.detach().numpy(), table.detach().numpy(), targets.tolist(), pool.tolist()
    )
    losses = cwt_loss(hidden, table, targets, form=form, pool=pool, reduction="none")
    np.testing.assert_allclose(losses.detach().numpy(), expected, atol=1e-10)
    total = cwt_loss(hidden, table, targets, form=form, pool=pool, reduction="sum")
    assert total.item() == pytest.approx(expected.sum())


@pytest.mark.parametrize("form", [form for form in FORMS if form != "fused"])
def test_gradient_is_the_finite_difference(form):
    hidden, table, targets = _problem(6, 3, 5, seed=0)
    assert torch.autograd.gradcheck(
        lambda h, e: cwt_loss(h, e, targets, form=form, chunk=4), (hidden, table)
    )


@pytest.mark.parametrize("form", FORMS)
def test_bf16_stays_finite_with_logits_of_ten_thousand(form):
    hidden, table, targets = _problem(64, 32, 40, seed=1, scale=1e3, dtype=torch.bfloat16)
    assert (hidden @ table.T).abs().max() > 1e4
    loss, *gradients = _value_and_gradients(form, hidden, table, targets)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    exact = cwt_loss(hidden.double(), table.double(), targets)
    assert loss.item() == pytest.approx(exact.item(), rel=0.02)


def test_chunked_under_autocast_has_the_gradient_of_unique():
    hidden, table, targets = _problem(50, 16, 20, seed=2, dtype=torch.float32)
    gradients = []
    for form in ("unique", "chunked"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cwt_loss(hidden, table, targets, form=form, chunk=16)
        gradients.append(torch.autograd.grad(loss, (hidden, table)))
    for actual, expected in zip(*gradients, strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, expected, rtol=0.05, atol=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_sparse_gradient_has_the_same_numbers(form):
    hidden, table, targets = _problem(20, 4, 50, seed=6)
    _, _, dense = _value_and_gradients(form, hidden, table, targets)
    _, _, sparse = _value_and_gradients(form, hidden, table, targets, sparse=True)
    assert sparse.is_sparse
    torch.testing.assert_close(sparse.to_dense(), dense, rtol=0, atol=1e-12)
    # Where the table also feeds the model, its dense gradient and these rows meet and are dense.
    loss = cwt_loss(hidden + table[targets], table, targets, form=form, sparse=True)
    (both,) = torch.autograd.grad(loss, table)
    assert not both.is_sparse
    (want,) = torch.autograd.grad(cwt_loss(hidden + table[targets], table, targets), table)
    torch.testing.assert_close(both, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_no_targets_give_zero_and_zero_gradients(form):
    hidden, table, targets = _problem(0, 4, 5, seed=0)
    loss, grad_hidden, grad_table = _value_and_gradients(form, hidden, table, targets)
    assert loss == 0
    assert grad_hidden.shape == (0, 4)
    assert not grad_table.any()
    assert cwt_loss(hidden, table, targets, form=form, reduction="none").shape == (0,)


@pytest.mark.parametrize("form", FORMS)
def test_one_unique_token_gives_log_k_and_no_gradient(form):
    hidden, table, _ = _problem(9, 4, 5, seed=0)
    loss, *gradients = _value_and_gradients(form, hidden, table, torch.full((9,), 2))
    assert loss.item() == pytest.approx(np.log(9))
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients)
    assert loss.item() - floor_of(torch.full((9,), 2)).item() == pytest.approx(0, abs=1e-12)


def test_pool_makes_micro_batches_equal_the_large_batch():
    hidden, table, targets = _problem(30, 5, 12, seed=5)
    at_once = _value_and_gradients("unique", hidden, table, targets)
    parts = sum(
        cwt_loss(hidden[part], table, targets[part], pool=targets, reduction="sum")
        for part in (slice(0, 7), slice(7, 8), slice(8, 30))
    )
    got = (parts / 30, *torch.autograd.grad(parts / 30, (hidden, table)))
    for want, have in zip(at_once, got, strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=1e-12)


def test_optimum_omits_the_unigram():
    """Source: dossier 1.4. With pool frequencies q, scores log p - log q give the loss's minimum
    over free scores.
    """
    probabilities = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    counts = torch.tensor([6, 3, 1])
    targets = torch.repeat_interleave(torch.arange(3), counts)
    # one context: the hidden state is the score
    scores = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    rows = scores.expand(10, 3)
    cwt_loss(rows, torch.eye(3, dtype=torch.float64), targets).backward()
    # log p - log q is constant here, and constant scores are the minimum: the gradient vanishes.
    assert scores.grad.abs().max() < 1e-12
    assert torch.softmax(scores.detach()[0] + probabilities.log(), 0).tolist() == pytest.approx(
        [0.6, 0.3, 0.1]
    )


def test_accuracy_counts_rows_that_find_their_token():
    table = torch.eye(4)
    hidden = torch.stack([table[1], table[2], table[3] - table[0]])
    assert in_batch_accuracy(hidden, table, torch.tensor([1, 2, 0])).item() == pytest.approx(2 / 3)
    assert in_batch_accuracy(hidden[:0], table, torch.tensor([], dtype=torch.long)) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": torch.tensor([0, 9])}, "outside the vocabulary"),
        ({"targets": torch.tensor([0])}, "2 hidden states but 1 targets"),
        ({"targets": torch.tensor([0.0, 1.0])}, "integers"),
        ({"hidden": torch.zeros(2, 5)}, "width 5"),
        ({"hidden": torch.zeros(2)}, r"\[K, d\]"),
        ({"form": "sparse"}, "form must be"),
        ({"temperature": 0}, "temperature"),
        ({"reduction": "median"}, "reduction"),
        ({"pool": torch.tensor([0])}, "also be in the pool"),
        ({"form": "chunked", "chunk": 0}, "chunk"),
    ],
)
def test_bad_input_is_one_clear_sentence(change, message):
    arguments = {
        "hidden": torch.zeros(2, 3),
        "embeddings": torch.zeros(4, 3),
        "targets": torch.tensor([0, 1]),
    } | change
    with pytest.raises(BadInput, match=message):
        cwt_loss(**arguments)
