"""Tokens inverted one at a time, each without the tokens before it, as published."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, Self

import torch
from torch import Tensor

from headscan.inversion import Decoder, Descent, descend, preset
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan_lab.ledger import measurement
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
)
from headscan_lab.ledger.experiments.descents import FEW, Recovered, search_shown
from headscan_lab.ledger.measurement import DIFFERENCE_TEST, PROMPTS, SEEDS, SHARE_TEST, own_seeds
from headscan_lab.ledger.stand_ins import ABOUT, TWIN, OnModels, about, lens_of, prompts, twin_of

LENGTH = 6


def _one_after_another(ready: SlicedModel, target: Tensor, settings: Descent) -> Tensor:
    """Tokens [prompts, T] by one descent a position, the tokens found before it being committed; a
    causal slice.
    """
    prefix = Prefix(ready, torch.zeros(len(target), 0, dtype=torch.int64, device=target.device))
    for place in range(target.shape[1]):
        own = replace(settings, seed=settings.seed + place)
        prefix.extend(descend(_NextPosition(prefix), target[:, place : place + 1], 1, own).tokens)
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
        vectors = (
            self.prefix.cut.embed(torch.as_tensor(input_ids))
            if inputs_embeds is None
            else inputs_embeds
        )
        return self.prefix.outputs(
            torch.arange(len(self.prefix.ids), device=vectors.device), vectors[:, 0], grad=grad
        )[:, None]


@EXPERIMENTS.register("alone")
class Alone(OnModels):
    """Each output descended to by one vector without a prefix; the control commits the prefix found
    so far.
    """

    words = ExperimentWords(
        quantity="share of tokens found one after another without their prefix",
        test=SHARE_TEST,
        scope="random weights, Adam",
    )
    controlled = True

    model: str = "gpt2"

    def on(self, model: str) -> Self | None:
        return replace(self, model=kind) if (kind := twin_of(model, "gpt2")) else None

    def observe(self, seed: int) -> ExperimentOutcome:
        bare = []
        prefixed = []
        names = []
        for own in own_seeds(seed):
            ready = Slice().on(
                lens_of(self.model, own, depth=1 if self.model.startswith(TWIN) else 3)
            )
            ids = prompts(self.model, own, PROMPTS if self.model == "gpt2" else FEW, LENGTH)
            target = ready.run(ids)
            setting = Descent(steps=150, seed=own)
            tokens = [
                descend(ready, target[:, t : t + 1], 1, setting).tokens for t in range(LENGTH)
            ]
            chance = 1 / ready.vocabulary_size
            bare.append((torch.cat(tokens, 1) == ids).double().numpy())
            after = _one_after_another(ready, target, Descent(steps=150, seed=own))
            prefixed.append((after == ids).double().numpy())
            names.append(ready.lens.name)
        return ExperimentOutcome(
            effect=measurement.share_of("tokens found without the prefix", bare, chance=chance),
            control=measurement.share_of("with the prefix committed", prefixed, chance=chance),
            cause="the published loop has neither prefix nor position",
            models=tuple(names),
        )


# ---- The difference between two recoveries that differ in one thing.


@EXPERIMENTS.register("contrast")
class Contrast(Experiment):
    """The share that `high` finds less the share that `low` finds, both experiments of one kind,
    which a row names as `of` ("recovered" by default); what they have in common it writes as
    `base`.
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
        return cls(
            high=kind.of({**base, **options["high"]}), low=kind.of({**base, **options["low"]})
        )

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
        beside = [
            high.effect,
            low.effect,
            *(one.control for one in (high, low) if one.control is not None),
        ]
        name = f"{_name(self.high, self.low)} less {_name(self.low, self.high)}"
        return ExperimentOutcome(
            effect=measurement.difference_of(name, high.effect, low.effect),
            beside=tuple(beside),
            models=tuple(dict.fromkeys((*high.models, *low.models))),
        )


def _name(one: Experiment, other: Experiment) -> str:
    """What tells one from the other, in words."""
    names = [
        name for name in one.__dataclass_fields__ if getattr(one, name) != getattr(other, name)
    ]
    values = {
        name: one.stand_ins()[0].name if name == "model" else getattr(one, name) for name in names
    }
    return "share with " + ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in values.items()
    )


# ---- Whether recovery falls from all to none between two numbers of features, or by and by.


@EXPERIMENTS.register("cliff")
class Cliff(OnModels):
    """Prompts from the first so many features of the first block, a sixteenth more at a time: the
    steepest fall of the share found from one number to the next. The source tells of a fall from
    all to none within one of 4,096.
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
        step = lens.input_embeddings.shape[1] // 16
        base = Recovered(model=self.model, only=self.only, search=False)
        base = base if self.model == "specimen" else replace(base, least=FEW)
        if (whole := base.observe(seed).effect) is None or whole.interval[1] < 0.5:
            note = f"Of {lens.name} the descent finds less than half with all features: {whole}."
            return ExperimentOutcome(effect=None, note=note)
        seen = {
            n: replace(base, at=f"block.0[:, :, :{n}]").observe(seed)
            for n in range(3 * step, 16 * step + 1, step)
        }
        shares = {n: one.effect for n, one in seen.items() if one.effect is not None}
        falls = [
            measurement.difference_of(
                f"found with {high} features less with {low}", shares[high], shares[low]
            )
            for low, high in pairwise(shares)
        ]
        return ExperimentOutcome(
            effect=max(falls, key=lambda one: one.value),
            beside=tuple(shares.values()),
            models=(lens.name,),
        )


# ---- A slice that runs with another embedding table than its answers are decoded with.


@EXPERIMENTS.register("decoded-with")
class DecodedWith(Experiment):
    """The specimen's first block on an untrained table: decoded with the trained one (as
    published), and with its own.
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
        other = []
        same = []
        lens = lens_of("specimen")
        for k, own in enumerate(own_seeds(seed)):
            ready = Slice(embedding=f"random:{own}").on(lens)
            ids = prompts("specimen", own, PROMPTS, 6)
            target = ready.run(ids)
            setting = Descent(steps=150, check_every=0, seed=k)
            wrong = descend(ready, target, 6, setting, decode_with=lens.input_embeddings.detach())
            other.append((wrong.tokens == ids).double().numpy())
            same.append((descend(ready, target, 6, setting).tokens == ids).double().numpy())
        return ExperimentOutcome(
            effect=measurement.share_of(
                "tokens right, decoded with the model's table",
                other,
                chance=1 / lens.vocabulary_size,
            ),
            control=measurement.share_of(
                "decoded with the table that ran", same, chance=1 / lens.vocabulary_size
            ),
            cause="the source decodes with another table than it ran with",
            models=(lens.name,),
        )


# ---- Whether the pseudo-inverse of an embedding takes its rows back to their tokens.

ROWS = 1024  # of a table, at most: all of a large one would take V² scores


@EXPERIMENTS.register("embedding-inverted")
class EmbeddingInverted(OnModels):
    """x W⁺ of every row of the table: is the largest entry its own, and how large is it beside d/V.
    Of `all` vectors of R^V, of which tokens are V among infinitely many: the share of its
    dimensions that the table takes to zero.
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
        if self.vectors == "all":
            return self._lost(seed)
        shares = []
        diagonals = []
        # A model that was given has one table: its rows are read once, not once a seed.
        drawn = self.model in ABOUT and self.model != "specimen"
        seeds = own_seeds(seed) if drawn else own_seeds(seed)[:1]
        for own in seeds:
            table = lens_of(self.model, own).input_embeddings.detach()
            order = torch.randperm(len(table), generator=torch.Generator().manual_seed(own))
            rows = order[: ROWS * SEEDS // len(seeds)].sort().values
            scores = Decoder(table).pinv(table[rows])
            shares.append((scores.argmax(-1) == rows).double()[:, None].numpy())
            diagonals.append(
                float(scores[range(len(rows)), rows].mean()) * len(table) / table.shape[1]
            )
        return ExperimentOutcome(
            effect=measurement.share_of(
                "tokens taken back to themselves", shares, chance=1 / len(table)
            ),
            beside=(
                measurement.exactly(
                    "mean of a token's own entry over d/V",
                    sum(diagonals) / len(seeds),
                    unit="ratio",
                    seeds=len(seeds),
                ),
            ),
            models=tuple(lens_of(self.model, own).name for own in seeds),
        )

    def _lost(self, seed: int) -> ExperimentOutcome:
        lenses = [
            lens_of(self.model, own) for own in (own_seeds(seed) if self.model in ABOUT else [seed])
        ]
        ranks = [
            int(
                torch.linalg.matrix_rank(
                    one.input_embeddings.detach().T @ one.input_embeddings.detach()
                )
            )
            for one in lenses
        ]
        lost = [1 - rank / one.vocabulary_size for rank, one in zip(ranks, lenses, strict=True)]
        effect = measurement.exactly(
            "share of R^V that the table takes to zero, the least",
            min(lost),
            unit="share",
            seeds=SEEDS,
        )
        return ExperimentOutcome(
            effect=replace(effect, tokens=sum(one.vocabulary_size for one in lenses)),
            models=tuple(one.name for one in lenses),
        )


# ---- Prompts whose output comes as near as the source's own measure asks: how many tokens are wrong all the same.


@EXPERIMENTS.register("near-and-wrong")
class NearAndWrong(Experiment):
    """Descents of `steps` steps; only prompts that come within `limit` of the distance of a slight
    shift are counted.
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
        found = []
        sought = []
        near = 0
        for own in own_seeds(seed):
            ids = prompts("specimen", own, PROMPTS, 6)
            target = ready.run(ids)
            done = descend(ready, target, 6, preset("seed", steps=self.steps, seed=own))
            noise = torch.randn(
                *ids.shape, ready.vectors.shape[1], generator=torch.Generator().manual_seed(own)
            )
            shift = (
                (ready.run(inputs_embeds=ready.embed(ids) + 0.05 * noise) - target)
                .abs()
                .flatten(1)
                .sum(1)
            )
            apart = (ready.run(inputs_embeds=done.vectors) - target).abs().flatten(1).sum(1)
            close = apart <= self.limit * shift
            near += int(close.sum())
            if bool(close.any()):
                found.append((done.tokens == ids)[close].double().numpy())
                sought.append(
                    (search_shown(ready, target[close], None) == ids[close]).double().numpy()
                )
        reached = measurement.exactly(
            "prompts that came as near", near / 40, unit="share of prompts", seeds=SEEDS
        )
        if len(found) < 2:
            note = (
                f"Of 40 descents {near} came as near as the claim asks; more steps or another "
                "rate would be needed."
            )
            return ExperimentOutcome(effect=None, beside=(reached,), models=(lens.name,), note=note)
        return ExperimentOutcome(
            effect=measurement.share_of(
                "tokens right where the output is near", found, chance=1 / lens.vocabulary_size
            ),
            control=measurement.share_of("by a search of the same outputs", sought),
            cause="the optimiser failed where the information is there",
            beside=(reached,),
            models=(lens.name,),
        )
