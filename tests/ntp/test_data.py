import numpy as np
import pytest
import scipy.sparse as sp
from headscan_lab import theory
from hypothesis import given, settings
from hypothesis import strategies as st

import headscan.ntp as ntp
from headscan.ntp.labels import group_equal_rows
from headscan.run.errors import BadInput
from tests.ntp.problems import labels, random_counts, random_supports
from tests.reference import ntp as reference
from tests.reference.ntp_conditions import compatible, fixed_margin, needed_width, separable

matrices = st.integers(0, 10_000).map(lambda seed: random_counts(seed, 6, 5))


@given(matrices)
@settings(max_examples=40, deadline=None)
def test_labels_against_the_definitions(counts):
    made = ntp.SoftLabels.of(counts)
    assert made.entropy() == pytest.approx(reference.entropy(counts), abs=1e-12)
    assert made.prior.sum() == pytest.approx(1)
    assert np.allclose(made.dense().sum(1), 1)
    logits = np.random.default_rng(0).normal(size=counts.shape)
    assert ntp.cross_entropy(logits, made) == pytest.approx(
        reference.cross_entropy(logits, counts), abs=1e-12
    )
    assert ntp.cross_entropy(logits, made) >= made.entropy()


@given(matrices)
@settings(max_examples=40, deadline=None)
def test_subspaces_against_the_published_projection(counts):
    made = ntp.SoftLabels.of(counts)
    S = counts > 0
    logits = np.random.default_rng(1).normal(size=counts.shape)
    expected = reference.projection_on_f(logits, S)
    dense = np.zeros_like(logits)
    dense[made.supports.rows, made.supports.indices] = ntp.in_support(logits, made.supports)
    assert np.allclose(dense, expected, atol=1e-12)
    assert np.allclose(
        ntp.out_of_support(logits, made.supports, centre=False), logits - expected, atol=1e-12
    )
    # L^in: the log-odds inside each support, and nothing of F⊥.
    values = ntp.sparse_component(made)
    L = np.zeros_like(logits)
    L[made.supports.rows, made.supports.indices] = values
    assert np.allclose(reference.projection_on_f(L, S), L, atol=1e-12)
    for j, row in enumerate(counts):
        tokens = np.flatnonzero(row)
        assert np.allclose(L[j, tokens] - L[j, tokens[0]], np.log(row[tokens] / row[tokens[0]]))


@given(
    st.lists(
        st.lists(st.integers(0, 3), max_size=4, unique=True).map(sorted), min_size=1, max_size=12
    )
)
@settings(max_examples=80, deadline=None)
def test_equal_rows_are_grouped(rows):
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    first, inverse = group_equal_rows(
        indptr, np.array([t for row in rows for t in row], dtype=np.int32)
    )
    assert [rows[first[i]] for i in inverse] == rows
    assert len({tuple(rows[i]) for i in first}) == len(first)


def test_describe():
    counts = np.array([[3, 1, 0, 0], [1, 5, 0, 0], [0, 0, 4, 0]])
    found = ntp.describe(ntp.SoftLabels.of(counts))
    assert found.tokens == 14
    assert found.contexts == 3
    assert found.supports == 2
    assert found.single_successor_share == pytest.approx(1 / 3)
    assert found.unseen_mass == pytest.approx(2 / 14)
    assert found.entropy_bound == pytest.approx(reference.entropy(counts))


def test_labels_do_not_touch_what_they_are_made_from():
    made = labels(3)
    matrix = made.matrix()
    before = matrix.indices.copy()
    made.at_least(3)
    ntp.SoftLabels.of(matrix).at_least(4)
    assert np.array_equal(made.supports.indices, before)
    assert np.array_equal(matrix.indices, before)


def test_rare_successors_are_left_out():
    made = ntp.SoftLabels.of([[5, 1, 0], [1, 1, 1]])
    assert made.at_least(2).contexts == 1
    with pytest.raises(BadInput, match="at least 9 times"):
        made.at_least(9)


@pytest.mark.parametrize("counts", [[[1.0, -1.0]], [[np.nan, 1.0]], [[0.0, 0.0]], np.zeros((0, 3))])
def test_bad_counts(counts):
    with pytest.raises(BadInput):
        ntp.SoftLabels.of(counts)


def test_bad_probabilities():
    with pytest.raises(BadInput, match="sum to one"):
        ntp.SoftLabels.from_probability(np.array([[0.5, 0.4]]))


@pytest.mark.parametrize("seed", range(4))
def test_the_spectrum_of_the_centred_supports(seed):
    S = random_supports(seed, 14, 6)
    found = ntp.support_spectrum(S)
    s = np.linalg.svd(reference.centring(S), compute_uv=False)
    kept = len(found.sigma)
    assert np.allclose(found.sigma, s[:kept], atol=1e-7)
    assert s[kept:].max(initial=0) < 1e-6
    assert np.allclose(
        found.contexts * found.sigma @ found.tokens.T, reference.centring(S), atol=1e-7
    )
    W, H = found.factors()
    centred = reference.centring(S)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    assert np.allclose(W @ W.T, (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T, atol=1e-6)
    assert np.allclose(H @ W.T, centred, atol=1e-7)


def test_the_spectrum_at_large_vocabulary_equals_the_gram(monkeypatch):
    S = random_supports(1, 60, 20)
    whole = ntp.support_spectrum(S, 5)
    monkeypatch.setattr("headscan.ntp.prediction._GRAM_LIMIT", 10)
    iterated = ntp.support_spectrum(S, 5)
    assert np.allclose(whole.sigma, iterated.sigma, rtol=1e-8)
    assert np.allclose(np.abs((whole.tokens * iterated.tokens).sum(0)), 1, atol=1e-6)
    with pytest.raises(BadInput, match="how many directions"):
        ntp.support_spectrum(S)


def test_the_certificate():
    assert ntp.certificate(theory.all_subsets(5, 2)).optimal
    rng = np.random.default_rng(0)
    seen = set()
    for seed in range(12):
        S = random_supports(seed, int(rng.integers(4, 12)), 6)
        found = ntp.certificate(S)
        solution = ntp.svm(S, gap=1e-9)
        better = found.nuclear_norm - solution.primal
        assert better >= -1e-7 * found.nuclear_norm
        if found.optimal:
            assert better == pytest.approx(0, abs=1e-6 * found.nuclear_norm)
        elif found.decisive:
            assert better > 1e-7 * found.nuclear_norm
        seen.add(found.optimal)
    assert seen == {True, False} or False in seen
    assert 0 <= found.violating_share <= 1


def test_conditions_for_fixed_embeddings():
    made = labels(2, contexts=4, vocabulary=5)
    free = np.eye(4)
    assert compatible(free, made)
    words = fixed_margin(free, made)
    assert reference.infeasibility(free @ words.T, made.supports.dense()) < 1e-6
    assert not separable(np.ones((4, 1)), made)
    with pytest.raises(BadInput, match="one embedding"):
        separable(np.ones((3, 1)), made)
    widths = needed_width(made, ntp.svm(made))
    assert max(widths["sparse"], widths["low_rank"]) <= widths["both"] <= 4


def test_thresholds_and_bootstrap():
    counts = [random_counts(seed, 8, 6) * (random_counts(seed, 8, 6) > 2) for seed in range(6)]
    total = sum(counts)
    sweep = ntp.threshold_sweep(ntp.SoftLabels.of(total[total.sum(1) > 0]), (1, 2, 10_000))
    assert len(sweep) == 2
    assert sweep[0].word_gram_cosine == pytest.approx(1)
    assert sweep[1].kept_mass <= 1
    found = ntp.bootstrap([sp.csr_matrix(c) for c in counts], draws=20)
    assert found.entropy_bound_error > 0
    assert found.contexts_error >= 0
    same = ntp.bootstrap([sp.csr_matrix(counts[0])] * 5, draws=5)
    # nothing differs, so nothing spreads
    assert same.entropy_bound_error == pytest.approx(0, abs=1e-12)
    with pytest.raises(BadInput, match="two groups"):
        ntp.bootstrap([sp.csr_matrix(total)])
