"""A checkup sent to the model's own repository on the hub, as a pull request, with the user's own credentials."""

from __future__ import annotations

import re

from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.run import BadInput

BEGIN, END = "<!-- headscan checkup -->", "<!-- /headscan checkup -->"


def markdown(result: CheckupResult) -> str:
    """The five sentences of each source and a table of every condition that was looked for, between two comments by which a later
    checkup finds its place in a model card again.

    >>> from headscan.diagnosis import checkup
    >>> print(markdown(checkup("gpt-vanilla", "stories", max_tokens=1024, context=64)).splitlines()[1])
    ## Checkup
    """
    text = result.protocol.text
    read = f" on {text.tokens:,} tokens of {_escaped(str(text.source))}" if text is not None and text.source else ""
    lines = [BEGIN, "## Checkup", "", f"headscan {result.protocol.versions.get('headscan', '')}{read}.", ""]
    for one in result.examinations:
        lines += [f"### {_escaped(one.model)}", ""] if len(result.examinations) > 1 else []
        lines += [*_said(one), "", *_table(one.observations), ""]
    return "\n".join([*lines, END]) + "\n"


def inserted(card: str, section: str) -> str:
    """A model card with this section in place of an earlier one, or at its end.

    >>> card = inserted("# A model", BEGIN + " old " + END)
    >>> inserted(card, BEGIN + " new " + END)
    '# A model\\n\\n<!-- headscan checkup --> new <!-- /headscan checkup -->\\n'
    """
    before, begins, rest = card.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if begins and ends:
        return before + section.strip() + after
    return f"{card.rstrip()}\n\n{section.strip()}\n" if card.strip() else section


def _said(one: Examination) -> list[str]:
    found = []
    for sentence in one.summary:
        strong, _, said = sentence.partition(": ")
        found.append(f"- **{_escaped(strong)}:** {_escaped(said)}")
    return found


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
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return " ".join(text.split())


NAME = re.compile(r"[\w.-]+/[\w.-]+")


def check_push(repository: str) -> None:
    """See, before anything is measured, that this names a repository and that there are credentials.

    >>> check_push("my model")
    Traceback (most recent call last):
    headscan.BadInput: --push takes the id of a model on the hub, OWNER/NAME, not 'my model'.
    """
    from huggingface_hub import get_token

    if not NAME.fullmatch(repository):
        raise BadInput(f"--push takes the id of a model on the hub, OWNER/NAME, not '{repository}'.")
    if not get_token():
        raise BadInput("--push needs your own credentials: hf auth login, or the variable HF_TOKEN.")


def push(result: CheckupResult, repository: str) -> str:
    """Open a pull request that puts the checkup into the model card, and its result.json beside it.

    Args:
        result: of one model or several.
        repository: OWNER/NAME of a model on the hub; credentials are those that `hf auth login` or HF_TOKEN gave.

    Returns:
        The address of the pull request.

    Raises:
        BadInput: no such name, no credentials, or what the hub refuses; nothing was changed there.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    check_push(repository)
    api = HfApi()
    try:
        try:
            path = api.hf_hub_download(repository, "README.md", force_download=True)
            with open(path, encoding="utf-8") as file:
                card = file.read()
        except EntryNotFoundError:
            card = ""
        section = inserted(card, markdown(result)).encode()
        done = api.create_commit(
            repository,
            [
                CommitOperationAdd("README.md", section),
                CommitOperationAdd("headscan/checkup.json", result.json().encode()),
            ],
            commit_message="Add a headscan checkup", create_pr=True,
        )  # fmt: skip
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"The hub did not take the checkup of '{repository}': {said}") from error
    return done.pr_url or str(done.commit_url)
