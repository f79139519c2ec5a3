"""The findings of an attribution: its numbers in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from headscan.attribution.faithfulness import Faithfulness
from headscan.attribution.kinds import FAITHFUL, INCOMPLETE, UNDECIDED, UNFAITHFUL
from headscan.attribution.result import MapRecord
from headscan.run import Finding, Level
from headscan.run.kinds import Kind

LEAST_GAIN = 0.1
"""A gain below this share of what random orders leave is none: a convention."""
LARGEST_GAP = 0.01
"""A larger gap of completeness is reported: a convention, no test."""


@dataclass(frozen=True)
class Verdict:
    """A judgement of the faithfulness of a map."""

    kind: Kind
    level: Level
    phrase: str


SHOWN = Verdict(FAITHFUL, "fine", "beats random orders")
SHOWN_BY_DELETION = Verdict(
    UNDECIDED, "notice", "beats random orders by deletion and not by insertion"
)
REFUTED = Verdict(UNFAITHFUL, "alarm", "does not beat random orders")
OPEN = Verdict(UNDECIDED, "notice", "cannot be distinguished from random orders")


def findings(maps: Sequence[MapRecord], judged: str) -> list[Finding]:
    """Return the findings on each map that was checked against random orders at 95 %.

    FAITHFUL: replacing what it ranks highest lowers the prediction more (`Faithfulness.gain`), and
    putting it back first is not worse. UNFAITHFUL: neither gains a tenth of what random orders
    leave. UNDECIDED: all others. And INCOMPLETE: the scores miss the sum that they must have.

    `judged`: the number of the prediction, in a word.
    """
    found = []
    for record in maps:
        if record.faithfulness is not None:
            found.append(_faithfulness_finding(record.method, record.faithfulness, judged))
        if record.completeness is not None:
            gap = max(record.completeness.relative_gap)
            if gap > LARGEST_GAP:
                found.append(_incomplete(record.method, gap))
    return found


def _faithfulness_finding(method: str, faithfulness: Faithfulness, judged: str) -> Finding:
    verdict = _verdict(faithfulness)
    random = faithfulness.random
    sentence = (
        f"{method} {verdict.phrase} (mean {judged}; deletion "
        f"{faithfulness.deletion.area:.2g} vs {random.deletion:.2g}, insertion "
        f"{faithfulness.insertion.area:.2g} vs {random.insertion:.2g})."
    )
    gain = faithfulness.deletion.area - random.deletion
    return verdict.kind.finding(verdict.level, sentence, value=gain)


def _verdict(faithfulness: Faithfulness) -> Verdict:
    unknown = (-1.0, 1.0)
    deletion_low, deletion_high = faithfulness.gain_interval or unknown
    insertion_high = (faithfulness.insertion_gain_interval or unknown)[1]
    if deletion_low > 0:
        return SHOWN if insertion_high >= 0 else SHOWN_BY_DELETION
    least_gain = LEAST_GAIN * abs(faithfulness.random.deletion)
    if max(deletion_high, insertion_high) < least_gain:
        return REFUTED
    return OPEN


def _incomplete(method: str, gap: float) -> Finding:
    sentence = f"The scores of {method} miss the sum that they should have by {100 * gap:.2g} %."
    return INCOMPLETE.finding("alarm", sentence, value=gap)
