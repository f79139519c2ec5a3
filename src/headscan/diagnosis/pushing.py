"""A checkup sent to the model's own repository on the hub, as a pull request, with the user's own credentials."""

from __future__ import annotations

import re

from headscan.diagnosis.card import inserted, markdown
from headscan.diagnosis.result import CheckupResult
from headscan.run import BadInput

__all__ = ["check_push", "push"]

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
