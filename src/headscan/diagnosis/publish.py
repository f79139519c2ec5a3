"""A checkup as a section of a model card."""

import re

from headscan.diagnosis.result import CheckupResult, Observation

BEGIN, END = "<!-- headscan checkup -->", "<!-- /headscan checkup -->"


def markdown(result: CheckupResult) -> str:
    """The five sentences of each source and a table of every condition that was looked for, between two comments.

    >>> from headscan.diagnosis import checkup
    >>> print(markdown(checkup("gpt-vanilla", "stories", max_tokens=256, context=32)).splitlines()[1])
    ## Checkup
    """
    text = result.protocol.text
    read = f" on {text.tokens:,} tokens of {_escaped(str(text.source))}" if text is not None and text.source else ""
    lines = [BEGIN, "## Checkup", "", f"headscan {result.protocol.versions.get('headscan', '')}{read}.", ""]
    for one in result.examinations:
        lines += [f"### {_escaped(one.model)}", ""] if len(result.examinations) > 1 else []
        summary = (sentence.partition(": ") for sentence in one.summary)
        lines += [*(f"- **{_escaped(strong)}:** {_escaped(said)}" for strong, _, said in summary), ""]
        lines += [*_table(one.observations), ""]
    return "\n".join([*lines, END]) + "\n"


def _table(observations: list[Observation]) -> list[str]:
    lines = ["| code | condition | found | value | 95 % | threshold |", "|---|---|---|---|---|---|"]
    for one in sorted(observations, key=lambda one: one.code):
        found = "no" if not one.present else "notice" if one.known else "**alarm**"
        ends = f"{one.interval[0]:.3g} to {one.interval[1]:.3g}" if one.interval is not None else ""
        value = "" if one.value is None else f"{one.value:.3g}"
        bound = f"at {'least' if one.least else 'most'} {one.threshold:g}"
        lines.append(f"| {one.code} | {one.title} | {found} | {value} | {ends} | {bound} |")
    return lines


def _escaped(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|$~#&])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")
