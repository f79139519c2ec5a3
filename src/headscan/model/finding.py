"""Finding a model by what the user named: an embedded model, a folder, a .gguf file or a hub id."""

import math
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from headscan.model.available import specimen_path, specimens
from headscan.model.gguf import is_gguf
from headscan.model.source import Source, check_adapter
from headscan.run import BadInput

UNTELLING_NAMES = ("model", "models", "weights", "final")
"""Names of folders that say nothing of the model inside; the folder around is named as well."""
CHECKPOINTS_LISTED = 4


def find_source(model: str) -> Source:
    """Return the source of a model.

    The name of an embedded model comes first, then a folder or a .gguf file, then a hub id or
    ID@REVISION, or a .gguf file of a hub repository.

    Raises:
        BadInput: for what can only be a folder and is not there, or has no config.json.
    """
    reference = os.fspath(model)
    if reference in specimens():
        return Source(reference, reference, specimen_path(reference), None)
    if not reference.strip():
        raise BadInput("No model was named: give a folder, an example model or a Hugging Face id.")
    path = Path(reference).expanduser()
    if path.is_dir():
        return _folder_source(reference, path)
    if path.exists():
        if not is_gguf(path):
            raise BadInput(
                f"'{reference}' is a file; a model is a folder with config.json and "
                "model.safetensors, or a .gguf file."
            )
        return Source(reference, path.stem, path.parent, None, gguf=path)
    return _hub_source(reference)


def _folder_source(reference: str, folder: Path) -> Source:
    inner = model_folder(folder)
    if not (inner / "config.json").is_file():
        check_adapter(folder)
        raise BadInput(
            f"The folder '{reference}' has no config.json, so it holds no Hugging Face model."
        )
    resolved = folder.resolve()
    name = resolved.name
    if name in UNTELLING_NAMES:
        name = f"{resolved.parent.name}/{name}"
    return Source(reference, name, inner, None)


def model_folder(folder: Path) -> Path:
    """Return the folder itself, or its `model` where only that holds a model.

    `headscan train` and `recover` write theirs so.
    """
    inner = folder / "model"
    only_inner = (inner / "config.json").is_file() and not (folder / "config.json").exists()
    return inner if only_inner else folder


def _hub_source(reference: str) -> Source:
    """Return the source of ID, ID@REVISION, or of one .gguf file in a repository."""
    before_at, at, after_at = reference.rpartition("@")
    repository = before_at if at else reference
    revision = after_at if at else None
    if revision is not None:
        _check_revision(reference, repository, revision)
    looks_local = reference[0] in ".~/"
    if not looks_local and reference.count("/") > 1 and is_gguf(Path(repository)):
        return _hub_file(repository, revision)
    if looks_local or reference.count("/") > 1 or "\\" in reference:
        raise BadInput(f"There is no folder '{reference}'.")

    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise BadInput(f"There is no folder '{reference}'.") from None
    return Source(reference, reference, None, revision)


def _check_revision(reference: str, repository: str, revision: str) -> None:
    if repository in specimens() or Path(repository).expanduser().exists():
        raise BadInput(
            f"'{repository}' is on this machine and has no revisions: leave out @{revision}."
        )
    if not repository or not re.fullmatch(r"[\w./-]+", revision) or ".." in revision:
        raise BadInput(
            f"'{reference}' is no model: a revision is written ID@REVISION, a branch, tag or "
            "commit."
        )


def _hub_file(reference: str, revision: str | None) -> Source:
    """Return ORGANISATION/REPOSITORY/FILE.gguf, one file of the hub, fetched into the cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    parts = reference.split("/")
    repository = "/".join(parts[:2])
    file = "/".join(parts[2:])
    hub = Source(repository, repository, None, revision)
    try:
        downloaded = hf_hub_download(
            repository, file, revision=revision, local_files_only=hub.local_files_only
        )
    except (OSError, ValueError, EntryNotFoundError) as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise BadInput(f"The model '{repository}' has no file '{file}' on the hub.") from error
        raise hub.fault(error) from error
    path = Path(downloaded)
    return Source(reference, path.stem, path.parent, None, gguf=path)


def revisions_of(model: str | os.PathLike[str], revisions: str | Sequence[str]) -> list[str]:
    """Return the models of a series of checkpoints.

    These are ID@REVISION of a Hugging Face id, in the order of `revisions`, or folders inside one
    of checkpoints. In a folder a name may be a glob, whose folders come in the order of the last
    number of their names.

    Raises:
        BadInput: for a name that is empty or given twice, a folder without such a checkpoint, and
            an embedded model.

    >>> revisions_of("someone/model", "step1000, step9000")
    ['someone/model@step1000', 'someone/model@step9000']
    """
    reference = os.fspath(model)
    folder = Path(model).expanduser()
    written = revisions.split(",") if isinstance(revisions, str) else revisions
    names = [name.strip() for name in written]
    if not all(names) or not names:
        raise BadInput(
            f"--revisions names nothing between two commas, or nothing at all: {','.join(names)!r}."
        )
    if reference in specimens() or folder.is_file():
        raise BadInput(f"'{reference}' is one model and has no revisions: leave out --revisions.")
    if folder.is_dir():
        checkpoints = _checkpoints(reference, folder, names)
    elif "@" in reference:
        raise BadInput(
            f"'{reference}' names a revision already: leave out --revisions, or the part from @ on."
        )
    else:
        checkpoints = [f"{reference}@{name}" for name in names]
    if len(set(checkpoints)) < len(checkpoints):
        raise BadInput(f"--revisions names a checkpoint twice: {','.join(names)}.")
    return checkpoints


def _checkpoints(reference: str, folder: Path, names: Sequence[str]) -> list[str]:
    """Return the checkpoints in a folder whose names match."""
    models = [inner for inner in folder.iterdir() if (inner / "config.json").is_file()]
    models.sort(key=_step)
    checkpoints = []
    for name in names:
        matching = [str(inner) for inner in models if fnmatchcase(inner.name, name)]
        if not matching:
            listed = ", ".join(inner.name for inner in models[:CHECKPOINTS_LISTED]) or "none"
            if len(models) > CHECKPOINTS_LISTED:
                listed += ", ..."
            raise BadInput(
                f"The folder '{reference}' has no checkpoint '{name}'; there are: {listed}."
            )
        checkpoints += matching
    return checkpoints


def _step(folder: Path) -> tuple[float, str]:
    """Return what orders checkpoints; a folder without a number, such as `model`, is the last."""
    numbers = re.findall(r"\d+", folder.name)
    step = float(numbers[-1]) if numbers else math.inf
    return step, folder.name
