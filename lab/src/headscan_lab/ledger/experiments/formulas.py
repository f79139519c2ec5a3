"""Statements of arXiv:2408.15417 that are formulas, as they are printed."""

from functools import lru_cache

import numpy as np

import headscan.ntp as ntp
from headscan_lab import theory
from headscan_lab.ledger.experiments.counting import story_labels
from headscan_lab.ledger.measurement import Measurement, exactly
from headscan_lab.ledger.statement import Observation, enter_experiment

INSTANCES = 5
WIDTH = 10


def _largest(name: str, values: list[float], unit: str = "error") -> Measurement:
    return exactly(name, max(values), unit=unit, seeds=len(values))


@lru_cache(maxsize=8)
def subset_errors(vocabulary: int, size: int) -> tuple[float, float, float]:
    """Return how far the certified solution for all k-subsets is from the centred support matrix,
    from the printed cosines of equation 40c, and from the corrected ones.
    """
    supports = theory.all_subsets(vocabulary, size)
    exact = theory.KSubsets(vocabulary, size)
    solution = ntp.svm(supports, gap=1e-10)
    words, contexts = solution.factors()
    unit_contexts = contexts / np.linalg.norm(contexts, axis=1, keepdims=True)
    unit_words = words / np.linalg.norm(words, axis=1, keepdims=True)
    cosines = unit_contexts @ unit_words.T
    inside = float(cosines[supports.dense()].mean())
    outside = float(cosines[~supports.dense()].mean())
    printed = max(
        abs(inside - exact.printed_word_context_cosine_in),
        abs(outside - exact.printed_word_context_cosine_off),
    )
    corrected = max(
        abs(inside - exact.word_context_cosine_in), abs(outside - exact.word_context_cosine_off)
    )
    return float(np.abs(solution.logits - supports.centred()).max()), printed, corrected


SUBSETS = ((4, 2), (5, 2), (6, 3), (7, 3), (8, 2))  # V, k


def _tight_frame(_model: str, _seed: int) -> Observation:
    values = [
        _largest(
            f"largest difference from the centred supports, V = {V}, k = {k}",
            [subset_errors(V, k)[0]],
        )
        for V, k in SUBSETS
    ]
    return Observation(values=values)


def _printed_cosines(_model: str, _seed: int) -> Observation:
    values = [
        _largest(f"error of the printed cosines, V = {V}, k = {k}", [subset_errors(V, k)[1]])
        for V, k in SUBSETS
    ]
    corrected = _largest("error of the corrected cosines", [subset_errors(*s)[2] for s in SUBSETS])
    return Observation(values=values, controls=[corrected])


def _other_supports(seed: int) -> Measurement:
    """Return the same difference for the supports of a small text, which are no k-subsets."""
    supports = story_labels(seed, order=1, words=200)[1].supports
    solution = ntp.svm(supports, gap=1e-6)
    difference = float(np.abs(solution.logits - supports.centred()).max())
    return _largest("supports of a small text", [difference])


def _one_token(_seed: int) -> Measurement:
    """Return the error of the printed cosines at k = 1, where both formulas agree."""
    return _largest("error at k = 1, V = 5", [subset_errors(5, 1)[1]])


enter_experiment("P1", _tight_frame, _other_supports)
enter_experiment("P2", _printed_cosines, _one_token)


def _violations(sign: int, seed: int) -> list[float]:
    """Return the share of trials that violate CE(L^in + R L^mm) ≤ H + V exp(±2‖L^in‖₂ - R)."""
    shares = []
    for instance in range(INSTANCES):
        labels = theory.random_labels(
            6, 10, sizes=(2, 3), concentration=0.3, seed=INSTANCES * seed + instance
        )
        prediction = ntp.predict(labels, gap=1e-9)
        assert prediction.solution is not None
        sparse = np.zeros((labels.contexts, labels.vocabulary))
        sparse[labels.supports.rows, labels.supports.indices] = prediction.sparse
        norm = float(np.linalg.norm(sparse, 2))
        violated = []
        for R in (2.0, 4.0, 8.0):
            logits = sparse + R * prediction.solution.logits
            excess = ntp.cross_entropy(logits, labels) - labels.entropy()
            violated.append(excess > labels.vocabulary * np.exp(sign * 2 * norm - R))
        shares.append(float(np.mean(violated)))
    return shares


def _equation_24(_model: str, seed: int) -> Observation:
    values = [_largest("share of trials that violate the bound", _violations(-1, seed), "share")]
    corrected = _largest("with exp(+2‖L^in‖₂)", _violations(1, seed), "share")
    return Observation(values=values, controls=[corrected])


enter_experiment(
    "P3",
    _equation_24,
    lambda seed: _largest("with the sign turned", _violations(1, seed), "share"),
)


def _entropy_of_three(_model: str, seed: int) -> Observation:
    entropies = []
    for number in range(40):
        labels = theory.random_labels(30, 16, sizes=(3, 3), seed=1000 * seed + number)
        entropies.append(labels.entropy())
    values = [_largest("largest entropy of 40 data sets (nats)", entropies, "nats")]
    return Observation(values=values, controls=[exactly("log 3", np.log(3), unit="nats")])


def _entropy_of_eight(seed: int) -> Measurement:
    labels = theory.random_labels(30, 16, sizes=(8, 8), seed=seed)
    return exactly("supports of eight tokens (nats)", labels.entropy(), unit="nats")


enter_experiment("P4", _entropy_of_three, _entropy_of_eight)


def _distance_of_sums(seed: int, contexts: int) -> Measurement:
    distances = []
    for instance in range(INSTANCES):
        labels = theory.random_labels(WIDTH, contexts, seed=INSTANCES * seed + instance)
        by_context = np.bincount(labels.supports.rows, labels.counts, minlength=labels.contexts)
        distances.append(float(np.abs(by_context / labels.counts.sum() - 1).max()))
    return _largest(f"largest distance of a sum from 1, {contexts} contexts", distances)


def _sums(_model: str, seed: int) -> Observation:
    return Observation(values=[_distance_of_sums(seed, 20), _distance_of_sums(seed, 2)])


enter_experiment("P5", _sums, lambda seed: _distance_of_sums(seed, 1))
