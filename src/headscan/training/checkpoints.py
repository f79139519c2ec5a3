"""The checkpoints in a run's folder: which are whole, what they rest on, and when they may go."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from headscan.model import Lens
from headscan.model.finding import find_source
from headscan.model.settings import Loading
from headscan.run import BadInput, Json, ModelRecord, Run, disk_is_full, plain, write_atomic
from headscan.training.data import check_fit

STATE = "trainer_state.json"
WEIGHTS = "model.safetensors"
EXTRA = "objective.safetensors"
NOTES = "headscan.json"
SEAL = "headscan.sha256.json"
RESULT = "result.json"  # written when a run is over


@dataclass(frozen=True)
class Notes:
    """A checkpoint's record beside the Trainer's files.

    Attributes:
        identity: what the run rests on.
        sums: the sums of the log line under way.
    """

    identity: Mapping[str, Json]
    sums: dict[str, float]

    def write(self, checkpoint: Path) -> None:
        """Write the notes before the Trainer's state, which it writes last: a whole checkpoint has
        its notes.
        """
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_atomic(checkpoint / NOTES, json.dumps(plain(self)))

    @classmethod
    def read(cls, checkpoint: Path) -> Notes:
        """Return the notes of a checkpoint; BadInput where it has none, or they are torn."""
        try:
            stored = json.loads((checkpoint / NOTES).read_text(encoding="utf-8"))
            sums = {name: float(number) for name, number in stored["sums"].items()}
            return cls(dict(stored["identity"]), sums)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(
                f"{checkpoint} does not say what it was made of, so training cannot go on from it."
            ) from None


def last_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the newest whole checkpoint in a run's folder, or None.

    The checksums are written last, so a checkpoint is whole when they stand beside its state. One
    that a kill or a full disk cut short is passed over.
    """
    whole = []
    for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and (path / STATE).exists() and (path / SEAL).exists():
            whole.append((int(number), path))
    return max(whole)[1] if whole else None


def seal(checkpoint: Path) -> None:
    """Write the checksums of a whole checkpoint's files.

    Files of the random state, which every process writes for itself, are left out.
    """
    sums = {}
    for path in sorted(checkpoint.iterdir()):
        is_random_state = re.fullmatch(r"rng_state_\d+\.pth", path.name) is not None
        if path.is_file() and path.name != SEAL and not is_random_state:
            sums[path.name] = _sha256(path)
    write_atomic(checkpoint / SEAL, json.dumps(sums))


def check_whole(checkpoint: Path) -> None:
    """Raise BadInput where a file of a checkpoint is torn, changed or gone."""
    try:
        sums = dict(json.loads((checkpoint / SEAL).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        sums = {SEAL: ""}
    for name, sha256 in sums.items():
        path = checkpoint / name
        if not path.is_file() or _sha256(path) != sha256:
            raise BadInput(
                f"{path} is damaged: it is not what was written. Remove {checkpoint.name} to go on "
                "from an earlier checkpoint, or start afresh without --resume."
            )


def check_steps(checkpoint: Path, steps: int) -> None:
    """Raise BadInput where an interrupted run is to end after another number of steps: its learning
    rate follows them.
    """
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    if state.global_step < state.max_steps != steps:
        raise BadInput(
            f"The run in {checkpoint.parent} cannot be resumed: --steps was {state.max_steps} and "
            f"is {steps} now. Let it end first; a run that is over may go on for more steps."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_afresh(folder: str | os.PathLike[str]) -> None:
    """Raise BadInput where a folder holds the checkpoints of an interrupted training, which a fresh
    run would remove.
    """
    checkpoint = last_checkpoint(folder)
    if checkpoint and not (Path(folder) / RESULT).exists():
        steps = checkpoint.name.rpartition("-")[2]
        raise BadInput(
            f"{folder} holds a training that stopped after {steps} steps: --resume goes on with "
            "it, another --out begins afresh."
        )


def clear(folder: str | os.PathLike[str]) -> None:
    """Remove the checkpoints and the result of a finished run."""
    for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(path, ignore_errors=True)
    for name in (RESULT, "geometry.jsonl", "monitor.jsonl"):
        (Path(folder) / name).unlink(missing_ok=True)


WRITE_FAILURES = (
    "PytorchStreamWriter failed",
    "inline_container",
    "file write failed",
    "I/O error",
)
"""Parts of the messages by which safetensors and torch report that a file was not written."""


def is_write_failure(error: Exception) -> bool:
    """Return whether an error means that the disk did not take a file.

    It is the system's own, or the one that safetensors and torch make of it.

    >>> is_write_failure(OSError(28, "No space left on device"))
    True
    """
    if isinstance(error, OSError) or disk_is_full(error):
        return True
    message = str(error)
    return any(part in message for part in WRITE_FAILURES)


@dataclass(frozen=True)
class Trained:
    """A model with its tokenizer.

    Attributes:
        folder: its local folder; None where it has none.
        beheaded: the model had a head that was left out.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    record: ModelRecord
    beheaded: bool = False


def load_trained(
    model: str | os.PathLike[str], settings: Loading, run: Run, *, bare: bool = False
) -> Trained:
    """Return a loaded model, and record its weights in the run's identity; `bare` leaves the head
    out.

    Raises:
        BadInput: where there is no such model, no tokenizer with it, or the two do not fit.

    >>> trained = load_trained("gpt-headless", Loading(dtype="float32"), Run.quiet(), bare=True)
    >>> type(trained.model).__name__, trained.folder.name
    ('GPT2Model', 'gpt-headless')
    >>> len(trained.tokenizer) <= trained.model.config.vocab_size
    True
    """
    lens = Lens.load(model, **settings.part(Loading))
    if lens.tokenizer is None:
        raise BadInput(f"The model '{model}' comes without its tokenizer.")
    network: Any = lens.model.base_model if bare else lens.model
    check_fit(lens.tokenizer, network.config.vocab_size)
    lens.identify(run)
    source = find_source(os.fspath(model))
    return Trained(
        model=network,
        tokenizer=lens.tokenizer,
        folder=None if source.gguf else source.folder,
        record=_named_after_run(lens.provenance(), Path(model)),
        beheaded=network is not lens.model,
    )


def _named_after_run(record: ModelRecord, folder: Path) -> ModelRecord:
    """Return the record with the name of the run's folder, where `train` wrote the model to
    RUN/model.
    """
    if not folder.is_dir():
        return record
    resolved = folder.resolve()
    name = resolved.parent.name if folder.name == "model" else resolved.name
    return replace(record, name=name)
