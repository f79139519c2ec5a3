"""The cautions of findings: numbers near a limit, wide intervals, short and unreadable texts."""

from collections.abc import Sequence

from headscan.measures.measure import leading
from headscan.model.sentence import SENTENCE
from headscan.run.rows import Finding, Level, Row, TextRecord
from headscan.scanner.kinds import UNKNOWN_TOKENS

EDGE = 1.1
"""Within this factor of its limit a number may be on the other side in other windows or texts.

It is for shares of energy, ranks and distances from the origin: of six causal models on two texts
these numbers moved by less between windows of 64 and 128, and between 2,048 and 20,000 tokens.
"""

FEW = 2048
"""No alarm is based on fewer tokens.

The average cosine of all-mpnet-base-v2 is 0.41 on 256, 0.36 on 1,024, 0.24 on 2,048 tokens of one
text.
"""

UNREAD = 0.05
"""From this share of unknown tokens on, no finding is based on a text: an alarm (HS205)."""

UNREAD_SAID = 0.01
"""From this share of unknown tokens on, a finding says so: a notice (HS205)."""


def edge_caution(share: float, limit: str) -> str:
    """Return the caution of a number just beyond or just short of a limit; empty for others.

    `share`: the number relative to the limit.
    """
    if not 1 / EDGE < share < EDGE:
        return ""
    side = "just beyond" if share >= 1 else "just short of"
    return f" That is {side} the threshold of {limit}: another window length or text may cross it."


def doubt(
    row: Row, name: str, limits: Sequence[float], style: str, edge: str = "", scale: float = 1.0
) -> str:
    """Return the caution of a number whose interval contains a limit, or that has no interval.

    Args:
        row: of the site.
        name: of the number.
        limits: of its finding; the last of several is that of an alarm, one before it that of a
            notice.
        style: the format of the number.
        edge: the caution that it has otherwise.
        scale: a factor of the interval.
    """
    field = leading(row, name)
    interval = row.interval(field)
    if interval is None:
        if f"{field}_interval" not in row:
            return edge
        return f"{edge} It has no interval: too little was read at {row['site']}."

    low, high = (end * scale for end in interval)
    contained = []
    for number, limit in enumerate(limits):
        if low < limit < high:
            level = ""
            if number:
                level = " (an alarm)" if number == len(limits) - 1 else " (a notice)"
            contained.append(f"{limit:{style}}{level}")
    if not contained:
        return edge
    if len(contained) > 2:
        contained = [", ".join(contained[:-1]), contained[-1]]
    smallest_cosine = -1 / max((row.number("tokens") or 2) - 1, 1)
    cut = ""
    if name == "average_cosine" and low <= smallest_cosine:
        cut = " (the least that it can be)"
    spread = f"{low:z{style}}{cut} to {high:{style}}"  # z: no -0.00
    plural = "s" if len(contained) > 1 else ""
    return (
        f" Uncertain: the 95 % interval at {row['site']}, {spread}, includes the "
        f"threshold{plural} {' and '.join(contained)}."
    )


def is_few(read: float | None) -> bool:
    """Return whether so few tokens were read that no alarm is based on them."""
    return read is not None and read < FEW


def things_at(site: object, unit: str = "tokens") -> str:
    """Return what the vectors of a site are of: sentences, or the unit of the text."""
    return "sentences" if site == SENTENCE else unit


def on_few(read: float | None, things: str = "tokens") -> str:
    """Return the caution of a text of few tokens, sentences or vectors; else nothing."""
    if not is_few(read):
        return ""
    return f" An alarm needs at least {FEW:,} {things}; on so many this would be one."


def unread(text: TextRecord | None, model: str) -> Finding | None:
    """Return the finding about tokens that the model's tokenizer does not know.

    There is none below one token in a hundred.
    """
    if text is None or text.unknown_share < UNREAD_SAID:
        return None
    share = text.unknown_share
    unreadable = share >= UNREAD
    consequence = "all numbers count them as one token."
    if unreadable:
        consequence = "no other finding is made."
    sentence = (
        f"{share:.0%} of the {text.tokens:,} tokens of the text are unknown to the tokenizer: "
        f"{consequence}"
    )
    level: Level = "alarm" if unreadable else "notice"
    return UNKNOWN_TOKENS.finding(level, sentence, model=model, value=share)
