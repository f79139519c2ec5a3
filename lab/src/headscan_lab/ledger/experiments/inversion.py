"""Claims about inversion without a prefix, from fewer features, by another table, and so on."""

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, Literal, Self

import torch
from torch import Tensor

from headscan.inversion import Decoder, Descent, descend, preset
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
)
from headscan_lab.ledger.experiments.descents import FEW_PROMPTS, Recovered
from headscan_lab.ledger.experiments.search import search_shown
from headscan_lab.ledger.measurement import (
    DIFFERENCE_TEST,
    PROMPTS,
    SEEDS,
    SHARE_TEST,
    difference_of,
    exactly,
    repeat_seeds,
    share_of,
)
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import ABOUT, OnModels, about, lens_of, prompts, random_twin

LENGTH = 6  # tokens of a prompt


def _one_after_another(ready: SlicedModel, target: Tensor, settings: Descent) -> Tensor:
    """Return tokens [prompts, T] by one descent a position of a causal slice.

    The tokens found before a position are committed.
    """
    no_ids = torch.zeros(len(target), 0, dtype=torch.int64, device=target.device)
    prefix = Prefix(ready, no_ids)
    for position in range(target.shape[1]):
        position_settings = replace(settings, seed=settings.seed + position)
        position_target = target[:, position : position + 1]
        result = descend(_NextPosition(prefix), position_target, 1, position_settings)
        prefix.extend(result.tokens)
    return prefix.ids


class _NextPosition:
    """The output at the position after a prefix, as a slice of one token."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix
        self.vectors = prefix.cut.vectors

    def run(
        self,
        input_ids: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        grad: bool = False,
    ) -> Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.prefix.cut.embed(torch.as_tensor(input_ids))
        rows = torch.arange(len(self.prefix.ids), device=inputs_embeds.device)
        return self.prefix.outputs(rows, inputs_embeds[:, 0], grad=grad)[:, None]


@EXPERIMENTS.register("alone")
class Alone(OnModels):
    """Tokens found one after another, each by a descent of one vector without a prefix.

    The control commits the prefix that was found so far.
    """

    words = ExperimentWords(
        quantity="share of tokens found one after another without their prefix",
        test=SHARE_TEST,
        scope="random weights, Adam",
    )
    controlled = True

    model: str = "gpt2"

    def on(self, model: str) -> Self | None:
        kind = random_twin(model, "gpt2")
        return None if kind is None else replace(self, model=kind)

    def observe(self, seed: int) -> ExperimentOutcome:
        hits_alone = []
        hits_with_prefix = []
        names = []
        chance = 1.0
        depth = 1 if self.model.startswith(RANDOM_TWIN) else 3
        count = PROMPTS if self.model == "gpt2" else FEW_PROMPTS
        for repeat_seed in repeat_seeds(seed):
            ready = Slice().on(lens_of(self.model, repeat_seed, depth=depth))
            ids = prompts(self.model, repeat_seed, count, LENGTH)
            target = ready.run(ids)
            settings = Descent(steps=150, seed=repeat_seed)
            columns = []
            for position in range(LENGTH):
                position_target = target[:, position : position + 1]
                columns.append(descend(ready, position_target, 1, settings).tokens)
            hits_alone.append((torch.cat(columns, 1) == ids).double().numpy())
            tokens = _one_after_another(ready, target, settings)
            hits_with_prefix.append((tokens == ids).double().numpy())
            names.append(ready.lens.name)
            chance = 1 / ready.vocabulary_size
        return ExperimentOutcome(
            effect=share_of("tokens found without the prefix", hits_alone, chance=chance),
            control=share_of("with the prefix committed", hits_with_prefix, chance=chance),
            cause="the published loop has neither prefix nor position",
            models=tuple(names),
        )


@EXPERIMENTS.register("contrast")
class Contrast(Experiment):
    """The share that the experiment `high` finds less the share that `low` finds.

    Both are of one kind, which a claim's row names as `of` ("recovered" by default); the options
    that they have in common stand in `base`.
    """

    words = ExperimentWords(
        quantity="difference of two shares of tokens found by descent",
        test="Newcombe's interval of a difference, from two clustered score intervals, as if "
        "unpaired",
        scope="the stand-ins, their prompts and these two descents",
        range=(-1.0, 1.0),
    )

    high: Experiment
    low: Experiment

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        kind = EXPERIMENTS[options.get("of", "recovered")]
        base = options.get("base", {})
        high = kind.of({**base, **options["high"]})
        low = kind.of({**base, **options["low"]})
        return cls(high=high, low=low)

    def on(self, model: str) -> Self | None:
        high = self.high.on(model)
        low = self.low.on(model)
        return None if high is None or low is None else replace(self, high=high, low=low)

    def closer(self) -> Self | None:
        high = self.high.closer()
        low = self.low.closer()
        return None if high is None or low is None else replace(self, high=high, low=low)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return tuple(dict.fromkeys((*self.high.stand_ins(), *self.low.stand_ins())))

    def observe(self, seed: int) -> ExperimentOutcome:
        high = self.high.observe(seed)
        low = self.low.observe(seed)
        assert high.effect is not None
        assert low.effect is not None
        controls = [outcome.control for outcome in (high, low) if outcome.control is not None]
        high_name = _difference_in_words(self.high, self.low)
        low_name = _difference_in_words(self.low, self.high)
        return ExperimentOutcome(
            effect=difference_of(f"{high_name} less {low_name}", high.effect, low.effect),
            beside=(high.effect, low.effect, *controls),
            models=tuple(dict.fromkeys((*high.models, *low.models))),
        )


def _difference_in_words(experiment: Experiment, compared: Experiment) -> str:
    """Return in words the fields in which an experiment differs from another."""
    parts = []
    for field in fields(experiment):
        value = getattr(experiment, field.name)
        if value == getattr(compared, field.name):
            continue
        if field.name == "model":
            value = experiment.stand_ins()[0].name
        parts.append(f"{field.name.replace('_', ' ')} {value}")
    return "share with " + ", ".join(parts)


@EXPERIMENTS.register("cliff")
class Cliff(OnModels):
    """The steepest fall of the share of tokens found, as features of the first block are removed.

    The first features are given, a sixteenth more at a time. The source reports a fall from all
    tokens to none within one feature of 4,096.
    """

    words = ExperimentWords(
        quantity="largest fall of the share of tokens found as a sixteenth of the features goes",
        test=DIFFERENCE_TEST,
        scope="one trained model and this descent",
        range=(-1.0, 1.0),
    )

    only: Literal["attention"] | None = None
    model: str = "specimen"

    def on(self, model: str) -> Self | None:
        return replace(self, model=model) if Recovered(method="direct").on(model) else None

    def observe(self, seed: int) -> ExperimentOutcome:
        lens = lens_of(self.model)
        base = Recovered(model=self.model, only=self.only, search=False)
        if self.model != "specimen":
            base = replace(base, least=FEW_PROMPTS)
        all_features = base.observe(seed).effect
        if all_features is None or all_features.interval[1] < 0.5:
            note = (
                f"Of {lens.name} the descent finds less than half with all features: "
                f"{all_features}."
            )
            return ExperimentOutcome(effect=None, note=note)

        step = lens.input_embeddings.shape[1] // 16
        shares = {}
        for count in range(3 * step, 16 * step + 1, step):
            effect = replace(base, at=f"block.0[:, :, :{count}]").observe(seed).effect
            if effect is not None:
                shares[count] = effect
        falls = []
        for low, high in pairwise(shares):
            name = f"found with {high} features less with {low}"
            falls.append(difference_of(name, shares[high], shares[low]))
        return ExperimentOutcome(
            effect=max(falls, key=lambda fall: fall.value),
            beside=tuple(shares.values()),
            models=(lens.name,),
        )


@EXPERIMENTS.register("decoded-with")
class DecodedWith(Experiment):
    """The first block of the specimen on an untrained embedding table.

    The answers are decoded with the trained table (as published), and with the untrained one.
    """

    words = ExperimentWords(
        quantity="share of tokens right when decoded with the table that the slice did not run "
        "with",
        test=SHARE_TEST,
        scope="one trained stand-in, five untrained tables",
    )
    controlled = True

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about("specimen"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        hits_with_trained_table = []
        hits_with_own_table = []
        lens = lens_of("specimen")
        trained_table = lens.input_embeddings.detach()
        for repeat, repeat_seed in enumerate(repeat_seeds(seed)):
            ready = Slice(embedding=f"random:{repeat_seed}").on(lens)
            ids = prompts("specimen", repeat_seed, PROMPTS, LENGTH)
            target = ready.run(ids)
            settings = Descent(steps=150, check_every=0, seed=repeat)
            wrong = descend(ready, target, LENGTH, settings, decode_with=trained_table)
            right = descend(ready, target, LENGTH, settings)
            hits_with_trained_table.append((wrong.tokens == ids).double().numpy())
            hits_with_own_table.append((right.tokens == ids).double().numpy())
        chance = 1 / lens.vocabulary_size
        return ExperimentOutcome(
            effect=share_of(
                "tokens right, decoded with the model's table",
                hits_with_trained_table,
                chance=chance,
            ),
            control=share_of("decoded with the table that ran", hits_with_own_table, chance=chance),
            cause="the source decodes with another table than it ran with",
            models=(lens.name,),
        )


TABLE_ROWS = 1024  # of a table, at most: all of a large one would take V² scores


@EXPERIMENTS.register("embedding-inverted")
class EmbeddingInverted(OnModels):
    """The pseudo-inverse W⁺ of an embedding table.

    `tokens`: whether the largest entry of x W⁺ is the row's own, for every row x of the table, and
    how large it is compared with d/V. `all`: the share of the dimensions of R^V that the table
    takes to zero.
    """

    words = ExperimentWords(
        quantity="share of the vocabulary that the pseudo-inverse takes back, or of R^V's "
        "dimensions that are lost",
        test="Wilson's interval, a table a seed",
        scope="embedding tables of the stand-ins",
    )

    model: str = "gpt2"
    vectors: Literal["tokens", "all"] = "tokens"

    def observe(self, seed: int) -> ExperimentOutcome:
        return self._lost(seed) if self.vectors == "all" else self._inverted(seed)

    def _inverted(self, seed: int) -> ExperimentOutcome:
        # A model of the user has one table: its rows are read once, not once a seed.
        drawn_by_seed = self.model in ABOUT and self.model != "specimen"
        seeds = repeat_seeds(seed) if drawn_by_seed else repeat_seeds(seed)[:1]
        hits = []
        diagonals = []
        names = []
        chance = 1.0
        for repeat_seed in seeds:
            lens = lens_of(self.model, repeat_seed)
            table = lens.input_embeddings.detach()
            generator = torch.Generator().manual_seed(repeat_seed)
            order = torch.randperm(len(table), generator=generator)
            rows = order[: TABLE_ROWS * SEEDS // len(seeds)].sort().values
            scores = Decoder(table).pinv(table[rows])
            hits.append((scores.argmax(-1) == rows).double()[:, None].numpy())
            diagonal = float(scores[range(len(rows)), rows].mean())
            diagonals.append(diagonal * len(table) / table.shape[1])
            names.append(lens.name)
            chance = 1 / len(table)
        own_entry = exactly(
            "mean of a token's own entry over d/V",
            sum(diagonals) / len(seeds),
            unit="ratio",
            seeds=len(seeds),
        )
        return ExperimentOutcome(
            effect=share_of("tokens taken back to themselves", hits, chance=chance),
            beside=(own_entry,),
            models=tuple(names),
        )

    def _lost(self, seed: int) -> ExperimentOutcome:
        seeds = repeat_seeds(seed) if self.model in ABOUT else [seed]
        lenses = [lens_of(self.model, repeat_seed) for repeat_seed in seeds]
        lost = []
        for lens in lenses:
            table = lens.input_embeddings.detach()
            rank = int(torch.linalg.matrix_rank(table.T @ table))
            lost.append(1 - rank / lens.vocabulary_size)
        effect = exactly(
            "share of R^V that the table takes to zero, the least",
            min(lost),
            unit="share",
            seeds=SEEDS,
        )
        tokens = sum(lens.vocabulary_size for lens in lenses)
        return ExperimentOutcome(
            effect=replace(effect, tokens=tokens), models=tuple(lens.name for lens in lenses)
        )


NOTED_PROMPTS = 40  # the prompts by which the share is told; all repeats have 100


@EXPERIMENTS.register("near-and-wrong")
class NearAndWrong(Experiment):
    """The share of tokens found among prompts whose output a descent comes near to.

    Near are those within `limit` of the distance of a slight shift of the embeddings.
    """

    words = ExperimentWords(
        quantity="share of tokens found where the output is near",
        test=SHARE_TEST,
        scope="one trained stand-in; a slight shift is normal noise of 1/20 on every embedding",
    )
    controlled = True

    steps: int = 600
    limit: float = 1 / 6

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about("specimen"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        lens = lens_of("specimen")
        ready = Slice().on(lens)
        descent_hits = []
        search_hits = []
        near_count = 0
        for repeat_seed in repeat_seeds(seed):
            ids = prompts("specimen", repeat_seed, PROMPTS, LENGTH)
            target = ready.run(ids)
            settings = preset("seed", steps=self.steps, seed=repeat_seed)
            result = descend(ready, target, LENGTH, settings)
            reached = _distances(ready.run(inputs_embeds=result.vectors), target)
            shifted = _distances(_slightly_shifted(ready, ids, repeat_seed), target)
            is_near = reached <= self.limit * shifted
            near_count += int(is_near.sum())
            if bool(is_near.any()):
                descent_hits.append((result.tokens == ids)[is_near].double().numpy())
                searched = search_shown(ready, target[is_near], None)
                search_hits.append((searched == ids[is_near]).double().numpy())
        near_share = exactly(
            "prompts that came as near",
            near_count / NOTED_PROMPTS,
            unit="share of prompts",
            seeds=SEEDS,
        )
        if len(descent_hits) < 2:
            note = (
                f"Of {NOTED_PROMPTS} descents {near_count} came as near as the claim asks; more "
                "steps or another rate would be needed."
            )
            return ExperimentOutcome(
                effect=None, beside=(near_share,), models=(lens.name,), note=note
            )
        return ExperimentOutcome(
            effect=share_of(
                "tokens right where the output is near",
                descent_hits,
                chance=1 / lens.vocabulary_size,
            ),
            control=share_of("by a search of the same outputs", search_hits),
            cause="the optimiser failed where the information is there",
            beside=(near_share,),
            models=(lens.name,),
        )


def _slightly_shifted(ready: SlicedModel, ids: Tensor, seed: int) -> Tensor:
    """Return the outputs of prompts whose embeddings have a little normal noise."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(*ids.shape, ready.vectors.shape[1], generator=generator)
    return ready.run(inputs_embeds=ready.embed(ids) + 0.05 * noise)


def _distances(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the L1 distance of each prompt's outputs from its target, [prompts]."""
    return (outputs - target).abs().flatten(1).sum(1)
