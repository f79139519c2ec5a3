"""What the mean of the head's input says: planted frequencies are found, random ones are not, and
gauge is what a bias takes.
"""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures.common_direction import correlations, weighted_correlation
from headscan.model.tokenizer import ByteTokenizer

TEXT = ["Once upon a time there was a cone, and it was very narrow. " * 30]


def test_correlations_equal_scipy_and_a_repeated_sample():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((3, 40))
    counts = generator.integers(0, 9, 40)
    repeated = np.repeat(np.arange(40), counts)
    for row, r in zip(x, correlations(x, counts), strict=True):
        assert r == pytest.approx(pearsonr(row[repeated], np.log(counts[repeated]))[0])
    assert np.isnan(weighted_correlation(np.ones((1, 5)), np.arange(5.0), np.ones(5))).all()


def model(planted: float) -> Lens:
    """Untied; the final norm's bias is a direction along which the head's rows hold `planted` times
    the log frequencies.
    """
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=64, n_embd=32, n_layer=1, n_head=2, tie_word_embeddings=False
    )
    lm = GPT2LMHeadModel(config).eval()
    ids = torch.tensor(ByteTokenizer().encode(TEXT[0]))
    counts = torch.bincount(ids, minlength=256).float()
    direction = torch.nn.functional.normalize(torch.randn(32), dim=0)
    with torch.no_grad():
        weight = 0.02 * torch.randn(256, 32)
        logs = torch.log(counts.clamp(min=0.5))
        lm.lm_head.weight.copy_(
            weight - (weight @ direction)[:, None] * direction + planted * logs[:, None] * direction
        )
        lm.transformer.ln_f.bias.copy_(6 * direction)
    return Lens(lm, ByteTokenizer(), name="planted")


def row(lens: Lens):
    return scan(lens, TEXT, context=32, batch=8, measures="common_direction").tables[
        "common_direction"
    ][0]


def test_a_planted_unigram_is_found_and_its_cone_is_gauge():
    measures = row(model(0.3))
    assert measures["correlation"] > 0.95
    assert measures["permuted_p"] < 0.01
    low, high = measures["correlation_interval"]
    assert low <= measures["correlation"] <= high
    assert measures["cosine"] > 0.4
    assert abs(measures["cosine_after"]) < 0.05
    assert measures["gauge"] > 0.9


def test_without_it_nothing_is_found():
    measures = row(model(0.0))
    assert abs(measures["correlation"]) < 0.6
    assert measures["permuted_p"] > 0.01


def test_a_head_that_is_no_linear_map_says_why():
    from tests.model.tiny import family

    lens = Lens(family("Bert (masked LM)"), ByteTokenizer(), name="bert")
    # the family's vocabulary is 97
    lens.tokenizer.encode = lambda text, **_: [3 + ord(c) % 90 for c in text]
    result = scan(lens, TEXT, context=32, batch=8, measures="common_direction")
    assert result.tables["common_direction"] == []
    assert "no linear map" in result.probes[0].notes[0]
