"""What a privacy report holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar

import pandas as pd

from headscan.run import Interval, Result


@dataclass(frozen=True, kw_only=True)
class OthersBits:
    """B_t = I(X_t; Y | all other tokens): what all releases tell of a token to one who knows all the others.

    Beside A_t, the rows' own bits, it brackets whole texts that are drawn from the prior:
    Σ A_t ≤ I(X; Y) ≤ Σ [B_t + I(X_t; later tokens | earlier ones)]. On a given text each term holds for its context, and no sum
    of them bounds that text. Where the later tokens tell X_t, little is left to be told: B_t may be smaller than A_t.

    Attributes:
        tokens: positions that it is the mean of.
        prior_bits: H(X_t | all other tokens): what there is to tell.
        bits_lower, bits_upper: proved; bits_truth: by Monte Carlo, with its standard error.
    """

    tokens: int
    prior_bits: float
    bits_lower: float
    bits_upper: float
    bits_truth: float
    bits_truth_error: float


@dataclass(frozen=True, kw_only=True)
class LeakRow:
    """What one site's release gives away at one noise.

    Attributes:
        site: where the release comes from.
        defence: what was done to it before the noise, "none" where nothing was.
        noise: standard deviation of the noise, in the rms of the release's centred coordinates; 0 where there is none.
        sigma: the same in the release's own unit; None without noise.
        tokens: positions that the bits are the mean of.
        prior_bits: H of a token given those before it, under the prior: what there is to give away; None where no bits are.
        bits_lower, bits_upper: bits a token that the release at its position tells one who knows the tokens before it, proved
            from below and above; None of a release without noise or rounding, of which `verdict` and `certificate` speak.
        lower_by, upper_by: the bound that was tightest most often.
        bits_interval: 95 % interval of the mean over such positions, from the lower bounds' lower to the upper bounds' upper
            end, with the windows as clusters; None of fewer than two windows.
        bits_truth: the same bits by Monte Carlo, where all candidates were run; bits_truth_error: its standard error.
        kept: prior probability of the candidates that were run, in the mean; candidates: how many, at most.
        guess_accuracy: of naming the likeliest token without a release.
        attack: which attack: "posterior" (the likeliest token given release, prior and true prefix: the best there is), or
            "exact" (search without a prior, prefixes of its own finding), "joint".
        attack_accuracy: share of tokens that it names. Of "posterior": in the mean over the prior, as the ceiling is.
        attack_accuracy_interval: 95 %.
        attack_accuracy_upper: no attack with this prior is right more often; None where nothing is proved.
        text_accuracy, text_accuracy_interval: share of the text's own tokens that the attack names.
        verdict, certificate: of exact inversion, the worst of the windows, of releases without noise.
        loss_added: nats a token that the model loses if its own states are replaced by what is released; None where that
            was not run. loss_added_interval: 95 %, with the windows as clusters; None of fewer than two.
        retrieval, retrieval_interval: of embeddings, the share of passages that their first half still finds first among what is
            released of all; None of other releases.
        others: the bits that all releases together tell of a token to one who knows all other tokens, those after it
            included; None where not counted.
        evaluations_per_token, seconds_per_token: candidates run, and processor time.
    """

    site: str
    defence: str
    noise: float
    sigma: float | None
    tokens: int
    prior_bits: float | None
    bits_lower: float | None
    bits_upper: float | None
    lower_by: str | None = None
    upper_by: str | None = None
    bits_interval: Interval | None = None
    bits_truth: float | None = None
    bits_truth_error: float | None = None
    kept: float | None = None
    candidates: int | None = None
    guess_accuracy: float | None = None
    attack: str
    attack_accuracy: float
    attack_accuracy_interval: Interval
    attack_accuracy_upper: float | None
    text_accuracy: float
    text_accuracy_interval: Interval
    verdict: str | None = None
    certificate: str | None = None
    loss_added: float | None = None
    loss_added_interval: Interval | None = None
    retrieval: float | None = None
    retrieval_interval: Interval | None = None
    others: OthersBits | None = None
    evaluations_per_token: float | None = None
    seconds_per_token: float | None = None


@dataclass(frozen=True, kw_only=True)
class WholeText:
    """What all releases of a text together tell of the whole text, later ones of earlier tokens included.

    Attributes:
        site, noise, defence: as in the rows.
        texts, tokens: texts drawn from the model, and tokens of each.
        particles: prefixes that the filter keeps.
        prior_bits: bits a token that these texts have: −log2 p of them, in the mean.
        bits_lower, bits_upper: bits a token, in the mean over the texts, with `bits_lower_error`, `bits_upper_error` and, of
            their difference, `gap_error`, all standard errors. Both hold in expectation.
        own_bits: the part that each token's own release tells; own_bits_error.
        accuracy: share of tokens that a text drawn from the filter's posterior names rightly; accuracy_interval: 95 %, with the
            texts as clusters; None of fewer than three.
    """

    site: str
    noise: float
    texts: int
    tokens: int
    particles: int
    prior_bits: float
    bits_lower: float
    bits_lower_error: float
    bits_upper: float
    bits_upper_error: float
    gap_error: float
    own_bits: float
    own_bits_error: float
    accuracy: float
    accuracy_interval: Interval | None = None
    defence: str = "none"


@dataclass(frozen=True, kw_only=True)
class GradientToken:
    """A token that lies in a gradient's span.

    Attributes:
        position: None where the model adds no positions before its first attention.
        token, string: which; distance: of its input vector from the span, relative.
        in_batch: whether it was at that position of the batch; elsewhere: whether it was anywhere in it.
    """

    position: int | None
    token: int
    string: str
    distance: float
    in_batch: bool
    elsewhere: bool


@dataclass(frozen=True, kw_only=True)
class LeakedText:
    """The beginning of a text that a gradient shows, all but its last token, in order.

    Attributes:
        tokens, string: which; distance: the largest of its inputs' from block 1's span, relative.
        in_batch: whether a text of the batch begins so.
    """

    tokens: list[int]
    string: str
    distance: float
    in_batch: bool


@dataclass(frozen=True, kw_only=True)
class LeakedGradient:
    """What the gradient of one training step shows of its batch.

    Attributes:
        tokens: those in the span, by position.
        batch, batch_strings: the texts, for comparison.
        recall: the share of the batch's tokens that were found (the last of each text has no gradient and is left out).
        precision: the share of those found that were there; precision_anywhere: the same regardless of the position.
        rank: of the gradient; width: of the inputs. At rank = width everything lies in the span.
        with_positions: whether positions are told apart.
        nearest_other: least distance of a token that was not taken.
        tolerance: distance that counts as inside.
        certified: what is proved, and what is a guess, in words.
        texts: what the second stage puts in order; empty where block 1 shows nothing.
        texts_found: share of the batch's texts that are among them; None where there is no second stage.
        second_rank: of block 1's gradient.
    """

    tokens: list[GradientToken]
    batch: list[list[int]]
    batch_strings: list[list[str]]
    recall: float
    precision: float | None
    precision_anywhere: float | None
    rank: int
    width: int
    with_positions: bool
    nearest_other: float | None
    tolerance: float
    certified: str
    texts: list[LeakedText] = field(default_factory=list)
    texts_found: float | None = None
    second_rank: int | None = None

    def __repr__(self) -> str:
        return f"LeakedGradient({len(self.tokens)} tokens, recall {self.recall:.0%}, rank {self.rank} of {self.width})"


@dataclass(frozen=True, kw_only=True)
class OutsideStates:
    """What was found of states from outside, whose noise is unknown.

    Attributes:
        tokens: that they are of.
        sigma, sigma_interval: the noise, from the residuals with the tokens known: √ of the mean square, and 95 % (χ²).
        sigma_read: the same as the attack estimates it, which knows neither tokens nor noise.
        noise: sigma in the rms of the site's centred coordinates: the rows' unit.
        kurtosis: of the residuals, in excess of the Gaussian's: near 0 for Gaussian noise, 3 for Laplace, −1.2 for uniform;
            None where nothing is left.
        accuracy: share of the tokens that the attack names; strings: what it reads.
    """

    tokens: int
    sigma: float
    sigma_interval: Interval
    sigma_read: float
    noise: float
    kurtosis: float | None
    accuracy: float
    strings: list[str]


@dataclass(frozen=True, repr=False, kw_only=True)
class PrivacyResult(Result):
    """How much of a text is in what leaked.

    Attributes:
        release: what leaked, by its name.
        prior: what the attacker knows of texts beforehand: "model", "uniform" or "text"; what: the same in a sentence.
        meaning: what the rows' bits are bits of, in a sentence.
        rows: one a site and noise.
        whole: bits of whole texts, where these were computed.
        gradient: what a leaked gradient shows, token by token; None for other releases.
        outside: the noise of states that were given; None where there were none.
    """

    kind: ClassVar[str] = "privacy"

    release: str
    prior: str
    what: str
    meaning: str
    rows: list[LeakRow]
    whole: list[WholeText] = field(default_factory=list)
    gradient: LeakedGradient | None = None
    outside: OutsideStates | None = None

    def frame(self) -> pd.DataFrame:
        """A pandas table of the rows."""
        return pd.DataFrame([asdict(row) for row in self.rows])
