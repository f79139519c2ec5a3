"""Intervals of faithfulness cover: of what a whole text gives, from eight of its predictions.

Texts are read by a model, and the faithfulness of a map is measured at each of 24 consecutive
predictions of each. The truth is their mean. From these are drawn: eight predictions one after
another (what a short continuation is), and eight evenly spaced (what is taken of a long one); also
eight at random from all texts, which have nothing to do with each other. A number counts as covered
where `over_predictions` holds the mean of its text (of all texts). Nothing was chosen by this
table.

    python benchmarks/faithfulness_intervals_cover.py [TEXTS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from headscan.attribution import METHODS
from headscan.attribution.faithfulness import measured_orders, over_predictions
from headscan.attribution.run import PromptInputs, read_task
from headscan.attribution.steps import TargetRequest
from headscan.model import Lens

ASSETS = Path(__file__).parents[2] / "shared" / "assets"
NAMES = ("deletion", "insertion", "gain over random orders")
# characters of a prompt, and of a text
PROMPT = 40
LONGEST = 180
PREDICTIONS = 24
EIGHT = 8


def numbers(lens: Lens, text: str) -> np.ndarray:
    """[predictions, 3] of one text: the two areas of a gradient-x-input map, and its gain."""
    begins = text.index(" ", PROMPT)
    inputs = PromptInputs(text[:begins], substitute="mean")
    task = read_task(lens, inputs, TargetRequest(continuation=text[begins:LONGEST]))
    found = METHODS["gradient-x-input"]().explain(task)
    own, null = measured_orders(task, found, list(range(PREDICTIONS)))
    values = np.array([order.areas for order in own])
    random = np.array([[order.areas[0] for order in orders] for orders in null]).mean(1)
    return np.column_stack([values, random - values[:, 0]])


def _holds(span: tuple[float, float] | None, aim: float) -> bool:
    assert span is not None
    return span[0] <= aim <= span[1]


def covered(draws: list[np.ndarray], truth: np.ndarray) -> list[float]:
    """Return the share of draws [8, 3] whose interval of each number holds the truth [3]."""
    hits = []
    for draw in draws:
        spans = [over_predictions(column) for column in draw.T]
        hits.append([_holds(span, aim) for span, aim in zip(spans, truth, strict=True)])
    return np.mean(hits, axis=0).tolist()


def main(texts: int) -> None:
    """Print how often intervals cover."""
    torch.set_num_threads(1)
    lens = Lens.load(str(ASSETS / "models" / "stories260K"))
    stories = (
        (ASSETS / "text" / "tinystories" / "tinystories_2MiB.txt")
        .read_text()
        .split("<|endoftext|>")
    )
    every = []
    for story in stories:
        if len(story) >= 2 * LONGEST:
            every.append(numbers(lens, story.strip()))
            print(f"{len(every)} of {texts} texts", file=sys.stderr, flush=True)
        if len(every) == texts:
            break
    random = np.random.default_rng(0)
    spaced = np.unique(np.linspace(0, PREDICTIONS - 1, EIGHT).round().astype(int))
    rows = {
        "eight after another": [
            (one[k : k + EIGHT], one)
            for one in every
            for k in range(0, PREDICTIONS - EIGHT + 1, EIGHT)
        ],
        "eight evenly spaced": [
            (one[(spaced + k) % PREDICTIONS], one)
            for one in every
            for k in range(PREDICTIONS // EIGHT)
        ],
        "eight of all texts": [
            (
                np.concatenate(every)[random.permutation(PREDICTIONS * texts)[:EIGHT]],
                np.concatenate(every),
            )
            for _ in range(400)
        ],
    }
    print("| predictions | draws | " + " | ".join(NAMES) + " |\n" + "|---" * (len(NAMES) + 2) + "|")
    for name, pairs in rows.items():
        found = np.mean([covered([draw], whole.mean(0)) for draw, whole in pairs], axis=0)
        print(f"| {name} | {len(pairs)} | " + " | ".join(f"{value:.2f}" for value in found) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
