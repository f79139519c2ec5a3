"""The page of a privacy report: the head here, a module a section beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Head, Word, page
from headscan.report.kit.words import named
from headscan.report.pages.privacy import attacks, bits, frontier, gradient, outside
from headscan.report.pages.privacy.frontier import frontier_said, remains
from headscan.report.pages.privacy.outside import outside_said

if TYPE_CHECKING:
    from headscan.leaks.result import LeakRow, PrivacyResult

__all__ = ["attacks", "bits", "frontier", "gradient", "head", "outside"]

BITS = Word(
    "bits a token", "Information that the release gives of a token, in the mean: proved from below and from above, whatever the "
    "attack; the truth lies between."
)  # fmt: skip
WORDS = [
    BITS,
    Word("rms", "The unit of the noise: the root mean square of the release's coordinates around their mean."),
    Word("prior", "What the attacker knows of texts before anything leaks; its entropy is what there is to give away."),
    Word(
        "posterior attack",
        "Names the likeliest token given release, prior and the true tokens before it: no attack is better.",
    ),
    Word("ceiling", "An accuracy that no attack exceeds, because of the bits (Fano); in the mean over the prior."),
]


@page("privacy")
def head(result: PrivacyResult) -> Head:
    """What remains in the release, in one sentence."""
    return Head([named(result.models[0].name)], _said(result), words=[] if result.gradient else WORDS)


def _said(result: PrivacyResult) -> str:
    if result.gradient is not None:
        share = f"{100 * result.gradient.recall:.1f} %"
        return f"The gradient of one training step gives away {share} of the tokens of its batch."
    said = [outside_said(result.outside)] if result.outside is not None else []
    if len({row.defence for row in result.rows}) > 1:
        return " ".join([*said, frontier_said(result)])
    bounded = [row for row in result.rows if row.bits_lower is not None and row.noise > 0]
    if bounded:
        said.append(_remains(result, min(bounded, key=lambda row: row.bits_lower or 0.0)))
    rounded = [row for row in result.rows if row.noise == 0 and row.bits_lower is not None]
    clean = [row for row in result.rows if row.noise == 0]
    if clean:
        shares, worst = [row.text_accuracy for row in clean], max(clean, key=lambda row: row.site)
        how = f"as {worst.defence}" if rounded else "without noise"
        verdicts = ", ".join(dict.fromkeys(row.verdict for row in clean if row.verdict))
        said.append(
            f"Released {how}, {_range(shares)} of the tokens are read off by {worst.attack} search ({verdicts})."
        )
    return " ".join(said)


def _remains(result: PrivacyResult, row: LeakRow) -> str:
    """What remains at a setting, of whole texts too where these were counted."""
    whole = next(
        (one for one in result.whole if (one.site, one.noise, one.defence) == (row.site, row.noise, row.defence)), None
    )
    if whole is None:
        return remains(row)
    bits = f"{whole.bits_lower:.2f} to {whole.bits_upper:.2f} of {whole.prior_bits:.2f}"
    return remains(row, f", of whole texts {bits} (± {1.96 * whole.gap_error:.2f})")


def _range(shares: list[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low} to {high}"
