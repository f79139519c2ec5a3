"""Which models can be named without a download: the embedded specimens and the local Hugging Face cache."""

from __future__ import annotations

from headscan.model.specimens import specimens

__all__ = ["available_models"]


def available_models() -> list[dict[str, str]]:
    """One entry a model: `name`, `kind` ("specimen" or "cached") and `about` (a few words).

    Cached repositories count as models when they hold a config.json; nothing is asked of the network.

    >>> {"name", "kind", "about"} == set(available_models()[0])
    True
    """
    found = [
        {"name": name, "kind": "specimen", "about": "shipped inside headscan, see its model card"}
        for name in specimens()
    ]
    return found + _cached()


def _cached() -> list[dict[str, str]]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    entries = []
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        files = {file.file_name for revision in repository.revisions for file in revision.files}
        if repository.repo_type == "model" and "config.json" in files:
            about = f"{repository.size_on_disk / 1e6:,.0f} MB in the Hugging Face cache"
            if not any(name.endswith(".safetensors") for name in files):
                about += ", without safetensors: cannot be loaded"
            entries.append({"name": repository.repo_id, "kind": "cached", "about": about})
    return entries
