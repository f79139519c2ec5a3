"""BLiMP: minimal pairs of sentences, of which the grammatical one should be the more probable."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.training.likelihood import log_likelihood
from headscan.training.scores import mean_of
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Blimp", "blimp", "read_blimp"]


def read_blimp(path: str | Path, *, each: int | None = None) -> dict[str, list[tuple[str, str]]]:
    """(good, bad) pairs by paradigm, from the archive or a folder of its .jsonl files; at most `each` of a paradigm."""
    path = Path(path)
    try:
        if path.is_dir():
            texts = {file.stem: file.read_text() for file in sorted(path.glob("**/*.jsonl"))}
        else:
            with zipfile.ZipFile(path) as archive:
                names = sorted(n for n in archive.namelist() if n.endswith(".jsonl") and "__MACOSX" not in n)
                texts = {Path(name).stem: archive.read(name).decode() for name in names}
    except (OSError, zipfile.BadZipFile):
        raise BadInput(f"{path} is neither the BLiMP archive nor a folder of its files.") from None
    found = {}
    for name, text in texts.items():
        rows = [json.loads(line) for line in text.splitlines() if line.strip()][:each]
        found[name] = [(row["sentence_good"], row["sentence_bad"]) for row in rows]
    if not found:
        raise BadInput(f"{path} holds no .jsonl file of minimal pairs.")
    return found


def blimp(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, paradigms: dict[str, list[tuple[str, str]]], *,
    context: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """Share of pairs in which the grammatical sentence is the more probable, by paradigm. Chance is 0.5."""
    return {name: float(hits.mean()) for name, hits in blimp_hits(model, tokenizer, paradigms, context=context).items()}


def blimp_hits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, paradigms: dict[str, list[tuple[str, str]]], *,
    context: int | None = None,
) -> dict[str, npt.NDArray[np.bool_]]:  # fmt: skip
    """In which pairs the grammatical sentence is the more probable, by paradigm.

    A sentence's probability is the sum over all its tokens, given a beginning of text. Sentences of all paradigms share
    batches: a pass of few tokens takes a large model as long as one of many.
    """
    sentences = [("", sentence) for pairs in paradigms.values() for pair in pairs for sentence in pair]
    found, _ = log_likelihood(model, tokenizer, sentences, context=context)
    hits = np.asarray(found[0::2] > found[1::2])
    ends = np.cumsum([len(pairs) for pairs in paradigms.values()])[:-1]
    return dict(zip(paradigms, np.split(hits, ends), strict=True))


@TASKS.register("blimp")
class Blimp(Task):
    """Minimal pairs: is the grammatical sentence the more probable one? From blimp/*.zip or a folder of its files."""

    place: ClassVar[str] = "blimp"
    tokens: ClassVar[int] = 1500  # a pair of each paradigm
    needs_head: ClassVar[bool] = True

    def scores(self, given: Evaluated) -> Scores:
        """The mean over paradigms, and each of them; the limit is of a paradigm."""
        folder = given.sets / "blimp"
        pairs = read_blimp(next(iter(sorted(folder.glob("*.zip"))), folder), each=given.limit)
        hits = blimp_hits(given.model, given.tokenizer, pairs, context=given.context)
        scores = mean_of(
            "accuracy", [float(each.mean()) for each in hits.values()]
        )  # pairs of a paradigm are of one template
        for name, each in hits.items():
            scores |= mean_of(f"paradigms {name}", each)
        return scores
