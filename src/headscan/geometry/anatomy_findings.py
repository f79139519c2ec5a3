"""What the anatomy of a cone says in a sentence: who builds it, who takes it away, where it sits."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.model.sites import is_block
from headscan.run.records import Finding
from headscan.run.rows import Row

__all__ = ["built", "says"]

CONE, AWAY, APART = 0.05, 0.1, 0.1
"""Average cosines below CONE are no cone to speak of; shares taken away are named from AWAY on; a band of tokens, where its
share of the cone is APART from its share of the tokens."""


def built(sites: Sequence[Row], rows: Sequence[Row]) -> list[Finding]:
    """One finding (code BUILT) a model, at its last block: the fewest branches that make half of the cone's squared length.

    Shares of anatomy are of all tokens, sinks too, as is the cosine that it is a sum of.
    """
    found = []
    for model in dict.fromkeys(row.text("model") for row in rows if not row.get("null")):
        mine = [row for row in rows if row["model"] == model and not row.get("null")]
        blocks = [row for row in mine if row["kind"] == "branch" and is_block(row.text("site"))]
        if not blocks:
            continue
        site = blocks[-1].text("site")
        cosine = next(
            (row.number("average_cosine") for row in sites if (row["model"], row["site"]) == (model, site)), None
        )
        if cosine is None or cosine < CONE:
            continue
        here = [row for row in mine if row["site"] == site]
        branches = sorted(_shares(here, "branch"), key=lambda one: -one[1])
        half = _half(branches)
        text = (
            f"The cone at {site} (mean cosine of all tokens {cosine:.2f}) is built by "
            f"{_listed([f'{name} ({share:.0%})' for name, share in half])}"
        )
        away = [(name, share) for name, share in branches if share < 0]
        taken = sum(share for _, share in away)
        if taken < -AWAY:
            most = _listed([f"{name} ({-share:.0%})" for name, share in away[:-4:-1]])
            text += f"; {-taken:.0%} is taken away, most by {most}"
        few = _half([one for one in _shares(here, "coordinate") if not one[0].startswith("other")])
        carried = sum(share for _, share in few)
        if carried >= 0.5:
            text += f"; {_listed([name for name, _ in few])} {'carries' if len(few) == 1 else 'carry'} {carried:.0%}"
        apart = [row for row in here if row["kind"] in ("band", "position") and _apart(row) > APART]
        for row in sorted(apart, key=_apart, reverse=True)[:1]:
            text += f"; tokens of {row['part']} carry {row.number('share'):.0%} and are {row.number('tokens'):.0%} of the tokens"
        top = half[0][1]
        found.append(Finding(code="BUILT", level="notice", model=model, site=site, value=top, sentence=f"{text}."))
    return found


def says(rows: Sequence[Row]) -> list[Finding]:
    """One finding (code SAYS) a model: whether the mean's logits are the tokens' frequencies, and what a bias takes away."""
    found = []
    for row in rows:
        r, chance = row.number("correlation"), row.number("random")
        if row.get("null") or r is None or chance is None:
            continue
        level = f"r = {r:.2f} with the log frequency (a random direction: up to {chance:.2f})"
        said = f"says how {'frequent' if r > 0 else 'rare'} each token is: its logits have {level}"
        if (row.number("random_p") or 0.0) >= 0.05:
            said = f"says no more of how frequent each token is than a random one: its logits have {level}"
        text = f"The common direction at {row['site']} {said}"
        before, after = row.number("cosine"), row.number("cosine_after")
        if before is not None and after is not None and before >= CONE:
            text += f"; a bias of the head takes it away without changing a logit: mean cosine {before:.3f}, then {after:.3f}"
        found.append(
            Finding(
                code="SAYS",
                level="notice",
                model=row.text("model"),
                site=row.text("site"),
                value=r,
                sentence=f"{text}.",
            )
        )
    return found


def _shares(rows: list[Row], kind: str) -> list[tuple[str, float]]:
    return [(row.text("part"), row.number("share") or 0.0) for row in rows if row["kind"] == kind]


def _half(ordered: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The first so many that together are half of the whole; at least one."""
    total, kept = 0.0, []
    for name, share in ordered:
        kept.append((name, share))
        total += share
        if total >= 0.5:
            break
    return kept


def _apart(row: Row) -> float:
    return abs((row.number("share") or 0.0) - (row.number("tokens") or 0.0))


def _listed(names: list[str]) -> str:
    """`a, b and c`; of more than six the first six and how many more.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) > 6:
        names = [*names[:6], f"{len(names) - 6} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
