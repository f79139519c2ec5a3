"""Tiny models, texts and plans for the tests of training."""

from __future__ import annotations

import random

import pytest
from transformers.utils import logging

logging.disable_progress_bar()


@pytest.fixture(scope="session")
def story() -> str:
    """A small artificial language: 30,000 characters of made-up sentences with a Zipfian vocabulary."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(120)]
    weights = [1 / (rank + 2) for rank in range(len(words))]
    lines = []
    while sum(map(len, lines)) < 30_000:
        lines.append(" ".join(draw.choices(words, weights, k=draw.randint(4, 9))) + ".")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def story_file(story, tmp_path_factory):
    """The same in a file."""
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text(story)
    return path
