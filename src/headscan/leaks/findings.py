"""The findings of `privacy`: whether the release gives the text away, and the policy's verdict."""

from headscan.leaks.kinds import POLICY, READ
from headscan.leaks.result import LeakRow, PrivacyResult
from headscan.leaks.verdict import FAIL, PASS
from headscan.run import Finding, Level

READABLE = 0.9
"""From this share of named tokens on a release is text: a notice, for the states of most models
are.
"""


def privacy_findings(result: PrivacyResult) -> list[Finding]:
    """Return the verdict of the policy, where there is one, then what the best attack reads."""
    findings = []
    model = result.models[0].name
    if result.verdict is not None:
        findings.append(_policy_finding(result, result.verdict, model))
    if result.gradient is not None:
        share = result.gradient.recall
        sentence = f"The gradient of one training step shows {share:.0%} of the batch's tokens."
        findings.append(READ.finding(_level(share), sentence, model=model, value=share))
    elif result.rows:
        row = max(result.rows, key=lambda row: row.attack_accuracy)
        share = row.attack_accuracy
        sentence = f"The best attack names {share:.0%} of the tokens at {row.site}{_defences(row)}."
        findings.append(
            READ.finding(_level(share), sentence, model=model, site=row.site, value=share)
        )
    return findings


def _level(share: float) -> Level:
    return "notice" if share >= READABLE else "fine"


def _defences(row: LeakRow) -> str:
    """Return the defence and the noise of a row; empty where there were none."""
    defence = "" if row.defence == "none" else f" under {row.defence}"
    return f"{defence} with noise of {row.noise:g}" if row.noise else defence


def _policy_finding(result: PrivacyResult, verdict: str, model: str) -> Finding:
    broken = [row.limit for row in result.limits if row.verdict == verdict]
    limits = ", ".join(limit.replace("_", " ") for limit in broken)
    level: Level = "notice"
    sentence = f"The policy's limits cannot be shown to be kept: {limits}."
    if verdict == PASS:
        level = "fine"
        sentence = f"The release keeps every limit of the policy: {limits}."
    elif verdict == FAIL:
        level = "alarm"
        sentence = f"The release breaks the policy: {limits}."
    return POLICY.finding(level, sentence, model=model)
