"""The result of `privacy`: rows of releases, tests, limits of a policy, and a gradient's tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Self

from headscan.run import DataFrame, Interval, Result, Term, tidy

Share = partial(Term, range=(0.0, 1.0), percent=True)
NOISY = "noise: see the bits"
NOT_RUN = "was not run"
BITS = "bits a token"


@dataclass(frozen=True, kw_only=True)
class LeakRow:
    """The bits and tokens that one site's release gives away at one noise.

    Bits are of the release at a token's position, those before it known. Of a release without noise
    or rounding there are none: verdict and certificate speak of it.

    Attributes:
        sigma: the noise in the release's own unit; None without noise.
        tokens: positions that the bits are the mean of.
        lower_by, upper_by: the bound that was tightest most often.
        bits_interval: of the mean over such positions, from the lower bounds' to the upper bounds'
            end.
        worst_lower, worst_upper: of the position, among those looked at, that tells most.
        windows: that the positions lie in.
        kept: mean prior probability of the candidates that were run.
        candidates: at most.
        guess_accuracy: of naming the likeliest token without a release.
        attack: "posterior" (the likeliest token given release, prior and true prefix), "exact" or
            "joint" (searches).
        attack_accuracy_upper_interval: of the mean over such positions, windows as clusters.
        verdict: the worst of the windows.
        evaluations_per_token: candidates run.
        seconds_per_token: processor time.
    """

    site: Annotated[str, Term("release", "The site that the release comes from.")]
    defence: Annotated[
        str,
        Term("defence", "What was done to the release before the noise; none where nothing was."),
    ]
    noise: Annotated[
        float, Term("noise", "Standard deviation, in rms of the release's centred coordinates.")
    ]
    sigma: float | None
    tokens: int
    prior_bits: Annotated[
        float | None,
        Term("prior bits", "Entropy of a token given those before it, under the prior.", unit=BITS),
    ]
    bits_lower: Annotated[
        float | None, Term("lower bound", "Proved from below.", "U(2σ), Fano", BITS)
    ]
    bits_upper: Annotated[
        float | None, Term("upper bound", "Proved from above.", "U(σ), Gaussian, entropy", BITS)
    ]
    lower_by: str | None = None
    upper_by: str | None = None
    bits_interval: Interval | None = None
    bits_truth: Annotated[
        float | None,
        Term(
            "estimate",
            "Monte Carlo over all candidates.",
            unit=BITS,
            undefined="not all candidates were run",
        ),
    ] = None
    bits_truth_error: float | None = None
    worst_lower: Annotated[
        float | None,
        Term("worst, lower bound", "Largest lower bound of one position.", unit=BITS, where="page"),
    ] = None
    worst_upper: Annotated[
        float | None,
        Term(
            "worst, upper bound",
            "Largest upper bound of the positions examined.",
            unit=BITS,
            where="page",
        ),
    ] = None
    windows: int | None = None
    kept: float | None = None
    candidates: int | None = None
    guess_accuracy: float | None = None
    attack: str
    attack_accuracy: Annotated[
        float, Share("accuracy", "Of the attack, in the mean over the prior.")
    ]
    attack_accuracy_interval: Interval
    attack_accuracy_upper: Annotated[
        float | None,
        Share(
            "accuracy,\nupper bound",
            "No attack is right more often.",
            undefined="nothing is proved",
        ),
    ]
    attack_accuracy_upper_interval: Interval | None = None
    text_accuracy: Annotated[float, Share("on this text", "Accuracy on the text's own tokens.")]
    text_accuracy_interval: Interval
    verdict: Annotated[str | None, Term("verdict", where="page", undefined=NOISY)] = None
    certificate: Annotated[
        str | None,
        Term("certificate", "What excludes other tokens.", where="page", undefined=NOISY),
    ] = None
    loss_added: Annotated[
        float | None,
        Term(
            "loss increase",
            "Of the model, where it continues from the release.",
            undefined=NOT_RUN,
        ),
    ] = None
    loss_added_interval: Interval | None = None
    retrieval: Annotated[
        float | None,
        Share(
            "still found",
            "Passages whose first half finds them first among all released passages.",
            undefined=NOT_RUN,
        ),
    ] = None
    retrieval_interval: Interval | None = None
    evaluations_per_token: float | None = None
    seconds_per_token: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A number of a test beside the bits: of an attack by name, of margins, of membership.

    `knows` is what the attack needs: "weights", "family" (a related model), "nothing" (queries); of
    a proved ceiling "bound".
    """

    test: Annotated[str, Term("test", "As --test calls it.")]
    site: Annotated[str, Term("release", "The site that the release comes from.")]
    defence: Annotated[str, Term("defence")]
    setting: Annotated[str, Term("how", "The attack or setting.")]
    quantity: Annotated[str, Term("quantity")]
    value: Annotated[
        float | None,
        Term("value", "With its 95 % interval.", spread=True, undefined="it was not measured"),
    ]
    interval: Interval | None
    count: Annotated[int, Term("of", "Tokens, texts or pairs that the number is of.")]
    knows: Annotated[str, Term("needs", "What the attacker must know of the model.", where="page")]
    note: str = ""

    @classmethod
    def blank(
        cls,
        test: str,
        site: str,
        *,
        knows: str,
        defence: str = "none",
        setting: str = "",
        count: int = 0,
        note: str = "",
    ) -> Self:
        """Return a row without its number, of which several rows are made by `replace`."""
        return cls(
            test=test,
            site=site,
            defence=defence,
            setting=setting,
            quantity="",
            value=None,
            interval=None,
            count=count,
            knows=knows,
            note=note,
        )


@dataclass(frozen=True, kw_only=True)
class LimitRow:
    """A limit of a policy, with the evidence for it."""

    limit: Annotated[str, Term("limit")]
    at_most: Annotated[float, Term("at most", "As the policy says.")]
    value: Annotated[
        float | None, Term("value", "With its 95 % interval, or its bounds.", spread=True)
    ]
    interval: Interval | None
    verdict: Annotated[str, Term("verdict", "pass, fail, or cannot be shown.")]
    evidence: Annotated[str, Term("evidence", where="page")]


@dataclass(frozen=True, kw_only=True)
class GradientToken:
    """A token that lies in a gradient's span.

    Attributes:
        position: None where the model adds no positions before its first attention.
        token, string: its id, and how people see it.
        distance: of its input vector from the span, relative.
        in_batch: whether it was at that position; elsewhere: anywhere in the batch.
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
        distance: the largest of its inputs' from block 1's span, relative.
        in_batch: whether a text of the batch begins so.
    """

    tokens: list[int]
    string: str
    distance: float
    in_batch: bool


@dataclass(frozen=True, kw_only=True)
class LeakedGradient:
    """The tokens and texts of a batch that the gradient of one training step shows.

    Attributes:
        tolerance: distance that counts as inside.
        certified: sentences about what is proved, and what is a guess.
        texts: put in order by the second stage.
        texts_found: share of the batch's texts among them; None without a second stage.
        second_rank: of block 1's gradient.
    """

    tokens: list[GradientToken]
    batch: list[list[int]]
    batch_strings: list[list[str]]
    recall: Annotated[
        float,
        Share(
            "tokens of the batch found", "The last of each text has no gradient and is left out."
        ),
    ]
    precision: Annotated[float | None, Share("found tokens that were there")]
    precision_anywhere: Annotated[float | None, Share("at this or another position")]
    rank: Annotated[
        int, Term("rank of the gradient", "At the width of the inputs everything lies in the span.")
    ]
    width: int
    with_positions: Annotated[bool, Term("positions recovered")]
    nearest_other: Annotated[
        float | None,
        Term(
            "nearest token outside",
            "Least distance of a token that was not taken.",
            scientific=True,
        ),
    ]
    tolerance: float
    certified: str
    texts: list[LeakedText] = field(default_factory=list)
    texts_found: float | None = None
    second_rank: int | None = None

    def __repr__(self) -> str:
        return (
            f"LeakedGradient({len(self.tokens)} tokens, recall {self.recall:.0%}, rank "
            f"{self.rank} of {self.width})"
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class PrivacyResult(Result):
    """The bits of a text that are in what leaked, and what attacks read off.

    Attributes:
        release: the name of what leaked.
        prior: what the attacker knows of texts beforehand: "model", "uniform" or "text"; `what`
            says it in a sentence.
        meaning: a sentence that says what the rows' bits are bits of.
        rows: one a site, defence and noise.
        gradient: the tokens of a leaked gradient.
        trials: the numbers of tests.
        verdict: of a policy: "pass", "fail" or "cannot be shown".
        limits: of a policy, with what was shown of each.
        not_examined: sentences about what the verdict says nothing of.
    """

    kind: ClassVar[str] = "privacy"

    release: str
    prior: str
    what: str
    meaning: str
    rows: list[LeakRow]
    gradient: LeakedGradient | None = None
    trials: list[TrialRow] = field(default_factory=list)
    verdict: str | None = None
    limits: list[LimitRow] = field(default_factory=list)
    not_examined: list[str] = field(default_factory=list)

    def frame(self) -> DataFrame:
        return tidy([asdict(row) for row in self.rows])
