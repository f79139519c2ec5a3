"""LAMBADA: the last word of a passage, which only the whole passage gives away."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.training.likelihood import log_likelihood
from headscan.training.scores import mean_of
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Lambada", "lambada", "read_lambada"]


def read_lambada(path: str | Path) -> list[str]:
    """The passages of a .jsonl file with a field "text"."""
    try:
        return [json.loads(line)["text"] for line in Path(path).read_text().splitlines() if line.strip()]
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{path} is no .jsonl file of passages with a field 'text'.") from None


def lambada(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, passages: Iterable[str], *, context: int | None = None
) -> Scores:
    """Accuracy (share of passages whose last word greedy decoding finds) and perplexity of the last word.

    The passage up to the last space is given; the space belongs to the word, as byte-level tokenizers have it. What
    does not fit the context loses its beginning.
    """
    pairs = []
    for passage in passages:
        given, space, word = passage.strip().rpartition(" ")
        if not space:
            raise BadInput(f"A passage of one word has nothing to predict it from: {passage!r}.")
        pairs.append((given, " " + word))
    if not pairs:
        raise BadInput("There are no passages.")
    scores, greedy = log_likelihood(model, tokenizer, pairs, context=context)
    nats = mean_of("nats_per_word", -np.asarray(scores), bounds=(0.0, None))
    ends = nats["nats_per_word_interval"]
    return {
        **mean_of("accuracy", greedy),
        "perplexity": math.exp(min(700.0, -float(scores.mean()))),
        "perplexity_interval": [math.exp(min(700.0, end)) for end in ends] if isinstance(ends, list) else None,
        **nats,
        "passages": len(pairs),
    }


@TASKS.register("lambada")
class Lambada(Task):
    """The last word of a passage, from lambada/*.jsonl."""

    place: ClassVar[str] = "lambada"
    tokens: ClassVar[int] = 100
    needs_head: ClassVar[bool] = True

    def scores(self, given: Evaluated) -> Scores:
        """Accuracy and perplexity of the last word."""
        files = sorted((given.sets / "lambada").glob("*.jsonl"))
        if not files:
            raise BadInput(f"{given.sets / 'lambada'} holds no .jsonl.")
        return lambada(given.model, given.tokenizer, read_lambada(files[0])[: given.limit], context=given.context)
