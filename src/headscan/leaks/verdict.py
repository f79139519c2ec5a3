"""The verdict on a policy: the evidence for each limit, and the receipt."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headscan.leaks.policy import Policy
from headscan.leaks.result import LeakRow, LimitRow, PrivacyResult, TrialRow
from headscan.run import Interval, plain, write_atomic
from headscan.statistics.information import fano_bits

PASS = "pass"
FAIL = "fail"
UNSHOWN = "cannot be shown"
FREE = -1.0
"""In place of an upper end: the row need not show one."""
RECEIPT = (
    "verdict",
    "limits",
    "not_examined",
    "models",
    "protocol",
    "meaning",
    "what",
    "rows",
    "trials",
)
"""The fields of the result that the receipt holds, after the policy."""
MEAN_ALONE = " The limit is on the mean alone: single positions may leak more."


@dataclass(frozen=True)
class PriorBits:
    """The prior's entropy in bits a token, and its number of tokens."""

    entropy: float
    vocabulary: int


@dataclass(frozen=True)
class _Shown:
    """The evidence of one row for or against a limit.

    Attributes:
        value: the number itself.
        low: the release gives away more than that; None: nothing is shown.
        high: it gives away no more than that; None: nothing is shown, though it would have to be;
            or FREE.
        evidence: a sentence.
        interval: of the value.
    """

    value: float | None
    low: float | None
    high: float | None
    evidence: str
    interval: Interval | None = None


def judge(
    policy: Policy,
    rows: Sequence[LeakRow],
    trials: Sequence[TrialRow],
    prior: PriorBits | None = None,
) -> list[LimitRow]:
    """Return a row a limit: pass, fail, or cannot be shown.

    *fail* where something is shown to be above it, *pass* where all is shown to be within. Lower
    bounds and attacks speak against a limit only where the attacker of the policy knows what they
    need. `prior` is what exact inversion of a release without noise says of bits (Fano).
    """
    return [
        _limit_row(policy, name, _shown_of(policy, name, rows, trials, prior))
        for name in policy.wanted
    ]


def _shown_of(
    policy: Policy,
    limit: str,
    rows: Sequence[LeakRow],
    trials: Sequence[TrialRow],
    prior: PriorBits | None,
) -> list[_Shown]:
    if limit == "tokens_read":
        return _tokens_read(policy, rows, trials)
    if limit == "membership_advantage":
        return _by_tests(policy, trials, "advantage", bounded=False)
    by_row = _mean_bits if limit == "mean_bits" else _worst_position
    shown: list[_Shown] = []
    for row in rows:
        shown += by_row(policy, row, prior)
    return shown


def _limit_row(policy: Policy, limit: str, shown: list[_Shown]) -> LimitRow:
    most = policy.wanted[limit]
    above = [item for item in shown if item.low is not None and item.low > most]
    short = [item for item in shown if item.high is None or item.high > most]
    bounded = [item for item in shown if item.high != FREE]
    if above:
        verdict = FAIL
    elif short or not bounded:
        verdict = UNSHOWN
    else:
        verdict = PASS
    nothing = [_Shown(None, None, None, "No test of this run covers it.")]
    deciding = above or short or bounded or nothing
    worst = max(deciding, key=lambda item: -1.0 if item.value is None else item.value)
    evidence = worst.evidence
    if limit == "mean_bits" and "worst_position" not in policy.wanted:
        evidence += MEAN_ALONE
    if verdict == UNSHOWN:
        evidence += _why_unshown(policy, worst.interval, most)
    return LimitRow(
        limit=limit,
        at_most=most,
        value=worst.value,
        interval=worst.interval,
        verdict=verdict,
        evidence=evidence,
    )


def _why_unshown(policy: Policy, interval: Interval | None, most: float) -> str:
    """Return a sentence about a limit that is neither kept nor broken for certain."""
    if interval is None:
        return ""
    low, high = interval
    if low > most:
        return (
            " An attacker who has the weights and no secret to guess exceeds the limit; for "
            f"this policy's attacker, who knows {policy.attacker.knows} of the model, this "
            "was not shown."
        )
    return " The limit lies between these ends." if high > most else ""


def _mean_bits(policy: Policy, row: LeakRow, prior: PriorBits | None) -> list[_Shown]:
    """Return what a row shows of the mean bits."""
    if row.bits_upper is not None:
        low, high = row.bits_interval or (None, None)
        evidence = (
            f"Bits at {row.site} between proved bounds, of {row.tokens} positions in "
            f"{row.windows} windows."
        )
        if not row.bits_interval:
            evidence += " One window has no interval."
        shown_low = low if policy.reads else None
        return [_Shown(row.bits_upper, shown_low, high, evidence, row.bits_interval)]
    if row.attack != "exact" or prior is None:
        return []
    accuracy = max(row.text_accuracy_interval[0], 1 / prior.vocabulary)
    bits = max(0.0, fano_bits(accuracy, prior.vocabulary, prior.entropy))
    evidence = (
        f"Exact search reads {row.text_accuracy:.0%} of {row.tokens} tokens at {row.site}; bits "
        "by Fano."
    )
    shown_low = bits if policy.reads else None
    return [_Shown(bits, shown_low, prior.entropy, evidence, (bits, prior.entropy))]


def _worst_position(policy: Policy, row: LeakRow, prior: PriorBits | None) -> list[_Shown]:
    """Return what a row shows of the position that tells most."""
    if row.worst_upper is None or row.worst_lower is None or row.windows is None:
        # The worst position tells at least what the mean does: that speaks against the limit, and
        # nothing for it.
        return [replace(item, high=None) for item in _mean_bits(policy, row, prior)]
    # Windows that it takes to hold for that share of them at 95 %.
    needed = math.ceil(math.log(0.05) / math.log(policy.evidence.share))
    evidence = f"The worst of {row.tokens} positions at {row.site}, in {row.windows} windows."
    if row.windows < needed:
        share = policy.evidence.share
        evidence += f" A statement on {share:.0%} of windows needs {needed} of them."
    is_enough = row.windows >= needed or row.worst_upper > policy.wanted["worst_position"]
    low = row.worst_lower if policy.reads else None
    high = row.worst_upper if is_enough else None
    interval = (row.worst_lower, row.worst_upper)
    return [_Shown(row.worst_upper, low, high, evidence, interval)]


def _tokens_read(
    policy: Policy, rows: Sequence[LeakRow], trials: Sequence[TrialRow]
) -> list[_Shown]:
    """Return what rows and tests show of the share of tokens that an attack reads."""
    shown: list[_Shown] = []
    for row in rows:
        ceiling = row.attack_accuracy_upper_interval
        if ceiling is not None:
            evidence = (
                f"No attack exceeds {row.attack_accuracy_upper:.0%} at {row.site}, in the mean "
                "over the prior (Fano)."
            )
            interval = (0.0, ceiling[1])
            shown.append(_Shown(row.attack_accuracy_upper, None, ceiling[1], evidence, interval))
        # The attack on an embedding is given all other tokens, which no attacker has.
        if policy.release.what != "embedding" and (policy.reads or ceiling is None):
            shown.append(_attack_on_row(policy, row))
    bounded = bool(rows) and all(row.attack_accuracy_upper_interval for row in rows)
    return shown + _by_tests(policy, trials, "tokens read", bounded=bounded)


def _attack_on_row(policy: Policy, row: LeakRow) -> _Shown:
    """Return what the attack of a row shows of the tokens read."""
    low, high = row.text_accuracy_interval
    by_tests = policy.evidence.shown_by == "tests"
    shown_high: float | None = FREE
    if by_tests and policy.reads:
        shown_high = high
    elif row.attack_accuracy_upper_interval is None and not by_tests:
        shown_high = None
    evidence = (
        f"The {row.attack} attack reads {row.text_accuracy:.0%} of {row.tokens} tokens at "
        f"{row.site}."
    )
    shown_low = low if policy.reads else None
    return _Shown(row.text_accuracy, shown_low, shown_high, evidence, (low, high))


def _by_tests(
    policy: Policy, trials: Sequence[TrialRow], quantity: str, *, bounded: bool
) -> list[_Shown]:
    """Return what tests show.

    Attacks that succeed speak against a limit; those that fail for it only where the policy says
    so. `bounded`: whether proved ceilings speak for it already.
    """
    by_tests = policy.evidence.shown_by == "tests"
    noun = "tokens" if quantity == "tokens read" else "texts"
    shown = []
    for row in trials:
        if row.quantity != quantity or row.interval is None or not policy.capable(row.knows):
            continue
        low, high = row.interval
        shown_high: float | None = FREE if bounded else None
        if by_tests:
            shown_high = high
        evidence = f"By {row.test}, {row.setting}, of {row.count:,} {noun}."
        if by_tests or not bounded:
            evidence += " Another test may do better."
        shown.append(_Shown(row.value, low, shown_high, evidence, row.interval))
    return shown


def held_to(
    policy: Policy, result: PrivacyResult, prior: PriorBits | None, folder: Path | None
) -> PrivacyResult:
    """Return the result with its verdict, limits and what was not examined.

    FOLDER/receipt.json gets them with hashes and protocol.
    """
    limits = judge(policy, result.rows, result.trials, prior)
    verdicts = {row.verdict for row in limits}
    verdict = PASS
    if FAIL in verdicts:
        verdict = FAIL
    elif UNSHOWN in verdicts:
        verdict = UNSHOWN
    not_examined = _not_examined(policy, result)
    result = replace(result, verdict=verdict, limits=limits, not_examined=not_examined)
    if folder is not None:
        _write_receipt(policy, result, folder)
    return result


def _not_examined(policy: Policy, result: PrivacyResult) -> list[str]:
    """Return sentences about what the verdict says nothing of."""
    sites = ", ".join(dict.fromkeys(row.site for row in result.rows)) or "none"
    sentences = [
        f"Releases other than {policy.release.what}, and sites other than {sites}.",
        "Texts of another kind or length; attackers who expect them better than the prior "
        f"'{policy.attacker.prior}' does.",
        "What later releases reveal of earlier tokens; several releases of one text; side "
        "channels such as timing.",
        "Whether the defence is in fact applied before the release is sent.",
    ]
    if "membership_advantage" not in policy.wanted:
        sentences.append("Whether a text is in the index or in the training data.")
    if policy.evidence.shown_by == "tests":
        sentences.append(
            "Attacks other than those listed: a pass is based on them, not on a proof."
        )
    if "worst_position" not in policy.wanted:
        sentences.append("The worst position: the limits are of means.")
    if not policy.reads and not any(policy.capable(row.knows) for row in result.trials):
        sentences.append(
            f"Attacks by one who knows {policy.attacker.knows} of the model and no secret: none "
            "was run."
        )
    return sentences


def _write_receipt(policy: Policy, result: PrivacyResult, folder: Path) -> None:
    receipt = {"policy": asdict(policy)} | {name: getattr(result, name) for name in RECEIPT}
    text = json.dumps(plain(receipt), ensure_ascii=False, indent=1, allow_nan=False)
    write_atomic(folder / "receipt.json", text.encode())
