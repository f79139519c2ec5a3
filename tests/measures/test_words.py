import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures.probe import PROBES, tally_row
from headscan.measures.words import contexts, maximum_explainable_variance, self_similarity, words
from headscan.statistics import ClassSums, ContextTally, SiteBatch
from tests.reference import words as reference


def tally_of(x, windows=None):
    tally = ContextTally(x.shape[-1])
    ids = torch.zeros(x.shape[:2], dtype=torch.long)
    tally.update(
        SiteBatch("s", torch.tensor(x), ids, list(range(len(x))) if windows is None else windows)
    )
    return tally


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 5), st.floats(0, 3))
def test_contexts_equal_the_mean_over_pairs(seed, windows, length, offset):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((windows, length, 4)) + offset * rng.standard_normal((windows, 1, 4))
    measures = contexts(tally_of(x).total())
    for name, value in reference.contexts(list(x)).items():
        assert measures[name] == pytest.approx(value, abs=1e-9), name
    assert measures["within_adjusted"] == pytest.approx(
        measures["within_cosine"] - measures["between_cosine"]
    )


def test_independent_tokens_have_no_context():
    x = np.random.default_rng(0).standard_normal((200, 16, 32)) + 0.5
    row = tally_row(tally_of(x), contexts, PROBES["words"].words.fields)
    low, high = row["within_adjusted_interval"]
    assert low < 0 < high
    # a text that runs on, by its rule: twice as wide as of independent tokens
    assert high - low < 0.02


def test_one_window_has_no_between():
    measures = contexts(tally_of(np.random.default_rng(0).standard_normal((1, 5, 3))).total())
    assert measures["between_cosine"] is None
    assert measures["within_adjusted"] is None
    assert measures["within_cosine"] is not None


def test_zero_vectors_alone_leave_all_undefined():
    assert set(contexts(tally_of(np.zeros((2, 3, 4))).total()).values()) == {None}


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 40))
def test_self_similarity_equals_pairs(seed, n):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)) + 1
    labels = rng.integers(0, 4, n)
    sums = ClassSums(3)
    sums.update(torch.tensor(labels), torch.tensor(x))
    got = dict(zip(*(a.tolist() for a in self_similarity(sums, least=2)), strict=True))
    assert got == pytest.approx(reference.self_similarity(x, labels, 2))


def test_words_that_never_change_have_self_similarity_one():
    labels = torch.arange(4).repeat(6)
    sums = ClassSums(3)
    sums.update(labels, torch.randn(4, 3, generator=torch.Generator().manual_seed(0))[labels])
    measures = words(sums, 0.25)
    assert measures["self_similarity"] == pytest.approx(1)
    assert measures["self_adjusted"] == pytest.approx(0.75)
    assert measures["words"] == 4
    assert words(ClassSums(3), None) == {
        "self_similarity": None,
        "self_similarity_interval": None,
        "self_adjusted": None,
        "self_adjusted_interval": None,
        "words": 0,
    }


def test_mev_of_noise_is_no_better_than_its_baseline():
    x = np.random.default_rng(0).standard_normal((2000, 16))
    labels = np.arange(2000) % 100
    measures = maximum_explainable_variance(x, labels)
    assert measures["mev_words"] == 100
    assert abs(measures["mev_adjusted"]) < 0.02
    assert maximum_explainable_variance(np.zeros((9, 2)), np.zeros(9))["mev"] is None


def test_mev_equals_the_singular_value_share():
    rows = np.random.default_rng(3).standard_normal((7, 5))
    values = np.linalg.svd(rows, compute_uv=False) ** 2
    assert maximum_explainable_variance(rows, np.zeros(7))["mev"] == pytest.approx(
        values[0] / values.sum()
    )
