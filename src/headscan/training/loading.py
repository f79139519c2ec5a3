"""A trained model with its tokenizer, from wherever `headscan.Lens.load` finds models."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model import Lens
from headscan.model.settings import Loading
from headscan.model.source import find_source
from headscan.run import BadInput, ModelRecord, Run
from headscan.training.data import check_fit

__all__ = ["Trained", "load_trained"]


@dataclass(frozen=True)
class Trained:
    """A model, its tokenizer, its local folder where it has one, what it is, and whether it had a head that was left out."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    record: ModelRecord
    beheaded: bool = False


def load_trained(model: str | os.PathLike[str], settings: Loading, run: Run, *, bare: bool = False) -> Trained:
    """The model, on whose weights the run then rests; `bare` leaves the head out. A folder of `train` is its model's.

    Raises BadInput where there is no such model, no tokenizer with it, or the two do not fit.

    >>> found = load_trained("gpt-headless", Loading(dtype="float32"), Run.quiet(), bare=True)
    >>> type(found.model).__name__, len(found.tokenizer) <= found.model.config.vocab_size, found.folder.name
    ('GPT2Model', True, 'gpt-headless')
    """
    model = _of_run(model)
    lens = Lens.load(model, **settings.part(Loading))
    if lens.tokenizer is None:
        raise BadInput(f"The model '{model}' comes without its tokenizer.")
    found: Any = lens.model.base_model if bare else lens.model
    check_fit(lens.tokenizer, found.config.vocab_size)
    record = lens.provenance()
    if (folder := Path(model)).is_dir():  # what `train` writes is RUN/model
        record = replace(record, name=(folder.resolve().parent if folder.name == "model" else folder.resolve()).name)
    run.identify("the weights of the model", lens.identity())
    source = find_source(os.fspath(model), settings.revision)
    return Trained(found, lens.tokenizer, None if source.gguf else source.folder, record, found is not lens.model)


def _of_run(model: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """RUN/model for the folder RUN that `train` wrote, which holds no model itself."""
    inner = Path(model) / "model"
    return inner if (inner / "config.json").is_file() and not (Path(model) / "config.json").exists() else model
