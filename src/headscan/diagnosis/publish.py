"""A checkup as a section of a model card, and as rows that the reference population can take in."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from headscan.diagnosis.population import reference
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.run import BadInput, write_atomic

BEGIN = "<!-- headscan checkup -->"
END = "<!-- /headscan checkup -->"


def markdown(result: CheckupResult) -> str:
    """Return the five sentences of each source and a table of every condition that was looked for,
    between two comments.

    >>> from headscan.diagnosis import checkup
    >>> result = checkup("gpt-vanilla", "stories", max_tokens=256, context=32)
    >>> print(markdown(result).splitlines()[1])
    ## Checkup
    """
    text = result.protocol.text
    read = ""
    if text is not None and text.source:
        read = f" on {text.tokens:,} {text.unit} of {_escaped(str(text.source))}"
    version = result.protocol.versions.get("headscan", "")
    lines = [BEGIN, "## Checkup", "", f"headscan {version}{read}.", ""]
    for examination in result.examinations:
        if len(result.examinations) > 1:
            lines += [f"### {_escaped(examination.model)}", ""]
        for sentence in examination.summary:
            heading, _, statement = sentence.partition(": ")
            lines.append(f"- **{_escaped(heading)}:** {_escaped(statement)}")
        lines += ["", *_table(examination), ""]
    lines.append(END)
    return "\n".join(lines) + "\n"


def _table(examination: Examination) -> list[str]:
    """Return the lines of a Markdown table: observations by code, then what was not examined."""
    lines = ["| code | condition | level | value | 95 % | limit |", "|---|---|---|---|---|---|"]
    for observation in sorted(examination.observations, key=lambda observation: observation.code):
        ends = ""
        if observation.interval is not None:
            low, high = observation.interval
            ends = f"{low:.3g} to {high:.3g}"
        value = "" if observation.value is None else f"{observation.value:.3g}"
        side = "least" if observation.least else "most"
        bound = f"at {side} {observation.threshold:g}"
        if observation.alarm is not None:
            bound += f", alarm {observation.alarm:g}"
        name = f"| {observation.code} | {observation.title}"
        lines.append(f"{name} | {_level(observation)} | {value} | {ends} | {bound} |")
    for row in examination.unexamined:
        option = f" ({row.option})" if row.option else ""
        reason = _escaped(f"{row.reason}{option}")
        lines.append(f"| {row.code} | {row.title} | not examined | {reason} | | |")
    return lines


def _level(observation: Observation) -> str:
    return "**alarm**" if observation.level == "alarm" else observation.level


def _escaped(text: str) -> str:
    """Return a text in one line, in which Markdown and HTML have no effect."""
    one_line = " ".join(text.split())
    printable = "".join(letter if letter.isprintable() else "\ufffd" for letter in one_line)
    escaped = re.sub(r"([\\`*_\[\]|$~#&])", r"\\\1", printable)
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def check_contribution(path: str, *, resume: bool = False) -> Path:
    """Return the file for `contribute`, checked before anything is measured.

    Raises:
        BadInput: the file exists and the run is not resumed, or its folder does not exist.
    """
    file = Path(path)
    try:
        exists = file.exists()
        folder_exists = file.parent.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"--contribute: {reason}.") from None
    if not path.strip() or file.is_dir():
        raise BadInput("--contribute needs the name of a file.")
    if exists and not resume:
        raise BadInput(f"--contribute: {path} is there already; name a new file.")
    if not folder_exists:
        raise BadInput(f"--contribute: {file.parent} is no folder.")
    return file


def contribute(result: CheckupResult, path: Path) -> None:
    """Write the rows of a checkup's models for the reference population: numbers, names and
    protocol, nothing of the text.

    Raises:
        BadInput: the file cannot be written.
    """
    rows = [asdict(reference(result, number)) for number in range(len(result.examinations))]
    try:
        write_atomic(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BadInput(f"--contribute: {path} cannot be written: {error.strerror}.") from None
