"""The claim about pre-training with a head and without for equal processor time.

The measure is the last word of held-out passages.
"""

import math
import time
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from headscan.model.traits import embedding_table
from headscan.training import OBJECTIVES, ce_loss, cwt_loss, fit_tokenizer
from headscan.training.heads import body_of
from headscan.training.recipes import recipe_of
from headscan.training.recovery import recover_head
from headscan.training.run import build
from headscan_lab.evaluation.likelihood_tasks import lambada
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    StandIn,
)
from headscan_lab.ledger.measurement import mean_of

SECONDS = 40.0  # of a processor, for one training
TRAININGS = 3  # of each objective
PASSAGE = 40  # words
RECIPE = recipe_of("gpt")


@dataclass(frozen=True, eq=False)
class _Material:
    """A tokenizer, the ids [n] of nine tenths of the text, and passages of the rest."""

    tokenizer: PreTrainedTokenizerFast
    ids: Tensor
    passages: list[str]


@cache
def _material() -> _Material:
    """Return the material; the last word of each passage is one of letters."""
    words = " ".join(topics.values()).split()
    boundary = len(words) * 9 // 10
    training_text = " ".join(words[:boundary])
    held_out = words[boundary:]
    tokenizer = fit_tokenizer([training_text], RECIPE.vocabulary)
    passages = []
    for start in range(0, len(held_out) - PASSAGE, PASSAGE // 4):
        passage = held_out[start : start + PASSAGE]
        if passage[-1].isalpha():
            passages.append(" ".join(passage))
    return _Material(tokenizer, torch.tensor(tokenizer.encode(training_text)), passages)


def train_for_equal_time(seed: int, objective: str) -> PreTrainedModel:
    """Return the recipe `gpt` at its smallest, trained for SECONDS.

    Where the model has no head, one is recovered by the bias.
    """
    material = _material()
    vocabulary = len(material.tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(RECIPE, OBJECTIVES[objective](), vocabulary)
        _train(model, material.ids)
    if model.get_output_embeddings() is None:
        counts = torch.bincount(material.ids, minlength=vocabulary)
        model = recover_head(body_of(model), "bias", counts=counts)
    model.eval()
    return model


def _train(model: PreTrainedModel, ids: Tensor) -> None:
    """Train a model on windows of the ids until SECONDS have passed."""
    body = body_of(model)
    head = model.get_output_embeddings()
    optimiser = torch.optim.AdamW(
        model.parameters(), betas=RECIPE.betas, weight_decay=RECIPE.weight_decay
    )
    window = torch.arange(RECIPE.context + 1)
    start = time.process_time()
    while True:
        spent_share = (time.process_time() - start) / SECONDS
        if spent_share >= 1:
            break
        decay = 0.5 + 0.5 * math.cos(math.pi * spent_share)
        optimiser.param_groups[0]["lr"] = RECIPE.rate * min(10 * spent_share, decay)
        starts = torch.randint(len(ids) - RECIPE.context, (RECIPE.batch, 1))
        rows = ids[starts + window]
        states = body(input_ids=rows[:, :-1]).last_hidden_state.flatten(0, 1)
        targets = rows[:, 1:].flatten()
        optimiser.zero_grad()
        if head is not None:
            loss = ce_loss(states, head.weight, targets)
        else:
            loss = cwt_loss(states, embedding_table(body), targets)
        loss.backward()
        optimiser.step()


@EXPERIMENTS.register("equal-time")
class EqualTime(Experiment):
    """The share of last words that greedy decoding finds after equal processor time.

    It is that of models trained without a head, which is then recovered, less that of models
    trained with one.
    """

    words = ExperimentWords(
        quantity="share of the last words of held-out passages that greedy decoding finds, "
        "headless less headed",
        test=f"interval of the mean over {TRAININGS} seeds",
        range=(-1.0, 1.0),
        scope=f"GPTs of 4 x 128, V = 4,096, {SECONDS:.0f} processor seconds a training, passages "
        f"of {PASSAGE} words",
    )
    power = Power(TRAININGS, 200)

    def stand_ins(self) -> tuple[StandIn, ...]:
        why = (
            "Objective, recovery and task are the same; model, time and text are smaller, and the "
            "passages are no LAMBADA."
        )
        return (
            StandIn(
                "a GPT of four blocks 128 wide, trained here on the reference of the Python "
                "language",
                why,
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        headless = []
        headed = []
        for training in range(TRAININGS):
            headless.append(_accuracy(1000 * seed + training, "cwt"))
            headed.append(_accuracy(1000 * seed + training, "ce"))
        differences = [without - with_ for without, with_ in zip(headless, headed, strict=True)]
        passages = TRAININGS * len(_material().passages)
        shares = {
            "headless less headed": (differences, -1.0),
            "headless": (headless, 0.0),
            "headed": (headed, 0.0),
        }
        measurements = []
        for name, (values, least) in shares.items():
            measurements.append(
                mean_of(
                    f"last words found, {name}",
                    values,
                    unit="share",
                    prompts=passages,
                    tokens=passages,
                    bounds=(least, 1.0),
                )
            )
        return ExperimentOutcome(effect=measurements[0], beside=tuple(measurements[1:]))


def _accuracy(seed: int, objective: str) -> float:
    """Return the share of last words that a model finds which was trained with an objective."""
    material = _material()
    model = train_for_equal_time(seed, objective)
    scores = lambada(model, material.tokenizer, material.passages, context=RECIPE.context)
    return float(str(scores["accuracy"]))
