"""Pre-training with a head and without one for equal processor time: the last word of held-out passages."""

import math
import time
from functools import cache, partial
from pydoc_data.topics import topics

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from headscan.training import OBJECTIVES, ce_loss, cwt_loss, fit_tokenizer
from headscan.training.heads import body_of
from headscan.training.recipes import recipe_of
from headscan.training.recovery import recover_head
from headscan.training.run import build
from headscan_lab.evaluation.tasks import lambada
from headscan_lab.ledger.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, Power, StandIn
from headscan_lab.ledger.measurement import mean_of

SECONDS, TRAININGS, PASSAGE = 40.0, 3, 40  # of a processor; a side; words


@cache
def _material() -> tuple[PreTrainedTokenizerFast, torch.Tensor, list[str]]:
    """A tokenizer and the ids of nine tenths of the text, and passages of the rest whose last word is one of letters."""
    words = " ".join(topics.values()).split()
    seen, rest = " ".join(words[: len(words) * 9 // 10]), words[len(words) * 9 // 10 :]
    tokenizer = fit_tokenizer([seen], recipe_of("gpt").vocabulary)
    passages = [rest[start : start + PASSAGE] for start in range(0, len(rest) - PASSAGE, PASSAGE // 4)]
    return tokenizer, torch.tensor(tokenizer.encode(seen)), [" ".join(one) for one in passages if one[-1].isalpha()]


def trained(seed: int, headless: bool) -> PreTrainedModel:
    """The recipe `gpt` at its smallest, trained for SECONDS; a head is recovered by the bias where it has none."""
    plan, (tokenizer, ids, _) = recipe_of("gpt"), _material()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(plan, OBJECTIVES["cwt" if headless else "ce"](), len(tokenizer)).train()
        body, head = body_of(model), model.get_output_embeddings()
        optimiser = torch.optim.AdamW(model.parameters(), betas=plan.betas, weight_decay=plan.weight_decay)
        start = time.process_time()
        while (spent := (time.process_time() - start) / SECONDS) < 1:
            optimiser.param_groups[0]["lr"] = plan.rate * min(10 * spent, 0.5 + 0.5 * math.cos(math.pi * spent))
            rows = ids[torch.randint(len(ids) - plan.context, (plan.batch, 1)) + torch.arange(plan.context + 1)]
            states, targets = body(input_ids=rows[:, :-1]).last_hidden_state.flatten(0, 1), rows[:, 1:].flatten()
            loss = cwt_loss(states, body.get_input_embeddings().weight, targets) if headless else ce_loss(
                states, head.weight, targets
            )  # fmt: skip
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    whole = recover_head(body, "bias", counts=torch.bincount(ids, minlength=len(tokenizer))) if headless else model
    return whole.eval()


@EXPERIMENTS.register("equal-time")
class EqualTime(Experiment):
    """Greedy decoding's share of last words, after equal processor time: without a head, then recovered, less with one."""

    words = ExperimentWords(
        quantity="share of the last words of held-out passages that greedy decoding finds, headless less headed",
        test=f"interval of the mean over {TRAININGS} seeds", range=(-1.0, 1.0),
        scope=f"GPTs of 4 x 128, V = 4,096, {SECONDS:.0f} processor seconds a training, passages of {PASSAGE} words",
    )  # fmt: skip
    power = Power(TRAININGS, 200)

    def stand_ins(self) -> tuple[StandIn, ...]:
        why = "Objective, recovery and task are the same; model, time and text are smaller, and the passages are no LAMBADA."
        return (StandIn("a GPT of four blocks 128 wide, trained here on the reference of the Python language", why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        tokenizer, _, passages = _material()
        every = [
            [lambada(trained(1000 * seed + k, side), tokenizer, passages, context=64) for k in range(TRAININGS)]
            for side in (True, False)
        ]
        many = TRAININGS * len(passages)
        share = partial(mean_of, unit="share", prompts=many, tokens=many)
        found, nats = ([[float(one[name]) for one in side] for side in every] for name in ("accuracy", "nats_per_word"))  # type: ignore[arg-type]
        apart, farther = ([a - b for a, b in zip(*sides, strict=True)] for sides in (found, nats))
        return ExperimentOutcome(
            effect=share("last words found, headless less headed", apart, bounds=(-1.0, 1.0)),
            beside=(
                share("found headless", found[0], bounds=(0.0, 1.0)), share("found headed", found[1], bounds=(0.0, 1.0)),
                mean_of("nats a last word, headless less headed", farther, unit="nats"),
            ),
        )  # fmt: skip
