"""Lengths by position, massive activations, sink rates: against slow references, planted cases and what chance gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures.attention import even_weight, sink_numbers, watched
from headscan.measures.outliers import gaussian_peak


def states(planted: bool) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((32, 24, 40))
    if planted:
        x[:, 0] *= 5
        x[:, 0, 7] = 3000 + np.random.default_rng(1).standard_normal(32)
        x[5, 9, 11] = 2000
    return x


def rows(x: np.ndarray, **options: object) -> tuple[dict, dict]:
    """Stored windows [windows, T, d] are enough: both probes need no model."""
    given = {"vectors": x, "token_ids": np.zeros(x.shape[:2], dtype=np.int64)}
    tables = scan(given, measures="positions,massive", **options).tables
    return dict(tables["positions"][0]), dict(tables["massive"][0])


@pytest.mark.parametrize("skip", [0, 1])
def test_lengths_and_peaks_equal_those_taken_vector_by_vector(skip):
    x = states(True)
    found, peaks = rows(x, skip_first=skip)
    norms = np.linalg.norm(x[:, skip:], axis=-1)
    for name, low, high in (("position_0", 0, 1), ("position_1", 1, 2), ("early", 2, 16), ("late", 16, 24)):
        inside = np.zeros(24, dtype=bool)
        inside[low:high] = True
        inside = inside[skip:]
        if inside.any():
            assert found[name] == pytest.approx(norms[:, inside].mean() / norms[:, ~inside].mean()), name
        else:
            assert found[name] is None
    size = np.abs(x[:, skip:]).reshape(-1, 40)
    ratio = size.max(1) / np.sort(size, axis=1)[:, 19]
    assert peaks["peak"] == pytest.approx(ratio.mean())
    assert peaks["massive_share"] == (ratio >= 1000).mean()
    big = size[ratio >= 1000]
    place = np.bincount(big.argmax(1)).argmax()
    assert peaks["coordinate"] == place == (7 if skip == 0 else 11)
    own = big[big.argmax(1) == place, place]
    assert peaks["one_coordinate"] == len(own) / len(big)
    assert peaks["unsteadiness"] == pytest.approx(own.std() / own.mean(), abs=1e-6)


def test_where_nothing_is_planted_nothing_is_found():
    found, peaks = rows(states(False))
    assert abs(found["position_0"] - 1) < 2 * found["shuffled"] < 0.2
    # The median of so few scatters, and is the lower of two: the null is that of many coordinates.
    assert peaks["peak"] == pytest.approx(gaussian_peak(40), rel=0.08)
    assert peaks["massive_share"] == 0
    assert peaks["massive_share_interval"][1] > 0.05  # 32 windows say no more
    assert peaks["coordinate"] is None


def test_the_shuffled_null_is_as_wide_as_shuffles_are():
    x = states(False) * np.random.default_rng(2).lognormal(size=(32, 24, 1))
    norms = np.linalg.norm(x, axis=-1)
    generator = np.random.default_rng(3)
    ratios = []
    for _ in range(2000):
        shuffled = generator.permuted(norms, axis=1)
        ratios.append(shuffled[:, 0].mean() / shuffled[:, 1:].mean())
    assert rows(x)[0]["shuffled"] == pytest.approx(1.96 * np.std(ratios), rel=0.1)


@pytest.mark.parametrize("far", [0.0, 30.0])
def test_sink_rates_are_those_of_the_model_s_own_weights(far):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=4)).eval()
    with torch.no_grad():  # queries and keys that agree at position 0
        model.transformer.wpe.weight[0] += far * torch.randn(16)
        model.transformer.h[0].attn.c_attn.weight *= 4
    ids = torch.randint(0, 40, (6, 20))
    whole, _ = watched(Lens(model), ids.split(2))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    for layer, tally in whole.items():
        a = weights[layer].double().mean(0)  # [H, T, T]
        alpha = np.array([[a[h, k:, k].mean() for k in range(20)] for h in range(4)])
        found = sink_numbers(tally)
        assert found["sink_rate"] == (alpha[:, 0] > 0.3).mean()
        assert found["sink_weight"] == pytest.approx(alpha[:, 0].mean(), abs=1e-5)
        assert found["elsewhere"] == (alpha[:, 1:10] > 0.3).any(1).mean()


def test_a_model_of_random_weights_has_the_weight_of_even_attention():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=64, n_embd=16, n_layer=1, n_head=4)).eval()
    whole, _ = watched(Lens(model), [torch.randint(0, 40, (4, 64))])
    assert sink_numbers(whole[0])["sink_weight"] == pytest.approx(even_weight(64, True), rel=0.05)
