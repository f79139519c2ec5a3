import numpy as np
import pytest
import scipy.sparse as sp
from headscan_lab import theory

import headscan.ntp as ntp
from headscan.run.errors import BadInput
from tests.ntp.problems import random_supports
from tests.reference.ntp import centring, infeasibility, svm_by_cvxpy

SIZES = [(3, 4), (5, 4), (6, 6), (4, 8), (8, 5), (9, 7)]


@pytest.mark.parametrize("seed", range(30))
def test_equals_a_general_conic_solver(seed):
    pytest.importorskip("cvxpy")
    m, V = SIZES[seed % len(SIZES)]
    S = random_supports(seed, m, V)
    weights = None if seed % 3 else np.random.default_rng(seed).uniform(0.5, 3, m)
    ours = ntp.svm(S, weights=weights, gap=1e-8)
    if seed % 5 == 0:
        oracle, _ = svm_by_cvxpy(S, "SCS", weights, eps_abs=1e-9, eps_rel=1e-9, max_iters=200_000)
    else:
        oracle, _ = svm_by_cvxpy(S, "CLARABEL", weights)
    assert ours.primal == pytest.approx(oracle, rel=1e-5)
    assert ours.converged
    assert infeasibility(ours.logits, S) < 1e-9


@pytest.mark.parametrize(("V", "k"), [(4, 2), (5, 1), (6, 2), (6, 3), (7, 3), (8, 7)])
def test_closed_forms(V, k):
    exact = theory.KSubsets(V, k)
    S = theory.all_subsets(V, k)
    solution = ntp.svm(S, gap=1e-10)
    assert solution.primal == pytest.approx(exact.nuclear_norm, rel=1e-8)
    assert np.allclose(solution.logits, centring(S.dense()), atol=1e-8)
    W, H = solution.factors()
    assert (W**2).sum(1) == pytest.approx(exact.word_norm_squared, rel=1e-8)
    assert (H**2).sum(1) == pytest.approx(exact.context_norm_squared, rel=1e-8)
    Wn, Hn = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (W, H))
    assert (Wn @ Wn.T)[~np.eye(V, dtype=bool)] == pytest.approx(exact.word_word_cosine, abs=1e-8)
    cosines = Hn @ Wn.T
    dense = S.dense()
    assert cosines[dense] == pytest.approx(exact.word_context_cosine_in, abs=1e-8)
    assert cosines[~dense] == pytest.approx(exact.word_context_cosine_off, abs=1e-8)
    shared = dense.astype(int) @ dense.T
    for a in range(0, len(dense), 3):
        for b in range(len(dense)):
            assert (Hn @ Hn.T)[a, b] == pytest.approx(
                exact.context_context_cosine(shared[a, b]), abs=1e-8
            )


def test_the_gap_is_a_proof():
    S = random_supports(3, 20, 9)
    rough = ntp.svm(S, gap=1e-2, max_iterations=5)
    fine = ntp.svm(S, gap=1e-9)
    assert rough.dual <= fine.dual * (1 + 1e-9) <= fine.primal * (1 + 2e-9)
    assert fine.primal <= rough.primal * (1 + 1e-12)
    A = fine.distinct_dual / np.linalg.norm(fine.distinct_dual * 1.0, 2)
    dense = fine.distinct.dense()
    assert np.abs(A.sum(1)).max() < 1e-9
    assert A[~dense].max() <= 1e-12


def test_merging_contexts_and_tokens_is_exact():
    S = random_supports(5, 8, 6)
    twice = np.concatenate([S, S, S[:3]])
    merged = ntp.svm(twice, gap=1e-9)
    assert merged.distinct.contexts < len(twice)
    weights = np.r_[np.full(3, 3.0), np.full(5, 2.0)]
    assert merged.primal == pytest.approx(ntp.svm(S, weights=weights, gap=1e-9).primal, rel=1e-7)
    assert np.linalg.norm(merged.logits, "nuc") == pytest.approx(merged.primal, rel=1e-7)
    # A token seen nowhere, three times over, is one class of three columns.
    wide = np.pad(S, ((0, 0), (0, 3)))
    solution = ntp.svm(wide, gap=1e-9)
    assert np.ptp(solution.logits[:, -3:], axis=1).max() < 1e-12
    assert np.linalg.norm(solution.logits, "nuc") == pytest.approx(solution.primal, rel=1e-7)
    oracle = pytest.importorskip("cvxpy") and svm_by_cvxpy(wide)[0]
    assert solution.primal == pytest.approx(oracle, rel=1e-5)


def test_factors_rebuild_the_logits_and_collapse():
    S = random_supports(7, 12, 8)
    solution = ntp.svm(S)
    W, H = solution.factors()
    assert np.allclose(H @ W.T, solution.logits, atol=1e-5 * np.abs(solution.logits).max())
    assert np.allclose(H[0], H[-1])  # equal supports
    assert np.allclose(W.T @ W, H.T @ H, atol=1e-6 * solution.primal)  # balanced


def test_a_stopped_solver_says_so():
    stopped = ntp.svm(random_supports(13, 60, 20), gap=1e-12, max_iterations=5)
    assert not stopped.converged
    assert stopped.gap > 1e-12
    assert stopped.dual <= stopped.primal


def test_accepts_every_form_of_supports():
    S = random_supports(2, 6, 5)
    value = ntp.svm(S, gap=1e-8).primal
    lists = [np.flatnonzero(row).tolist() for row in S]
    for form in (
        sp.csr_matrix(S),
        S.astype(float) * 3,
        ntp.Supports.of(S),
        ntp.SoftLabels.of(S.astype(float)),
    ):
        assert ntp.svm(form, gap=1e-8).primal == pytest.approx(value)
    assert ntp.svm(lists, vocabulary=5, gap=1e-8).primal == pytest.approx(value)


@pytest.mark.parametrize(
    ("supports", "options", "message"),
    [
        (np.ones((3, 4)), {}, "nothing to separate"),
        (np.array([[1, 0], [0, 0]]), {}, "Context 1 has an empty support"),
        (np.zeros((0, 3)), {}, "no contexts"),
        (np.zeros((3, 0)), {}, "vocabulary is empty"),
        ([[0, 9]], {"vocabulary": 3}, "outside the vocabulary of 3"),
        ([[0]], {}, "need the size of the vocabulary"),
        ("abc", {"vocabulary": 3}, None),
        (np.eye(3), {"weights": [1, 2]}, "one positive finite number for each context"),
        (np.eye(3), {"weights": [1, 2, -1]}, "one positive finite"),
        (np.eye(3), {"gap": 0}, "between 0 and 1"),
    ],
)
def test_bad_input(supports, options, message):
    if message is None:
        with pytest.raises((BadInput, ValueError)):
            ntp.svm(supports, **options)
        return
    with pytest.raises(BadInput, match=message):
        ntp.svm(supports, **options)


def test_a_context_that_everything_follows_is_allowed():
    S = random_supports(1, 5, 4)
    with_full = np.concatenate([S, np.ones((1, 4), dtype=bool)])
    solution = ntp.svm(with_full, gap=1e-8)
    assert np.abs(solution.logits[-1]).max() < 1e-6
    assert solution.primal == pytest.approx(ntp.svm(S, gap=1e-8).primal, rel=1e-6)


def test_the_estimate_counts_what_is_solved():
    cost = ntp.estimate_cost(np.concatenate([np.eye(4)] * 5))
    assert (cost.rows, cost.columns) == (4, 4)
