"""Models that need no download: examples that ship with headscan, and the Hugging Face cache."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headscan.run import BadInput
from headscan.run.errors import nearest

# The example models are folders in the layout of `save_pretrained`; the wheel has all four.
FOLDER = Path(__file__).parent / "specimens"


def specimens() -> tuple[str, ...]:
    """Return the names of the example models, in alphabetical order.

    >>> isinstance(specimens(), tuple)
    True
    """
    if not FOLDER.is_dir():
        return ()
    names = [folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file()]
    return tuple(sorted(names))


def specimen_path(name: str) -> Path:
    """Return the folder of an example model.

    Raises:
        BadInput: for any other name; the message has the names.
    """
    installed = specimens()
    if name in installed:
        return FOLDER / name
    names = ", ".join(installed) or "none in this installation"
    suggestion = nearest(name, installed)
    raise BadInput(f"There is no example model '{name}' (there are: {names}).{suggestion}")


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be named without a download, with a phrase about it."""

    name: str
    kind: Literal["example", "cached"]
    about: str


def available_models() -> list[AvailableModel]:
    """Return the example models, then the repositories in the cache that hold a config.json.

    No network is used.

    >>> available_models()[0].kind
    'example'
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir

    models = [AvailableModel(name, "example", "ships with headscan") for name in specimens()]
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return models
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        files = {file.file_name for revision in repository.revisions for file in revision.files}
        if repository.repo_type != "model" or "config.json" not in files:
            continue
        about = f"{repository.size_on_disk / 1e6:,.0f} MB in the Hugging Face cache"
        if not any(name.endswith(".safetensors") for name in files):
            about += ", without safetensors: cannot be loaded"
        models.append(AvailableModel(repository.repo_id, "cached", about))
    return models
