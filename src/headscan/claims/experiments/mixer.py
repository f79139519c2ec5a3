"""How much of its input a masked mixer's (or a transformer's) outputs give back, trained and not, wide and narrow, deep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, enough, own_seeds
from headscan.claims.measurement import share_of
from headscan.claims.mixer_recall import SIZE, SLOTS, body, recall
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import language

__all__ = ["MixerRecall"]


@EXPERIMENTS.register("mixer-recall")
@dataclass(frozen=True, kw_only=True)
class MixerRecall(Experiment):
    """A body of `blocks` blocks, its first `first` outputs hidden; `at` blocks are run (None: all).

    The control tries every token for the last hidden place, the others known: it cannot miss what is there.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of hidden tokens (of all, where none is hidden) that a descent finds",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope=f"bodies on {SLOTS} tokens of a made-up language of {SIZE}, widths up to 128, Adam",
    )
    controlled: ClassVar[bool] = True

    body: Literal["flat", "expanded", "parallel", "llama"] = "flat"
    width: int = 128
    blocks: int = 1
    trained: int = 0
    first: int = 1
    at: int | None = None
    scored: Literal["hidden", "all"] = "hidden"

    def stand_ins(self) -> tuple[StandIn, ...]:
        """One body a seed."""
        how = f"trained here for {self.trained} steps" if self.trained else "random weights"
        name = f"one {self.body} body a seed, {self.width} wide, {self.blocks} blocks, V = {SIZE}, {how}"
        return (StandIn(name, "The same architecture; narrower, on shorter texts of a smaller vocabulary."),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        return _observe(self, seed)


@lru_cache(maxsize=32)
def _body(kind: str, width: int, blocks: int, trained: int, seed: int) -> Any:
    return body(kind, width, blocks, trained=trained, seed=seed)


@lru_cache(maxsize=64)
def _observe(asked: MixerRecall, seed: int) -> ExperimentOutcome:
    own, hidden, exact = [], [], []
    everything = asked.first == 0 or asked.scored == "all"
    count = enough(SLOTS if everything else asked.first)
    for inner in own_seeds(seed):
        model = _body(asked.body, asked.width, asked.blocks, asked.trained, inner)
        ids = language(inner + 50_000_000, count, SLOTS)
        found = recall(model, first=asked.first, seed=inner, blocks=asked.at, ids=ids)
        own.append(found.own.numpy())
        if found.hidden is not None and found.exact is not None:
            hidden.append(found.hidden.numpy())
            exact.append(found.exact.numpy())
    what = f"{asked.body}, {asked.width} wide, {asked.at or asked.blocks} of {asked.blocks} blocks"
    shown = share_of(f"tokens with visible outputs found ({what})", own, chance=1 / SIZE)
    if not hidden:
        return ExperimentOutcome(effect=shown, models=(what,))
    lost = share_of(f"hidden tokens found ({what})", hidden, chance=1 / SIZE)
    return ExperimentOutcome(
        effect=shown if asked.scored == "all" else lost,
        control=share_of("the last hidden token by search, the others known", exact, chance=1 / SIZE),
        cause="the optimiser failed, the information is there",
        beside=(lost if asked.scored == "all" else shown,),
        models=(what,),
    )
