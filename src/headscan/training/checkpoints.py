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
    """What a checkpoint says beside the Trainer's files: what the run rests on, and the sums of the
    log line under way.
    """

    identity: Mapping[str, Json]
    sums: dict[str, float]

    def write(self, checkpoint: Path) -> None:
        """Before the Trainer's state, which it writes last: what is whole has its notes."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_atomic(checkpoint / NOTES, json.dumps(plain(self)))

    @classmethod
    def read(cls, checkpoint: Path) -> Notes:
        """BadInput where a checkpoint has none, or they are torn."""
        try:
            found = json.loads((checkpoint / NOTES).read_text(encoding="utf-8"))
            return cls(
                dict(found["identity"]), {name: float(x) for name, x in found["sums"].items()}
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(
                f"{checkpoint} does not say what it rests on, so training cannot go on from it."
            ) from None


def last_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest whole checkpoint in a run's folder, or None. One that a kill or a full disk cut
    short is passed over.

    The checksums are written last, so a checkpoint is whole when they are there beside its state.
    """
    found = []
    for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and (path / STATE).exists() and (path / SEAL).exists():
            found.append((int(number), path))
    return max(found)[1] if found else None


def seal(checkpoint: Path) -> None:
    """Write the checksums of a whole checkpoint's files; of several processes' only what the first
    one wrote.
    """
    files = [path for path in sorted(checkpoint.iterdir()) if path.is_file() and path.name != SEAL]
    sums = {
        path.name: _sha256(path)
        for path in files
        if not re.fullmatch(r"rng_state_\d+\.pth", path.name)
    }
    write_atomic(checkpoint / SEAL, json.dumps(sums))


def check_whole(checkpoint: Path) -> None:
    """BadInput where a file of a checkpoint is not the one that was written: torn, changed or gone."""
    try:
        sums = dict(json.loads((checkpoint / SEAL).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        sums = {SEAL: ""}
    for name, sha in sums.items():
        if not (checkpoint / name).is_file() or _sha256(checkpoint / name) != sha:
            raise BadInput(
                f"{checkpoint / name} is damaged: it is not what was written. Remove "
                f"{checkpoint.name} to go on from an "
                "earlier checkpoint, or start afresh without --resume."
            )


def check_steps(checkpoint: Path, steps: int) -> None:
    """BadInput where a run that was stopped on its way is to end after another number of steps: its
    rate follows them.
    """
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    if state.global_step < state.max_steps != steps:
        raise BadInput(
            f"The run in {checkpoint.parent} cannot be resumed: --steps was {state.max_steps} "
            f"and is {steps} now. "
            "Let it end first; a run that is over may go on for more steps."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_afresh(folder: str | os.PathLike[str]) -> None:
    """BadInput where a run's folder holds the checkpoints of a training that was stopped: they are
    not thrown away.
    """
    checkpoint = last_checkpoint(folder)
    if checkpoint and not (Path(folder) / RESULT).exists():
        raise BadInput(
            f"{folder} holds a training that stopped after {checkpoint.name.rpartition('-')[2]} "
            "steps: --resume goes on "
            "with it, another --out begins afresh."
        )


def clear(folder: str | os.PathLike[str]) -> None:
    """Remove what a finished run left: its checkpoints and its result."""
    for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(path, ignore_errors=True)
    for name in (RESULT, "geometry.jsonl", "monitor.jsonl"):
        (Path(folder) / name).unlink(missing_ok=True)


def is_write_failure(error: Exception) -> bool:
    """Whether an error means that the disk did not take a file: the system's own, or as safetensors
    and torch wrap it.

    >>> is_write_failure(OSError(28, "No space left on device")), is_write_failure(ValueError("shape"))
    (True, False)
    """
    wrapped = ("PytorchStreamWriter failed", "inline_container", "file write failed", "I/O error")
    return (
        isinstance(error, OSError)
        or disk_is_full(error)
        or any(words in str(error) for words in wrapped)
    )


@dataclass(frozen=True)
class Trained:
    """A model, its tokenizer, its local folder where it has one, what it is, and whether it had a
    head that was left out.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    record: ModelRecord
    beheaded: bool = False


def load_trained(
    model: str | os.PathLike[str], settings: Loading, run: Run, *, bare: bool = False
) -> Trained:
    """The model, on whose weights the run then rests; `bare` leaves the head out.

    Raises BadInput where there is no such model, no tokenizer with it, or the two do not fit.

    >>> found = load_trained("gpt-headless", Loading(dtype="float32"), Run.quiet(), bare=True)
    >>> type(found.model).__name__, len(found.tokenizer) <= found.model.config.vocab_size, found.folder.name
    ('GPT2Model', True, 'gpt-headless')
    """
    lens = Lens.load(model, **settings.part(Loading))
    if lens.tokenizer is None:
        raise BadInput(f"The model '{model}' comes without its tokenizer.")
    found: Any = lens.model.base_model if bare else lens.model
    check_fit(lens.tokenizer, found.config.vocab_size)
    record = lens.provenance()
    if (folder := Path(model)).is_dir():  # what `train` writes is RUN/model
        record = replace(
            record,
            name=(folder.resolve().parent if folder.name == "model" else folder.resolve()).name,
        )
    lens.identify(run)
    source = find_source(os.fspath(model))
    return Trained(
        found,
        lens.tokenizer,
        None if source.gguf else source.folder,
        record,
        found is not lens.model,
    )
