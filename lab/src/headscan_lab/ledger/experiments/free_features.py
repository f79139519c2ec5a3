"""Statements of arXiv:2408.15417 and 2505.08348 on the path of solutions and on free features."""

from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np

import headscan.ntp as ntp
from headscan_lab import theory
from headscan_lab.ledger.experiments.counting import story_labels
from headscan_lab.ledger.measurement import Measurement, mean_of
from headscan_lab.ledger.statement import Observation, enter_experiment
from headscan_lab.theory.features import FeatureRun, train_features

INSTANCES = 5
WIDTH = 10
STEPS = 10_000


def _labels(seed: int, contexts: int = 95, supports: int = 30) -> ntp.SoftLabels:
    return theory.random_labels(WIDTH, contexts, supports=supports, seed=seed)


def mean_number(name: str, values: list[float], unit: str = "cosine") -> Measurement:
    bounds = (-1.0, 1.0) if unit == "cosine" else (-np.inf, np.inf)
    return mean_of(name, values, unit=unit, bounds=bounds)


@cache
def _path_directions(seed: int) -> dict[int, tuple[float, float]]:
    """Return by decade of λ the cosine of the increment with L^mm, and CE - H over λ‖L^mm‖_*."""
    labels = _labels(seed, 40, 15)
    solution = ntp.svm(labels, gap=1e-9)
    points = theory.regularisation_path(labels, [10.0**-exponent for exponent in range(2, 9)])
    ends = {}
    for exponent in (6, 8):
        part = points[: exponent - 1]
        cosine = ntp.cosine(theory.increment(part), solution.logits)
        ends[exponent] = (cosine, part[-1].excess / (part[-1].penalty * solution.primal))
    return ends


def _path_limit(_model: str, seed: int) -> Observation:
    seeds = [3 * seed + number for number in range(3)]
    values = []
    controls = []
    for exponent in (6, 8):
        ends = [_path_directions(instance)[exponent] for instance in seeds]
        values.append(mean_number(f"λ = 1e-{exponent}", [end[0] for end in ends]))
        ratios = [end[1] for end in ends]
        controls.append(mean_number(f"CE - H over λ‖L^mm‖_* at 1e-{exponent}", ratios, "ratio"))
    return Observation(values=values, controls=controls)


def _path_of_others(seed: int) -> Measurement:
    """Return the cosine of the path's increment with the solution for other supports."""
    values = []
    for instance in range(3):
        labels = _labels(3 * seed + instance, 40, 15)
        points = theory.regularisation_path(labels, [1e-3, 1e-4])
        supports = _labels(3 * seed + instance + 100, 40, 15)
        values.append(ntp.cosine(theory.increment(points), ntp.svm(supports, gap=1e-6).logits))
    return mean_number("other supports' solution", values)


enter_experiment("P6", _path_limit, _path_of_others)


@lru_cache(maxsize=32)
def free_features(seed: int, init: float, steps: int = STEPS) -> FeatureRun:
    """Return a run of gradient descent on free features of a random instance."""
    labels = _labels(seed)
    return train_features(
        labels,
        WIDTH,
        steps,
        init=init,
        seed=seed,
        prediction=ntp.predict(labels),
        checkpoints=[steps // 100],
    )


STARTS = (0.05, 0.1)


def _over_starts(
    name: str, unit: str, read: Callable[[int, float], float], seed: int
) -> list[Measurement]:
    """Return a number of free features at each size of the start, over instances."""
    values = []
    for init in STARTS:
        numbers = [read(INSTANCES * seed + instance, init) for instance in range(INSTANCES)]
        values.append(mean_number(f"{name}, start of {init:g}", numbers, unit))
    return values


def _word_similarity(seed: int, init: float) -> float:
    return float(free_features(seed, init).records[-1].pattern_words or 0.0)


def _context_similarity(seed: int, init: float) -> float:
    return float(free_features(seed, init).records[-1].pattern_contexts or 0.0)


def _excess(seed: int, init: float) -> float:
    return free_features(seed, init).records[-1].excess


def _aligned(_model: str, seed: int) -> Observation:
    values = _over_starts("similarity of words", "cosine", _word_similarity, seed)
    values += _over_starts("similarity of contexts", "cosine", _context_similarity, seed)
    return Observation(values=values, controls=_over_starts("CE - H", "nats", _excess, seed))


def _unaligned(seed: int) -> Measurement:
    values = []
    for instance in range(INSTANCES):
        start = free_features(INSTANCES * seed + instance, STARTS[0]).records[0]
        values.append(float(start.pattern_contexts or 0.0))
    return mean_number("similarity of contexts at the start", values)


enter_experiment("P7", _aligned, _unaligned)


def _projected_cosine(seed: int, init: float) -> float:
    metrics = free_features(seed, init).records[-1].metrics
    assert metrics is not None
    return float(getattr(metrics.SC1.after, "same_cosine", np.nan))


def _other_cosine(seed: int, init: float) -> float:
    metrics = free_features(seed, init).records[-1].metrics
    assert metrics is not None
    return float(getattr(metrics.SC1.after, "other_cosine", np.nan))


def _collapsed(_model: str, seed: int) -> Observation:
    return Observation(
        values=_over_starts("equal supports", "cosine", _projected_cosine, seed),
        controls=_over_starts("other supports", "cosine", _other_cosine, seed),
    )


def _others(seed: int) -> Measurement:
    return _over_starts("other supports", "cosine", _other_cosine, seed)[0]


enter_experiment("P8", _collapsed, _others)


def _ratio(labels: ntp.SoftLabels, run: FeatureRun) -> float:
    low_rank = float(np.linalg.norm(ntp.out_of_support(run.logits, labels.supports)))
    return low_rank / float(np.linalg.norm(ntp.in_support(run.logits, labels.supports)))


def _dominance(seed: int, init: float) -> float:
    labels = _labels(seed)
    early = train_features(labels, WIDTH, STEPS // 100, init=init, seed=seed, checkpoints=[])
    return _ratio(labels, free_features(seed, init)) / _ratio(labels, early)


def _exchanged_ends(seed: int) -> Measurement:
    instances = [INSTANCES * seed + instance for instance in range(INSTANCES)]
    values = [1 / _dominance(instance, STARTS[0]) for instance in instances]
    return mean_number("a hundredth of the steps over the end", values, "times")


def _dominant(_model: str, seed: int) -> Observation:
    name = "norm of the low-rank over the sparse part, end over a hundredth"
    return Observation(values=_over_starts(name, "times", _dominance, seed))


enter_experiment("P9", _dominant, _exchanged_ends)


@cache
def _parts_on_supports(seed: int) -> tuple[float, float, float]:
    """Return the cosine of low-rank parts of other labels on the same supports, that of the sparse
    parts, and that of low-rank parts on other supports of equal sizes.
    """
    labels = _labels(seed)
    generator = np.random.default_rng(seed)
    same = labels.matrix().copy()
    same.data = generator.uniform(1, 5, len(labels.counts))
    other = same.copy()
    for begin, end in pairwise(other.indptr):
        drawn = generator.choice(labels.vocabulary, end - begin, replace=False)
        other.indices[begin:end] = np.sort(drawn)
    original = free_features(seed, STARTS[1]).logits
    trained = []
    for matrix in (same, other):
        run = train_features(ntp.SoftLabels.of(matrix), WIDTH, STEPS, seed=seed, checkpoints=[])
        trained.append(run.logits)
    other_supports = ntp.SoftLabels.of(other).supports
    low_rank = ntp.out_of_support(original, labels.supports)
    return (
        ntp.cosine(low_rank, ntp.out_of_support(trained[0], labels.supports)),
        ntp.cosine(
            ntp.in_support(original, labels.supports), ntp.in_support(trained[0], labels.supports)
        ),
        ntp.cosine(low_rank, ntp.out_of_support(trained[1], other_supports)),
    )


def _pattern_alone(_model: str, seed: int) -> Observation:
    rows = [_parts_on_supports(INSTANCES * seed + instance) for instance in range(INSTANCES)]
    low_rank, sparse, _ = (list(column) for column in zip(*rows, strict=True))
    return Observation(
        values=[mean_number("low-rank parts, other labels on the same supports", low_rank)],
        controls=[mean_number("sparse parts of the same two", sparse)],
    )


def _other_patterns(seed: int) -> Measurement:
    rows = [_parts_on_supports(INSTANCES * seed + instance)[2] for instance in range(INSTANCES)]
    return mean_number("low-rank parts on other supports of equal sizes", rows)


enter_experiment("P10", _pattern_alone, _other_patterns)


def _axis_order(seed: int, init: float) -> float:
    """Return the rank correlation of a support axis's rank with the steps to half of it."""
    _, labels = story_labels(seed, order=1)
    spectrum = ntp.support_spectrum(labels)
    steps = [2**exponent for exponent in range(3, 10)]
    axes = min(10, len(spectrum.sigma))
    strengths = []
    for last in steps:
        run = train_features(labels, labels.vocabulary, last, checkpoints=[], init=init, seed=seed)
        strengths.append(
            np.einsum(
                "mk,mv,vk->k", spectrum.contexts[:, :axes], run.logits, spectrum.tokens[:, :axes]
            )
        )
    half_grown = np.array(strengths) > 0.5 * spectrum.sigma[:axes]
    reached = np.where(half_grown.any(0), half_grown.argmax(0), len(steps)).astype(float)
    return float(np.corrcoef(reached, np.arange(axes))[0, 1])


def _axes_in_order(_model: str, seed: int) -> Observation:
    values = []
    for init in (1e-3, 1e-2):
        numbers = [_axis_order(3 * seed + instance, init) for instance in range(3)]
        values.append(mean_number(f"start of {init:g}", numbers))
    return Observation(values=values)


def _no_order(seed: int) -> Measurement:
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(40):
        values.append(float(np.corrcoef(np.arange(10), generator.permutation(10))[0, 1]))
    return mean_number("axes in a drawn order", values)


enter_experiment("L5", _axes_in_order, _no_order)
