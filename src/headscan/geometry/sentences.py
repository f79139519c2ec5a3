"""Pairs of texts that should lie together: alignment over dropout, translations and paraphrases, and STS by Spearman."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from headscan.errors import BadInput
from headscan.geometry.uniformity import alignment
from headscan.model import Lens

__all__ = ["dropout_alignment", "pair_alignment", "read_sts", "sentence_states", "sts_spearman"]


def sentence_states(
    lens: Lens, sentences: Sequence[str], *, site: str | None = None, special: bool = True, batch: int = 64,
    dropout: int | None = None,
) -> np.ndarray:  # fmt: skip
    """The mean over its tokens of each sentence's states at a site, float64 [n, d]; by default the last default site.

    `special`: with the tokenizer's own added tokens ([CLS] and the like), which then count in the mean. Sentences are
    grouped by length, so nothing is padded; longer ones than the context are cut. `dropout`: a seed; the model then runs
    in training mode with its dropout on. Raises BadInput for a sentence without tokens. Cost: one forward pass.
    """
    tokenizer = lens.require_tokenizer()
    chosen = lens.match(site)[-1] if site else lens.default_sites[-1]
    ids = [tokenizer.encode(sentence, add_special_tokens=special)[: lens.context_length] for sentence in sentences]
    empty = [k for k, tokens in enumerate(ids) if not tokens]
    if empty:
        raise BadInput(f"Sentence {empty[0]} has no tokens.")
    groups: dict[int, list[int]] = {}
    for k, tokens in enumerate(ids):
        groups.setdefault(len(tokens), []).append(k)
    found = np.zeros((len(ids), lens.width(chosen)))
    for members in groups.values():
        for start in range(0, len(members), batch):
            part = members[start : start + batch]
            rows = torch.tensor([ids[k] for k in part], device=lens.device)
            states = _run(lens, rows, chosen, dropout)
            found[part] = states.detach().double().mean(1).cpu().numpy()
    return found


def _run(lens: Lens, ids: torch.Tensor, site: str, dropout: int | None) -> torch.Tensor:
    if dropout is None:
        return lens.run(ids, sites=site)[site]
    kept: dict[str, torch.Tensor] = {}
    mode = lens.model.training
    # Each batch gets its own noise from the seed and its first token ids; the global random state is left alone.
    with torch.random.fork_rng(), torch.no_grad(), lens.watch(site, lambda name, x: kept.update({name: x.clone()})):
        torch.manual_seed(dropout * 1_000_003 + int(ids.sum()))
        lens.model.train()
        try:
            lens.model(input_ids=ids)
        finally:
            lens.model.train(mode)
    return kept[site]


def pair_alignment(lens: Lens, one: Sequence[str], other: Sequence[str], **options) -> dict[str, float | None]:
    """Alignment of translations, paraphrases or synonyms: pairs of texts that mean the same.

    `alignment`, the mean squared distance of the pairs' unit vectors in [0, 4]; `unrelated`, the same for each text with
    the next pair's partner (what unrelated texts give in this space: a narrow cone makes everything look aligned); and
    `relative`, their ratio: 0 for perfect pairs, 1 for pairs no nearer than chance. Options as for `sentence_states`.
    """
    if len(one) != len(other) or len(one) < 2:
        raise BadInput(f"Alignment needs two lists of at least two texts each, not {len(one)} and {len(other)}.")
    x, y = sentence_states(lens, one, **options), sentence_states(lens, other, **options)
    return _relative(x, y)


def dropout_alignment(lens: Lens, sentences: Sequence[str], **options) -> dict[str, float | None]:
    """Alignment of two passes of the same sentences under two dropout masks (SimCSE's positives; Gao et al. 2021).

    0 for a model without dropout. Keys as for `pair_alignment`.
    """
    x, y = (sentence_states(lens, sentences, dropout=seed, **options) for seed in (1, 2))
    return _relative(x, y)


def _relative(x: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    near, far = alignment(x, y), alignment(x, np.roll(y, 1, axis=0))
    return {"alignment": near, "unrelated": far, "relative": near / far if near is not None and far else None}


def read_sts(path: str | os.PathLike) -> tuple[list[str], list[str], np.ndarray]:
    """Sentence pairs and their similarity from a CSV file with the columns sentence1, sentence2, score and no header.

    Raises BadInput where the file cannot be read so.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
        if rows and not _is_number(rows[0][-1]):
            rows = rows[1:]
        if not rows:
            raise ValueError
        return [row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])
    except (OSError, ValueError, IndexError):
        raise BadInput(f"{path} is no CSV file of sentence, sentence, score.") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def sts_spearman(
    one: np.ndarray, other: np.ndarray, scores: np.ndarray, remedy: Callable[[np.ndarray], np.ndarray] | None = None
) -> float | None:
    """Spearman's rank correlation of the pairs' cosines with their given scores; [−1, 1].

    `remedy` maps both sides first. Pairs with a zero vector count as cosine 0. None where all cosines are equal.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]); y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> round(sts_spearman(x, y, np.array([5.0, 3.0, 0.0])), 6)
    1.0
    """
    x, y = (rows if remedy is None else remedy(rows) for rows in (one, other))
    sizes = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosines = np.divide((x * y).sum(1), sizes, out=np.zeros(len(x)), where=sizes > 0)
    return None if np.ptp(cosines) < 1e-12 else float(spearmanr(cosines, scores).statistic)
