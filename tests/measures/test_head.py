import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headscan
from headscan.measures import head_spectrum, w_error
from headscan.measures.head import counting_loss
from headscan.model import Lens


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8))
def test_spectrum_equals_svd(seed, v, d):
    w = np.random.default_rng(seed).standard_normal((v, d)) + 0.2
    spectrum = head_spectrum(torch.tensor(w))
    values = np.zeros(d)
    values[: min(v, d)] = np.linalg.svd(w, compute_uv=False)
    np.testing.assert_allclose(spectrum["singular_values"], values, atol=1e-6 * values[0])
    p = values[values > 1e-6 * values[0]] / values.sum()
    assert spectrum["singular_entropy"] == pytest.approx(
        math.log(d) + (p * np.log(p)).sum(), abs=1e-5
    )
    for k, error in enumerate(w_error(spectrum["singular_values"])):
        best = np.linalg.svd(w, full_matrices=False)
        cut = (best[0][:, :k] * best[1][:k]) @ best[2][:k]
        assert error == pytest.approx(np.linalg.norm(w - cut) / np.linalg.norm(w), abs=1e-6)


def test_a_zero_head_has_no_measures():
    spectrum = head_spectrum(torch.zeros(4, 3))
    assert spectrum["singular_entropy"] is None
    assert w_error([0.0, 0.0]).tolist() == [0.0] * 3


def test_the_counter_expects_every_token_once():
    torch.manual_seed(0)
    text = torch.randint(5, (40,)).tolist()
    sums = []
    for end in (1, 2, 10, 39):
        loss_before = (end - 1) * counting_loss(torch.tensor([text[:end]]), 5)
        sums.append(
            sum(
                math.exp(loss_before - end * counting_loss(torch.tensor([[*text[:end], token]]), 5))
                for token in range(5)
            )
        )
    assert sums == pytest.approx([1.0] * 4)


def test_the_loss_at_the_best_scale_is_that_of_the_logits_without_their_factor():
    healthy = Lens.load("gpt-vanilla")
    sharp = Lens(copy.deepcopy(healthy.model), healthy.tokenizer, name="sharp")
    norms = [module for module in sharp.model.modules() if isinstance(module, torch.nn.LayerNorm)]
    with torch.no_grad():
        norms[-1].weight *= 8
        norms[-1].bias *= 8
    rows = [
        headscan.scan(
            source, "stories", measures="loss", max_tokens=1024, context=64, sample=0
        ).tables["loss"][0]
        for source in (healthy, sharp)
    ]
    assert rows[1]["loss"] > 3 * rows[0]["loss"]
    assert rows[1]["best_loss"] == pytest.approx(rows[0]["best_loss"], rel=0.02)
    assert rows[0]["best_loss"] <= rows[0]["loss"]
    assert rows[0]["counting_loss"] == rows[1]["counting_loss"]


def test_rows_that_no_token_has_are_left_out():
    lens = Lens.load("gpt-vanilla", device="cpu")
    larger = Lens(copy.deepcopy(lens.model), lens.tokenizer, name="larger")
    rows = lens.vocabulary_size
    torch.manual_seed(0)
    larger.model.resize_token_embeddings(rows + 64, mean_resizing=False)
    larger = Lens(larger.model, lens.tokenizer, name="larger")
    assert larger.vocabulary_size == rows + 64
    assert larger.token_rows == lens.token_rows <= rows
    options = {"measures": "partition,head", "max_tokens": 256, "context": 64, "sites": "embedding"}
    tables = [headscan.scan(model, "stories", **options).tables for model in (lens, larger)]
    for name in ("partition", "head"):
        first, second = ([dict(row) for row in table[name]] for table in tables)
        assert [row | {"model": ""} for row in first] == [row | {"model": ""} for row in second]
