"""Which models can be named without a download: the embedded specimens and the local Hugging Face cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headscan.model.embedded import specimens

__all__ = ["AvailableModel", "available_models"]


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be named without a download: what to call it, where it is, and a few words about it."""

    name: str
    kind: Literal["specimen", "cached"]
    about: str


def available_models() -> list[AvailableModel]:
    """The embedded specimens, then the cached repositories that hold a config.json; nothing is asked of the network.

    >>> available_models()[0].kind
    'specimen'
    """
    about = "shipped inside headscan, see its model card"
    return [AvailableModel(name, "specimen", about) for name in specimens()] + _cached()


def _cached() -> list[AvailableModel]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    found = []
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        files = {file.file_name for revision in repository.revisions for file in revision.files}
        if repository.repo_type == "model" and "config.json" in files:
            about = f"{repository.size_on_disk / 1e6:,.0f} MB in the Hugging Face cache"
            if not any(name.endswith(".safetensors") for name in files):
                about += ", without safetensors: cannot be loaded"
            found.append(AvailableModel(repository.repo_id, "cached", about))
    return found
