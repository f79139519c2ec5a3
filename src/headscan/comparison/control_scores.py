"""Scores of how far each token's rise lies beyond that of control changes, and their limit.

Control fine-tunes that differ only by their seed move the tokens along a few common directions, and
by a spread that depends on how likely a token is. Both are taken out before the scores are judged,
as surrogate variables (Leek & Storey 2007) and moderated variances with a trend (Smyth 2004; Law et
al. 2014) do for the expression of genes.
"""

import numpy as np
from numpy.polynomial import Polynomial
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from headscan.statistics.uncertainty import Floats, student_quantile

LEVEL = 0.98
"""A change like the controls is beyond each of the two limits in half of the other 2 % of cases."""

SPREAD_FLOOR = 1e-3
"""The least standard deviation [nats] of a token's rise under the controls."""

COMMON = 2
"""The most directions in which controls differ from each other that are taken out."""

KEPT = 0.9
"""The share of the tokens, those nearest to a fit, that take part in the next."""

TREND_DEGREE = 3


def prediction_limit(values: Floats) -> float:
    """Return the number that another value like these exceeds in one of 100 cases.

    It is Student's prediction limit of their logarithms, and no less than the largest of them.

    >>> 2.0 < prediction_limit(np.array([1.0, 1.2, 1.5, 1.9, 2.0]))
    True
    """
    logs = np.log(np.maximum(values, 1e-300))
    count = len(logs)
    width = student_quantile(count - 1, LEVEL) * (1 + 1 / count) ** 0.5
    limit = float(np.exp(logs.mean() + width * logs.std(ddof=1)))
    return max(limit, float(values.max()))


def token_scores(rises: Floats, likelihoods: Floats) -> tuple[Floats, float]:
    """Return the score of each token under the first change, and the limit of the controls.

    `rises`: mean rise of each token's log-probability [1 + controls, V], of the examined change
    first. `likelihoods`: mean log-probability of each token under the base [V]. The limit is of the
    controls among themselves, each beside all others; the examined change is not among them.
    """
    # Where one token takes much probability, all others lose the same log-probability: scores are
    # of the rise beyond that of the median token.
    relative = rises - np.median(rises, axis=1, keepdims=True)
    controls = relative[1:]
    common = min(COMMON, (len(controls) - 1) // 4)
    largest = []
    for number, rise in enumerate(controls):
        others = np.delete(controls, number, 0)
        largest.append(np.abs(scores_beside(rise, others, likelihoods, common)).max())
    scores = scores_beside(relative[0], controls, likelihoods, common)
    return scores, prediction_limit(np.array(largest))


def scores_beside(rise: Floats, controls: Floats, likelihoods: Floats, common: int) -> Floats:
    """Return the distance of each token's rise [V] from that under controls [n, V].

    It is in standard deviations, after the `common` strongest directions in which the controls
    differ.
    """
    mean = controls.mean(0)
    deviations = controls - mean
    directions = np.linalg.svd(deviations, full_matrices=False)[2][:common]
    deviations = deviations - deviations @ directions.T @ directions
    degrees = len(controls) - 1 - common
    variances = np.square(deviations).sum(0) / degrees
    variances = np.maximum(variances, SPREAD_FLOOR**2)
    spread = np.sqrt(moderated_variances(variances, degrees, likelihoods))
    scores: Floats = _without(rise - mean, directions) / spread
    return scores


def _without(rise: Floats, directions: Floats) -> Floats:
    """Return a rise [V] without its part along directions [k, V].

    The part is fitted to most tokens, so that the few that moved for another reason do not count.
    """
    fitted = np.ones(len(rise), dtype=bool)
    remainder = rise
    for _ in range(3):
        sizes = np.linalg.lstsq(directions[:, fitted].T, rise[fitted], rcond=None)[0]
        remainder = rise - sizes @ directions
        distances = np.abs(remainder)
        fitted = distances <= np.quantile(distances, KEPT)
    return remainder


def moderated_variances(variances: Floats, degrees: int, likelihoods: Floats) -> Floats:
    """Return variances [V], each drawn towards that of tokens which are as likely.

    The weight of the trend is estimated: it is worth as many degrees of freedom as the scatter of
    the variances around it leaves (Smyth 2004, section 6.2).

    >>> equal = moderated_variances(np.full(50, 4.0), 8, np.linspace(-9, -1, 50))
    >>> np.allclose(equal, equal[0])
    True
    """
    logs = np.log(variances)
    trend = Polynomial.fit(likelihoods, logs, TREND_DEGREE)(likelihoods)
    residuals = logs - trend - digamma(degrees / 2) + np.log(degrees / 2)
    excess = float(residuals.var(ddof=1) - polygamma(1, degrees / 2))
    centre = float(residuals.mean())
    if excess <= polygamma(1, 1e6):
        moderated: Floats = np.exp(trend + centre)
        return moderated
    prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-6, 1e6)
    expected = np.exp(trend + centre + digamma(prior / 2) - np.log(prior / 2))
    moderated = (prior * expected + degrees * variances) / (prior + degrees)
    return moderated
