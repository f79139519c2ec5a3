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
    soft_labels = ntp.SoftLabels.of(counts)
    assert soft_labels.entropy() == pytest.approx(reference.entropy(counts), abs=1e-12)
    assert soft_labels.prior.sum() == pytest.approx(1)
    assert np.allclose(soft_labels.dense().sum(1), 1)
    logits = np.random.default_rng(0).normal(size=counts.shape)
    assert ntp.cross_entropy(logits, soft_labels) == pytest.approx(
        reference.cross_entropy(logits, counts), abs=1e-12
    )
    assert ntp.cross_entropy(logits, soft_labels) >= soft_labels.entropy()


@given(matrices)
@settings(max_examples=40, deadline=None)
def test_subspaces_against_the_published_projection(counts):
    soft_labels = ntp.SoftLabels.of(counts)
    S = counts > 0
    logits = np.random.default_rng(1).normal(size=counts.shape)
    expected = reference.projection_on_f(logits, S)
    dense = np.zeros_like(logits)
    dense[soft_labels.supports.rows, soft_labels.supports.indices] = ntp.in_support(
        logits, soft_labels.supports
    )
    assert np.allclose(dense, expected, atol=1e-12)
    assert np.allclose(
        ntp.out_of_support(logits, soft_labels.supports, centre=False),
        logits - expected,
        atol=1e-12,
    )
    # L^in: the log-odds inside each support, and nothing of F⊥.
    values = ntp.sparse_component(soft_labels)
    L = np.zeros_like(logits)
    L[soft_labels.supports.rows, soft_labels.supports.indices] = values
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
    description = ntp.describe(ntp.SoftLabels.of(counts))
    assert description.tokens == 14
    assert description.contexts == 3
    assert description.supports == 2
    assert description.single_successor_share == pytest.approx(1 / 3)
    assert description.unseen_mass == pytest.approx(2 / 14)
    assert description.entropy_bound == pytest.approx(reference.entropy(counts))


def test_labels_do_not_touch_what_they_are_made_from():
    soft_labels = labels(3)
    matrix = soft_labels.matrix()
    indices_before = matrix.indices.copy()
    soft_labels.at_least(3)
    ntp.SoftLabels.of(matrix).at_least(4)
    assert np.array_equal(soft_labels.supports.indices, indices_before)
    assert np.array_equal(matrix.indices, indices_before)


def test_rare_successors_are_left_out():
    soft_labels = ntp.SoftLabels.of([[5, 1, 0], [1, 1, 1]])
    assert soft_labels.at_least(2).contexts == 1
    with pytest.raises(BadInput, match="at least 9 times"):
        soft_labels.at_least(9)


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
    spectrum = ntp.support_spectrum(S)
    s = np.linalg.svd(reference.centring(S), compute_uv=False)
    rank = len(spectrum.sigma)
    assert np.allclose(spectrum.sigma, s[:rank], atol=1e-7)
    assert s[rank:].max(initial=0) < 1e-6
    assert np.allclose(
        spectrum.contexts * spectrum.sigma @ spectrum.tokens.T, reference.centring(S), atol=1e-7
    )
    W, H = spectrum.factors()
    centred = reference.centring(S)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    assert np.allclose(W @ W.T, (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T, atol=1e-6)
    assert np.allclose(H @ W.T, centred, atol=1e-7)


def test_the_spectrum_at_large_vocabulary_equals_the_gram(monkeypatch):
    S = random_supports(1, 60, 20)
    direct = ntp.support_spectrum(S, 5)
    monkeypatch.setattr("headscan.ntp.prediction._GRAM_LIMIT", 10)
    iterated = ntp.support_spectrum(S, 5)
    assert np.allclose(direct.sigma, iterated.sigma, rtol=1e-8)
    assert np.allclose(np.abs((direct.tokens * iterated.tokens).sum(0)), 1, atol=1e-6)
    with pytest.raises(BadInput, match="how many directions"):
        ntp.support_spectrum(S)


def test_the_certificate():
    assert ntp.certificate(theory.all_subsets(5, 2)).optimal
    rng = np.random.default_rng(0)
    verdicts = set()
    for seed in range(12):
        S = random_supports(seed, int(rng.integers(4, 12)), 6)
        certificate = ntp.certificate(S)
        solution = ntp.svm(S, gap=1e-9)
        better = certificate.nuclear_norm - solution.primal
        assert better >= -1e-7 * certificate.nuclear_norm
        if certificate.optimal:
            assert better == pytest.approx(0, abs=1e-6 * certificate.nuclear_norm)
        elif certificate.decisive:
            assert better > 1e-7 * certificate.nuclear_norm
        verdicts.add(certificate.optimal)
    assert verdicts == {True, False} or False in verdicts
    assert 0 <= certificate.violating_share <= 1


def test_conditions_for_fixed_embeddings():
    soft_labels = labels(2, contexts=4, vocabulary=5)
    free = np.eye(4)
    assert compatible(free, soft_labels)
    word_vectors = fixed_margin(free, soft_labels)
    assert reference.infeasibility(free @ word_vectors.T, soft_labels.supports.dense()) < 1e-6
    assert not separable(np.ones((4, 1)), soft_labels)
    with pytest.raises(BadInput, match="one embedding"):
        separable(np.ones((3, 1)), soft_labels)
    widths = needed_width(soft_labels, ntp.svm(soft_labels))
    assert max(widths["sparse"], widths["low_rank"]) <= widths["both"] <= 4


def test_thresholds_and_bootstrap():
    counts = [random_counts(seed, 8, 6) * (random_counts(seed, 8, 6) > 2) for seed in range(6)]
    total = sum(counts)
    sweep = ntp.threshold_sweep(ntp.SoftLabels.of(total[total.sum(1) > 0]), (1, 2, 10_000))
    assert len(sweep) == 2
    assert sweep[0].word_gram_cosine == pytest.approx(1)
    assert sweep[1].kept_mass <= 1
    errors = ntp.bootstrap([sp.csr_matrix(c) for c in counts], draws=20)
    assert errors.entropy_bound_error > 0
    assert errors.contexts_error >= 0
    same = ntp.bootstrap([sp.csr_matrix(counts[0])] * 5, draws=5)
    # nothing differs, so nothing spreads
    assert same.entropy_bound_error == pytest.approx(0, abs=1e-12)
    with pytest.raises(BadInput, match="two groups"):
        ntp.bootstrap([sp.csr_matrix(total)])
