"""Stories sampled from a specimen, and the guard that they are its own: what overlaps its training
text is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList


class AddLogUnigram(LogitsProcessor):
    """Adds the log-unigram to every row of logits: what a model trained by contrast lacks."""

    def __init__(self, log_unigram: torch.Tensor) -> None:
        """`log_unigram`: float32 [V]."""
        self.log_unigram = log_unigram

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores [B, V] plus the log-unigram."""
        return scores + self.log_unigram


def sample_stories(
    model,
    tokenizer,
    count: int,
    seed: int,
    temperature: float = 0.8,
    log_unigram: torch.Tensor | None = None,
) -> list[str]:
    """`count` continuations of the end mark; those that do not end within one context are
    left out.
    """
    torch.manual_seed(seed)
    length = model.config.n_positions
    start = torch.full((count, 1), tokenizer.eos_token_id)
    bias = (
        LogitsProcessorList()
        if log_unigram is None
        else LogitsProcessorList([AddLogUnigram(log_unigram)])
    )
    rows = model.generate(
        start,
        attention_mask=torch.ones_like(start),
        do_sample=True,
        temperature=temperature,
        top_k=0,
        max_length=length,
        logits_processor=bias,
        pad_token_id=tokenizer.eos_token_id,
    )
    ended = [row[1:] for row in rows.tolist() if tokenizer.eos_token_id in row[1:]]
    return [
        re.sub(r"\s*\n\s*", "\n", tokenizer.decode(row, skip_special_tokens=True).strip())
        for row in ended
    ]


class Source:
    """Every piece of `span` characters of a text, for looking up what a story repeats of it
    verbatim.
    """

    def __init__(self, text: str, span: int = 50) -> None:
        """Cost: one hash a character, about 80 bytes each."""
        self.span = span
        self.pieces = {hash(text[i : i + span]) for i in range(len(text) - span + 1)}
        self.words = {" ".join(w) for w in _grams(text)}

    def spans(self, story: str) -> np.ndarray:
        """For each piece of the story, whether it occurs in the source: bool [max(0, length - span
        + 1)].
        """
        return np.array(
            [
                hash(story[i : i + self.span]) in self.pieces
                for i in range(len(story) - self.span + 1)
            ],
            dtype=bool,
        )

    def longest(self, story: str) -> int:
        """The longest verbatim overlap in characters (0 where it is below `span`)."""
        best = run = 0
        for hit in self.spans(story):
            run = run + 1 if hit else 0
            best = max(best, run)
        return best + self.span - 1 if best else 0

    def word_share(self, stories: list[str]) -> float:
        """Share of the stories' sequences of 12 words that occur verbatim in the source."""
        grams = list(chain.from_iterable(_grams(story) for story in stories))
        copied = sum(" ".join(gram) in self.words for gram in grams)
        return copied / max(1, len(grams))

    def span_share(self, stories: list[str]) -> float:
        """Return the share of the stories' spans that occur verbatim in the source."""
        return float(np.concatenate([self.spans(story) for story in stories]).mean())


def _grams(text: str, n: int = 12) -> list[list[str]]:
    tokens = text.split()
    return [tokens[i : i + n] for i in range(len(tokens) - n + 1)]


@dataclass(frozen=True)
class Report:
    """Counts of the stories that were drawn and kept."""

    drawn: int
    kept: int
    characters: int
    span_share_drawn: float  # of 50-character pieces found verbatim in the training text
    span_share: float  # the same among the kept
    word_share: float  # of 12-word sequences among the kept
    longest: int  # characters


def write_text(
    specimen: Path,
    source: Source,
    out: Path,
    *,
    size: int,
    seed: int,
    temperature: float,
    limit: int,
    batch: int = 64,
) -> Report:
    """Draw stories until `size` bytes are kept; none repeats over `limit` characters of the source
    or comes twice.
    """
    model = AutoModelForCausalLM.from_pretrained(specimen).eval()
    tokenizer = AutoTokenizer.from_pretrained(specimen)
    drawn: list[str] = []
    written: list[str] = []
    turn = 0
    while len("\n\n".join(written).encode()) < size:
        stories = sample_stories(model, tokenizer, batch, seed + turn, temperature)
        turn += 1
        drawn += stories
        eligible = [
            s
            for s in stories
            if len(s) > 200 and s[-1] in '.!?"' and "\ufffd" not in s and s.count('"') % 2 == 0
        ]
        for story in eligible:
            if (
                source.longest(story) <= limit
                and story not in written
                and len("\n\n".join(written).encode()) < size
            ):
                written.append(story)
        print(
            f"{len(drawn)} drawn, {len(written)} kept, {sum(map(len, written))} characters",
            flush=True,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n\n".join(written) + "\n", encoding="utf-8")
    return Report(
        drawn=len(drawn),
        kept=len(written),
        characters=sum(map(len, written)),
        span_share_drawn=source.span_share(drawn),
        span_share=source.span_share(written),
        word_share=source.word_share(written),
        longest=max(source.longest(s) for s in written),
    )
