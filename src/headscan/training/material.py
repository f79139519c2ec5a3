"""What a run trains on: its tokenizer, its windows, and what of them is held out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from headscan.run import BadInput, Run, TextRecord
from headscan.text import Windows, documents
from headscan.text.source import check_text, source_name
from headscan.training.checkpoints import last_checkpoint
from headscan.training.data import PackedText, StreamedText, check_known
from headscan.training.recipes import Recipe
from headscan.training.settings import Training
from headscan.training.tokenizers import fit_tokenizer

__all__ = ["Material", "gather"]


@dataclass(frozen=True)
class Material:
    """Windows to train on (`data`) and to hold out (`kept`), the tokenizer, the tokens' counts in `data`, the record."""

    tokenizer: PreTrainedTokenizerBase
    data: PackedText | StreamedText
    kept: PackedText | None
    counts: Int[Tensor, " vocabulary"] | None
    text: TextRecord


def gather(plan: Recipe, settings: Training, run: Run) -> Material:
    """Read the text and say what the run rests on: the text's content, and how it became tokens.

    Raises BadInput where text and tokenizer cannot be used, or are not those of the run that is resumed.
    """
    check_text(settings.text)
    words = _tokenizer(plan, settings, run)
    windows = Windows(
        settings.text, words, plan.context, documents=settings.documents, field=settings.field,
        max_tokens=settings.max_tokens,
    )  # fmt: skip
    vocabulary = hashlib.sha256(json.dumps(sorted(words.get_vocab().items())).encode())
    if settings.streaming:
        # The text itself is compared as it is read again: each checkpoint says what it had read (`StreamedText.mark`).
        run.identify("the tokenizer", vocabulary.hexdigest())
        record = TextRecord(source=source_name(settings.text), notes=["read as training went on"])
        return Material(words, StreamedText(windows), None, None, record)
    packed = PackedText.of(windows)
    record = windows.record()
    run.identify("the content of the text", record.sha256)
    vocabulary.update(packed.rows.tobytes())
    run.identify("the tokenizer", vocabulary.hexdigest())
    check_known(record.unknown or 0, record.tokens or 0)
    share = 0.05 if settings.held_out is None else settings.held_out
    data, kept = packed.split(share) if share else (packed, None)
    return Material(words, data, kept, data.counts(len(words)), record)


def _tokenizer(plan: Recipe, settings: Training, run: Run) -> PreTrainedTokenizerBase:
    given = settings.tokenizer
    if given is None and run.resume and run.folder is not None:
        if (run.folder / "model" / "tokenizer.json").exists():
            given = str(run.folder / "model")
        elif checkpoint := last_checkpoint(run.folder):
            given = str(checkpoint)
    if isinstance(given, str):
        try:
            found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(given)
            for word in ("is_local", "local_files_only"):  # how it was found is no part of what is saved
                found.init_kwargs.pop(word, None)
            return found
        except (OSError, ValueError) as error:
            raise BadInput(f"No tokenizer could be loaded from {given}: {str(error).splitlines()[0]}") from None
    if given is not None:
        return given
    texts = documents(settings.text, documents=settings.documents, field=settings.field)
    return fit_tokenizer(texts, plan.vocabulary, masked=plan.masked, context=plan.context)
