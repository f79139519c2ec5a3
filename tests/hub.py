"""A Hugging Face cache on this machine, for models that are named by id and revision without a
network.
"""

from pathlib import Path
from typing import Any

import pytest


def cached(
    model: Any, cache: Path, name: str, *revisions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put a model into a cache under a name, with branches that all stand at one commit, and make
    it the cache in use.
    """
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = cache / f"models--{name.replace('/', '--')}"
    model.save_pretrained(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    for revision in revisions:
        (repository / "refs" / revision).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
