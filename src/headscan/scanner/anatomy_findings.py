"""The findings about the anatomy of a cone: which branches build it, and what its mean says."""

from collections.abc import Sequence
from itertools import accumulate

from headscan.model.sites import is_block
from headscan.run.rows import Finding, Row
from headscan.scanner.kinds import BUILT, SAYS

CONE = 0.05
"""From this average cosine on a cone has an anatomy."""

TAKEN_AWAY = 0.1
"""From this share on the branches that take a cone away are named."""

MOST_LISTED = 6


def built(sites: Sequence[Row], rows: Sequence[Row]) -> list[Finding]:
    """Return a finding (BUILT) for each model: the branches that build the cone at its last block.

    They are the fewest that make half of the cone's squared length. Shares of the anatomy are of
    all tokens, also of sinks, as is the average cosine that they add up to.

    Args:
        sites: rows of sites.
        rows: of the anatomy.
    """
    findings = []
    trained = [row for row in rows if not row.get("null") and row["kind"] == "branch"]
    for model in dict.fromkeys(row.text("model") for row in trained):
        of_blocks = []
        for row in trained:
            if row["model"] == model and is_block(row.text("site")):
                of_blocks.append(row)
        if not of_blocks:
            continue
        site = of_blocks[-1].text("site")
        site_row = _row_of(sites, model, site)
        cosine = None if site_row is None else site_row.number("average_cosine")
        if site_row is None or cosine is None or cosine < CONE:
            continue
        branches = [row for row in of_blocks if row["site"] == site]
        findings.append(_built_by(site_row, cosine, branches))
    return findings


def _row_of(sites: Sequence[Row], model: str, site: str) -> Row | None:
    for row in sites:
        if row["model"] == model and row["site"] == site:
            return row
    return None


def _built_by(site_row: Row, cosine: float, branches: Sequence[Row]) -> Finding:
    """Return the finding about the branches at a site."""
    shares = [(row.text("part"), row.number("share") or 0.0) for row in branches]
    shares.sort(key=lambda part: -part[1])
    sums = list(accumulate(share for _, share in shares))
    largest = len(shares)
    for number, total in enumerate(sums):
        if total >= 0.5:
            largest = number + 1
            break
    builders = shares[:largest]
    listed_builders = listed([f"{name} ({share:.0%})" for name, share in builders])
    sentence = (
        f"The cone at {site_row['site']} (average cosine of all tokens {cosine:.2f}) is caused by "
        f"{listed_builders}"
    )
    removers = [(name, -share) for name, share in shares if share < 0]
    removed = sum(share for _, share in removers)
    if removed > TAKEN_AWAY:
        strongest = removers[:-4:-1]
        listed_removers = listed([f"{name} ({share:.0%})" for name, share in strongest])
        sentence += f"; {removed:.0%} is removed, mostly by {listed_removers}"
    return BUILT.finding(
        "notice",
        f"{sentence}.",
        model=site_row.text("model"),
        site=site_row.text("site"),
        value=builders[0][1],
    )


def says(rows: Sequence[Row]) -> list[Finding]:
    """Return a finding (SAYS) for each model: whether the mean's logits are token frequencies.

    It also says what a bias of the head takes away.
    """
    findings = []
    for row in rows:
        correlation = row.number("correlation")
        chance = row.number("random")
        if row.get("null") or correlation is None or chance is None:
            continue
        sentence = _frequency_sentence(row, correlation, chance)
        cosine = row.number("cosine")
        cosine_after = row.number("cosine_after")
        if cosine is not None and cosine_after is not None and cosine >= CONE:
            sentence += (
                "; a bias of the head removes it without changing a logit: average cosine "
                f"{cosine:.3f}, then {cosine_after:.3f}"
            )
        findings.append(
            SAYS.finding(
                "notice",
                f"{sentence}.",
                model=row.text("model"),
                site=row.text("site"),
                value=correlation,
            )
        )
    return findings


def _frequency_sentence(row: Row, correlation: float, chance: float) -> str:
    level = (
        f"its logits have r = {correlation:.2f} with the log frequency; a random direction has up "
        f"to {chance:.2f}"
    )
    direction = f"The common direction at {row['site']}"
    if (row.number("random_p") or 0.0) >= 0.05:
        return f"{direction} encodes token frequency no better than a random one ({level})"
    tokens = "frequent" if correlation > 0 else "rare"
    return f"{direction} encodes how {tokens} each token is ({level})"


def listed(names: list[str]) -> str:
    """Return `a, b and c`; of more than six names the first six and the number of the others.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) > MOST_LISTED:
        names = [*names[:MOST_LISTED], f"{len(names) - MOST_LISTED} more"]
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
