"""A checkup as a section of a model card, and as rows that the reference population can take in."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from headscan.diagnosis.result import CheckupResult, Observation, reference
from headscan.run import BadInput, write_atomic

BEGIN = "<!-- headscan checkup -->"
END = "<!-- /headscan checkup -->"


def markdown(result: CheckupResult) -> str:
    """The five sentences of each source and a table of every condition that was looked for, between
    two comments.

    >>> from headscan.diagnosis import checkup
    >>> print(markdown(checkup("gpt-vanilla", "stories", max_tokens=256, context=32)).splitlines()[1])
    ## Checkup
    """
    text = result.protocol.text
    read = (
        f" on {text.tokens:,} tokens of {_escaped(str(text.source))}"
        if text is not None and text.source
        else ""
    )
    lines = [
        BEGIN,
        "## Checkup",
        "",
        f"headscan {result.protocol.versions.get('headscan', '')}{read}.",
        "",
    ]
    for examination in result.examinations:
        lines += [f"### {_escaped(examination.model)}", ""] if len(result.examinations) > 1 else []
        summary = (sentence.partition(": ") for sentence in examination.summary)
        lines += [
            *(f"- **{_escaped(strong)}:** {_escaped(text)}" for strong, _, text in summary),
            "",
        ]
        lines += [*_table(examination.observations), ""]
    return "\n".join([*lines, END]) + "\n"


def _table(observations: list[Observation]) -> list[str]:
    lines = ["| code | condition | found | value | 95 % | threshold |", "|---|---|---|---|---|---|"]
    for observation in sorted(observations, key=lambda observation: observation.code):
        mark = (
            "no"
            if not observation.present
            else "too few tokens"
            if observation.possible
            else "notice"
            if observation.known
            else "**alarm**"
        )
        ends = (
            f"{observation.interval[0]:.3g} to {observation.interval[1]:.3g}"
            if observation.interval is not None
            else ""
        )
        value = "" if observation.value is None else f"{observation.value:.3g}"
        bound = f"at {'least' if observation.least else 'most'} {observation.threshold:g}"
        lines.append(
            f"| {observation.code} | {observation.title} | {mark} | {value} | {ends} | {bound} |"
        )
    return lines


def _escaped(text: str) -> str:
    text = "".join(
        letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split())
    )
    return re.sub(r"([\\`*_\[\]|$~#&])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def check_contribution(path: str, *, resume: bool = False) -> Path:
    """The file for `contribute`; BadInput, before anything is measured, where it is there (unless
    resumed) or has no folder.
    """
    file = Path(path)
    try:
        exists = file.exists()
        folder = file.parent.is_dir()
    except (OSError, ValueError) as error:
        raise BadInput(f"--contribute: {getattr(error, 'strerror', None) or error}.") from None
    if not path.strip() or file.is_dir():
        raise BadInput("--contribute needs the name of a file.")
    if exists and not resume:
        raise BadInput(f"--contribute: {path} is there already; name a new file.")
    if not folder:
        raise BadInput(f"--contribute: {file.parent} is no folder.")
    return file


def contribute(result: CheckupResult, path: Path) -> None:
    """Write the rows of a checkup's models for the reference population: numbers, names and
    protocol, nothing of the text.

    Raises BadInput where the file cannot be written.
    """
    rows = [asdict(reference(result, number)) for number in range(len(result.examinations))]
    try:
        write_atomic(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BadInput(f"--contribute: {path} cannot be written: {error.strerror}.") from None
