"""The tail of a second model's damage: against whole models in float64, and the definitions."""

import numpy as np
import pytest
import torch

import headscan
from headscan.comparison.clusters import Clusters
from headscan.comparison.damage_tail import LEVELS, quantile_interval
from headscan.model import Lens
from headscan.text import Windows
from headscan.text.spelling import display

READ = {"max_tokens": 256, "context": 32, "sample": 64}
SKIPPED = 1


@pytest.fixture(scope="module")
def pair():
    """A model and another with noise on one matrix; logs [n, V] of both in float64; targets [n]."""
    lens = Lens.load("gpt-vanilla")
    other = Lens.load("gpt-vanilla")
    generator = torch.Generator().manual_seed(3)
    weight = other.model.transformer.h[2].mlp.c_fc.weight
    with torch.no_grad():
        weight += 0.3 * weight.std() * torch.randn(weight.shape, generator=generator)
    windows = Windows("stories", lens.tokenizer, READ["context"], max_tokens=READ["max_tokens"])
    ids = torch.tensor(np.stack([window.ids for window in windows]))
    logs = []
    for model in (lens.model, other.model):
        with torch.no_grad():
            logits = model(ids).logits[:, SKIPPED:-1].double()
        logs.append(logits.log_softmax(-1).flatten(0, 1).numpy())
    targets = ids[:, SKIPPED + 1 :].flatten().numpy()
    result = headscan.compare([lens, other], "stories", damage=True, **READ)
    return result, logs[0], logs[1], targets


def test_quantiles_and_perplexities_are_those_of_whole_models(pair):
    result, first, second, targets = pair
    rows = np.arange(len(targets))
    divergences = (np.exp(first) * (first - second)).sum(1)
    change = np.exp(second[rows, targets]) - np.exp(first[rows, targets])
    assert [row["level"] for row in result.tail] == list(LEVELS)
    for row, level in zip(result.tail, LEVELS.values(), strict=True):
        assert row.number("kl") == pytest.approx(np.quantile(divergences, level), rel=1e-3)
        fall = np.quantile(-change, level)
        assert row.number("probability_fall") == pytest.approx(fall, abs=1e-6)
    whole = result.totals["whole"]
    losses = [-logs[rows, targets].mean() for logs in (first, second)]
    for name, loss in zip(("first", "second"), losses, strict=True):
        assert whole.number(f"perplexity_{name}") == pytest.approx(np.exp(loss), rel=1e-5)
    ratio = np.exp(losses[1] - losses[0])
    assert whole.number("perplexity_ratio") == pytest.approx(ratio, rel=1e-5)
    assert whole.number("probability_change") == pytest.approx(change.mean(), abs=1e-7)
    rms = np.sqrt((change**2).mean())
    assert whole.number("probability_rms") == pytest.approx(rms, rel=1e-4)


def test_the_worst_predictions_are_named_in_their_text(pair):
    result, first, second, targets = pair
    divergences = (np.exp(first) * (first - second)).sum(1)
    order = np.argsort(-divergences)[:20]
    assert [context.divergence for context in result.contexts] == pytest.approx(
        divergences[order], rel=1e-3
    )
    worst = int(order[0])
    context = result.contexts[0]
    predicted = READ["context"] - 1 - SKIPPED
    assert (context.window, context.position) == (worst // predicted, worst % predicted + SKIPPED)
    assert context.before == pytest.approx(np.exp(first[worst, targets[worst]]), abs=1e-6)
    assert context.after == pytest.approx(np.exp(second[worst, targets[worst]]), abs=1e-6)
    fallen = int(np.argmax(np.exp(first[worst]) * (first - second)[worst]))
    tokenizer = Lens.load("gpt-vanilla").tokenizer
    assert context.fallen[0].token == display(tokenizer, fallen)
    assert context.following == display(tokenizer, int(targets[worst]))
    assert "The worst predictions" in str(result.page())
    assert len(result.frame("contexts")) == 20
    assert list(result.frame("tail")["level"]) == list(LEVELS)


def test_intervals_of_quantiles_cover_and_short_texts_have_none():
    rng = np.random.default_rng(0)
    clusters = Clusters.of_documents(np.arange(40)[:, None].repeat(50, 1))
    truth = np.exp(1.6448536)
    covered = 0
    for _ in range(200):
        values = np.exp(rng.standard_normal(2000))
        low, high = quantile_interval(values, 0.95, clusters)
        covered += low <= truth <= high
    assert covered >= 180
    assert quantile_interval(values, 1.0, clusters) is None
    short = Clusters.of_documents(np.zeros((2, 50), dtype=int))
    assert quantile_interval(values[:100], 0.5, short) is None
