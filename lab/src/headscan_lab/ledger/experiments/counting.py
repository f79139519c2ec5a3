"""Statements that are counts: words of a text, and what a step of training stores."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import BertConfig, BertForMaskedLM

from headscan.ntp import SoftLabels
from headscan.text import documents
from headscan.text.counts import count
from headscan.text.source import Counting
from headscan_lab.ledger.measurement import Measurement, exactly, mean_of
from headscan_lab.ledger.statement import Observation, enter_experiment

PIECES = 5
WORDS = 4000  # of a piece


def words_of(text: str) -> list[str]:
    """Return the words of "stories" (shipped) or of "reference" (Python's own, in English)."""
    if text == "stories":
        source = " ".join(document.text() for document in documents("stories"))
    else:
        from pydoc_data.topics import topics

        source = " ".join(topics.values())
    return re.findall(r"[a-z']+", source.lower())


COMMON_WORDS = 60


@cache
def story_labels(
    seed: int, *, order: int, words: int = 2000
) -> tuple[npt.NDArray[np.int64], SoftLabels]:
    """Return contexts [m, order] and soft labels of a piece of the shipped stories.

    The 59 commonest words stand for themselves, all others for one more.
    """
    text = words_of("stories")
    start = int(np.random.default_rng(seed).integers(0, len(text) - words))
    piece = text[start : start + words]
    commonest = Counter(piece).most_common(COMMON_WORDS - 1)
    numbers = {word: number for number, (word, _) in enumerate(commonest)}
    ids = np.array([numbers.get(word, COMMON_WORDS - 1) for word in piece])
    counts = count([ids], COMMON_WORDS, Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), SoftLabels.of(counts.matrix())


def rank_shares(words: list[str], seed: int, rank: int) -> list[float]:
    """Return the share of the word of a rank in each of five pieces of a text."""
    starts = np.random.default_rng(seed).integers(0, max(1, len(words) - WORDS), PIECES)
    pieces = [Counter(words[start : start + WORDS]) for start in starts]
    return [piece.most_common(rank)[rank - 1][1] / piece.total() for piece in pieces]


def _commonest(_model: str, seed: int) -> Observation:
    values = []
    for text in ("stories", "reference"):
        shares = rank_shares(words_of(text), seed, 1)
        values.append(_share(f"the commonest word of the {text}", shares))
    return Observation(values=values)


def _share(name: str, shares: list[float]) -> Measurement:
    return mean_of(
        name,
        shares,
        unit="share of words",
        bounds=(0.0, 1.0),
        tokens=len(shares) * WORDS,
        prompts=len(shares),
    )


def _even_words(seed: int) -> Measurement:
    words = [str(word) for word in np.random.default_rng(seed).integers(0, 1000, 5 * WORDS)]
    return _share("the commonest of 1,000 equally common words", rank_shares(words, seed, 1))


enter_experiment("S3", _commonest, _even_words)

BATCHES = (4, 16, 64)
SEQUENCE = 512
MASKED = 0.15
VOCABULARY = 30_522


@contextmanager
def _stored() -> Iterator[list[int]]:
    """Count the bytes that autograd keeps for the backward pass while the context lasts."""
    seen: set[int] = set()
    stored = [0]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        is_attention = tensor.shape[-2:] == (SEQUENCE, SEQUENCE)
        is_new = id(tensor) not in seen and not isinstance(tensor, torch.nn.Parameter)
        if is_new and not is_attention:
            seen.add(id(tensor))
            kept.append(tensor)
            stored[0] += tensor.numel() * tensor.element_size()
        return tensor

    kept: list[torch.Tensor] = []  # so that no number is given to another tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield stored


@cache
def step_bytes(head: str, batch: int, vocabulary: int = VOCABULARY) -> int:
    """Return the bytes of a training step of a BERT of base size, computed without running it.

    They are weights, gradients and Adam's two moments, what the forward pass keeps (without
    attention matrices, which efficient attention does not store), the logits and their gradient.
    `head` is "all" (logits of every position), "masked" (of masked positions alone) or "none"
    (contrastive weight tying of the masked positions).
    """
    with torch.device("meta"):
        model: Any = BertForMaskedLM(BertConfig(vocab_size=vocabulary))
        ids = torch.zeros(batch, SEQUENCE, dtype=torch.int64)
        rows = torch.zeros(int(MASKED * batch * SEQUENCE), dtype=torch.int64)
    states = model.bert(input_ids=ids).last_hidden_state  # builds what later passes share
    with _stored() as stored:
        states = model.bert(input_ids=ids).last_hidden_state.flatten(0, 1)
        if head == "none":
            embeddings = model.bert.embeddings.word_embeddings.weight[ids.flatten()[rows]]
            logits = states[rows] @ embeddings.T
        else:
            logits = model.cls(states if head == "all" else states[rows])
        targets = torch.zeros(len(logits), dtype=torch.int64, device="meta")
        torch.nn.functional.cross_entropy(logits, targets)
    parameters = sum(parameter.numel() for parameter in model.bert.parameters())
    if head != "none":
        parameters += sum(
            parameter.numel()
            for name, parameter in model.cls.named_parameters()
            if "decoder.weight" not in name
        )
    return int(stored[0] + 2 * logits.numel() * logits.element_size() + 16 * parameters)


def _memory(_model: str, _seed: int) -> Observation:
    values = []
    controls = []
    for batch in BATCHES:
        with_head = step_bytes("all", batch)
        ratio = with_head / step_bytes("none", batch)
        values.append(exactly(f"batch {batch}", ratio, unit="times"))
        gathered = with_head / step_bytes("masked", batch)
        name = f"a head on the masked positions alone, batch {batch}"
        controls.append(exactly(name, gathered, unit="times"))
    return Observation(
        values=values,
        controls=controls,
        note="not peculiar",
        why="A head that is computed at the masked positions alone saves nearly as much.",
    )


def _tiny_vocabulary(_seed: int) -> Measurement:
    ratio = step_bytes("all", 16, 1000) / step_bytes("none", 16, 1000)
    return exactly("V = 1,000 at batch 16", ratio, unit="times")


enter_experiment("S8", _memory, _tiny_vocabulary)
