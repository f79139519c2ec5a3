"""Every verb that takes a device, by a short call; how far the numbers of two runs are apart."""

from __future__ import annotations

import csv
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headscan
from headscan.run import Result

PROMPT = "Once upon a time, Tim found a red ball."
WITHOUT = (
    "protocol",
    "models",
    "folder",
    "device",
    "seconds",
    "cost",
    "sha256",
    "seconds_per_token",
)
"""Parts of a result that say where and when it was made."""
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e-?\d+)?")
LEAST = 1e-3
"""Differences of numbers below this one are taken relative to it."""

Call = Callable[[str, Any, Path], Result]
"""The call of a verb with a model and a device, in a folder of its own."""


@dataclass(frozen=True)
class Agreement:
    """The differences between the numbers of two documents.

    Attributes:
        numbers: how many were compared.
        largest: the largest relative difference, and `place` the number that has it.
        texts: places of words, truths and counts that differ.
    """

    numbers: int
    largest: float
    place: str
    texts: list[str]


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in WITHOUT:
                yield from _leaves(item, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    elif isinstance(value, str):
        yield place, NUMBER.sub("#", value)
    else:
        yield place, value


def agreement(document: Any, expected: Any) -> Agreement:
    """Return how far the numbers of two documents are apart.

    >>> agreement({"loss": 1.0, "word": "a 3"}, {"loss": 1.1, "word": "a 4"}).place
    'loss'
    """
    values = dict(_leaves(json.loads(json.dumps(document, default=str))))
    others = dict(_leaves(json.loads(json.dumps(expected, default=str))))
    texts = sorted(values.keys() ^ others.keys())
    numbers = 0
    largest = 0.0
    largest_place = ""
    for place in values.keys() & others.keys():
        value = values[place]
        other = others[place]
        if not isinstance(value, float) or not isinstance(other, float):
            if value != other:
                texts.append(place)
            continue
        numbers += 1
        if math.isfinite(value) != math.isfinite(other):
            texts.append(place)
        elif math.isfinite(value):
            difference = abs(value - other) / max(abs(other), LEAST)
            if difference > largest:
                largest = difference
                largest_place = place
    return Agreement(numbers, largest, largest_place, texts)


def _pairs(folder: Path) -> Path:
    """Write pairs of sentences with scores, as STS-B has them."""
    nouns = ["hen", "fox", "cat", "dog", "tree", "ball", "house", "boat", "bird", "king"]
    with open(folder / "pairs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        for number in range(120):
            sentence = f"The {nouns[number % 10]} saw {number} red {nouns[number // 12]}s."
            score = 5.0 if number % 3 else 1.0
            writer.writerow([sentence, sentence.replace("saw", "found"), score])
    return folder / "pairs.csv"


READ: dict[str, Any] = {"text": "stories", "max_tokens": 512, "context": 32}
ATTACK: dict[str, Any] = {"text": "stories", "windows": 1, "length": 4, "draws": 21}
TRAIN: dict[str, Any] = {
    "text": "stories",
    "steps": 2,
    "context": 32,
    "batch": 4,
    "vocabulary": 300,
    "size": "tiny",
}
CALLS: dict[str, Call] = {
    "scan": lambda model, device, _: headscan.scan(model, null=True, device=device, **READ),
    "scan, every measure": lambda model, device, _: headscan.scan(
        model, measures="*", device=device, **READ | {"max_tokens": 256}
    ),
    "compare": lambda model, device, _: headscan.compare(
        [model, model], sites="block.*", draws=20, device=device, **READ
    ),
    "compare --damage": lambda model, device, _: headscan.compare(
        model, damage=True, against="q4_0", device=device, **READ
    ),
    "checkup": lambda model, device, _: headscan.checkup(
        model, text="stories", context=32, max_tokens=256, budget="full", device=device
    ),
    "invert": lambda model, device, _: headscan.invert(
        model, PROMPT[:14], at="block.1", device=device
    ),
    "invert --method joint": lambda model, device, _: headscan.invert(
        model, PROMPT[:20], at="block.1", method="joint", device=device
    ),
    "privacy": lambda model, device, _: headscan.privacy(
        model, sites="block.1", noise=(0.0, 0.8), device=device, **ATTACK
    ),
    "privacy --defence all": lambda model, device, _: headscan.privacy(
        model, sites="block.1", noise=(0.8,), defence="all", device=device, **ATTACK
    ),
    "privacy --release cache": lambda model, device, _: headscan.privacy(
        model, release="cache", sites="block.1", device=device, **ATTACK
    ),
    "privacy --release logits": lambda model, device, _: headscan.privacy(
        model, release="logits", device=device, **ATTACK
    ),
    "privacy --release gradient": lambda model, device, _: headscan.privacy(
        model, text=[PROMPT[:6]], release="gradient", device=device
    ),
    "attribute": lambda model, device, _: headscan.attribute(
        model, PROMPT[:30], method="occlusion", device=device
    ),
    "attribute --method combined": lambda model, device, _: headscan.attribute(
        model, PROMPT[:30], method="combined", device=device
    ),
    "flow": lambda model, device, _: headscan.flow.run(
        model, PROMPT[:20], at="block.1", trials=2, device=device
    ),
    "channel": lambda model, device, _: headscan.channel(
        model, text="stories", windows=1, length=6, at="block.1", device=device
    ),
    "ntp": lambda model, device, _: headscan.ntp.run(
        "stories", model=model, order=2, max_tokens=256, gap=0.5, device=device
    ),
    "weights": lambda model, device, _: headscan.weights.run(model, device=device),
    "states": lambda model, device, folder: headscan.states.run(
        model, sites="block.*", out=folder / "states", device=device, **READ
    ),
    "train": lambda _, device, folder: headscan.train(
        "gpt", out=folder / "gpt", device=device, **TRAIN
    ),
    "train --objective cwt": lambda _, device, folder: headscan.train(
        "gpt", objective="cwt", out=folder / "cwt", device=device, **TRAIN
    ),
    "recover": lambda model, device, folder: headscan.recover(
        model, text="stories", max_tokens=4096, context=16, out=folder / "whole", device=device
    ),
    "remedy": lambda model, device, folder: headscan.remedy(
        model,
        pairs=[_pairs(folder)],
        remedies="centre,whiten-shrunk",
        site="block.1",
        device=device,
    ),
}


def timed_document(name: str, model: str, device: str) -> tuple[dict[str, Any], float]:
    """Return the result of a call as a document, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = CALLS[name](model, device, Path(folder))
        return result.document, time.perf_counter() - start
