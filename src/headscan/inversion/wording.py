"""Sentences about a certificate: they say no more than its type proves."""

from torch import Tensor

from headscan.inversion.reconstruction import (
    ABSENT,
    AMBIGUOUS,
    NOT_RECOVERED,
    TRIED,
    Certificate,
    Evidence,
    Reconstruction,
    Verdict,
    accepts,
)

SHOWN = 8  # positions that are listed


def compared_phrase(free: list[Evidence], choice: int, *, restricted: bool = False) -> str:
    """Return with how many of `choice` tokens those of the positions `free` were compared.

    >>> some = [Evidence(count=count, why="sampled", residual=0.0) for count in (30, 17)]
    >>> compared_phrase(some, 50_257)
    '17 to 30 of 50,257 tokens at each position'
    """
    if not free:
        return ""
    tokens = "tokens of the restricted vocabulary" if restricted else "tokens"
    if all(evidence.why != "sampled" for evidence in free):
        return f"all {choice:,} {tokens} at each position"
    fewest = min(evidence.count for evidence in free)
    most = max(evidence.count for evidence in free)
    counts = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"{counts} of {choice:,} {tokens} at each position"


def certified(
    verdict: Verdict,
    certificate: Certificate,
    evidence: list[Evidence],
    reconstruction: Reconstruction,
    target: Tensor,
    *,
    choice: int,
    lost: int = 0,
) -> str:
    """Return what is proved of a prompt, in a sentence or two.

    Args:
        verdict: the verdict on the prompt.
        certificate: its certificate.
        evidence: of each position.
        reconstruction: the result of the method.
        target: the output given.
        choice: the number of tokens that may be returned.
        lost: the number of unknown tokens.
    """
    if verdict == NOT_RECOVERED:
        reason = _reason(certificate, evidence, reconstruction, target, choice)
        return f"Not recovered: {reason}. The tokens shown are a guess."
    start = (
        f"Recovered: the tokens shown give the output within {certificate.tolerance:.1e} of its "
        "norm"
    )
    if verdict == ABSENT and lost:
        return (
            f"{start}; {lost} of them are the unknown token, and what text stood there is not in "
            "the states."
        )
    if verdict == ABSENT:
        return (
            f"{start}; some tokens have no effect on the given output, and what is shown "
            "there is arbitrary."
        )
    if verdict == AMBIGUOUS:
        count = sum(bool(tokens) for tokens in certificate.equivalent)
        most = max(map(len, certificate.equivalent))
        positions = "1 position" if count == 1 else f"{count} positions"
        return (
            f"{start}, but other tokens give it, too: at {positions} up to {most} more "
            f"({certificate.checked} compared)."
        )
    if verdict == TRIED:
        return (
            f"{start}; no other token that was tried gives it ({certificate.checked}). The "
            "rest was not tried."
        )
    proof = "proved farther by the distance of its vector"
    if certificate.type == "exhaustive":
        proof = "run"
    return (
        f"{start}; unique among {certificate.checked}: every other was {proof}, so no other "
        "prompt of this length gives it."
    )


def _reason(
    certificate: Certificate,
    evidence: list[Evidence],
    reconstruction: Reconstruction,
    target: Tensor,
    choice: int,
) -> str:
    """Return why no tokens fit."""
    broken = (~target.isfinite().all(-1)).nonzero()[:, 0].tolist()
    if broken:
        noun = "position" if len(broken) == 1 else "positions"
        listed = ", ".join(map(str, broken[:SHOWN]))
        if len(broken) > SHOWN:
            listed += ", ..."
        return f"the given states are not finite at {noun} {listed}"
    if certificate.residual is None:
        return "the tokens found give an output that is not finite"
    tolerance = f"the tolerance is {certificate.tolerance:.1e}"
    for position, row in enumerate(evidence):
        if row.count and not accepts(row.residual, certificate.tolerance):
            distance = f"the nearest is {row.residual:.1e} of the norm away, {tolerance}"
            if row.why != "sampled":
                return (
                    f"none of the {choice:,} tokens gives the output at position {position} "
                    f"({distance})"
                )
            return (
                f"the search stopped at its budget, {row.count:,} of {choice:,} tokens at "
                f"position {position} ({distance})"
            )
    distance = f"they are {certificate.residual:.1e} of the norm away, {tolerance}"
    if reconstruction.stopped:
        return f"the search stopped at its budget ({distance})"
    method = "descent" if reconstruction.top is not None else "search"
    return f"the {method} ended at tokens that do not give the output ({distance})"
