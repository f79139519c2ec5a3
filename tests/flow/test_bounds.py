"""The channel's bounds against the exact posterior of the codebook, where one noise-to-signal ratio
for all fails.
"""

import numpy as np
import pytest
import torch

from headscan.flow import channel_bound, fano_accuracy, fano_bits, gaussian_bits, noise_accuracy

VOCABULARY = 256


def books() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((VOCABULARY, 12))
    rogue = x.copy()
    rogue[:, 3] *= 300  # one feature carries the spread
    return {
        "even": x,
        "rogue": rogue,
        "log-normal": x * np.exp(2 * rng.standard_normal(12)),
        "heavy tails": rng.standard_t(2, (VOCABULARY, 12)),
        "a line": np.outer(x[:, 0], np.ones(12)),
        "shared outputs": np.repeat(x[: VOCABULARY // 4], 4, axis=0),
    }


def truth(
    book: np.ndarray, noise: float, prior: np.ndarray, draws: int = 1000
) -> tuple[float, float, float]:
    """I(token; output + noise) in bits with its standard error, and the best decoder's accuracy:
    from exact posteriors.
    """
    rng = np.random.default_rng(1)
    sent = rng.choice(len(book), draws, p=prior)
    heard = book[sent] + noise * rng.standard_normal((draws, book.shape[1]))
    logs = -((heard[:, None] - book[None]) ** 2).sum(-1) / (2 * noise**2) + np.log(prior)
    posterior = np.exp(logs - logs.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    entropy = -(posterior * np.log2(np.maximum(posterior, 1e-300))).sum(1)
    known = -(prior * np.log2(prior)).sum()
    return known - entropy.mean(), entropy.std() / draws**0.5, posterior.max(1).mean()


@pytest.mark.parametrize("name", list(books()))
@pytest.mark.parametrize("skewed", [False, True])
def test_no_decoder_exceeds_the_bounds(name, skewed):
    book = books()[name]
    prior = np.arange(1, VOCABULARY + 1, dtype=float) ** -1.2 if skewed else np.ones(VOCABULARY)
    prior /= prior.sum()
    entropy = -(prior * np.log2(prior)).sum()
    centred = book - prior @ book
    variances = np.linalg.eigvalsh((centred * prior[:, None]).T @ centred)
    for noise in (0.3, 1.0, 3.0):
        bits, error, accuracy = truth(book, noise, prior)
        most = gaussian_bits(variances, noise)
        assert bits <= most + 3 * error + 1e-9, noise
        assert accuracy <= fano_accuracy(most, VOCABULARY, entropy) + 0.03
        assert accuracy <= fano_accuracy(bits + 3 * error, VOCABULARY, entropy) + 0.03  # Fano alone
    # and it says something: at the strongest noise it is near
    assert bits > 0.2 * min(most, entropy)


def test_one_ratio_for_all_features_is_no_bound():
    """0.1's formula, log2 V features over ½ log2(1 + SNR) each, asks for more than the one rogue
    feature that suffices.
    """
    rng = np.random.default_rng(0)
    book = torch.from_numpy(rng.standard_normal((512, 64)).astype(np.float32))
    book[:, 0] = torch.from_numpy(rng.permutation(512).astype(np.float32)) * 60
    spread = float((book - book.mean(0)).std(0, unbiased=False).mean())
    alone = noise_accuracy(
        book[:, :1] * 1.0, noises=(10 / float(book[:, 0].std()),), widths=(1,), trials=1000
    )[0]
    noise = 10 / spread  # the same noise, of standard deviation 10, in the spread of all features
    ratio = np.log2(512) / (0.5 * np.log2(1 + noise**-2))
    assert alone.accuracy > 0.95
    assert ratio > 2  # two features and more, it said
    assert channel_bound(book, noise).width == 1
    assert alone.accuracy <= alone.highest + 4 * alone.standard_error


def test_fano_and_its_inverse_agree_and_hold_at_the_ends():
    for accuracy in (0.05, 0.5, 0.95, 1.0):
        assert fano_accuracy(fano_bits(accuracy, 64), 64) == pytest.approx(accuracy, abs=1e-9)
    assert fano_accuracy(0.0, 64) == pytest.approx(1 / 64, abs=1e-6)
    # A known prior: always guessing the likeliest token needs no bits.
    prior = np.array([0.7, 0.1, 0.1, 0.1])
    entropy = -(prior * np.log2(prior)).sum()
    assert fano_accuracy(0.0, 4, entropy) == pytest.approx(0.7, abs=1e-6)
