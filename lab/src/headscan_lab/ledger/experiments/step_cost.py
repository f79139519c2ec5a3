"""The claim about what a training step costs with a head and without: processor time and memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal, Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel

from headscan.model.traits import embedding_table
from headscan.training import ce_loss, cwt_loss, gather_rows
from headscan.training.heads import body_of
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    StandIn,
)
from headscan_lab.ledger.experiments.search import is_causal
from headscan_lab.ledger.measurement import SEEDS, mean_of, repeat_seeds
from headscan_lab.ledger.proxies import LARGE_TABLE, about, lens_of

TIMED_STEPS = 2
TEXTS = 4
CONTEXT = 128
MASKED = 0.15  # share of the positions that an encoder predicts
SMALL_ENOUGH = 50_000_000  # parameters: 45 steps of a larger model take over five minutes
# With a small vocabulary a head costs nothing: the claim is about large ones.
LEAST_VOCABULARY = 8192
BERT_VOCABULARY = 8192
SMALL = StandIn(
    "a BERT with random weights, 4 x 256, V = 8,192",
    "It is the same architecture; its sizes are smaller.",
)


@dataclass(frozen=True, eq=False)
class _Batch:
    """The inputs of a loss.

    Attributes:
        states: all last states [texts, T, d]; labels: int [texts, T], -100 where nothing is
            predicted.
        rows: the states [K, d] that predict; targets: their labels [K].
        table: the output table [V, d].
    """

    states: Tensor
    labels: Tensor
    rows: Tensor
    targets: Tensor
    table: Tensor


LossForm: TypeAlias = Callable[[_Batch], Tensor]


def _headless(batch: _Batch) -> Tensor:
    return cwt_loss(batch.rows, batch.table, batch.targets, sparse=True)


def _head_on_all_positions(batch: _Batch) -> Tensor:
    logits = (batch.states @ batch.table.T).flatten(0, 1)
    return F.cross_entropy(logits, batch.labels.flatten())


def _head_on_predicted_positions(batch: _Batch) -> Tensor:
    return ce_loss(batch.rows, batch.table, batch.targets)


FORMS: tuple[LossForm, ...] = (_headless, _head_on_all_positions, _head_on_predicted_positions)


def _loss(form: LossForm, body: PreTrainedModel, ids: Tensor, labels: Tensor) -> Tensor:
    states = body(input_ids=ids).last_hidden_state
    rows, targets = gather_rows(states, labels)
    return form(_Batch(states, labels, rows, targets, embedding_table(body)))


@EXPERIMENTS.register("step-cost")
class StepCost(Experiment):
    """The cost of a whole step (forward, loss, backward, AdamW) with a head over that without one.

    The weights are random, in the shape of a model or of a BERT of four blocks 256 wide; the texts
    follow Zipf's law. An encoder predicts 15 % of its positions, and its head projects all, as is
    usual; the control's head projects those 15 % alone. A causal model predicts all positions.
    """

    controlled = True
    words = ExperimentWords(
        quantity="cost of a whole step with a head over that of one without",
        test="interval of the mean over five draws of weights and texts; of seconds the medians "
        "of alternating repeats",
        scope=f"{TEXTS} texts of {CONTEXT} tokens, one processor core; memory is what is kept for "
        "the backward pass, without weights, gradients and moments",
        range=(0.0, 1000.0),
    )
    power = Power(SEEDS, 200)

    cost: Literal["seconds", "bytes"] = "seconds"
    model: str = ""

    def on(self, model: str) -> Self | None:
        lens = lens_of(model)
        table = lens.input_embeddings
        if len(table) < LEAST_VOCABULARY or table.numel() > LARGE_TABLE:
            return None
        if (lens.context_length or CONTEXT) < CONTEXT:
            return None
        if self.cost == "seconds" and (lens.provenance().parameters or 0) > SMALL_ENOUGH:
            return None
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model) if self.model else SMALL,)

    def observe(self, seed: int) -> ExperimentOutcome:
        costs_of = kept_bytes if self.cost == "bytes" else seconds_a_step
        all_positions = []
        predicted_positions = []
        for repeat_seed in repeat_seeds(seed):
            body, predicts_all = self.body(repeat_seed)
            ids, labels = _texts(body.config.vocab_size, repeat_seed, predicts_all)
            headless_cost, full_cost, gathered_cost = costs_of(body, ids, labels)
            all_positions.append(full_cost / headless_cost)
            predicted_positions.append(gathered_cost / headless_cost)
        number = partial(
            mean_of,
            unit="ratio",
            tokens=SEEDS * int(TEXTS * CONTEXT * MASKED),
            prompts=SEEDS * TEXTS,
            chance=1.0,
        )
        effect_name = f"{self.cost} of a step with a head over {self.cost} without"
        control_name = "the same with a head on masked positions alone"
        return ExperimentOutcome(
            effect=number(effect_name, all_positions),
            control=number(control_name, predicted_positions),
            cause="projecting masked positions alone does as much",
            models=(self.stand_ins()[0].name,),
        )

    def body(self, seed: int) -> tuple[PreTrainedModel, bool]:
        """Return a body with random weights, and whether it predicts every token, as causal ones
        do.
        """
        if self.model:
            lens = lens_of(self.model)
            body = body_of(lens.random_init(seed).model).requires_grad_()
            return body, is_causal(lens)
        config = BertConfig(
            vocab_size=BERT_VOCABULARY,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return BertModel(config, add_pooling_layer=False).eval(), False


def _texts(vocabulary: int, seed: int, predicts_all: bool) -> tuple[Tensor, Tensor]:
    """Return ids of texts by Zipf's law, and labels that are -100 where nothing is predicted."""
    law = 1 / torch.arange(1.0, vocabulary + 1)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(law, TEXTS * CONTEXT, replacement=True, generator=generator)
    ids = drawn.view(TEXTS, CONTEXT)
    share = 1 if predicts_all else MASKED
    ignored = torch.rand(ids.shape, generator=generator) >= share
    return ids, ids.masked_fill(ignored, -100)


def seconds_a_step(body: PreTrainedModel, ids: Tensor, labels: Tensor) -> list[float]:
    """Return the median processor seconds of a step with each of FORMS, timed in turn."""
    seconds: list[list[float]] = [[] for _ in FORMS]
    optimiser = torch.optim.AdamW(body.parameters(), lr=1e-4)
    for turn in range(TIMED_STEPS + 1):
        for form_seconds, form in zip(seconds, FORMS, strict=True):
            start = time.process_time()
            optimiser.zero_grad(set_to_none=False)
            _loss(form, body, ids, labels).backward()
            optimiser.step()
            if turn > 0:  # the first step makes gradients and moments
                form_seconds.append(time.process_time() - start)
    return [median(form_seconds) for form_seconds in seconds]


def kept_bytes(body: PreTrainedModel, ids: Tensor, labels: Tensor) -> list[float]:
    """Return the bytes, without weights, that autograd keeps for the backward of each of FORMS."""
    weights = {weight.untyped_storage().data_ptr() for weight in body.parameters()}
    return [_kept_bytes(form, body, ids, labels, weights) for form in FORMS]


def _kept_bytes(
    form: LossForm, body: PreTrainedModel, ids: Tensor, labels: Tensor, weights: set[int]
) -> float:
    size_by_storage: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        size_by_storage[storage.data_ptr()] = storage.nbytes()
        return tensor

    def unchanged(tensor: Tensor) -> Tensor:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, unchanged):
        loss = _loss(form, body, ids, labels)
    sizes = [size for storage, size in size_by_storage.items() if storage not in weights]
    del loss  # its graph holds the tensors until they are counted
    return float(sum(sizes))
