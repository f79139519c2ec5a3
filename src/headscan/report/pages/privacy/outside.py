"""States from outside: their noise, and what was read through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Facts, Section, section
from headscan.report.pages._recovered import RecoveredLine, RecoveredToken, recovered

if TYPE_CHECKING:
    from headscan.leaks.result import OutsideStates, PrivacyResult

__all__ = ["outside_said"]


def outside_said(found: OutsideStates) -> str:
    """Their noise and what was read, in a sentence."""
    return (
        f"The states of {found.tokens} tokens carry noise of {found.noise:.2g} rms; through it {found.accuracy:.0%} of the "
        "tokens are read by an attack that knows neither tokens nor noise."
    )


@section("privacy", 5)
def outside(result: PrivacyResult) -> Section | None:
    """What was found of states from outside."""
    found = result.outside
    if found is None:
        return None
    low, high = found.sigma_interval
    rows = [
        ("noise, tokens known", f"{found.sigma:.3g} ({low:.3g} to {high:.3g})"),
        ("noise, as the attack estimates it", f"{found.sigma_read:.3g}"),
        ("noise in rms", f"{found.noise:.3g}"),
        (
            "excess kurtosis",
            "-" if found.kurtosis is None else f"{found.kurtosis:.2f} (Gaussian 0, Laplace 3, uniform −1.2)",
        ),
    ]
    lead = (
        "The noise is estimated together with the tokens; the bits below are those at this noise, taken for Gaussian."
    )
    line = RecoveredLine([RecoveredToken(token, True) for token in found.strings[:500]])
    return Section("The states that were given", lead, [recovered([line]), Facts("In short", rows)])
