"""Statements of arXiv:2408.15417 on a transformer that is trained on contexts of stories."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

import headscan.ntp as ntp
from headscan.ntp.contexts import observe
from headscan.ntp.support_metrics import class_spread
from headscan_lab.ledger.experiments.counting import story_labels
from headscan_lab.ledger.experiments.free_features import mean_number
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.statement import Observation, enter_experiment
from headscan_lab.theory.features import pattern_similarity
from headscan_lab.theory.transformer import train_transformer

Floats = npt.NDArray[np.float64]

TRAININGS = 3
TRANSFORMER_STEPS = 1200


@dataclass(frozen=True, eq=False)
class TransformerPoint:
    """How near a transformer is to the predicted geometry after some steps."""

    step: int
    excess: float
    words: float
    contexts: float
    direction: float
    sparse: float
    same: float
    other: float
    states: Floats
    word_rows: Floats


@lru_cache(maxsize=16)
def transformer_course(seed: int, width: int) -> list[TransformerPoint]:
    """Return the course of a training of a two-block Llama on contexts of the stories."""
    contexts, labels = story_labels(seed, order=2)
    prediction = ntp.predict(labels)
    steps = (0, 50, 150, 500)
    checkpoints = train_transformer(
        contexts, labels, width=width, steps=TRANSFORMER_STEPS, checkpoints=steps, seed=seed
    )
    classes = labels.supports.unique()[1]
    several = labels.supports.sizes >= 2
    points = []
    for step, lens in checkpoints:
        embeddings = observe(lens, contexts, labels.vocabulary)[0]
        metrics = ntp.support_metrics(embeddings, prediction)
        states = np.asarray(embeddings.contexts, dtype=np.float64)
        words = np.asarray(embeddings.words, dtype=np.float64)
        spread = class_spread(states[several], np.asarray(classes)[several])
        assert spread is not None
        points.append(
            TransformerPoint(
                step=step,
                excess=float(metrics.SC6),
                words=pattern_similarity(words - words.mean(0), prediction.words),
                contexts=pattern_similarity(states, prediction.contexts),
                direction=float(metrics.direction or 0.0),
                sparse=float(metrics.SC3 or 0.0),
                same=spread.same_cosine,
                other=spread.other_cosine,
                states=states,
                word_rows=words,
            )
        )
    return points


WIDTHS = (32, 64)


def _at_widths(
    name: str, unit: str, seed: int, read: Callable[[TransformerPoint], float], point: int = -1
) -> list[Measurement]:
    values = []
    for width in WIDTHS:
        trainings = [TRAININGS * seed + number for number in range(TRAININGS)]
        numbers = [read(transformer_course(training, width)[point]) for training in trainings]
        values.append(mean_number(f"{name}, {width} wide", numbers, unit))
    return values


def _transformer_turns(_model: str, seed: int) -> Observation:
    values = _at_widths("words", "cosine", seed, lambda point: point.words)
    values += _at_widths("contexts", "cosine", seed, lambda point: point.contexts)
    controls = _at_widths("CE - H", "nats", seed, lambda point: point.excess)
    controls += _at_widths("direction of the logits", "cosine", seed, lambda p: p.direction)
    return Observation(values=values, controls=controls)


def _untrained_transformer(seed: int) -> Measurement:
    return _at_widths("contexts at the start", "cosine", seed, lambda p: p.contexts, 0)[1]


enter_experiment("P11", _transformer_turns, _untrained_transformer)


def _text_collapse(_model: str, seed: int) -> Observation:
    return Observation(
        values=_at_widths("equal supports of two words or more", "cosine", seed, lambda p: p.same),
        controls=_at_widths("other supports", "cosine", seed, lambda p: p.other),
    )


def _others_on_text(seed: int) -> Measurement:
    return _at_widths("other supports", "cosine", seed, lambda point: point.other)[1]


enter_experiment("P12", _text_collapse, _others_on_text)
