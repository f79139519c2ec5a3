"""Pre-training with a head and without one for equal processor time: the last word of held-out
passages.
"""

import math
import time
from functools import cache
from pydoc_data.topics import topics

import torch
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

# of a processor; a side; words
SECONDS = 40.0
TRAININGS = 3
PASSAGE = 40
PLAN = recipe_of("gpt")


@cache
def _material() -> tuple[PreTrainedTokenizerFast, torch.Tensor, list[str]]:
    """A tokenizer and the ids of nine tenths of the text, and passages of the rest whose last word
    is one of letters.
    """
    words = " ".join(topics.values()).split()
    seen = " ".join(words[: len(words) * 9 // 10])
    rest = words[len(words) * 9 // 10 :]
    tokenizer = fit_tokenizer([seen], PLAN.vocabulary)
    passages = [
        rest[start : start + PASSAGE] for start in range(0, len(rest) - PASSAGE, PASSAGE // 4)
    ]
    return (
        tokenizer,
        torch.tensor(tokenizer.encode(seen)),
        [" ".join(one) for one in passages if one[-1].isalpha()],
    )


def trained(seed: int, objective: str) -> PreTrainedModel:
    """The recipe `gpt` at its smallest, trained for SECONDS; a head is recovered by the bias where
    it has none.
    """
    tokenizer, ids, _ = _material()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(PLAN, OBJECTIVES[objective](), len(tokenizer))
        body = body_of(model)
        head = model.get_output_embeddings()
        optimiser = torch.optim.AdamW(
            model.parameters(), betas=PLAN.betas, weight_decay=PLAN.weight_decay
        )
        start = time.process_time()
        while (spent := (time.process_time() - start) / SECONDS) < 1:
            optimiser.param_groups[0]["lr"] = PLAN.rate * min(
                10 * spent, 0.5 + 0.5 * math.cos(math.pi * spent)
            )
            rows = ids[
                torch.randint(len(ids) - PLAN.context, (PLAN.batch, 1))
                + torch.arange(PLAN.context + 1)
            ]
            states = body(input_ids=rows[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = rows[:, 1:].flatten()
            optimiser.zero_grad()
            loss = (
                ce_loss(states, head.weight, targets)
                if head
                else cwt_loss(states, embedding_table(body), targets)
            )
            loss.backward()
            optimiser.step()
    whole = (
        model
        if head
        else recover_head(body, "bias", counts=torch.bincount(ids, minlength=len(tokenizer)))
    )
    whole.eval()
    return whole


@EXPERIMENTS.register("equal-time")
class EqualTime(Experiment):
    """Greedy decoding's share of last words, after equal processor time: without a head, then
    recovered, less with one.
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
            "Objective, recovery and task are the same; model, time and text are smaller, and "
            "the passages are no LAMBADA."
        )
        return (
            StandIn(
                "a GPT of four blocks 128 wide, trained here on the reference of the Python "
                "language",
                why,
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        tokenizer, _, passages = _material()
        sides: list[list[float]] = [[], []]
        for k in range(TRAININGS):
            for side, objective in zip(sides, ("cwt", "ce"), strict=True):
                scores = lambada(
                    trained(1000 * seed + k, objective), tokenizer, passages, context=PLAN.context
                )
                side.append(float(str(scores["accuracy"])))
        apart = [a - b for a, b in zip(*sides, strict=True)]
        many = TRAININGS * len(passages)
        made = [
            mean_of(
                f"last words found, {name}",
                values,
                unit="share",
                prompts=many,
                tokens=many,
                bounds=(least, 1.0),
            )
            for name, values, least in (
                ("headless less headed", apart, -1.0),
                ("headless", sides[0], 0),
                ("headed", sides[1], 0),
            )
        ]
        return ExperimentOutcome(effect=made[0], beside=tuple(made[1:]))
